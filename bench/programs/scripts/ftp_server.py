"""usage: ftp_server.py PORT DIRECTORY MIB      serves DIRECTORY with "big", so many MiB, and 50 files of 1 KiB"""

import logging
import os
import sys
from pathlib import Path

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

port, directory, mebibytes = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
logging.disable(logging.INFO)
directory.mkdir(parents=True, exist_ok=True)
(directory / "big").write_bytes(os.urandom(1 << 20) * mebibytes)
for number in range(50):
    (directory / f"small{number}").write_bytes(b"x" * 1024)
authorizer = DummyAuthorizer()
authorizer.add_user("u", "p", str(directory), perm="elradfmw")


class Handler(FTPHandler):  # type: ignore[misc]
    pass


Handler.authorizer = authorizer
try:
    FTPServer(("127.0.0.1", port), Handler).serve_forever()
except KeyboardInterrupt:
    pass
