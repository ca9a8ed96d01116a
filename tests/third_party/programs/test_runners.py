"""However a program makes its loop, and whenever it is patched: the loop's class stays what the program asked for, and
connections move."""

import sys

import pytest
from harness.processes import FASTSOCK, PLAIN, answer_of

import fastsock

MAIN = """
import asyncio, itertools, json, sys, time, warnings

class Echo(asyncio.Protocol):
    path = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)
        Echo.path = self.transport.get_extra_info("fastsock")

async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    until = time.monotonic() + 10
    for number in itertools.count():
        line = b"%d\\n" % number
        writer.write(line)
        assert await asyncio.wait_for(reader.readline(), 10) == line
        paths = [path and path.path for path in (writer.get_extra_info("fastsock"), Echo.path)]
        if number >= 500 and ("tcp" not in paths or time.monotonic() > until):
            break
    writer.close()
    server.close()
    await server.wait_closed()
    print(json.dumps([type(loop).__module__, *paths]))

"""
LATE = "import fastsock\nasync def late():\n    fastsock.patch()\n    await main()\n"
POLICY = """
import fastsock
# Python 3.14 has deprecated policies, and says so on the stderr that has to be empty.
warnings.filterwarnings("ignore", "'asyncio.set_event_loop_policy' is deprecated", DeprecationWarning)
asyncio.set_event_loop_policy(fastsock.EventLoopPolicy({}))
asyncio.run(main())
"""
ASYNCIO, UVLOOP, OURS = "asyncio.unix_events", "uvloop", "fastsock.aio.loops"
RUN = {ASYNCIO: "asyncio.run(main())", UVLOOP: "import uvloop; uvloop.run(main())"}
HOW = {  # how the program is started, what it does, the module of its loop's class; since which Python
    "asyncio.run": (FASTSOCK, RUN[ASYNCIO], ASYNCIO),
    "uvloop.run": (FASTSOCK, RUN[UVLOOP], UVLOOP),
    "uvloop.install": (FASTSOCK, "import uvloop; uvloop.install(); asyncio.run(main())", UVLOOP),
    "patched early, asyncio": (PLAIN, f"import fastsock; fastsock.patch(); {RUN[ASYNCIO]}", ASYNCIO),
    "patched early, uvloop": (PLAIN, f"import fastsock; fastsock.patch(); {RUN[UVLOOP]}", UVLOOP),
    "patched late, uvloop": (PLAIN, "import uvloop\n" + LATE + "uvloop.run(late())", UVLOOP),
    "fastsock.run": (PLAIN, "import fastsock; fastsock.run(main())", OURS),
    "fastsock.run on asyncio": (PLAIN, "import fastsock; fastsock.run(main(), loop='asyncio')", OURS),
    "policy": (PLAIN, POLICY.format("'uvloop'"), OURS),
    "policy on asyncio": (PLAIN, POLICY.format("'asyncio'"), OURS),
    "new_event_loop": (PLAIN, "import fastsock; fastsock.new_event_loop().run_until_complete(main())", OURS),
    "Runner": (PLAIN, "import fastsock\nasyncio.Runner(loop_factory=fastsock.new_event_loop).run(main())", OURS, 11),
    "loop factory": (PLAIN, "import fastsock; asyncio.run(main(), loop_factory=fastsock.new_event_loop)", OURS, 12),
}


@pytest.mark.parametrize("how", HOW)
def test_moves_on_its_own_loop(how):
    way, source, module, *since = HOW[how]
    if since and sys.version_info < (3, *since):
        pytest.skip(f"Python 3.{since[0]} and later")
    assert answer_of(way, "-c", MAIN + source) == [module, "ring", "ring"]


def test_a_loop_of_asyncio_that_runs_when_patched_stays_on_the_kernel():
    """Its epoll instance is older than `patch()`."""
    assert answer_of(PLAIN, "-c", MAIN + LATE + "asyncio.run(late())") == [ASYNCIO, "tcp", "tcp"]


@pytest.mark.parametrize("module", RUN)
def test_untouched(module):
    """Plain, and where fastsock is switched off. The check above can fail."""
    for way in (PLAIN, FASTSOCK):
        assert answer_of(way, "-c", MAIN + RUN[module], FASTSOCK_ENABLED="0") == [module, None, None]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.14 has deprecated policies
@pytest.mark.parametrize("make", [fastsock.new_event_loop, fastsock.EventLoopPolicy])
def test_a_loop_that_does_not_exist(make):
    with pytest.raises(ValueError, match="loop is 'gevent', but must be 'uvloop' or 'asyncio'"):
        make("gevent")
