"""usage: crowd.py server PORT PAIRS | client PORT PAIRS      pairs of processes, each in a ping-pong of 64 bytes

Every pair does the same number of round trips in a slice, which is over when the last is done."""

import os
import socket
import subprocess
import sys
from time import perf_counter

role, port, pairs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
MESSAGE = b"x" * 64


def serve() -> None:
    listener = socket.create_server(("127.0.0.1", port))
    listener.accept()[0].close()  # whoever looks whether this server is up
    for _ in range(pairs):
        if os.fork():
            continue
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while data := peer.recv(64):
                peer.sendall(data)
        except (OSError, KeyboardInterrupt):
            pass
        os._exit(0)
    for _ in range(pairs):
        os.wait()


def ping(sock: socket.socket, times: int) -> None:
    for _ in range(times):
        sock.sendall(MESSAGE)
        assert len(sock.recv(64)) == len(MESSAGE)


def drive_one() -> None:
    """One client: says when it is there, then takes numbers of round trips."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ping(sock, 300)
        print(flush=True)
        for line in sys.stdin:
            ping(sock, int(line))
            print(flush=True)


def drive() -> None:
    import clock

    command = [sys.executable, __file__, "one", str(port), "1"]
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    clients = [subprocess.Popen(command, **how) for _ in range(pairs)]  # type: ignore[call-overload]

    def answers() -> None:
        for client in clients:
            assert client.stdout.readline()

    def round_trips(times: int) -> float:
        begin = perf_counter()
        for client in clients:
            client.stdin.write(f"{times}\n")
        answers()
        return perf_counter() - begin

    answers()
    rate = 500 / round_trips(500)  # of one pair
    for seconds in clock.slices():
        times = max(50, int(rate * seconds))
        took = round_trips(times)
        clock.say(operations=times * pairs, seconds=took)
    for client in clients:
        client.stdin.close()
        client.wait()


try:
    {"server": serve, "client": drive, "one": drive_one}[role]()
except KeyboardInterrupt:
    pass
