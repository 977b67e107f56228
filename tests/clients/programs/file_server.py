"""An HTTPS server that answers with a file as it stands. Arguments: port, certificate file, key file, the file."""
import http.server
import pathlib
import ssl
import sys

port, certificate, key, path = sys.argv[1:5]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        file = pathlib.Path(path)
        body = file.read_bytes() if file.exists() else b""
        self.send_response(200 if body else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
