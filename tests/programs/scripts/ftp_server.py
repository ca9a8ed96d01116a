"""pyftpdlib on a port of its own choice: KIND (plain, threaded, forking), DIRECTORY, CERTIFICATE; SIGTERM ends it."""

import logging
import signal
import sys

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import TLS_FTPHandler
from pyftpdlib.servers import FTPServer, MultiprocessFTPServer, ThreadedFTPServer

kind, directory, certificate = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)
authorizer = DummyAuthorizer()
authorizer.add_user("user", "secret", directory, perm="elradfmwMT")


class Handler(TLS_FTPHandler):
    certfile = certificate

    tls_control_required = tls_data_required = False


Handler.authorizer = authorizer
servers = {"plain": FTPServer, "threaded": ThreadedFTPServer, "forking": MultiprocessFTPServer}
server = servers[kind](("127.0.0.1", 0), Handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("port", server.socket.getsockname()[1])
server.serve_forever(handle_exit=False)
