"""One HTTP request over the mesh's TLS, in version 1.2, where a refusal ends the handshake, or in the one of TLS_VERSION; ALPN names
other protocols than the mesh's, separated by commas.

Arguments: port, file of the roots, and the files of the client's certificate and key, if it has one. Servers have no names here:
their certificate must be below a root. Prints the body; exit 1 and the reason on standard error when TLS or HTTP fails.
"""
import os
import re
import socket
import ssl
import sys

port, roots, *own = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.load_verify_locations(roots)
version = ssl.TLSVersion["TLSv" + os.environ.get("TLS_VERSION", "1.2").replace(".", "_")]
context.minimum_version = context.maximum_version = version
context.set_alpn_protocols(os.environ.get("ALPN", "istio").split(","))
if own:
    context.load_cert_chain(*own)
with socket.create_connection(("127.0.0.1", int(port)), timeout=20) as raw:
    with context.wrap_socket(raw) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nhost: web.example\r\nconnection: close\r\n\r\n")
        answer = b""
        # A server of TCP leaves the connection open.
        while chunk := stream.recv(65536):
            answer += chunk
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length and len(body) >= int(length[1]):
                break
status = head.split(b" ")[1].decode()
print(body.decode())
sys.exit(0 if status == "200" else f"status {status}")
