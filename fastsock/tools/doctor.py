"""`fastsock doctor`: finds out why connections do not move, on this host or for a program."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from fastsock import _startup, config, launch
from fastsock.advice import advice_for, refused_by
from fastsock.path_events import DISABLED, Reason
from fastsock.tools import checks, introspection
from fastsock.tools.peers import Peers

__all__ = ["Watched", "examine", "watch"]

LOOK_SECONDS = 0.5
"""Time between two queries of the program's processes."""
LONGEST = 68
"""Characters of a command line to print."""
SHOWN = 8
"""Connections to list for each reason."""


# ---- this host ---------------------------------------------------------------------------------------------


def examine(as_json: bool) -> int:
    """Checks this host and prints the findings. Returns 1 if no connection can move here, else 0."""
    findings = checks.all_findings()
    if as_json:
        print(json.dumps([attrs.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.level:5} {finding.what:12} {finding.says}")
            if finding.do and finding.level != checks.OK:
                print(_indented(f"-> {finding.do}", 19))
        print(verdict(findings))
    return int(any(finding.level == checks.BAD for finding in findings))


def verdict(findings: Sequence[checks.Finding]) -> str:
    """Returns the conclusion from the findings."""
    if any(finding.level == checks.BAD for finding in findings):
        return "\nConnections do not move here. The lines marked bad say why."
    if any(finding.level == checks.WARN for finding in findings):
        return "\nfastsock works here. The lines marked warn say what could be better."
    return "\nfastsock works here. To check a program of yours: fastsock doctor app.py"


def _indented(text: str, columns: int) -> str:
    return textwrap.fill(text, 80, initial_indent=" " * columns, subsequent_indent=" " * (columns + 3))


# ---- a program ---------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Watched:
    """The result of watching a program."""

    status: int
    seconds: float
    processes: dict[int, str]
    """pid -> command line, of the processes with fastsock."""
    moved: list[dict[str, Any]]
    """Connection ends that moved to the ring: pid, local, peer."""
    stayed: dict[str, int]
    """Reason -> number of connection ends that stayed in the kernel."""
    examples: dict[str, list[dict[str, Any]]]
    """Reason -> some of these ends, if their addresses are known: pid, local, peer, program (at the other end),
    advice."""
    events: dict[str, list[str]]
    """Event -> texts, for all other events."""
    origins: dict[str, str]
    """Settings that are not defaults -> source."""
    uncounted: list[int] = attrs.field(factory=list)
    """Processes that ended without a count of their connections."""

    @property
    def advice(self) -> dict[str, str]:
        """Reason -> advice, independent of the other end."""
        return {reason: advice_for(reason) for reason in self.stayed}

    @property
    def refused_by(self) -> dict[str, str]:
        """Reason -> the end that refused to move, or ""."""
        return {reason: refused_by(reason) for reason in self.stayed}


def watch(command: Sequence[str], as_json: bool, python: Sequence[str] = (sys.executable,)) -> int:
    """Runs a program under fastsock and reports on its connections: on stderr, or with `as_json` on stdout. `command`
    has the words that a shell would execute, or those that would follow `python`. Returns the program's exit status.
    Raises RuntimeError if the program cannot be started."""
    with tempfile.TemporaryDirectory(prefix="fastsock-doctor-") as directory:
        watched = _watch(command, directory, python)
    if as_json:
        derived = {"advice": watched.advice, "refused_by": watched.refused_by}
        print(json.dumps({**attrs.asdict(watched), **derived}, indent=2))
    else:
        print(report(watched, command), file=sys.stderr)
    return watched.status


def _watch(command: Sequence[str], directory: str, python: Sequence[str]) -> Watched:
    settings = config.from_environment()  # raises SettingError here, not in each process
    if os.geteuid() == 0:
        os.chmod(directory, 0o1733)  # servers that root starts become other users, and report too
    ignored = launch.take_ignored()
    signals = functools.partial(launch.give_signals_back, ignored)
    environment = {**_startup.environment(os.environ, settings), _startup.REPORT: directory}
    began = time.monotonic()
    native = launch.is_program(command[0])
    if not native:
        launch.check_script(command[0])
    words = [launch.LAUNCHER, *command] if native else [*python, *command]
    program = subprocess.Popen(words, env=environment, preexec_fn=signals)  # noqa: PLW1509 - no thread yet
    # Ctrl-C reaches the program too, which handles it. SIGTERM is passed on.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, lambda number, frame: program.send_signal(number))
    seen: dict[tuple[int, int], introspection.Connection] = {}
    peers = Peers()
    try:
        while program.poll() is None:
            pids = set(_files(directory))
            processes = _query(peers, pids)
            for process in processes:
                for connection in process.connections if process.pid in pids else ():
                    seen[process.pid, connection.inode] = connection
            try:
                program.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    seconds = time.monotonic() - began
    records = {
        pid: sorted((line for path in paths for line in _lines(path)), key=lambda line: float(line["time"]))
        for pid, paths in sorted(_files(directory).items())
    }
    status = program.returncode if program.returncode >= 0 else 128 - program.returncode
    return _judged(records, seen, peers, status, seconds)


def _query(peers: Peers, pids: set[int]) -> list[introspection.Process]:
    """Returns the processes that answer, including those at the other ends. Returns none if queries are not possible,
    for example without /proc; then only the reports are left."""
    processes: list[introspection.Process] = []
    with suppress(OSError):
        processes = introspection.query(None) if pids else []
    with suppress(OSError):
        peers.look(pids, processes)
    return processes


def _files(directory: str) -> dict[int, list[Path]]:
    """Returns the reports by process: one for each user that a process has been ("PID-USER.jsonl")."""
    found: dict[int, list[Path]] = defaultdict(list)
    for path in Path(directory).glob("*-*.jsonl"):
        found[int(path.stem.partition("-")[0])].append(path)
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass  # the process was killed while it wrote
    return found


def _judged(
    records: dict[int, list[dict[str, Any]]],
    seen: dict[tuple[int, int], introspection.Connection],
    peers: Peers,
    status: int,
    seconds: float,
) -> Watched:
    moved: list[dict[str, Any]] = []
    stayed: Counter[str] = Counter()
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    events: dict[str, set[str]] = defaultdict(set)
    origins = {name: origin for name, origin in config.origins().items() if origin != "default"}
    processes = {}
    uncounted = []
    for pid, lines in records.items():
        processes[pid] = introspection.command_line(next((line["argv"] for line in lines if line.get("argv")), []))
        counted = None
        decided: Counter[str] = Counter()
        decided_ends: set[tuple[str, str]] = set()
        left_open: list[dict[str, str]] = []
        for line in lines:
            what = line["event"]
            if what == "start":
                origins.update({name: origin for name, origin in line["origins"].items() if origin != "default"})
            elif what == "end":
                counted = line["stats"]["fallback_reasons"]
                left_open = [one for one in line["open"] if one["path"] == "tcp"]
            elif what == "fastsock.path":
                end = {"pid": pid, "local": line.get("local", "?"), "peer": line.get("peer", "?")}
                if "user" in line:
                    end["user"] = line["user"]
                decided_ends.add((end["local"], end["peer"]))
                if line["path"] == "ring":
                    moved.append(end)
                else:
                    decided[line["reason"]] += 1
                    peers.note(end["local"], end["peer"], line["reason"])
                    examples[line["reason"]].append(end)
            else:
                known = {"time", "argv", "event", "local", "peer", "fd"}
                events[what].add(", ".join(str(value) for name, value in line.items() if name not in known))
        if counted is None:  # the process was killed: use its decided paths, and what the last query saw
            uncounted.append(pid)
            for (owner, _), connection in seen.items():
                if owner == pid and connection.path == "tcp" and not decided[connection.reason]:
                    examples[connection.reason].append({"pid": pid, "local": connection.local, "peer": connection.peer})
                    stayed[connection.reason] += 1
            stayed += decided
        else:
            stayed.update(counted)
            for reason, ends in _undecided(pid, counted, decided_ends, left_open, seen, peers).items():
                examples[reason] += [{"pid": pid, "local": local, "peer": peer} for local, peer in ends]
    for reason, shown in examples.items():
        examples[reason] = [_with_peer(reason, end, peers) for end in shown[:SHOWN]]
    return Watched(
        status=status,
        seconds=seconds,
        processes=processes,
        moved=moved,
        stayed=dict(stayed.most_common()),
        examples=dict(examples),
        events={what: sorted(said) for what, said in sorted(events.items())},
        origins=origins,
        uncounted=uncounted,
    )


def _undecided(
    pid: int,
    counted: dict[str, int],
    decided: set[tuple[str, str]],
    left_open: list[dict[str, str]],
    seen: dict[tuple[int, int], introspection.Connection],
    peers: Peers,
) -> dict[str, set[tuple[str, str]]]:
    """Returns connections that ended before their path was decided, by the reason that counted them."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in left_open:
        found[one["reason"]].add((one["local"], one["peer"]))
    for (owner, _), end in seen.items():
        if owner == pid and end.path == "tcp" and end.reason in counted:
            found[end.reason].add((end.local, end.peer))
    told = {ends for each in found.values() for ends in each}
    silent = peers.ends.get(pid, set()) - told - decided  # a process that never looked for a peer answers no queries
    for reason in (Reason.FEW, Reason.SEEKING):
        if 0 < len(silent) <= counted.get(reason, 0) - len(found[reason]):
            found[reason] |= silent
            break
    return {reason: ends - decided for reason, ends in found.items()}


def _with_peer(reason: str, end: dict[str, Any], peers: Peers) -> dict[str, Any]:
    """Returns the example with the program at its other end and the advice."""
    try:
        peer = peers.of(end["local"], end["peer"])
    except OSError:
        peer = None
    user = introspection.user_name(end.pop("user")) if "user" in end else peers.user_of(end["local"], end["peer"])
    return {**end, "program": str(peer) if peer else "", "advice": advice_for(reason, peer, user)}


EVENTS = {
    "fastsock.declined": "fastsock could not be put in place, so everything stayed with the kernel",
    "fastsock.violation": "a connection was reset, as its peer violated the protocol",
    "fastsock.fault": "a connection was reset because of an error at this side",
    "fastsock.bridge": "a connection went back to the kernel through a bridge process, which is slow",
    "fastsock.stays_on_ring": "a connection could not go back to the kernel",
    "fastsock.rendezvous_failed": "a connection failed to move",
    "fastsock.no_connection_thread": "the connection thread could not be started",
}


EVENT_ADVICE = {
    "fastsock.declined": "start the program with fastsock run --libc, which needs nothing but the loader",
    "fastsock.violation": (
        'code that wrote to the descriptor without fastsock causes "bytes were written past fastsock"; '
        "otherwise run the same version of fastsock at both ends, and if you do, please report it"
    ),
    "fastsock.fault": ("if a process was killed or ran out of descriptors, that is the cause; else please report it"),
    "fastsock.stays_on_ring": (
        "raise the limits on descriptors (ulimit -n) and processes (ulimit -u), or let both ends be one user's"
    ),
    "fastsock.no_connection_thread": "raise the limit on processes and threads (ulimit -u; TasksMax, --pids-limit)",
}


UNLOADED = (
    "No process of the program loaded fastsock. If it starts Python with -I, -E or -S, remove these or call "
    "fastsock.patch() in the program. Static, setuid and Go programs, and those of musl, cannot use it."
)


def report(watched: Watched, command: Sequence[str]) -> str:
    """Returns the report as text."""
    said = [
        "",
        f"fastsock doctor: {shlex.join(command)}",
        f"ran for {watched.seconds:.1f} s with fastsock in {len(watched.processes)} "
        f"process{'' if len(watched.processes) == 1 else 'es'}, exit status {watched.status}",
    ]
    for pid, what in list(watched.processes.items())[:SHOWN]:
        said.append(f"    {pid} {what[:LONGEST]}")
    if len(watched.processes) > SHOWN:
        said.append(f"    and {len(watched.processes) - SHOWN} more")
    if watched.origins:
        said.append("settings: " + ", ".join(f"{name} ({origin})" for name, origin in watched.origins.items()))
    if not watched.processes:
        why = "Fastsock is off: " + advice_for(DISABLED) if not config.from_environment().enabled else UNLOADED
        said.append(textwrap.fill(why, 80))
    said.append(f"\nmoved to the ring: {_ends(len(watched.moved))}")
    said += _listed(watched.moved)
    said.append(f"stayed with the kernel: {_ends(sum(watched.stayed.values()))}")
    for reason, count in watched.stayed.items():
        refused = refused_by(reason)
        said.append(f"  {count:4} {reason}" + (f" ({refused} refused)" if refused else ""))
        by_advice: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for end in watched.examples.get(reason, []):
            by_advice[end["advice"]].append(end)
        for advice, ends in (by_advice or {advice_for(reason): []}).items():
            said.append(_indented(f"-> {advice}", 7))
            said += _listed(ends)
    for what, values in watched.events.items():
        said.append(f"{EVENTS.get(what, what)}:")
        said += [f"       {value}" for value in values[:SHOWN]]
        if what in EVENT_ADVICE:
            said.append(_indented(f"-> {EVENT_ADVICE[what]}", 7))
    if watched.uncounted:
        pids = ", ".join(map(str, watched.uncounted[:SHOWN])) + (", ..." if len(watched.uncounted) > SHOWN else "")
        said.append(
            textwrap.fill(
                f"Ended by a signal or by os._exit: {pids}. Connections of theirs that stayed with the kernel and were "
                f"open for less than {LOOK_SECONDS} s may be missing here.",
                80,
            )
        )
    if not watched.moved and not watched.stayed and watched.processes:
        said.append("The program made no TCP connection within this host while it was watched.")
    return "\n".join(said)


def _ends(count: int) -> str:
    return "no connection" if not count else f"{count} connection end{'s' if count > 1 else ''}"


def _listed(ends: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"       {end['pid']}  {end['local']} - {end['peer']}  {end.get('program', '')}".rstrip()
        for end in ends[:SHOWN]
    ]
    return lines + ([f"       and {len(ends) - SHOWN} more"] if len(ends) > SHOWN else [])
