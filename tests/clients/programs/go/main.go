// An echo program for gRPC-Go, as grpc_client.py and grpc_server.py are for Python.
//
//	echo client TARGET [tls]     reads `call N [KEY=VALUE]` lines, makes N calls of /test.Echo/Who, prints {answer: count};
//	                             `try` instead of `call` does not wait until the channel is ready; with `tls` the
//	                             connection is as secure as xDS says
//	echo server PORT NAME [xds]  answers /test.Echo/Who with NAME; `xds` makes it an xDS-enabled server
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscredentials "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
)

// raw passes bytes through: the test has no messages of its own.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func main() {
	if os.Args[1] == "client" {
		client(os.Args[2], len(os.Args) > 3)
	} else {
		server(os.Args[2], os.Args[3], len(os.Args) > 4)
	}
}

func client(target string, secure bool) {
	var security credentials.TransportCredentials = insecure.NewCredentials()
	if secure {
		made, err := xdscredentials.NewClientCredentials(xdscredentials.ClientOptions{FallbackCreds: security})
		check(err)
		security = made
	}
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(security))
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		times, err := strconv.Atoi(words[1])
		check(err)
		counts := map[string]int{}
		for range times {
			counts[call(connection, words[0] == "call", words[2:])]++
		}
		line, err := json.Marshal(counts)
		check(err)
		fmt.Println(string(line))
	}
}

func call(connection *grpc.ClientConn, wait bool, pairs []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	var request, answer []byte
	options := []grpc.CallOption{grpc.ForceCodec(raw{}), grpc.WaitForReady(wait)}
	err := connection.Invoke(ctx, "/test.Echo/Who", &request, &answer, options...)
	if err != nil {
		return fmt.Sprintf("error: %s: %s", status.Code(err), status.Convert(err).Message())
	}
	return string(answer)
}

type registrar interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
}

func server(port, name string, withXds bool) {
	// As generated code has it: older releases enforce policies by interceptors.
	who := func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		answer := func(context.Context, any) (any, error) {
			answer := []byte(name)
			return &answer, nil
		}
		if intercept == nil {
			return answer(ctx, &request)
		}
		return intercept(ctx, &request, &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Who"}, answer)
	}

	var service registrar = grpc.NewServer(grpc.ForceServerCodec(raw{}))
	if withXds {
		plain := insecure.NewCredentials()
		security, err := xdscredentials.NewServerCredentials(xdscredentials.ServerOptions{FallbackCreds: plain})
		check(err)
		made, err := xds.NewGRPCServer(grpc.ForceServerCodec(raw{}), grpc.Creds(security))
		check(err)
		service = made
	}
	service.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Who", Handler: who}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	check(err)
	fmt.Println("started")
	check(service.Serve(listener))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
