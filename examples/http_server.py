"""Serves a directory over HTTP/1.1 with keep-alive; GET /SHA256SUMS lists its files and their digests.

An ordinary program on the standard library; it does not know about fastsock.
"""

import argparse
import functools
import hashlib
import itertools
import json
import signal
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

requests = itertools.count()


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two sends; Nagle would hold the second back

    def do_GET(self) -> None:
        if self.path == "/SHA256SUMS":
            self.send_digests()
        else:
            super().do_GET()

    def send_digests(self) -> None:
        directory = Path(self.directory)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        lines = [f"{digest(path)}  {path.relative_to(directory).as_posix()}\n" for path in files]
        body = "".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        next(requests)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, lets the kernel choose")
    parser.add_argument("--directory", default=".", help="what to serve (default: the current directory)")
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer(
        ("127.0.0.1", options.port), functools.partial(Handler, directory=options.directory)
    ) as server:
        print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        finally:
            print(json.dumps({"requests": next(requests)}))


if __name__ == "__main__":
    main()
