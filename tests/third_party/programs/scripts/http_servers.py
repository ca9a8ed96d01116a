"""An HTTP server of the kind that is named, on a port of its own choice or on that one; SIGTERM ends it."""

import asyncio
import http.server
import signal
import sys

import pages
from pages import page, pieces, wsgi


def announced(port):
    print("port", port, flush=True)


def cheroot():
    from cheroot.wsgi import Server

    server = Server(("127.0.0.1", 0), wsgi)
    server.prepare()
    announced(server.bind_addr[1])
    try:
        server.serve()
    finally:
        server.stop()  # it has threads that keep the process alive


def waitress():
    from waitress import create_server

    server = create_server(wsgi, host="127.0.0.1", port=0)
    announced(server.effective_port)
    server.run()


def werkzeug():
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, wsgi, threaded=True)
    announced(server.port)
    server.serve_forever()


def reloading():
    """werkzeug with its reloader; pages have the VERSION that a module `version` has."""
    from version import VERSION
    from werkzeug.serving import run_simple

    pages.VERSION = VERSION
    run_simple("127.0.0.1", 0, wsgi, use_reloader=True, reloader_interval=0.1, reloader_type="stat")


def wsgiref():
    from wsgiref.simple_server import make_server

    server = make_server("127.0.0.1", 0, wsgi)
    announced(server.server_port)
    server.serve_forever()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, answer = page(self.command, self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.send_response(int(status[:3]))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_HEAD = do_POST = do_GET


def stdlib():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    announced(server.server_port)
    server.serve_forever()


def aiohttp(loop, port=0):
    from aiohttp import web

    async def handle(request):
        if request.path == "/talk":
            answer = web.WebSocketResponse(max_msg_size=0)
            await answer.prepare(request)
            async for message in answer:
                text = message.type == web.WSMsgType.TEXT
                await (answer.send_str if text else answer.send_bytes)(message.data)
        elif streamed := pieces(request.path):
            answer = web.StreamResponse()
            await answer.prepare(request)
            for piece in streamed:
                await answer.write(piece)
            await answer.write_eof()
        else:
            status, body = page(request.method, request.path, await request.read())
            answer = web.Response(status=int(status[:3]), body=body)
        return answer

    async def serve():
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_port=bool(port)).start()
        announced(runner.addresses[0][1])
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    run(loop, serve)


def run(loop, serve):
    if loop == "uvloop":
        import uvloop

        uvloop.run(serve())
    else:
        asyncio.run(serve())


def tornado():
    import tornado.web
    import tornado.websocket

    class Handle(tornado.web.RequestHandler):
        async def get(self):
            if streamed := pieces(self.request.path):
                for piece in streamed:
                    self.write(piece)
                    await self.flush()
            else:
                status, body = page(self.request.method, self.request.path, self.request.body)
                self.set_status(int(status[:3]))
                self.finish(body)

        head = post = get

    class Talk(tornado.websocket.WebSocketHandler):
        async def on_message(self, message):
            await self.write_message(message, binary=isinstance(message, bytes))

    async def serve():
        app = tornado.web.Application([("/talk", Talk), ("/.*", Handle)], websocket_max_message_size=1 << 26)
        [listener] = app.listen(0, "127.0.0.1")._sockets.values()
        announced(listener.getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    {**globals(), "http.server": stdlib}[kind](*words)
