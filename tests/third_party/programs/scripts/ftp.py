"""pyftpdlib and ftplib, plain and with TLS, active and passive, up and down: server KIND CERTIFICATE, or PORT."""

import ftplib
import io
import logging
import random
import signal
import ssl
import sys

from report import digest, exercise, print_report

LARGE = random.Random(3).randbytes(4_000_000)


def serve(kind, certificate):
    from pyftpdlib import servers
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import TLS_FTPHandler

    logging.basicConfig(level=logging.WARNING)
    TLS_FTPHandler.authorizer = DummyAuthorizer()
    TLS_FTPHandler.authorizer.add_user("user", "secret", ".", perm="elradfmwMT")
    TLS_FTPHandler.certfile = certificate
    server = getattr(servers, kind)(("127.0.0.1", 0), TLS_FTPHandler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("port", server.socket.getsockname()[1], flush=True)
    server.serve_forever(handle_exit=False)


def session(ftp, answers):
    def fetch(name, **rest):
        got = io.BytesIO()
        answers.append([ftp.retrbinary(f"RETR {name}", got.write, **rest), digest(got.getvalue())])

    answers.append(ftp.connect("127.0.0.1", int(sys.argv[1])))
    ftp.login("user", "secret")
    if isinstance(ftp, ftplib.FTP_TLS):
        answers.append(ftp.prot_p())
    for passive in (True, False):
        ftp.set_pasv(passive)
        answers.append(ftp.storbinary("STOR large", io.BytesIO(LARGE)))
        fetch("large")
        fetch("large", rest=3_999_000)
        answers.append(ftp.storbinary("STOR empty", io.BytesIO()))
        fetch("empty")
        answers.append([sorted(ftp.nlst()), ftp.voidcmd("TYPE I"), ftp.size("large")])
    try:
        fetch("missing")
    except ftplib.error_perm as error:
        answers.append(str(error))
    answers.append([ftp.voidcmd("NOOP") for _ in range(30)])
    answers.append([ftp.delete(name) for name in ("large", "empty")])
    answers.append(ftp.quit())


if sys.argv[1] == "server":
    serve(*sys.argv[2:])
else:
    with exercise("FTP") as answers, ftplib.FTP(timeout=20) as ftp:
        session(ftp, answers)
    context = ssl._create_unverified_context()
    with exercise("TLS") as answers, ftplib.FTP_TLS(timeout=20, context=context) as ftp:
        session(ftp, answers)
    print_report()
