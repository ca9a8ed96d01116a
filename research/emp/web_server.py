"""The papers' web server: a request of 16 bytes names the size of the reply. Workers accept, each for itself.

An ordinary program on the standard library; it does not know about fastsock.
"""

from __future__ import annotations

import argparse
import socket
import threading

REQUEST = 16


def serve(listener: socket.socket) -> None:
    while True:
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (request := sock.recv(REQUEST, socket.MSG_WAITALL)) and len(request) == REQUEST:
                sock.sendall(bytes(int(request)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=3)
    workers = parser.parse_args().workers
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
        for _ in range(workers - 1):
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
        serve(listener)


if __name__ == "__main__":
    main()
