// The part of a cluster that istioctl asks on its way to a control plane: the control plane's pod, port forwarding to it, and
// tokens of service accounts. Arguments: the token, then PORT=ADDRESS for each port of the pod. It prints its own address.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
)

const pods = "/api/v1/namespaces/istio-system/pods"
const proxies = "/api/v1/namespaces/shop/pods"

type object = map[string]any

func pod(name, namespace, app, container string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": namespace, "labels": object{"app": app, "istio.io/rev": "default"}},
		"spec":     object{"containers": []object{{"name": container, "image": container}}},
		"status":   object{"phase": "Running"},
	}
}

func istiod() object { return pod("istiod-1", "istio-system", "istiod", "discovery") }

func answer(w http.ResponseWriter, code int, value object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// webhooks is a list of none, and a watch that never has an event; the way of streaming lists is refused, so that a list is asked for.
func webhooks(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "":
		answer(w, 422, object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422})
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		answer(w, 200, object{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfigurationList",
			"metadata": object{"resourceVersion": "1"}, "items": []object{}})
	}
}

// forward serves the streams of one port forwarding: an error stream and a data stream for each connection.
func forward(w http.ResponseWriter, r *http.Request, ports map[string]string) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 64)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	errors := map[string]httpstream.Stream{}
	for {
		select {
		case <-connection.CloseChan():
			return
		case stream := <-streams:
			id := stream.Headers().Get("requestID")
			if stream.Headers().Get("streamType") == "error" {
				errors[id] = stream
				continue
			}
			go carry(stream, errors[id], ports[stream.Headers().Get("port")])
		}
	}
}

func carry(data, failed httpstream.Stream, address string) {
	defer data.Close()
	if failed != nil {
		defer failed.Close()
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		if failed != nil {
			_, _ = fmt.Fprint(failed, err)
		}
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, data) }()
	_, _ = io.Copy(data, server)
}

func main() {
	token, ports := os.Args[1], map[string]string{}
	for _, pair := range os.Args[2:] {
		port, address, _ := strings.Cut(pair, "=")
		ports[port] = address
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/pods":
			answer(w, 200, object{"apiVersion": "v1", "kind": "PodList", "metadata": object{}, "items": []object{}})
		case strings.HasSuffix(r.URL.Path, "/mutatingwebhookconfigurations"):
			webhooks(w, r)
		case r.URL.Path == pods:
			answer(w, 200, object{"apiVersion": "v1", "kind": "PodList", "metadata": object{}, "items": []object{istiod()}})
		case r.URL.Path == pods+"/istiod-1":
			answer(w, 200, istiod())
		case r.URL.Path == proxies+"/client":
			answer(w, 200, pod("client", "shop", "client", "istio-proxy"))
		case r.URL.Path == pods+"/istiod-1/portforward", r.URL.Path == proxies+"/client/portforward":
			forward(w, r, ports)
		case strings.HasSuffix(r.URL.Path, "/serviceaccounts/default/token"):
			expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			answer(w, 201, object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
				"status": object{"token": token, "expirationTimestamp": expires}})
		default:
			answer(w, 404, object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
				"message": r.URL.Path + " not found"})
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
