"""The same on tornado, which has its own IOStream on non-blocking sockets."""

import asyncio
import os

import tornado.web
import tornado.websocket
from asgi_app import VERSION, statistics


class About(tornado.web.RequestHandler):
    def get(self) -> None:
        self.write({"pid": os.getpid(), "version": VERSION, "statistics": statistics()})


class Echo(tornado.web.RequestHandler):
    def post(self) -> None:
        self.write(self.request.body)


class Stream(tornado.web.RequestHandler):
    async def get(self, count: str) -> None:
        for number in range(int(count)):
            self.write(b"%08d" % number * 125)
            await self.flush()


class Talk(tornado.websocket.WebSocketHandler):
    async def on_message(self, message: "str | bytes") -> None:
        await self.write_message(message, binary=isinstance(message, bytes))


async def main() -> None:
    app = tornado.web.Application(
        [(r"/about", About), (r"/echo", Echo), (r"/stream/(\d+)", Stream), (r"/talk", Talk)],
        websocket_max_message_size=1 << 26,
    )
    server = app.listen(0, "127.0.0.1")
    [socket] = server._sockets.values()
    print(f"http://127.0.0.1:{socket.getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
