"""Starts programs one after the other, each with an end of a pair as standard streams, and says what they answer."""

from __future__ import annotations

import json
import os
import socket
import sys


def answer_of_cat() -> str:
    own, given = socket.socketpair()
    if (child := os.fork()) == 0:
        os.dup2(given.fileno(), 0)
        os.dup2(given.fileno(), 1)
        os.execvp("cat", ["cat"])
    given.close()
    own.sendall(b"hello")
    own.shutdown(socket.SHUT_WR)
    said = b""
    while part := own.recv(100):
        said += part
    own.close()
    os.waitpid(child, 0)
    return said.decode()


print(json.dumps([answer_of_cat() for _ in range(int(sys.argv[1]))]))
