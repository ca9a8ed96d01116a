"""Asks the web server for replies of SIZE bytes for SECONDS, with so many requests on each connection (0: all on one).

Says "ready", begins when a line comes in, and prints the seconds that one request took. An ordinary program.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time

WARM = 30  # requests before anything is timed, at least


def connection(port: int, request: bytes, size: int, requests: int, until: float | None) -> int:
    """Requests made on one connection: so many, or as many as begin in time, and one in any case."""
    count = 0
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            sock.sendall(request)
            got = 0
            while got < size:
                data = sock.recv(size - got)
                if not data:
                    raise ConnectionError("the reply is too short")
                got += len(data)
            count += 1
            if count == requests or (count >= WARM if until is None else not requests and time.perf_counter() >= until):
                break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, kind in (("port", int), ("size", int), ("requests", int), ("seconds", float)):
        parser.add_argument(name, type=kind)
    options = parser.parse_args()
    request = f"{options.size:016d}".encode()
    warm = 0
    while warm < WARM:
        warm += connection(options.port, request, options.size, options.requests, None)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    until = start + options.seconds
    count = connection(options.port, request, options.size, options.requests, until)
    while time.perf_counter() < until:
        count += connection(options.port, request, options.size, options.requests, until)
    elapsed = time.perf_counter() - start
    print(json.dumps({"seconds": elapsed / count, "count": count}))


if __name__ == "__main__":
    main()
