"""ftplib against every server, KIND=PORT ...: plain and TLS, active and passive, up and down."""

import ftplib
import io
import random
import ssl
import sys

from report import digest, exercise, print_report

LARGE = random.Random(3).randbytes(4_000_000)


def fetch(ftp, name, **rest):
    got = io.BytesIO()
    said = ftp.retrbinary(f"RETR {name}", got.write, **rest)
    return [said, digest(got.getvalue())]


def session(ftp, answers):
    ftp.login("user", "secret")
    if isinstance(ftp, ftplib.FTP_TLS):
        answers.append(ftp.prot_p())
    answers.append(ftp.pwd())
    for passive in (True, False):
        ftp.set_pasv(passive)
        answers.append(ftp.storbinary("STOR large", io.BytesIO(LARGE)))
        answers.append(fetch(ftp, "large"))
        answers.append(fetch(ftp, "large", rest=3_999_000))
        answers.append(ftp.storlines("STOR lines", io.BytesIO(b"one\ntwo\n")))
        lines = []
        answers.append([ftp.retrlines("RETR lines", lines.append), lines])
        answers.append([sorted(ftp.nlst()), ftp.voidcmd("TYPE I"), ftp.size("large")])
        answers.append(ftp.storbinary("STOR empty", io.BytesIO()))
        answers.append(fetch(ftp, "empty"))
    answers.append(ftp.rename("lines", "renamed"))
    try:
        ftp.retrbinary("RETR lines", answers.append)
    except ftplib.error_perm as error:
        answers.append(str(error))
    for name in sorted(ftp.nlst()):
        answers.append(ftp.delete(name))
    answers.append([ftp.voidcmd("NOOP") for _ in range(10)])
    answers.append(ftp.quit())


for word in sys.argv[1:]:
    kind, port = word.split("=")
    with exercise(kind) as answers, ftplib.FTP(timeout=20) as ftp:
        answers.append(ftp.connect("127.0.0.1", int(port)))
        session(ftp, answers)
    context = ssl._create_unverified_context()
    with exercise(f"{kind} TLS") as answers, ftplib.FTP_TLS(timeout=20, context=context) as ftp:
        answers.append(ftp.connect("127.0.0.1", int(port)))
        session(ftp, answers)
print_report()
