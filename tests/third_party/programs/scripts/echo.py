"""An echo server, or clients of one, on other people's loops and streams: server LIBRARY, or PORT LIBRARY..."""

import random
import signal
import sys
from functools import partial

import anyio
import trio
from report import digest, exercise, print_report

LARGE = random.Random(5).randbytes(2_000_000)


def announced(port):
    print("port", port, flush=True)


async def echo(receive, send):
    try:
        while data := await receive():
            await send(data)
    except anyio.EndOfStream:
        pass


async def serve_trio():
    async def serve(stream):
        async with stream:
            await echo(stream.receive_some, stream.send_all)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        announced(listener.socket.getsockname()[1])


async def serve_anyio():
    async def serve(stream):
        async with stream:
            await echo(stream.receive, stream.send)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    announced(listener.extra(anyio.abc.SocketAttribute.local_port))
    await listener.serve(serve)


async def serve_tornado():
    from tornado.iostream import StreamClosedError
    from tornado.tcpserver import TCPServer

    class Server(TCPServer):
        async def handle_stream(self, stream, address):
            try:
                await echo(lambda: stream.read_bytes(65536, partial=True), stream.write)
            except StreamClosedError:
                stream.close()

    server = Server()
    server.listen(0, "127.0.0.1")
    announced(next(iter(server._sockets.values())).getsockname()[1])
    await anyio.sleep_forever()


async def until_told(serve):
    async with anyio.create_task_group() as group:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            group.start_soon(serve)
            await anext(signals)
            group.cancel_scope.cancel()


async def converse(send, receive, end, answers):
    """Small messages in turn, a large one while its beginning comes back, and the end of the stream."""

    async def heard(size):
        got = b""
        while len(got) < size:
            data = await receive()
            assert data, "the stream ended early"
            got += data
        return digest(got)

    for number in range(300):
        sent = bytes([number % 256]) * (1 + number % 150)
        await send(sent)
        answers.append(await heard(len(sent)))
    async with anyio.create_task_group() as group:
        group.start_soon(send, LARGE)
        answers.append(await heard(len(LARGE)))
    with anyio.move_on_after(0) as scope:
        await receive()
    answers.append(scope.cancelled_caught)
    if end:
        await end()
        try:
            answers.append(digest(await receive()))
        except anyio.EndOfStream:
            answers.append(digest(b""))


async def use_trio(port, answers):
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await converse(stream.send_all, stream.receive_some, stream.send_eof, answers)


async def use_anyio(port, answers):
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await converse(stream.send, stream.receive, stream.send_eof, answers)


async def use_tornado(port, answers):
    from tornado.tcpclient import TCPClient

    stream = await TCPClient().connect("127.0.0.1", port)

    async def send(data):
        await stream.write(data)

    await converse(send, lambda: stream.read_bytes(65536, partial=True), None, answers)
    stream.close()


async def clients(port, libraries):
    for library in libraries:
        with exercise(library) as answers:
            answers += [[] for _ in range(4)]
            async with anyio.create_task_group() as group:
                for each in answers:
                    group.start_soon(globals()[f"use_{library}"], port, each)


what, loop, *libraries = sys.argv[1:]
trios = {"backend": "trio"}
options = trios if loop == "trio" else {"backend_options": {"use_uvloop": loop == "uvloop"}}
if what == "server":
    anyio.run(until_told, globals()[f"serve_{libraries[0]}"], **options)
else:
    anyio.run(clients, int(what), libraries, **options)
    print_report()
