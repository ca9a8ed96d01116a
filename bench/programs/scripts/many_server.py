"""usage: many_server.py PORT asyncio|uvloop|threads      echo on a loop, or with a thread for each connection"""

import asyncio
import resource
import socketserver
import sys

import clock

port, kind = int(sys.argv[1]), sys.argv[2]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 1024


try:
    if kind == "threads":
        with Server(("127.0.0.1", port), Handler) as server:
            server.serve_forever()
    else:
        clock.run(main(), kind)
except KeyboardInterrupt:
    pass
