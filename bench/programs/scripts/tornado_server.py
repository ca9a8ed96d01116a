"""usage: tornado_server.py PORT http|echo"""

import asyncio
import sys
from typing import Any

import tornado.iostream
import tornado.tcpserver
import tornado.web

port, kind = int(sys.argv[1]), sys.argv[2]


class Page(tornado.web.RequestHandler):
    def get(self) -> None:
        self.write({"id": 7, "name": "thing"})


class Echo(tornado.tcpserver.TCPServer):
    async def handle_stream(self, stream: tornado.iostream.IOStream, _address: Any) -> None:
        try:
            while True:
                await stream.write(await stream.read_bytes(64))
        except tornado.iostream.StreamClosedError:
            pass


async def main() -> None:
    if kind == "echo":
        Echo().listen(port, "127.0.0.1")
    else:
        tornado.web.Application([("/", Page)], log_function=lambda _: None).listen(port, "127.0.0.1")
    await asyncio.Event().wait()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
