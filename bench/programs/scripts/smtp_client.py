"""usage: smtp_client.py PORT kept|fresh      fresh: a session for each mail"""

import smtplib
import sys

import clock

port, kind = int(sys.argv[1]), sys.argv[2]
MAIL = "From: a@x.org\r\nTo: b@x.org\r\nSubject: hi\r\n\r\n" + "line of text\r\n" * 40


def send(session: smtplib.SMTP) -> None:
    session.sendmail("a@x.org", ["b@x.org"], MAIL)


def fresh() -> None:
    with smtplib.SMTP("127.0.0.1", port) as session:
        send(session)


if kind == "fresh":
    clock.repeat(fresh)
else:
    with smtplib.SMTP("127.0.0.1", port) as kept:
        clock.repeat(lambda: send(kept))
