"""The front end at the C library's calls: programs in C do the same under the library as on plain kernel TCP."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.processes import ROOT, MadeOnce, ended, environment

from fastsock import SettingError, config, launch, path_events

INTERPOSE = ROOT / "interpose"
SOURCES = sorted((ROOT / "tests" / "interpose").glob("*.c"))
CASES = re.findall(r"\bX\((\w+)\)", (ROOT / "tests/interpose/conformance.h").read_text())
COMPILER = os.environ.get("CC", "cc")
RUN = (sys.executable, "-m", "fastsock", "run")
Plain = Callable[..., str]  # the fixture plain
STREAMS = {"tcp": {}, "unix": {"TEST_STREAMS": "unix"}}
"""On which streams of the kernel's the cases run, by variables."""


def built(folder: Path, *flags: str) -> Path:
    program = folder / "conformance"
    words = [COMPILER, "-O1", "-Wall", "-Wno-stringop-overread", *flags, *map(str, SOURCES), "-pthread", "-ldl"]
    subprocess.run([*words, "-o", str(program)], check=True, timeout=110)
    for plugin in "plugin.so", "deep.so":
        source = str(ROOT / "tests/interpose/relocated/ways_plugin.c")
        subprocess.run([COMPILER, "-shared", "-fPIC", source, "-o", str(folder / plugin)], check=True, timeout=60)
    return program


@pytest.fixture(scope="module")
def program(made_once: MadeOnce) -> Path:
    """Built with glibc's fortified headers, as distributions build."""
    return made_once("interpose", lambda folder: built(folder, "-D_FORTIFY_SOURCE=2")) / "conformance"


@pytest.fixture(scope="module")
def plain(made_once: MadeOnce, program: Path) -> Plain:
    """What a case prints in the kernel, where it runs once for all tests that compare with it."""

    def said(case: str, streams: str = "tcp") -> str:
        def run(folder: Path) -> None:
            (folder / "said").write_text(ended([program, case], **STREAMS[streams]).stdout)

        return (made_once(f"plain-{case}-{streams}", run) / "said").read_text()

    return said


def under_library(words: list[object], stats: Path, **variables: str) -> tuple[str, dict[str, Any]]:
    """What a program prints under the library, and its statistics."""
    done = ended([launch.LAUNCHER, "--stats", stats, *words], **variables)
    assert done.stderr == ""
    return done.stdout, json.loads(stats.read_text())


@pytest.mark.parametrize("move_after", ["0", "20"])
def test_handlers_of_constructors_that_ran_before(move_after: str, tmp_path: Path) -> None:
    folder = ROOT / "tests/interpose/handlers"
    library, program = tmp_path / "before.so", tmp_path / "sends"
    subprocess.run([COMPILER, "-O1", "-fPIC", "-shared", folder / "before.c", "-o", library], check=True, timeout=60)
    subprocess.run([COMPILER, "-O1", folder / "sends.c", "-ldl", "-o", program], check=True, timeout=60)
    expected = ended([program], LD_PRELOAD=str(library))
    got, stats = under_library(
        [program], tmp_path / "stats.json", LD_PRELOAD=str(library), FASTSOCK_MOVE_AFTER=move_after
    )
    assert got == expected.stdout
    assert stats["connections_ring"] == 1


def test_a_sleep_that_the_kernel_has_not_begun_ends_by_a_signal(tmp_path: Path) -> None:
    program, core = tmp_path / "places", ROOT / "core"
    sources = [ROOT / "tests/interpose/handlers/places.c", INTERPOSE / "sleep_call.c"]
    includes = [f"-I{folder}" for folder in (INTERPOSE, core, core / "include")]
    words = [COMPILER, "-std=gnu11", "-D_GNU_SOURCE", "-O2", *includes, *sources, "-o", program]
    subprocess.run(words, check=True, timeout=60)
    assert ended([program]).stdout.splitlines() == [
        "nothing comes: called, begun 1, asleep -1, then 0",
        "something was put off: EINTR, begun 1, asleep -1, then 0",
        "at the check: EINTR, begun 0, asleep 1, then 0",
        "after the check: EINTR, begun 0, asleep 1, then 0",
    ]


def test_a_handler_ends_the_process_at_a_fault_within_a_send(tmp_path: Path) -> None:
    program = tmp_path / "faults"
    subprocess.run([COMPILER, "-O1", ROOT / "tests/interpose/handlers/faults.c", "-o", program], check=True, timeout=60)
    assert ended([program], status=6).stdout == "0\n"
    assert ended([*RUN, program], status=7, FASTSOCK_MOVE_AFTER="0").stdout == "0\n"


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("case", CASES)
def test_calls_do_what_they_do_in_the_kernel(
    case: str, streams: str, program: Path, plain: Plain, tmp_path: Path
) -> None:
    variables, expected = STREAMS[streams], plain(case, streams)
    assert len(expected.splitlines()) > 4
    for rounds in (60, 500, 4000):  # on a busy machine it takes longer until both ends have moved
        variables = {**variables, "CONFORMANCE_ROUNDS": str(rounds)}
        got, stats = under_library([program, case], tmp_path / "stats.json", **variables)
        assert got == expected
        if stats["connections_ring"] >= (4 if case in ("greedy", "inherits") else 2):
            return
    pytest.fail(f"it stays with the kernel: {stats}")


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("case", CASES)
def test_calls_do_the_same_where_the_library_is_put_in_place_while_the_program_runs(
    case: str, streams: str, program: Path, plain: Plain
) -> None:
    expected = plain(case, streams)
    variables = {**STREAMS[streams], "CONFORMANCE_LIBRARY": launch.LIBRARY}
    for rounds in (60, 500, 4000):
        done = ended([program, case], CONFORMANCE_ROUNDS=str(rounds), **variables)
        assert done.stdout == expected
        if done.stderr == "ring\n":
            return
    pytest.fail(f"it stays with the kernel: {done.stderr}")


@pytest.mark.parametrize("installed", [False, True])
def test_what_a_library_that_was_loaded_later_sends_at_the_end_arrives(
    installed: bool, program: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin.so"
    source = ROOT / "tests/interpose/relocated/plugin.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", str(source), "-o", str(plugin)], check=True, timeout=60)
    variables = {"CONFORMANCE_PLUGIN": str(plugin)}
    expected = ended([program, "last_words"], **variables).stdout
    assert expected.count("destructor stream ") == 3
    if installed:
        variables |= {"CONFORMANCE_LIBRARY": launch.LIBRARY}
        assert ended([program, "last_words"], **variables).stdout == expected
    else:
        assert under_library([program, "last_words"], tmp_path / "stats.json", **variables)[0] == expected


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize(
    ("way", "when"),
    [*((way, when) for way in ("write", "sendto", "writev", "io_uring") for when in ("", "busy")), ("write", "idle")],
)
def test_bytes_written_past_the_library_end_the_connection(
    way: str, when: str, streams: str, program: Path, tmp_path: Path
) -> None:
    for rounds in (60, 500, 4000):  # on a busy machine it takes longer until both ends have moved
        words = [program, "past", way, *when.split()]
        variables = {**STREAMS[streams], "CONFORMANCE_ROUNDS": str(rounds)}
        got, stats = under_library(words, tmp_path / "stats.json", **variables)
        if got == "none\n":
            pytest.skip("the kernel has no io_uring for us")
        if got != "in the kernel\n":
            assert got == "-1 ECONNRESET right\n"
            return
    pytest.fail(f"it stays with the kernel: {stats}")


STAYS = {
    "excluded": {"FASTSOCK_PORTS_EXCLUDED": "1-65535", "FASTSOCK_PATHS_EXCLUDED": "@"},
    "undecided": {"FASTSOCK_MOVE_AFTER": "1000000"},
}


@pytest.mark.parametrize(
    ("case", "why", "streams"),
    [
        *((case, "undecided", streams) for case in CASES for streams in STREAMS),
        # (An excluded one is the kernel's from its first call, whichever stream it is: the cases take turns.)
        *((case, "excluded", [*STREAMS][number % 2]) for number, case in enumerate(CASES)),
    ],
)
def test_a_connection_that_stays_in_the_kernel_does_the_same(
    case: str, why: str, streams: str, program: Path, plain: Plain, tmp_path: Path
) -> None:
    variables = {"CONFORMANCE_ROUNDS": "60", **STAYS[why], **STREAMS[streams]}
    got, stats = under_library([program, case], tmp_path / "stats.json", **variables)
    assert got == plain(case, streams)
    assert stats["connections_ring"] == 0 or case == "shared_instances"  # (there a fork shares pairs of the case's own)
    assert why == "undecided" or path_events.Reason.EXCLUDED in stats["fallback_reasons"]


def test_the_library_alone_serves_a_program_with_the_settings_of_the_environment(program: Path, tmp_path: Path) -> None:
    expected, stats = ended([program, "data"]).stdout, tmp_path / "stats.json"
    preloaded = ["sh", "-c", f'FASTSOCK_RUN_LIBRARY_STATS=$$:{stats} LD_PRELOAD={launch.LIBRARY} exec "$@"', "sh"]
    cases: list[tuple[dict[str, str], int, str]] = [
        ({"FASTSOCK_MOVE_AFTER": "0", "FASTSOCK__MEETING_MS": "500"}, 2, ""),
        ({"FASTSOCK_PORTS_EXCLUDED": "1-65535"}, 0, ""),
        ({"FASTSOCK_TRUST": "any", "FASTSOCK_POL_US": "3"}, 2, f"fastsock: {WARNING}"),
    ]
    for variables, moved, said in cases:
        for rounds in ("60", "500", "4000"):
            done = ended([*preloaded, program, "data"], CONFORMANCE_ROUNDS=rounds, **variables)
            assert (done.stdout, done.stderr) == (expected, said)
            if json.loads(stats.read_text())["connections_ring"] == moved:
                break
        assert json.loads(stats.read_text())["connections_ring"] == moved
        stats.unlink()


WARNING = "warning: no such setting: FASTSOCK_POL_US; did you mean FASTSOCK_POLL_US?\n"


@pytest.mark.parametrize(
    ("variable", "value"), [("ENABLED", "0"), ("POLL_US", "soon"), ("WINDOW", "0"), ("TRUST", "user,")]
)
def test_a_program_runs_untouched_where_a_setting_is_wrong_or_the_library_is_off(
    variable: str, value: str, program: Path, tmp_path: Path
) -> None:
    """What is wrong with it is said as in Python."""
    preloaded = [
        "sh",
        "-c",
        f'FASTSOCK_RUN_LIBRARY_STATS=$$:{tmp_path}/stats LD_PRELOAD={launch.LIBRARY} exec "$@"',
        "sh",
    ]
    done = ended([*preloaded, program, "data"], **{f"FASTSOCK_{variable}": value})
    said = ""
    if variable != "ENABLED":
        with pytest.raises(SettingError) as wrong:
            config.from_environment({}, {f"FASTSOCK_{variable}": value})
        said = f"fastsock: {program} stays with the kernel: {wrong.value}\n"
        assert (
            ended([launch.LAUNCHER, program, "data"], 2, **{f"FASTSOCK_{variable}": value}).stderr
            == f"fastsock: {wrong.value}\n"
        )
    assert (done.stdout, done.stderr) == (ended([program, "data"]).stdout, said)
    connected = tmp_path / "stats"
    assert not connected.exists() or json.loads(connected.read_text())["connections_ring"] == 0


SHORT_SESSIONS = """
import socket, sys
for port in sys.argv[1:]:
    with socket.create_connection(("127.0.0.1", int(port))) as sock:
        for _ in range(6):
            sock.sendall(b"x")
            sock.recv(1)
"""


def test_short_sessions_with_new_ports_are_learned_from(tmp_path: Path) -> None:
    """As the data connections of FTP: each has a port of its own."""

    def echo(listener: socket.socket) -> None:
        with listener, listener.accept()[0] as far:
            while data := far.recv(100):
                far.sendall(data)

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(20)]
    threads = [threading.Thread(target=echo, args=(listener,), daemon=True) for listener in listeners]
    ports = [listener.getsockname()[1] for listener in listeners]
    for thread in threads:
        thread.start()
    _, stats = under_library(["--libc", sys.executable, "-c", SHORT_SESSIONS, *ports], tmp_path / "stats.json")
    assert sum(stats["fallback_reasons"].values()) == len(ports)
    assert stats["fallback_reasons"][path_events.Reason.UNPAID] >= len(ports) - 5
    for thread in threads:
        thread.join(20)


# ---- `fastsock run PROGRAM` -----------------------------------------------------------------------------------------


def test_python_children_of_a_program_are_patched() -> None:
    code = "import fastsock; print(fastsock.is_patched())"
    assert ended([*RUN, "sh", "-c", f"{sys.executable} -c '{code}'"]).stdout == "True\n"
    assert ended([*RUN, sys.executable, "-c", code]).stdout == "True\n"


UNPATCHED = """
import os, socket, subprocess, sys, threading
import fastsock
fastsock.patch()  # the loops alone
print(fastsock.is_patched(), "_startup" in os.environ.get("PYTHONPATH", ""))
def echo():
    with server.accept()[0] as far:
        while data := far.recv(100):
            far.sendall(data)
with socket.create_server(("127.0.0.1", 0)) as server:
    thread = threading.Thread(target=echo)
    thread.start()
    with socket.create_connection(server.getsockname()) as near:
        for round in range(int(sys.argv[1])):
            near.sendall(b"%d" % round)
            assert near.recv(100) == b"%d" % round
    thread.join()
if sys.argv[2:]:
    child = "import fastsock; print(fastsock.is_patched())"
    print(subprocess.run([sys.executable, "-c", child], check=True, capture_output=True, text=True).stdout, end="")
"""


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("below", [(), RUN])
def test_python_below_the_c_library(named: bool, below: tuple[str, ...], tmp_path: Path) -> None:
    script, stats = tmp_path / "script.py", tmp_path / "stats.json"
    script.write_text(UNPATCHED)
    program = [sys.executable, script] if named else [script]
    for rounds in (2000, 20000, 100000):  # on a busy machine it takes longer until both ends have moved
        done = ended([*below, *RUN, "--libc", "--stats", stats, *program, rounds, "child"])
        assert (done.stdout, done.stderr) == ("True False\nFalse\n", "")
        if json.loads(stats.read_text())["connections_ring"] == 2:
            break
    else:
        pytest.fail("it stays with the kernel")
    done = ended([*RUN, "--libc", *RUN, script, 1])  # a patched program below one that is not
    assert done.stdout == "True True\n"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-static"], "it is statically linked, so LD_PRELOAD has no effect"),
        ([], "it is setuid or has capabilities, so the loader ignores LD_PRELOAD"),
    ],
    ids=["static", "setuid"],
)
def test_who_cannot_be_served_is_told_so_and_runs(flags: list[str], why: str, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("runs") < 0; }\n')
    program = tmp_path / "program"
    subprocess.run([COMPILER, *flags, str(source), "-o", str(program)], check=True, timeout=60)
    if not flags:
        if os.geteuid() != 0:
            pytest.skip("needs root, to make a program of another user's")
        os.chown(program, 65534, -1)
        program.chmod(0o4755)
    done = ended([*RUN, program])
    assert done.stdout == "runs\n"
    assert done.stderr == f"fastsock: {program} stays with the kernel: {why}\n"


SCRIPTS = {  # what it is called, its text, its mode; the exit status and the end of what is said
    "a missing command": ("nothing-of-this-name", None, 0, 127, "command not found"),
    "a missing file": ("./nothing", None, 0, 127, "no such file or directory"),
    "a folder": ("./folder", None, 0o755, 126, "is a folder without a __main__.py"),
    "not executable": ("./script", "#!/bin/sh\n", 0o644, 126, "is not executable"),
    "a program that is not executable": ("./true", "\x7fELF", 0o644, 126, "Permission denied"),
    "no program": ("./true", "\x7fELF", 0o755, 126, "Exec format error"),
    "an interpreter that is missing": (
        "./script",
        "#!/nothing\n",
        0o755,
        126,
        "its interpreter or loader does not exist",
    ),
    "its own status": ("./script", "#!/bin/sh\nexit 77\n", 0o755, 77, ""),
    "its own signal": ("./script", "#!/bin/sh\nkill -9 $$\n", 0o755, -9, ""),
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_the_exit_status_is_the_programs_or_a_shells(what: str, tmp_path: Path) -> None:
    name, text, mode, status, says = SCRIPTS[what]
    if text is not None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    elif mode:
        (tmp_path / name).mkdir()
    words = [sys.executable, "-m", "fastsock"]
    done = ended([*words, "run", name], status, cwd=tmp_path, PYTHONPATH=str(ROOT))
    lines = [line for line in done.stderr.splitlines() if "stays with the kernel" not in line]
    assert [line.endswith(says) for line in lines] == [True] * (says != "")
    ended([*words, "doctor", "--", name], status if status >= 0 else 128 - status, cwd=tmp_path, PYTHONPATH=str(ROOT))


def test_a_script_whose_interpreter_cannot_be_served_is_told_so_and_runs(tmp_path: Path) -> None:
    source, program, script = tmp_path / "program.c", tmp_path / "program", tmp_path / "script"
    source.write_text("int main(void) { return 5; }\n")
    subprocess.run([COMPILER, "-static", str(source), "-o", str(program)], check=True, timeout=60)
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    done = ended([*RUN, script], 5)
    why = f"its interpreter is {program}, and it is statically linked, so LD_PRELOAD has no effect"
    assert done.stderr == f"fastsock: {script} stays with the kernel: {why}\n"


# ---- `fastsock doctor -- PROGRAM` -----------------------------------------------------------------------------------


def doctor(*words: object, **variables: str) -> dict[str, Any]:
    done = ended([*RUN[:-1], "doctor", "--json", "--", "sh", "-c", '"$@" >&2', "sh", *words], **variables)
    return dict(json.loads(done.stdout))


def test_the_doctor_tells_the_path_of_each_connection_and_why(program: Path) -> None:
    for rounds in ("60", "500", "4000"):  # on a busy machine it takes longer until both ends have moved
        said = doctor(program, "data", CONFORMANCE_ROUNDS=rounds)
        if len(said["moved"]) == 2:
            break
    first, second = said["moved"]
    assert (first["local"], first["peer"]) == (second["peer"], second["local"])
    assert f"{program} data" in said["processes"].values()
    said = doctor(program, "data", FASTSOCK_PORTS_EXCLUDED="1-65535")
    assert said["moved"] == []
    assert said["stayed"] == {path_events.Reason.EXCLUDED: 2}
    assert len(said["examples"][path_events.Reason.EXCLUDED]) == 2
    assert said["origins"] == {"ports_excluded": "FASTSOCK_PORTS_EXCLUDED"}
    said = doctor(program, "data", FASTSOCK_MOVE_AFTER="1000000")
    assert said["stayed"] == {path_events.Reason.FEW: 2}


def test_what_run_takes_for_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, shell, command = tmp_path / "script", tmp_path / "shell", tmp_path / "tool"
    script.write_text("print(1)\n")
    shell.write_text("#!/bin/sh\n")
    command.write_text(f"#!{sys.executable}\n")
    for path in (script, shell, command):
        path.chmod(0o755)
    for name in (script, "-m", tmp_path, tmp_path / "nothing", command):  # the last: Python's, and named by its file
        assert not launch.is_program(str(name))
    assert launch.is_program(str(shell))
    assert launch.is_program(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert launch.is_program("tool")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sh").mkdir()  # a folder of a command's name is no program of Python's
    assert launch.is_program("sh")
    with socket.socket(socket.AF_UNIX) as named:  # nor is a server's socket
        named.bind("cat")
        assert launch.is_program("cat")
    (tmp_path / "sh/__main__.py").touch()
    assert not launch.is_program("sh")


@pytest.mark.parametrize(
    ("trust", "namespace", "moves"), [("{user}", 0, 1), ("{user}", 1, 0), ("user", 1, 1), ("7", 0, 0)]
)
def test_users_are_trusted_by_number_in_their_user_namespace(
    trust: str, namespace: int, moves: int, program: Path, tmp_path: Path
) -> None:
    """`fastsock run` looks the names up; a container further down may give the numbers to others."""
    numbers, stats = config.Settings(trust=trust.format(user=os.geteuid())).trust.numbers, tmp_path / "stats.json"
    space = os.stat("/proc/self/ns/user").st_ino
    variables = {"FASTSOCK_TRUST": numbers.replace(f"@{space}", f"@{space + namespace}")}
    for rounds in ("60", "500", "4000"):  # on a busy machine it takes longer until both ends have moved
        stats_of = under_library([program, "data"], stats, CONFORMANCE_ROUNDS=rounds, **variables)[1]
        if not moves or stats_of["connections_ring"]:
            break
    assert stats_of["connections_ring"] == 2 * moves
    assert moves or set(stats_of["fallback_reasons"]) <= {path_events.Reason.UNTRUSTED, path_events.Reason.SEEKING}


def test_the_environment_of_a_program() -> None:
    variables = {"LD_PRELOAD": f"{launch.LIBRARY}", "FASTSOCK_TRUST": "user,root", "PYTHONPATH": ":own"}
    done = ended([launch.LAUNCHER, "--combine", "no", "--poll-us=7", "env"], **variables)
    assert done.stderr == ""
    made = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert made["LD_PRELOAD"] == launch.LIBRARY
    assert (made["FASTSOCK_COMBINE"], made["FASTSOCK_POLL_US"], made["FASTSOCK_RUN"]) == ("no", "7", "1")
    assert made["FASTSOCK_TRUST"] == f"user,0@{os.stat('/proc/self/ns/user').st_ino}"
    assert made["PYTHONPATH"] == f"{Path(launch.LIBRARY).parent}/_startup::own"
    made = dict(line.split("=", 1) for line in ended([launch.LAUNCHER, "--libc", "env"], **made).stdout.splitlines())
    assert (made["PYTHONPATH"], "FASTSOCK_RUN" in made) == (":own", False)
    assert environment().keys() >= {"PATH"}
