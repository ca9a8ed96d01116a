"""Echo servers of several libraries in one process, each on a port of its own; prints the ports as JSON, after a URL.
Argument: the loop (asyncio, uvloop), or trio for trio's own server."""

import asyncio
import json
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial

CHUNK = 65536


async def with_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
    await writer.drain()
    writer.close()
    await writer.wait_closed()


class Buffered(asyncio.BufferedProtocol):
    """The loop reads into this protocol's own buffer."""

    def __init__(self) -> None:
        self.buffer = bytearray(CHUNK)

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def get_buffer(self, hint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.transport.write(self.buffer[:count])

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


async def with_sockets(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    tasks = set()
    while True:
        sock, _ = await loop.sock_accept(listener)
        task = loop.create_task(serve_socket(sock))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def serve_socket(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with sock:
        while data := await loop.sock_recv(sock, CHUNK):
            await loop.sock_sendall(sock, data)


async def with_anyio(stream) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def tornados_port() -> int:
    from tornado.iostream import IOStream, StreamClosedError
    from tornado.tcpserver import TCPServer

    class Server(TCPServer):
        async def handle_stream(self, stream: IOStream, address) -> None:
            try:
                while True:
                    await stream.write(await stream.read_bytes(CHUNK, partial=True))
            except StreamClosedError:
                stream.close()

    listener = listening()
    Server.server = Server()
    Server.server.add_socket(listener)
    return listener.getsockname()[1]


def announce(ports: dict[str, int]) -> None:
    print(f"http://127.0.0.1:{next(iter(ports.values()))}", "ports", json.dumps(ports), flush=True)


async def on_asyncio() -> None:
    import anyio
    import websockets.asyncio.server as websockets

    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        servers = {
            "streams": await asyncio.start_server(with_streams, "127.0.0.1", 0),
            "buffered": await loop.create_server(Buffered, "127.0.0.1", 0),
        }
        ports = {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        ports["anyio"] = listener.extra(anyio.abc.SocketAttribute.local_port)
        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(listener.serve, with_anyio)
        accepting = listening()
        ports["sockets"] = accepting.getsockname()[1]
        group.start_soon(with_sockets, accepting)
        ports["tornado"] = tornados_port()
        echo = await stack.enter_async_context(
            websockets.serve(with_websockets, "127.0.0.1", 0, max_size=None, compression=None)
        )
        ports["websockets"] = next(iter(echo.sockets)).getsockname()[1]
        announce(ports)
        await asyncio.Event().wait()


async def with_websockets(connection) -> None:
    async for message in connection:
        await connection.send(message)


async def on_trio() -> None:
    import trio

    async def serve(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)
        await stream.send_eof()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        announce({"trio": listener.socket.getsockname()[1]})
        await trio.sleep_forever()


try:
    if sys.argv[1] == "trio":
        import trio

        trio.run(on_trio)
    elif sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(on_asyncio())
    else:
        asyncio.run(on_asyncio())
except KeyboardInterrupt:
    pass
