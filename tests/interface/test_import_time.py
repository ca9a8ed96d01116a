"""What `import fastsock` and `patch()` load: every program that is started under fastsock pays for it.

No test here measures a time. What costs time is the module that nobody needs yet."""

import sys

import pytest
from harness.processes import ended

START = "import fastsock; fastsock.patch(); import sys; print(' '.join(sys.modules))"
NEEDLESS = {
    *("attrs", "structlog", "logging", "asyncio", "uvloop", "ssl", "json", "argparse", "rich"),
    *("typing", "ipaddress", "importlib.abc", "importlib.resources", "tempfile", "shutil", "random", "lzma", "bz2"),
    *("fastsock.aio", "fastsock.cli", "fastsock.run_report", "fastsock.tools"),
}


def printed(program: str, *flags: str) -> str:
    done = ended([sys.executable, *flags, "-c", program])
    assert done.stderr == ""
    return done.stdout


def test_a_patched_program_has_not_loaded_what_it_does_not_need_yet():
    """Beside what a bare interpreter with its site module has: a .pth file may import anything."""
    before = set(printed("import sys; print(' '.join(sys.modules))").split())
    loaded = set(printed(START).split()) - before
    assert "fastsock.path_events" in loaded
    assert sorted(loaded & NEEDLESS) == []


@pytest.mark.parametrize("name", ["concurrent.futures", "json"])
def test_a_module_that_was_waited_for_keeps_its_loader(name):
    """The finder that tells of an import is not derived from `importlib.abc`, and the import system does not mind."""
    program = f"""
import importlib
from importlib import resources
from fastsock.import_hooks import when_imported
told = []
when_imported({name!r}, told.append)
importlib.invalidate_caches()
module = importlib.import_module({name!r})
assert told == [module], told
assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"
assert any(resources.files(module).iterdir())
importlib.reload(module)
"""
    assert printed(program) == ""


ORDERS = [
    "fastsock.aio", "fastsock.aio.loops", "fastsock.aio.stdlib_loop",
    "fastsock.aio.sendfile", "fastsock.aio.runner", "fastsock.aio.uvloop_loop", "uvloop", "uvloop.loop",
    "uvloop, fastsock.aio.uvloop_loop",
    "fastsock.aio.uvloop_loop, asyncio", "asyncio.selector_events", "asyncio, fastsock.aio.uvloop_loop",
]  # fmt: skip


@pytest.mark.parametrize("started", ["", "import fastsock; fastsock.patch()"], ids=["run", "patch"])
@pytest.mark.parametrize("modules", ORDERS)
def test_loops_are_patched_whatever_is_imported_first(modules, started, tmp_path):
    """Also where it is our own layer that imports a loop's module, and is not whole yet."""
    program = tmp_path / "program.py"
    program.write_text(f"""{started}
import {modules}
import asyncio, uvloop
for method in asyncio.SelectorEventLoop._make_socket_transport, uvloop.Loop.create_server:
    assert hasattr(method, "__wrapped__"), method  # by ours
import fastsock

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert writer.get_extra_info("fastsock") is not None
    assert await reader.read() == b""
    writer.close()
    server.close()

for loop in "uvloop", "asyncio":
    fastsock.run(main(), loop=loop)
""")
    command = [sys.executable, *([] if started else ["-m", "fastsock", "run"]), program]
    done = ended(command)
    assert (done.stdout, done.stderr) == ("", "")
