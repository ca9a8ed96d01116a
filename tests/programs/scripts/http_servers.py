"""An HTTP server of the kind that is named, on a port of its own choice; SIGTERM ends it."""

import http.server
import signal
import sys

from pages import app, page


def cheroot():
    from cheroot.wsgi import Server

    server = Server(("127.0.0.1", 0), app)
    server.prepare()

    def serve():
        try:
            server.serve()
        finally:
            server.stop()  # it has threads that keep the process alive

    return server.bind_addr[1], serve


def waitress():
    from waitress import create_server

    server = create_server(app, host="127.0.0.1", port=0)
    return server.effective_port, server.run


def werkzeug():
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app, threaded=True)
    return server.port, server.serve_forever


def wsgiref():
    from wsgiref.simple_server import make_server

    server = make_server("127.0.0.1", 0, app)
    return server.server_port, server.serve_forever


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, answer = page(self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.send_response(int(status[:3]))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_HEAD = do_POST = do_GET


def stdlib():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    return server.server_port, server.serve_forever


if __name__ == "__main__":
    port, serve = {**globals(), "http.server": stdlib}[sys.argv[1]]()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("port", port)
    serve()
