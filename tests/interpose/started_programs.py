"""Starts programs one after the other, each with an end of a pair as its standard streams, and then children that go on
themselves. Says how many paths were on the ring behind each of them."""

from __future__ import annotations

import json
import os
import socket
import sys

import fastsock


def moved() -> int:
    return fastsock.stats().connections_ring


def starts_a_program() -> int:
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
    assert said == b"hello"
    own.close()
    os.waitpid(child, 0)
    return moved()


def has_a_child() -> int:
    own, given = socket.socketpair()
    if (child := os.fork()) == 0:
        own.close()
        while part := given.recv(100):
            given.sendall(part)
        os._exit(0)
    given.close()
    for _ in range(20):
        own.sendall(b"hello")
        assert own.recv(100) == b"hello"
    own.close()
    os.waitpid(child, 0)
    return moved()


asked = (argument.split(":") for argument in sys.argv[1:])
print(json.dumps([[globals()[name]() for _ in range(int(times))] for name, times in asked]))
