"""An echo server and its client in one process, on a loop that is made and run in the way that the argument says.

Prints the module of the loop's class and the path at both ends.
"""

import asyncio
import itertools
import json
import sys
import time
import warnings


class Echo(asyncio.Protocol):
    path = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        Echo.path = self.transport.get_extra_info("fastsock")


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    until = time.monotonic() + 10
    for number in itertools.count():
        line = b"%d\n" % number
        writer.write(line)
        assert await asyncio.wait_for(reader.readline(), 10) == line
        paths = [path and path.path for path in (writer.get_extra_info("fastsock"), Echo.path)]
        if number >= 500 and ("tcp" not in paths or time.monotonic() > until):
            break
    writer.close()
    server.close()
    await server.wait_closed()
    print(json.dumps({"loop": type(loop).__module__, "paths": paths}))


def with_uvicorn(loop: str) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        async def serve(self, sockets=None):
            await main()

    Server(uvicorn.Config("runner:app", loop=loop)).run()


def with_aiohttp() -> None:
    from aiohttp import web

    class Done(web.GracefulExit):
        code = 0

    async def on_startup(app: web.Application) -> None:
        await main()
        raise Done

    app = web.Application()
    app.on_startup.append(on_startup)
    web.run_app(app, host="127.0.0.1", port=0, print=None)


def patch_early(*, uvloop: bool) -> None:
    import fastsock

    fastsock.patch()
    run(uvloop)


def patch_late(*, uvloop: bool) -> None:
    """After the loop's module was imported and the sockets that it has."""
    if uvloop:
        import uvloop as _  # noqa: F401
    import fastsock

    async def late() -> None:
        fastsock.patch()
        await main()

    run(uvloop, late)


def run(uvloop: bool, body=main) -> None:
    if uvloop:
        import uvloop as module

        module.run(body())
    else:
        asyncio.run(body())


def installed() -> None:
    import uvloop

    uvloop.install()
    asyncio.run(main())


def with_policy(loop: str) -> None:
    import fastsock

    # Python 3.14 has deprecated policies, and says so on the stderr that has to be empty.
    warnings.filterwarnings("ignore", "'asyncio.set_event_loop_policy' is deprecated", DeprecationWarning)
    asyncio.set_event_loop_policy(fastsock.EventLoopPolicy(loop))
    asyncio.run(main())


def with_runner() -> None:
    import fastsock

    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=fastsock.new_event_loop) as runner:
            runner.run(main())
    else:
        loop = fastsock.new_event_loop()
        loop.run_until_complete(main())
        loop.close()


def with_loop_factory() -> None:
    import fastsock

    if sys.version_info >= (3, 12):
        asyncio.run(main(), loop_factory=fastsock.new_event_loop)
    else:
        with_runner()


def with_run(loop: str) -> None:
    import fastsock

    fastsock.run(main(), loop=loop)


HOW = {
    "asyncio.run": lambda: run(False),
    "uvloop.run": lambda: run(True),
    "uvloop.install": installed,
    "uvicorn on uvloop": lambda: with_uvicorn("uvloop"),
    "uvicorn on asyncio": lambda: with_uvicorn("asyncio"),
    "aiohttp": with_aiohttp,
    "patch early, asyncio": lambda: patch_early(uvloop=False),
    "patch early, uvloop": lambda: patch_early(uvloop=True),
    "patch late, asyncio": lambda: patch_late(uvloop=False),
    "patch late, uvloop": lambda: patch_late(uvloop=True),
    "fastsock.run": lambda: with_run("uvloop"),
    "fastsock.run on asyncio": lambda: with_run("asyncio"),
    "Runner": with_runner,
    "loop factory": with_loop_factory,
    "policy": lambda: with_policy("uvloop"),
    "policy, asyncio": lambda: with_policy("asyncio"),
}

if __name__ == "__main__":
    HOW[sys.argv[1]]()
