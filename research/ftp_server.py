"""A blocking FTP server with a thread for each session, as the servers of the papers had a process for each.

An ordinary program on the standard library; it does not know about fastsock. Files go through a buffer of 64 KiB, read
and sent, received and written. Only what `ftplib` needs for binary transfers in passive mode.
"""

from __future__ import annotations

import argparse
import socket
import socketserver
from pathlib import Path

BUFFER = 64 << 10


class Session(socketserver.StreamRequestHandler):
    directory: Path

    def handle(self) -> None:
        self.passive = socket.create_server((self.server.server_address[0], 0))
        self.say("220 ready")
        while line := self.rfile.readline().decode().strip():
            word, _, argument = line.partition(" ")
            answer = getattr(self, f"do_{word.lower()}", None)
            if answer is None:
                self.say("502 not here")
                continue
            answer(argument)
            if word.upper() == "QUIT":
                break
        self.passive.close()

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def do_user(self, name: str) -> None:
        self.say("331 a password, please")

    def do_pass(self, word: str) -> None:
        self.say("230 logged in")

    def do_type(self, kind: str) -> None:
        self.say("200 binary")

    def do_pasv(self, _: str) -> None:
        host, port = self.passive.getsockname()
        self.say(f"227 ({host.replace('.', ',')},{port >> 8},{port & 255})")

    def do_quit(self, _: str) -> None:
        self.say("221 goodbye")

    def do_retr(self, name: str) -> None:
        buffer = memoryview(bytearray(BUFFER))
        with (self.directory / Path(name).name).open("rb", buffering=0) as file:
            self.say("150 sending")
            with self.passive.accept()[0] as data:
                while got := file.readinto(buffer):
                    data.sendall(buffer[:got])
        self.say("226 sent")

    def do_stor(self, name: str) -> None:
        buffer = memoryview(bytearray(BUFFER))
        with (self.directory / Path(name).name).open("wb", buffering=0) as file:
            self.say("150 receiving")
            with self.passive.accept()[0] as data:
                while got := data.recv_into(buffer):
                    file.write(buffer[:got])
        self.say("226 received")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    Session.directory = parser.parse_args().directory
    with Server(("127.0.0.1", 0), Session) as server:
        print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
