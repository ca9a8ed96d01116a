"""A process has a connection thread, and descriptors of ours, once a connection has looked for its peer: not before.
No descriptor of ours has one of the lowest numbers, which the program's get."""

import pytest
from harness.processes import running

SERVER = """
    if sys.argv[1] == "patched":
        fastsock.patch(move_after=8)
    def figures():
        return len(os.listdir("/proc/self/task")), max(map(int, os.listdir("/proc/self/fd")))
    def next_number():
        with open(os.devnull) as made:
            return made.fileno()
    def served(messages):
        near = socket.create_connection(listener.getsockname())
        with near, listener.accept()[0] as far:
            for _ in range(messages):
                near.sendall(b"x"); far.recv(1); far.sendall(b"y"); near.recv(1)
                if messages > 8 and (sys.argv[1] == "plain" or fastsock.path_of(near).path == "ring"):
                    near.settimeout(0.001)  # polls
                    try:
                        near.recv(1)
                    except TimeoutError:
                        return next_number()
    listener = socket.create_server(("127.0.0.1", 0))
    if sys.argv[2] == "asyncio":
        import asyncio
        def short():
            async def serve():
                server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
                async with server:
                    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                    await reader.read()
                    writer.close()
                    await writer.wait_closed()
                    return figures()
            return asyncio.run(serve())
    else:
        def short():
            for _ in range(20):
                served(2)
            return figures()
    say(" ".join(map(str, short())))
    moved = served(100_000)
    say(" ".join(map(str, (moved, *figures()))))
    told()
"""


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_a_server_of_short_sessions_has_the_threads_and_numbers_of_plain(way: str) -> None:
    said = {}
    for started in ("plain", "patched"):
        with running(SERVER, started, way) as program:
            said[started] = [program.line() for _ in range(2)]
    assert said["plain"][0] == said["patched"][0]
    threads, highest = map(int, said["plain"][0].split())
    (number, *_), (number_then, threads_then, highest_then) = (said[way][1].split() for way in ("plain", "patched"))
    assert (number_then, int(threads_then) > threads, int(highest_then) > highest) == (number, True, True)
