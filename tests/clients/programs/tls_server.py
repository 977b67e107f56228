"""An HTTPS server that answers with its name. Arguments: port, certificate file, key file, name; and, for one of a mesh, the file of
the roots of its clients and its ALPN protocols, best first, separated by commas. The answer names the chosen one."""
import http.server
import json
import ssl
import sys

port, certificate, key, name, *mesh = sys.argv[1:]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        alpn = self.connection.selected_alpn_protocol() or ""
        answer = {"name": name, "path": self.path, "host": self.headers.get("host", ""), "alpn": alpn}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
if mesh:
    context.load_verify_locations(mesh[0])
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(mesh[1].split(","))
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
