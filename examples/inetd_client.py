"""Sends so many lines to the service behind `super_server.py`, one after the other, and checks the answers.

An ordinary program; it does not know about fastsock.
"""

import argparse
import json
import socket
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("--lines", type=int, default=1000)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    wrong = 0
    with socket.create_connection((host, int(port))) as sock:
        start = time.perf_counter()
        for number in range(options.lines):
            sock.sendall(f"line {number}\n".encode())
            answer = b""
            while not answer.endswith(b"\n"):
                answer += sock.recv(4096)
            wrong += answer != f"LINE {number}\n".encode()
        seconds = time.perf_counter() - start
    print(json.dumps({"lines": options.lines, "wrong": wrong, "seconds": round(seconds, 6)}))


if __name__ == "__main__":
    main()
