import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerBuilder;
import io.grpc.ServerServiceDefinition;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCalls;
import io.grpc.xds.XdsChannelCredentials;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * An echo program for gRPC-Java, as grpc_client.py and grpc_server.py are for Python.
 *
 * <pre>
 * Echo client TARGET [tls]     reads `call N [KEY=VALUE]` lines, makes N calls of /test.Echo/Who, prints {answer: count};
 *                              `try` instead of `call` does not wait until the channel is ready, nor does `burst`, which
 *                              makes all calls at once; with `tls` the connection is as secure as xDS says
 * Echo server PORT NAME [xds]  answers /test.Echo/Who with NAME; `xds` makes it an xDS-enabled server
 * </pre>
 */
public final class Echo {
  private static final MethodDescriptor.Marshaller<byte[]> RAW =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] value) {
          return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        }
      };

  private static final MethodDescriptor<byte[], byte[]> WHO =
      MethodDescriptor.newBuilder(RAW, RAW)
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("test.Echo/Who")
          .build();

  public static void main(String[] args) throws Exception {
    if (args[0].equals("client")) {
      client(args[1], args.length > 2);
    } else {
      server(Integer.parseInt(args[1]), args[2], args.length > 3);
    }
  }

  private static void client(String target, boolean secure) throws IOException {
    ChannelCredentials plain = InsecureChannelCredentials.create();
    ManagedChannel channel = Grpc.newChannelBuilder(target, secure ? XdsChannelCredentials.create(plain) : plain).build();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.trim().split("\\s+");
      Metadata metadata = new Metadata();
      for (int i = 2; i < words.length; i++) {
        String[] pair = words[i].split("=", 2);
        metadata.put(Metadata.Key.of(pair[0], Metadata.ASCII_STRING_MARSHALLER), pair[1]);
      }
      Map<String, Integer> counts = new TreeMap<>();
      int times = Integer.parseInt(words[1]);
      if (words[0].equals("burst")) {
        burst(channel, times).forEach(answer -> counts.merge(answer, 1, Integer::sum));
      } else {
        for (int i = 0; i < times; i++) {
          counts.merge(call(channel, words[0].equals("call"), metadata), 1, Integer::sum);
        }
      }
      System.out.println(
          counts.entrySet().stream()
              .map(e -> quoted(e.getKey()) + ": " + e.getValue())
              .collect(Collectors.joining(", ", "{", "}")));
    }
    System.exit(0);
  }

  private static String quoted(String text) {
    String escaped = text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", "\\t");
    return '"' + escaped + '"';
  }

  private static String call(ManagedChannel channel, boolean wait, Metadata metadata) {
    try {
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(20, TimeUnit.SECONDS);
      options = wait ? options.withWaitForReady() : options.withoutWaitForReady();
      var intercepted = ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(metadata));
      return new String(ClientCalls.blockingUnaryCall(intercepted, WHO, options, new byte[0]), StandardCharsets.UTF_8);
    } catch (StatusRuntimeException e) {
      return error(e);
    }
  }

  private static String error(StatusRuntimeException e) {
    return "error: " + e.getStatus().getCode() + ": " + e.getStatus().getDescription();
  }

  private static List<String> burst(ManagedChannel channel, int times) {
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(20, TimeUnit.SECONDS);
    List<Future<byte[]>> calls = new ArrayList<>();
    for (int i = 0; i < times; i++) {
      calls.add(ClientCalls.futureUnaryCall(channel.newCall(WHO, options), new byte[0]));
    }
    List<String> answers = new ArrayList<>();
    for (Future<byte[]> call : calls) {
      try {
        answers.add(new String(call.get(), StandardCharsets.UTF_8));
      } catch (ExecutionException e) {
        answers.add(e.getCause() instanceof StatusRuntimeException status ? error(status) : "error: " + e.getCause());
      } catch (InterruptedException e) {
        answers.add("error: " + e);
      }
    }
    return answers;
  }

  private static void server(int port, String name, boolean withXds) throws Exception {
    ServerServiceDefinition service =
        ServerServiceDefinition.builder("test.Echo")
            .addMethod(
                WHO,
                ServerCalls.asyncUnaryCall(
                    (request, observer) -> {
                      observer.onNext(name.getBytes(StandardCharsets.UTF_8));
                      observer.onCompleted();
                    }))
            .build();
    var insecure = InsecureServerCredentials.create();
    ServerBuilder<?> builder =
        withXds
            ? XdsServerBuilder.forPort(port, XdsServerCredentials.create(insecure))
            : Grpc.newServerBuilderForPort(port, insecure);
    var server = builder.addService(service).build().start();
    System.out.println("started");
    server.awaitTermination();
  }
}
