"""usage: selectors_echo.py server PORT | client PORT CONNECTIONS      64 bytes there and back, by selectors"""

import selectors
import socket
import sys

role, port = sys.argv[1], int(sys.argv[2])
selector = selectors.DefaultSelector()
MESSAGE = b"x" * 64


def watch(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    selector.register(sock, selectors.EVENT_READ, sock)


def serve() -> None:
    listener = socket.create_server(("127.0.0.1", port))
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                watch(listener.accept()[0])
                continue
            try:
                data = key.data.recv(65536)
            except ConnectionError:
                data = b""
            if data:
                key.data.send(data)
            else:
                selector.unregister(key.data)
                key.data.close()


def drive(connections: int) -> None:
    import clock

    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        watch(sock)
        sock.send(MESSAGE)

    def round_trips() -> None:
        waited = 0
        while waited < connections:
            for key, _ in selector.select():
                assert len(key.data.recv(65536)) == len(MESSAGE)
                key.data.send(MESSAGE)
                waited += 1

    clock.repeat(round_trips, connections)


try:
    serve() if role == "server" else drive(int(sys.argv[3]))
except KeyboardInterrupt:
    pass
