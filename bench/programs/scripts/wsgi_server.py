"""usage: wsgi_server.py waitress|cheroot|werkzeug|http.server|http.server-nagle PORT"""

import logging
import sys

from wsgi_app import BODY, app

kind, port = sys.argv[1], int(sys.argv[2])
try:
    if kind == "waitress":
        import waitress

        waitress.serve(app, host="127.0.0.1", port=port, threads=4)
    elif kind == "cheroot":
        from cheroot.wsgi import Server

        server = Server(("127.0.0.1", port), app)
        try:
            server.start()
        finally:
            server.stop()
    elif kind == "werkzeug":
        from werkzeug.serving import WSGIRequestHandler, run_simple

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        WSGIRequestHandler.protocol_version = "HTTP/1.1"
        run_simple("127.0.0.1", port, app, threaded=True)
    else:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body are two sends. With Nagle's algorithm, the standard library's default, the second waits
            # for the delayed acknowledgement of the first.
            disable_nagle_algorithm = kind != "http.server-nagle"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                self.wfile.write(BODY)

            def log_message(self, *_words: object) -> None:
                pass

        ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
except KeyboardInterrupt:
    pass
