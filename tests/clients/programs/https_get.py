"""One HTTPS request to 127.0.0.1. Arguments: port, host name, CA file. Prints the body; exit 1 when TLS or HTTP fails."""
import socket
import ssl
import sys

port, host, roots = sys.argv[1:4]
context = ssl.create_default_context(cafile=roots)
with socket.create_connection(("127.0.0.1", int(port)), timeout=10) as raw:
    with context.wrap_socket(raw, server_hostname=host) as stream:
        stream.sendall(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := stream.recv(65536):
            answer += chunk
head, _, body = answer.partition(b"\r\n\r\n")
status = head.split(b" ")[1]
print(body.decode())
sys.exit(0 if status == b"200" else 1)
