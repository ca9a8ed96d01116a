"""What a worker process tells the driver, and the thread that watches its connections.

A line of JSON per event on stdout. The thread tells every second that the process lives, and reports connections on
which nothing has moved for PATIENCE seconds. On demand it writes where all connections stand.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.soak.plan import other
from tests.soak.stream import Talk, Wrong

PATIENCE = float(os.environ.get("CHAOS_PATIENCE", "40"))
"""Seconds without a byte after which a connection hangs. Machines may be busy; nothing is that busy."""
LONGEST = 6 * PATIENCE
"""Seconds that a connection of at most 20 MB may take."""
SLOT = os.environ.get("CHAOS_SLOT", "nobody")
OUT = os.environ.get("CHAOS_OUT", "")

talks: set[Talk] = set()
"""The connections of this process that have not ended."""
_stop_waiting = threading.Event()


def say(what: str, **values: Any) -> None:
    """One line, written at once: threads and forked processes write to the same pipe."""
    line = json.dumps({"what": what, "slot": SLOT, "pid": os.getpid(), **values}) + "\n"
    try:
        os.write(1, line.encode()[:4095] if len(line) <= 4096 else line.encode())
    except OSError:
        os._exit(3)  # the driver is gone


def report(talk: Talk, how: str, detail: str = "") -> None:
    """How an end of a connection ended, in this process."""
    if talk.reported:
        return
    talk.reported = True
    if how == "wrong":
        dump(talk)
    say(
        "end",
        serial=talk.serial,
        key=talk.plan.key,
        side=talk.side,
        part=talk.part,
        how=how,
        detail=detail[:1500],
        path=talk.path,
        program=talk.plan.name(talk.side),
        again=f"--kinds {talk.plan.kinds['client']},{talk.plan.kinds['server']} --key {talk.plan.key}",
        peer=talk.plan.name(other(talk.side)),
        started=talk.started,
        ended=time.monotonic(),
        sent=talk.sent,
        got=talk.got,
        totals=[talk.total_out, talk.total_in],
    )
    talks.discard(talk)  # from here on the process may end (wait_for_talks)
    if how == "wrong":
        time.sleep(2.5)  # so that the other end, and the kernel, are seen as they stand


def outcome(talk: Talk, error: BaseException | None) -> tuple[str, str]:
    """How an end ended, in a word, and more about it."""
    if error is None:
        if talk.part == "out" or talk.got == talk.total_in:
            return "done", ""
        return "short", f"{talk.got} of {talk.total_in} bytes came before the end"
    lines = traceback.format_exception(error)
    where = f"{lines[-1].strip()}\n{''.join(lines[-4:-1])}"
    if isinstance(error, Wrong):
        return "wrong", str(error)
    if isinstance(error, OSError) and (not isinstance(error, TimeoutError) or error.errno):
        return type(error).__name__ if type(error) is not OSError else f"errno {error.errno}", where
    return "wrong", where


def note_path(talk: Talk) -> None:
    """Remembers whether the connection has been on the ring."""
    fastsock = sys.modules.get("fastsock")
    if fastsock is not None and talk.path == "tcp" and talk.handle is not None:
        talk.path = fastsock.path_of(talk.handle).path


# ---- dumps -------------------------------------------------------------------------------------------------


def _ends() -> list[Any]:
    """The connections that fastsock serves in this process."""
    module = sys.modules.get("fastsock._native.libc_front")
    return module.connections() if module else []


def describe(talk: Talk) -> dict[str, Any]:
    """Where one end of a connection stands."""
    state: dict[str, Any] = {
        name: str(value) for name, value in vars(talk).items() if name not in ("out", "into", "plan")
    }
    state |= {"key": talk.plan.key, "stages": str(talk.plan.stages), "turns": talk.plan.turns is not None}
    state |= {"allowed": talk.allowed, "due": talk.due, "program": talk.plan.name(talk.side)}
    try:
        sock = talk.handle.get_extra_info("socket") if hasattr(talk.handle, "get_extra_info") else talk.handle
        state["names"] = [str(sock.getsockname()), str(sock.getpeername())]
    except Exception as error:
        state["names"] = repr(error)
    return state


def dump(first: Talk | None = None) -> None:
    """Writes where every connection of this process stands, and its threads, to a file of the run's directory."""
    path = Path(OUT, f"state-{SLOT}-{os.getpid()}.txt")
    with path.open("a") as file:
        print(f"==== {time.strftime('%X')} {SLOT} pid {os.getpid()} {sys.argv}", file=file)
        for talk in dict.fromkeys([*([first] if first else []), *talks]):
            print(json.dumps(describe(talk), indent=1, default=str), file=file)
        for end in _ends():
            state = sys.modules["fastsock._native.libc_front"].describe(end.fd)
            print("end", end.fd, end.local, end.peer, end.standing, end.counters, state, file=file)
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)


# ---- the thread ----------------------------------------------------------------------------------------------


def _look() -> None:
    now = time.monotonic()
    for talk in list(talks):
        still, whole = now - talk.progress, now - talk.started
        if still > PATIENCE + 5 or whole > LONGEST:
            what = f"nothing moved for {still:.0f} s" if still > PATIENCE else f"not over after {whole:.0f} s"
            note_path(talk)
            report(talk, "wrong", f"hangs: {what}; {json.dumps(describe(talk))}")
            talk.abandon()


def _wanted() -> int:
    """Grows when the driver asks all processes of the run where they stand."""
    try:
        return Path(OUT, "dump").stat().st_size
    except OSError:
        return 0


def _watch() -> None:
    seen = _wanted()
    while True:
        say("alive")
        _stop_waiting.wait(1)
        try:
            _look()
            if _wanted() != seen:
                seen = _wanted()
                dump()
        except Exception:
            say("trouble", detail=traceback.format_exc()[-2000:])


def start_watching() -> None:
    """Also in a forked child."""
    threading.Thread(target=_watch, daemon=True, name="watch").start()


def open_for_dumps() -> None:
    """SIGUSR1 writes the stacks of all threads, also of a process in which none gets on."""
    try:
        file = _stacks().open("a")
    except OSError:  # a limit of descriptors
        faulthandler.register(signal.SIGUSR1)
        return
    faulthandler.register(signal.SIGUSR1, file=file)
    faulthandler.enable(file)


def close_dumps() -> None:
    """This process ends well: its file is removed if it is empty."""
    try:
        if not _stacks().stat().st_size:
            _stacks().unlink()
    except OSError:
        pass


def _stacks() -> Path:
    return Path(OUT, f"stacks-{SLOT}-{os.getpid()}.txt")


def wait_for_talks(seconds: float, more: Callable[[], bool] = lambda: True) -> None:
    """Until all connections of this process have ended."""
    until = time.monotonic() + seconds
    while (talks or not more()) and time.monotonic() < until:
        time.sleep(0.05)


# ---- nothing is left ------------------------------------------------------------------------------------------


def left_in_process() -> dict[str, int]:
    """What this process still holds, now that its connections have ended: TCP sockets, endpoints, regions."""
    gc.collect()
    tcp = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{name}") as table:
            tcp |= {line.split()[9] for line in table.readlines()[1:]}
    sockets = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        sockets += target.startswith("socket:[") and target[8:-1] in tcp
    with open("/proc/self/maps") as maps:
        regions = sum("memfd:fastsock" in line for line in maps)
    return {"sockets": sockets, "endpoints": len(_ends()), "regions": regions}
