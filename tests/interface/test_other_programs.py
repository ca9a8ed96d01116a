"""Programs below `fastsock run` that cannot have the library, or not the package: they run, and are told so once at
most. So do those that are started by others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes import ended

from fastsock import launch

COMPILER = os.environ.get("CC", "cc")
RUN = (sys.executable, "-m", "fastsock", "run")
HELLO = '#include <stdio.h>\nint main(void) { return puts("runs") < 0; }\n'

BUILDS: dict[str, tuple[list[str], str]] = {  # how each is built, and what is said of it
    "glibc": ([COMPILER], ""),
    "static": ([COMPILER, "-static"], "it is statically linked, so LD_PRELOAD has no effect"),
    "musl": (["musl-gcc"], "its C library is musl; glibc is needed"),
    "static musl": (["musl-gcc", "-static"], "it is statically linked, so LD_PRELOAD has no effect"),
    "address": ([COMPILER, "-fsanitize=address"], "the shared library of its sanitizer has to be loaded first"),
    "thread": ([COMPILER, "-fsanitize=thread"], "the shared library of its sanitizer has to be loaded first"),
    "static address": ([COMPILER, "-fsanitize=address", "-static-libasan"], ""),
    "32 bits": ([COMPILER, "-m32"], "it is not a 64-bit ELF program for this CPU"),
    "setuid": ([COMPILER], "it is setuid or has capabilities, so the loader ignores LD_PRELOAD"),
    "setuid musl": (["musl-gcc"], "it is setuid or has capabilities, so the loader ignores LD_PRELOAD"),
}

STARTS: dict[str, Callable[[Path], list[str]]] = {  # ways in which another program starts it
    "exec of a shell": lambda program: ["sh", "-c", f"exec {program}"],
    "child of a shell": lambda program: ["sh", "-c", f"{program}; :"],
    "name on the PATH": lambda program: ["env", f"PATH={program.parent}:/usr/bin:/bin", program.name],
    "two programs on": lambda program: ["env", "sh", "-c", f"env {program}"],
    "script": lambda program: ["sh", "-c", f"{program}.script"],
    "Python": lambda program: ["-c", f"import subprocess; subprocess.run(['{program}'], check=True)"],
    "execl and posix_spawn": lambda program: [f"{program.parent}/starts", str(program)],
}

C_STARTS = """
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv) {
    char *arguments[] = {argv[1], NULL};
    pid_t child;
    int status;
    if (posix_spawn(&child, argv[1], NULL, NULL, arguments, environ)) return 1;
    if (waitpid(child, &status, 0) < 0 || status) return 1;
    if (posix_spawnp(&child, argv[1], NULL, NULL, arguments, environ)) return 2;
    if (waitpid(child, &status, 0) < 0 || status) return 2;
    if (!(child = vfork())) { execvp(argv[1], arguments); _exit(127); }
    if (waitpid(child, &status, 0) < 0 || status) return 3;
    execl("/nothing", "nothing", (char *)0); /* one that fails first */
    return execl(argv[1], argv[1], (char *)0);
}
"""


def built(kind: str, folder: Path) -> Path:
    words, _ = BUILDS[kind]
    source, program = folder / "program.c", folder / "program"
    source.write_text(HELLO)
    if (
        shutil.which(words[0]) is None
        or subprocess.run([*words, source, "-o", program], check=False, capture_output=True, timeout=60).returncode
    ):
        pytest.skip(f"cannot be built here: {' '.join(words)}")
    if kind.startswith("setuid"):
        if os.geteuid() != 0:
            pytest.skip("needs root, to make a program of another user's")
        os.chown(program, 65534, -1)
        program.chmod(0o4755)
    script = folder / "program.script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    return program


@pytest.mark.parametrize("kind", BUILDS)
def test_a_program_runs_and_is_told_what_it_is(kind: str, tmp_path: Path) -> None:
    program, (_, why) = built(kind, tmp_path), BUILDS[kind]
    for name, of_it in ((str(program), why), (f"{program}.script", f"its interpreter is {program}, and {why}")):
        done = ended([*RUN, name])
        said = f"fastsock: {name} stays with the kernel: {of_it}\n" if why else ""
        assert (done.stdout, done.stderr) == ("runs\n", said)


@pytest.mark.parametrize("kind", BUILDS)
def test_a_program_runs_that_another_one_starts(kind: str, tmp_path: Path) -> None:
    program = built(kind, tmp_path)
    (tmp_path / "starts.c").write_text(C_STARTS)
    subprocess.run([COMPILER, tmp_path / "starts.c", "-o", tmp_path / "starts"], check=True, timeout=60)
    for way, words in STARTS.items():
        done = ended([*RUN, *words(program)])
        times = 4 if way.startswith("execl") else 1
        assert (way, done.stdout, done.stderr) == (way, "runs\n" * times, "")


def test_a_setuid_program_that_changes_no_user_is_served(tmp_path: Path) -> None:
    """Such as su, started by root."""
    program = built("glibc", tmp_path)
    program.chmod(0o4755)
    assert ended([*RUN, program]).stderr == ""


def test_the_environment_keeps_the_libraries_of_others(tmp_path: Path) -> None:
    """Of a program that cannot have ours; and a sanitizer's stays first."""
    source, show = tmp_path / "show.c", tmp_path / "show"
    source.write_text(
        '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv("LD_PRELOAD")); return 0; }\n'
    )
    if shutil.which("musl-gcc") is None:
        pytest.skip("no musl-gcc")
    subprocess.run(["musl-gcc", "-w", source, "-o", show], check=True, timeout=60)
    other = "/nothing/libother.so"
    shown = ended(["sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{other} {show} 2>&1"], LD_PRELOAD=launch.LIBRARY).stdout
    assert shown.splitlines()[-1] == other
    for program, named in ((show, "libasan.so.8:other.so"), ("env", f"libasan.so.8:{launch.LIBRARY}:other.so")):
        said = ended([launch.LAUNCHER, program], LD_PRELOAD="other.so libasan.so.8", LD_BIND_NOW="").stdout
        shown = [line.removeprefix("LD_PRELOAD=") for line in said.splitlines() if "asan" in line]
        assert shown == [named]


def test_a_program_that_is_off_has_no_library() -> None:
    done = ended([*RUN, "grep", "-c", "libfastsock", "/proc/self/maps"], 1, FASTSOCK_ENABLED="0")
    assert (done.stdout, done.stderr) == ("0\n", "")
    done = ended([*RUN[:-1], "doctor", "true"], FASTSOCK_ENABLED="0")
    assert "Fastsock is off: enabled is 0" in done.stderr
    assert "-I, -E" not in done.stderr


ECHO = """
import socket, sys, threading
def echo():
    far, _ = server.accept()
    while data := far.recv(100):
        far.sendall(data)
with socket.create_server(("127.0.0.1", 0)) as server:
    thread = threading.Thread(target=echo)
    thread.start()
    with socket.create_connection(server.getsockname()) as near:
        for _ in range(int(sys.argv[1])):
            near.sendall(b"x")
            assert near.recv(1) == b"x"
    thread.join()
print("fastsock" in sys.modules)
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment that has no packages at all."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.mark.parametrize("way", ["named", "script", "of a shell", "of a Python program"])
def test_python_of_another_environment_is_served_by_the_library(way: str, other: Path, tmp_path: Path) -> None:
    program, stats = tmp_path / "program.py", tmp_path / "stats.json"
    program.write_text(f"#!{other}\n{ECHO}")
    program.chmod(0o755)
    for rounds in (2000, 20000, 100000):  # on a busy machine it takes longer until both ends have moved
        words = [str(other), str(program), str(rounds)]
        ways = {
            "named": words,
            "script": ["env", str(program), str(rounds)],
            "of a shell": ["sh", "-c", f"{' '.join(words)}; :"],
            "of a Python program": ["-c", f"import subprocess; subprocess.run({words!r}, check=True)"],
        }
        if way == "named":
            done = ended([*RUN, "--stats", stats, *ways[way]])
            moved = json.loads(stats.read_text())["connections_ring"]
        else:
            done = ended([*RUN[:-1], "doctor", "--json", *ways[way]])
            first, _, rest = done.stdout.partition("\n")
            moved, done.stdout = len(json.loads(rest)["moved"]), first + "\n"
        assert (done.stdout, done.stderr) == ("False\n", "")
        if moved == 2:
            return
    pytest.fail("it stays with the kernel")
