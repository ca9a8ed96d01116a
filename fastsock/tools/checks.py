"""Checks of this host for `fastsock doctor`. Each check yields findings."""

from __future__ import annotations

import os
import platform
import resource
import signal
import socket as stdlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

import fastsock
from fastsock import _startup, config, socket_class
from fastsock.advice import advice_for
from fastsock.path_events import DISABLED, Reason
from fastsock.tools import introspection
from fastsock.tools.columns import Column

_socket = stdlib.socket

__all__ = ["CHECKS", "Finding", "all_findings", "busy", "remark", "started"]

OK, NOTE, WARN, BAD = "ok", "note", "warn", "bad"
LEVELS = (
    Column(OK, "as it should be"),
    Column(NOTE, "good to know"),
    Column(WARN, "some connections are slower than they could be, or do not move"),
    Column(BAD, "no connection moves; the exit status is 1"),
)
PAIR_SECONDS = 10.0
"""Seconds that the test connection may take."""
STATUS, TIMES = Path("/proc/self/status"), Path("/proc/stat")
BUSY = 0.1
"""Share of CPU time used by other programs above which measurements are not reliable."""


@attrs.frozen
class Finding:
    """A result of a check."""

    level: str
    """One of `LEVELS`."""
    what: str
    """The checked thing."""
    says: str
    do: str = ""
    """What the user can do about it, if anything."""


Findings = Iterator[Finding]


def python() -> Findings:
    """The interpreter, and the version and location of fastsock."""
    says = f"{platform.python_implementation()} {platform.python_version()}, fastsock {fastsock.__version__}"
    yield Finding(OK, "python", f"{says} in {Path(fastsock.__file__).parent}")
    if sys.flags.ignore_environment or sys.flags.no_site:
        do = "start Python without -I, -E and -S, or call fastsock.patch() in the program"
        yield Finding(WARN, "start-up", "`fastsock run` needs the environment and the site module", do)


def kernel() -> Findings:
    """The version: the switch to the ring needs byte counts (Linux 4.19); SO_NETNS_COOKIE names network namespaces
    (5.14)."""
    release = platform.release()
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if version < (4, 19):
        yield Finding(BAD, "kernel", f"Linux {release} is too old", "use Linux 4.19 or later")
    elif version < (5, 14):
        says = f"Linux {release} cannot tell network namespaces apart"
        yield Finding(NOTE, "kernel", says, 'keep trust="user", the default, or use Linux 5.14 or later')
    else:
        yield Finding(OK, "kernel", f"Linux {release}")


def memory() -> Findings:
    """A sealed memfd, which each moved connection needs."""
    import fcntl

    try:
        fd = os.memfd_create("fastsock-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        do = "allow memfd_create in the sandbox (seccomp)"
        yield Finding(BAD, "memfd", f"memfd_create fails: {error.strerror}", do)
    else:
        with os.fdopen(fd, "wb") as file:
            file.truncate(4096)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(file.fileno(), fcntl.F_ADD_SEALS, seals)
        yield Finding(OK, "memfd", "shared memory can be created and sealed")


def memory_cap() -> Findings:
    """The memory limit of this control group."""
    limit = _control_group("memory.max")
    cap = config.active().memory_cap
    if limit.isdigit() and int(limit) < cap:
        says = f"the control group is limited to {int(limit) >> 20} MiB, less than memory_cap ({cap >> 20} MiB)"
        yield Finding(
            NOTE, "memory", says, "set FASTSOCK_MEMORY_CAP below the group's limit if there are very many connections"
        )


def _control_group(name: str) -> str:
    try:
        return Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return ""


def names() -> Findings:
    """Abstract unix sockets, by which two ends find each other, and the peer's credentials (SO_PEERCRED)."""
    name = b"\0fastsock/doctor/" + os.urandom(8).hex().encode()
    kind = stdlib.SOCK_SEQPACKET | stdlib.SOCK_CLOEXEC
    try:
        with _socket(stdlib.AF_UNIX, kind) as listener, _socket(stdlib.AF_UNIX, kind) as client:
            listener.bind(name)
            listener.listen(1)
            client.connect(name)
            user = client.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_PEERCRED, 12)
        if int.from_bytes(user[4:8], sys.byteorder) != os.geteuid():
            yield Finding(
                BAD,
                "names",
                "the kernel reports another user than geteuid(): this process is in a user namespace",
                "start all programs in the same user namespace",
            )
        else:
            yield Finding(
                OK, "names", f"abstract unix sockets work; this process is of user {os.geteuid()}, trust is {_trust()}"
            )
    except OSError as error:
        do = "allow abstract unix sockets in the sandbox (seccomp, AppArmor)"
        yield Finding(BAD, "names", f"no abstract unix socket: {error.strerror}", do)


def _trust() -> str:
    """Returns the setting `trust`, or its default if a setting is invalid (`settings` says so)."""
    try:
        return config.active().trust
    except fastsock.SettingError:
        return config.Settings().trust


def processors() -> Findings:
    """The CPUs that this process may use: with one, there is no polling."""
    usable = len(os.sched_getaffinity(0))
    quota, _, period = _control_group("cpu.max").partition(" ")
    share = int(quota) / int(period) if quota.isdigit() and period.isdigit() else None
    if usable == 1:
        yield Finding(
            NOTE, "processors", "one: no polling, so the gain is smaller", "allow a second CPU (taskset, cpuset)"
        )
    else:
        yield Finding(OK, "processors", f"{usable} usable")
    if share is not None and share < 2:
        says = f"the control group is limited to {share:.2g} CPUs: polling uses up its quota"
        yield Finding(WARN, "processors", says, "set FASTSOCK_POLL_US=0, or raise the quota (cpu.max)")


def descriptors() -> Findings:
    """The descriptor limit, and how many connections can look for their peers at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 1 << 20 if soft == resource.RLIM_INFINITY else soft
    share = limit // (8 if limit > 4096 else 16)
    at_a_time = min(share // 4, 1024)
    says = f"limit {limit}: {at_a_time} connections of a process can move at the same time; moved ones need none"
    if share < 64:
        more = "no limit" if hard == resource.RLIM_INFINITY else hard
        do = f"ulimit -n {min(hard, 65536) if hard > 0 else 65536} (hard limit: {more})"
        if hard == soft:
            do = (
                "raise the hard limit: LimitNOFILE=65536 in a systemd unit, --ulimit nofile=65536 for a container, "
                "/etc/security/limits.conf for a login"
            )
        yield Finding(WARN, "descriptors", says, do)
    else:
        yield Finding(OK, "descriptors", says)


def sandbox() -> Findings:
    """Seccomp filters and Yama."""
    try:
        status = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
    except OSError as error:
        yield Finding(NOTE, "seccomp", f"no /proc/self/status: {error.strerror}", "mount /proc")
        return
    mode = status.get("Seccomp", "0").strip()
    if mode == "0":
        yield Finding(OK, "seccomp", "no filter")
    else:
        yield Finding(NOTE, "seccomp", "a filter is active; the other checks try the calls that fastsock needs")
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = yama.read_text().strip() if yama.exists() else "none"
    yield Finding(OK, "yama", f"ptrace_scope {scope}: no matter, fastsock does not trace other processes")


def namespaces() -> Findings:
    """Python processes of this user in other network namespaces: connections to them move by a folder alone."""
    try:
        own = os.readlink("/proc/self/ns/net")
    except OSError as error:
        yield Finding(NOTE, "network", f"no /proc/self/ns: {error.strerror}", "mount /proc")
        return
    others = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == os.geteuid() and os.readlink(entry / "ns/net") != own:
                others += "python" in (entry / "comm").read_text()
        except OSError:
            pass  # gone, or not ours
    if others:
        says = f"{others} of your Python processes are in another network namespace: connections to them move only if"
        says += " both see one folder (rendezvous_dir)"
        do = "give it to containers that should be fast, or one network (--network container:..., one pod)"
        yield Finding(NOTE, "network", says, do)
    else:
        yield Finding(OK, "network", "all visible Python processes of yours share this network namespace")


def settings() -> Findings:
    """The settings and their sources; unknown FASTSOCK_* variables."""
    try:
        made = config.from_environment()
    except fastsock.SettingError as error:
        yield Finding(BAD, "settings", str(error), "correct that variable")
        return
    origins = config.origins()
    given = [f"{name}={getattr(made, name)} ({origin})" for name, origin in origins.items() if origin != "default"]
    level, do = (OK, "") if made.enabled else (BAD, advice_for(DISABLED))
    yield Finding(level, "settings", ", ".join(given) or "all defaults", do)
    unknown = config.unknown()
    if unknown:
        near = [name for name in dict.fromkeys(unknown.values()) if name]
        known = sorted(f"{config.PREFIX}{name.upper()}" for name in origins)
        do = f"did you mean {', '.join(near)}?" if near else f"the settings are {', '.join(known)}"
        yield Finding(WARN, "settings", f"no such setting: {', '.join(unknown)}", do)


@contextmanager
def started(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Starts a process whose output the caller reads. Kills the process at the end of the `with` block. The process
    starts with SIGINT blocked, so that Ctrl-C ends only this one. A SIGINT during the start is raised after it."""
    before, process = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), None
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield process
    finally:
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


ECHO = """
import contextlib, sys, fastsock
with fastsock.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    with connection, contextlib.suppress(ConnectionError):  # the other end was interrupted
        while data := connection.recv(100):
            connection.sendall(data)
"""


def a_connection() -> Findings:
    """The proof: moves a connection between two processes."""
    config.active()  # raises SettingError here, not in the other process
    command = [sys.executable, "-c", ECHO]
    environ = {name: value for name, value in os.environ.items() if name != _startup.RUN}
    path = [str(Path(fastsock.__file__).parent.parent), *filter(None, [environ.get("PYTHONPATH")])]
    environ["PYTHONPATH"] = os.pathsep.join(path)
    with started(command, environ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            if not port:
                yield Finding(BAD, "connection", "a second Python process did not start", "see its error message above")
                return
            with socket_class.socket() as client:
                client.settimeout(PAIR_SECONDS)
                client.connect(("127.0.0.1", int(port)))
                began = time.monotonic()
                while fastsock.path_of(client).path != "ring" and time.monotonic() - began < PAIR_SECONDS:
                    client.sendall(b"x")
                    client.recv(1)
                    if fastsock.path_of(client).reason not in (*UNDECIDED, "sending", "receiving"):
                        break
                path_taken, spent = fastsock.path_of(client), time.monotonic() - began
        except OSError as error:
            says = f"two processes cannot connect over 127.0.0.1: {error.strerror or error}"
            do = "bring the loopback interface up (ip link set lo up), or allow TCP to 127.0.0.1 in the sandbox"
            yield Finding(BAD, "connection", says, do)
            return
    if path_taken.path == "ring":
        yield Finding(OK, "connection", f"a test connection moved to the ring within {spent * 1000:.0f} ms")
    else:
        yield Finding(
            BAD,
            "connection",
            f"a test connection stayed on kernel TCP: {path_taken.reason}",
            advice_for(path_taken.reason),
        )


UNDECIDED = (Reason.FEW, Reason.SEEKING, Reason.BACK)


def running() -> Findings:
    """Processes that use fastsock now."""
    try:
        processes = introspection.query()
    except OSError as error:
        yield Finding(
            NOTE,
            "running",
            f"cannot query processes: {error.strerror}",
            "mount /proc; raise the descriptor limit if it is reached",
        )
        return
    ends = [connection for process in processes for connection in process.connections]
    moved = sum(end.path == "ring" for end in ends)
    says = f"{len(processes)} of your processes use fastsock, with {len(ends)} connection ends, {moved} on the ring"
    yield Finding(OK, "running", says, "fastsock ss shows them" if processes else "")
    others = [str(process.pid) for process in processes if process.protocol != introspection.VERSION]
    if others:
        says = f"{len(others)} of them use another version of the protocol: {', '.join(others)}"
        yield Finding(WARN, "running", says, advice_for(Reason.VERSION))


def busy(seconds: float) -> float:
    """Returns the share of CPU time in use, measured for some seconds (/proc/stat, proc(5)); 0 without /proc."""

    def times() -> list[int]:
        return [int(field) for field in TIMES.read_text().splitlines()[0].split()[1:9]]

    try:
        before = times()
        time.sleep(seconds)
        spent = [now - then for now, then in zip(times(), before, strict=True)]
    except OSError:
        return 0.0
    return 1 - (spent[3] + spent[4]) / (sum(spent) or 1)  # idle, iowait


def remark(share: float) -> str:
    """Returns a warning if the host is too busy for measurements, else ""."""
    return f"something else uses {share:.0%} of the CPUs: figures will be off" if share > BUSY else ""


CHECKS: tuple[Callable[[], Findings], ...] = (
    python, kernel, memory, memory_cap, names, processors, descriptors, sandbox, namespaces, settings,
    a_connection, running,
)  # fmt: skip


NEEDS_SETTINGS = {memory_cap: "memory", a_connection: "connection"}
"""Checks that depend on settings -> `Finding.what` if a setting is invalid."""


def all_findings() -> list[Finding]:
    """Runs all checks, in the order of `CHECKS`. If a setting is invalid, checks that need settings are skipped."""
    found = []
    for check in CHECKS:
        try:
            found += list(check())
        except fastsock.SettingError:
            says = "not checked, as a setting is invalid"
            found.append(Finding(NOTE, NEEDS_SETTINGS[check], says, "see the line settings"))
    return found
