"""usage: zmq_echo.py server|client PATH      requests of 64 B and their replies, ipc"""

import sys

import clock
import zmq

role, address = sys.argv[1], f"ipc://{sys.argv[2]}"
sock = zmq.Context().socket(zmq.REP if role == "server" else zmq.REQ)

if role == "server":
    sock.bind(address)
    while True:
        sock.send(sock.recv())
else:
    sock.connect(address)

    def one() -> None:
        sock.send(b"x" * 64)
        assert len(sock.recv()) == 64

    clock.repeat(one)
