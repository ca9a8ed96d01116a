"""usage: feed.py server PORT BYTES | client PORT BYTES      records of so many bytes one after the other, as a log
shipper or an export sends them; every so often the server says that it has them all"""

import socket
import sys
import threading

role, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BETWEEN_ANSWERS = 256


def take(connection: socket.socket) -> None:
    buffer, block, held = bytearray(1 << 16), size * BETWEEN_ANSWERS, 0
    with connection:
        while got := connection.recv_into(buffer):
            held += got
            if held == block:
                connection.sendall(b"!")
                held = 0


def serve() -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=take, args=(connection,), daemon=True).start()


def drive() -> None:
    import clock

    record = b"x" * size
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the last record waits for no other

        def block() -> None:
            for _ in range(BETWEEN_ANSWERS):
                connection.sendall(record)
            assert connection.recv(1) == b"!"

        clock.repeat(block, BETWEEN_ANSWERS)


try:
    serve() if role == "server" else drive()
except KeyboardInterrupt:
    pass
