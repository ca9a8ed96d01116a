"""A program writes what kernel TCP takes at once, to a peer that does not read, and ends: all of it arrives.

Behind a clean end of stream, whichever way the program ends, and whatever carries its bytes."""

from __future__ import annotations

import pytest
from harness.pairs import deadline, listening, payload, read_to_eof
from harness.processes import running, settle

import fastsock

WRITER = """
import asyncio
from harness import pairs
kind, path, end, size, piece, port = sys.argv[1:4] + [int(word) for word in sys.argv[4:]]
if path == "ring":
    fastsock.patch()
data = pairs.payload(size)
pieces = [data[at : at + piece] for at in range(0, size, piece)]

def leave():
    if end == "raise":
        raise RuntimeError("on purpose")
    if end == "exit":
        sys.exit(0)
    if end == "_exit":
        os._exit(0)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "exec":
        os.execv(sys.executable, [sys.executable, "-c", ""])

async def write():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    on_ring, answer = path != "ring", b""
    while not on_ring or answer != b"r":
        writer.write(b"?")
        answer = await reader.readexactly(1)
        on_ring = path != "ring" or writer.get_extra_info("fastsock").path == "ring"
    writer.write(b"!")
    for part in pieces:
        writer.write(part)
    if end != "undrained":
        await asyncio.wait_for(writer.drain(), pairs.SECONDS)
    leave()
    if end == "thread":
        written.set()
        await asyncio.sleep(pairs.SECONDS)
    (writer.transport.abort if end == "abort" else writer.close)()

def work():
    if kind == "blocking":
        sock = socket.create_connection(("127.0.0.1", port))
        settle(sock, path)
        for part in pieces:
            sock.sendall(part)
        leave()
        written.set()
        time.sleep(pairs.SECONDS if end == "thread" else 0)
        sock.close()
        return
    if kind == "uvloop":
        import uvloop
        loop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(write())
    finally:
        loop.close()

written = threading.Event()
if end == "thread":
    threading.Thread(target=work, daemon=True).start()
    written.wait(pairs.SECONDS)
else:
    sys.excepthook = lambda *of: None
    work()
"""

ENDS = ["close", "abort", "raise", "exit", "_exit", "kill", "exec", "thread"]
"""The loop is closed behind `close()`, or `abort()`; an exception; SystemExit; nothing is run any more; and the
interpreter's end beside a daemon thread that is at it."""

MUCH = 3_500_000
"""Bytes: nearly what kernel TCP takes with default limits; more than the ring holds but for its spare parts."""

CASES = [(kind, end, MUCH, MUCH) for kind in ("asyncio", "uvloop", "blocking") for end in ENDS]
CASES.remove(("blocking", "abort", MUCH, MUCH))
# Who does not wait, and who need not: what the ring alone has no room for is less than makes a loop pause.
CASES += [
    (kind, end, size, size)
    for kind in ("asyncio", "uvloop")
    for end, size in (("undrained", 1_500_000), ("close", 1_050_000))
]
CASES += [(kind, "kill", 2_000_000, piece) for kind in ("asyncio", "blocking") for piece in (1_000, 5_000, 65_536)]


@pytest.mark.parametrize("path", ["tcp", "ring"])
@pytest.mark.parametrize(("kind", "end", "size", "piece"), CASES)
def test_what_was_taken_arrives(kind: str, end: str, size: int, piece: int, path: str) -> None:
    with deadline(60), fastsock.configure(move_after=0), listening(path == "ring") as listener:
        port = listener.getsockname()[1]
        with running(WRITER, kind, path, end, size, piece, port) as writer:
            sock, _ = listener.accept()
            with sock:
                settle(sock, path, leads=False)
                writer.wait()
                assert read_to_eof(sock) == payload(size)
