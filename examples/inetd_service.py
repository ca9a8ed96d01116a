"""A service for a super-server: the connection is descriptor 0. Answers each line with the same in capitals.

An ordinary program; it does not know about fastsock.
"""

import socket


def main() -> None:
    with socket.socket(fileno=0) as sock:
        pending = b""
        while data := sock.recv(4096):
            *lines, pending = (pending + data).split(b"\n")
            if lines:
                sock.sendall(b"".join(line.upper() + b"\n" for line in lines))


if __name__ == "__main__":
    main()
