"""An echo server on trio, LIBRARY being trio or anyio, on a port of its own choice; SIGTERM ends it."""

import signal
import sys

import anyio
import trio


async def echo(stream):
    async with stream:
        while True:
            try:
                data = await (stream.receive_some() if sys.argv[1] == "trio" else stream.receive())
            except anyio.EndOfStream:
                data = b""
            if not data:
                return
            await (stream.send_all(data) if sys.argv[1] == "trio" else stream.send(data))


async def until_told(scope):
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def main():
    async with trio.open_nursery() as nursery:
        if sys.argv[1] == "trio":
            listeners = await nursery.start(trio.serve_tcp, echo, 0)
            port = listeners[0].socket.getsockname()[1]
        else:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
            nursery.start_soon(listener.serve, echo)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
        nursery.start_soon(until_told, nursery.cancel_scope)
        print("port", port)


trio.run(main)
