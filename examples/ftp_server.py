"""Serves a directory over FTP, for reading and writing, with pyftpdlib.

An ordinary program; it does not know about fastsock.
"""

import argparse
import json
import logging
import signal
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer


class Handler(FTPHandler):
    sent = 0
    received = 0

    def on_file_sent(self, file: str) -> None:
        Handler.sent += 1

    def on_file_received(self, file: str) -> None:
        Handler.received += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, lets the kernel choose")
    parser.add_argument("--directory", default=".", help="what to serve (default: the current directory)")
    parser.add_argument("--user", default="demo")
    parser.add_argument("--password", default="demo")
    options = parser.parse_args()

    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Handler.authorizer = DummyAuthorizer()
    Handler.authorizer.add_user(options.user, options.password, options.directory, perm="elradfmwMT")
    server = FTPServer(("127.0.0.1", options.port), Handler)
    print(f"listening on 127.0.0.1:{server.address[1]}", flush=True)
    server.serve_forever()  # returns when SIGTERM or Ctrl-C raises
    print(json.dumps({"files_sent": Handler.sent, "files_received": Handler.received}))


if __name__ == "__main__":
    main()
