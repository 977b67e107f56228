"""A gRPC server whose /test.Echo/Who answers with its name. Arguments: port (on 127.0.0.1) or HOST:PORT, name, and `xds` for an
xDS-enabled server."""
import sys
import time
from concurrent import futures

import grpc

port, name = sys.argv[1:3]
address = port if ":" in port else f"127.0.0.1:{port}"
with_xds = sys.argv[3:] == ["xds"]


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/test.Echo/Who":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
        return None


if with_xds:
    server = grpc.server(futures.ThreadPoolExecutor(8), xds=True)
    server.add_generic_rpc_handlers((Echo(),))
    credentials = grpc.xds_server_credentials(grpc.insecure_server_credentials())
    server.add_secure_port(address, credentials)
else:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(address)
server.start()
print("started", flush=True)
while True:
    time.sleep(3600)
