"""asyncio over a unix socket, between two processes: streams, a large message, half-close, what a transport says of
itself, TLS, an abort. Prints what comes out and, under fastsock, which connections were on the ring."""

import asyncio
import os
import ssl
import sys


def path_of(writer):
    if "fastsock" not in sys.modules:
        return "plain"
    import fastsock

    return fastsock.path_of(writer.get_extra_info("socket")).path


async def answer(reader, writer):
    while line := await reader.readline():
        if line == b"abort\n":
            writer.transport.abort()
            return
        writer.write(line)
        await writer.drain()
    writer.write(b"behind the end\n")
    writer.close()


async def serve(folder, contexts, started):
    servers = [
        await asyncio.start_unix_server(answer, f"{folder}/{name}", limit=1 << 23, ssl=context)
        for name, context in contexts.items()
    ]
    os.write(started, b"!")
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def exchange(reader, writer, line):
    writer.write(line)
    await writer.drain()
    assert await reader.readline() == line


async def use(folder, name, context):
    more = {"ssl": context, "server_hostname": "localhost"} if context else {}
    reader, writer = await asyncio.open_unix_connection(f"{folder}/{name}", limit=1 << 23, **more)
    for i in range(300):
        await exchange(reader, writer, b"x" * (i * i % 5000) + b"\n")
    await exchange(reader, writer, b"y" * 3_000_000 + b"\n")
    path = path_of(writer)
    told = [writer.get_extra_info(name) for name in ("sockname", "peername")]
    print(name, told, writer.get_extra_info("socket").family, writer.can_write_eof())
    if not context:
        writer.write_eof()
        print(name, await reader.read())
    writer.close()
    await writer.wait_closed()
    reader, writer = await asyncio.open_unix_connection(f"{folder}/{name}", **more)
    for _ in range(50):
        await exchange(reader, writer, b"short\n")
    writer.write(b"abort\n")
    print(name, "after an abort", await reader.read())
    writer.close()
    return path


def main(loop, folder, certificate):
    if loop == "uvloop":
        import uvloop

        run = uvloop.run
    else:
        run = asyncio.run
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificate)
    server.load_cert_chain(certificate)
    began, started = os.pipe()
    if not (process := os.fork()):
        try:
            run(serve(folder, {"plain": None, "tls": server}, started))
        finally:
            os._exit(1)
    try:
        os.read(began, 1)
        paths = [run(use(folder, name, context)) for name, context in (("plain", None), ("tls", client))]
        print("paths", paths, file=sys.stderr)
    finally:
        os.kill(process, 15)
        os.waitpid(process, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
