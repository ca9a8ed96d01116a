"""The core is a library for C: built with a compiler alone, of headers that stand alone, and driven without Python."""

import ast
import errno
import os
import platform
import re
import shlex
import socket
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.processes import MadeOnce

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core"
NATIVE = ROOT / "tests" / "native"
COMPILER = shlex.split(os.environ.get("CC", "cc"))
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", f"-I{CORE}"]
DEADLINE = 350  # of a compiler or a program that does not end


def done(*words: object, given: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended; it is `given` this on its stdin."""
    return subprocess.run(
        [str(word) for word in words], input=given, env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip


def ended_well(*words: object, given: str | None = None, **variables: str) -> str:
    """What such a command has printed that has nothing to complain about."""
    ended = done(*words, given=given, **variables)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    return ended.stdout


@pytest.fixture(scope="session")
def library(made_once: MadeOnce) -> Path:
    def make(folder: Path) -> None:
        assert ended_well(CORE / "compile", folder, "-O1", "-U_FORTIFY_SOURCE", "-Werror", FASTSOCK_DEBUG="1") == ""

    return made_once("core", make) / "libfastsock.a"


def build(name: str, library: Path, folder: Path, *flags: str) -> Path:
    """A program of tests/native."""
    flags = (*FLAGS, *flags, "-O1", "-g", "-U_FORTIFY_SOURCE")
    ended_well(*COMPILER, *flags, NATIVE / f"{name}.c", library, "-pthread", "-o", folder / name)
    return folder / name


PATH_EVENTS = """
CONNECT   b!!!!!!!!.!!
CONNECTED .a..........
OPEN      c!!!!!!!!.!!
START     .!d.........
PUBLISH   !!!e!!!!!.!!
SEEK      !!!g!!!!!.!!
NAMED     !!!!f!!!!.!!
HELLO     !!!!!!h!!.!!
AGAIN     !!!!!!gg!.!!
CAME      !!!!ii.i!.!!
MOVED     .!!!!!!!a...
STAY      aaaaaaaaaaaa
FORK      k!!!!!!!....
ANSWERED  .!!!!!!!!.aa
CHILD     ...c.e.g....
INHERIT   lllllllll.ll
"""
"""What each event does in each state of the path, DECIDED (a) to ANSWER_LATER (l): see forbidden.c."""


def test_an_event_that_cannot_be_is_reported_in_release_builds_too(release: Path, tmp_path: Path) -> None:
    flags = [*FLAGS, "-O1", NATIVE / "forbidden.c", release, "-pthread"]
    assert "" == ended_well(*COMPILER, *flags, "-o", tmp_path / "forbidden") == ""
    told, broken, *walked = ended_well(tmp_path / "forbidden").splitlines()
    assert told == "0 1 1 internal error: event OUT is not allowed in this state"
    assert broken == "internal error: event NAMED is not allowed in this state of the path"
    assert walked == re.findall(r"\S+$", PATH_EVENTS, re.MULTILINE)


def test_each_header_stands_alone() -> None:
    """So that an include says what a file needs, and their order says nothing."""
    for header in sorted(CORE.rglob("*.h")):
        line = f'#include "{header.relative_to(CORE)}"\n'
        ended_well(*COMPILER, *FLAGS, "-fsyntax-only", "-xc", "-", given=line)


@pytest.mark.parametrize("language", ["-xc -std=c11", "-xc++ -std=c++11"])
def test_the_public_header_needs_nothing_but_the_c_library(language: str) -> None:
    flags = [*language.split(), "-Wall", "-Wextra", "-Werror", f"-I{CORE}/include", "-fsyntax-only"]
    ended_well(*COMPILER, *flags, "-", given='#include "fastsock.h"\n')


@pytest.mark.parametrize("standard", ["c11", "gnu11"])
@pytest.mark.parametrize("other", ["netinet/tcp.h", "linux/tcp.h", "netinet/in.h", "sys/epoll.h"])
def test_the_public_header_goes_with_what_else_a_program_includes(other: str, standard: str) -> None:
    """In either order. (Two of them exclude each other, so the public header has neither.)"""
    ours, theirs = '#include "fastsock.h"\n', f"#include <{other}>\n"
    flags = (*FLAGS, f"-I{CORE}/include", f"-std={standard}", "-fsyntax-only")
    for lines in (ours + theirs, theirs + ours):
        program = lines + "int main(void) { return fs_conn_size() == 0; }\n"
        ended_well(*COMPILER, *flags, "-xc", "-", given=program)


LOCKS = """
#include "conn/fallback.h"
#include "conn/send.h"
#include "conn/side_lock.h"
#include "conn/state.h"
#include "conn/wake.h"
#include "ring/ring_recovery.h"

void program(struct fs_connection *c, struct fs_sender *sender, struct fs_receiver *receiver,
             struct fs_fallback_lock *fallback, struct fs_side_locks both,
             struct fs_unread_data *unread_data, char *bytes) {
    %s
}
"""
LOCK = re.compile(r"\b(?:both\.)?(sender|receiver|fallback)\b")
OTHERS = {"sender": "receiver", "receiver": "sender", "fallback": "sender"}
NEED_A_LOCK = [
    "fs_post(&c->ring, sender, bytes, 1, 0);",
    "fs_post_fin(&c->ring, sender, FS_FIN);",
    "fs_update_credits(&c->ring, sender);",
    "fs_arm_sender(&c->ring, sender, FS_WAITS);",
    "fs_recover_sender(&c->ring, sender);",
    "fs_ring_recv(&c->ring, receiver, bytes, 1, FS_CONSUME);",
    "fs_send_ack(&c->ring, receiver);",
    "fs_claim_sender_wakeups(&c->ring, receiver);",
    "fs_recover_receiver(&c->ring, receiver);",
    "fs_notify_receiver(c, sender, FS_ASLEEP);",
    "fs_switch_sending(c, both.sender);",
    "fs_answer_credit_wait(c, both.receiver);",
    "fs_change_sending(c, sender, FS_EV_HOLD);",
    "fs_change_receiving(c, receiver, FS_EV_COLLECT);",
    "fs_change_leaving(c, fallback, FS_EV_OUT);",
    "fs_fallback(c, fallback, unread_data);",
    "fs_fallback_done(c, fallback);",
    "sender = fs_lock_send(c);",
    "receiver = fs_lock_recv_within(c, 1);",
    "fs_unlock_send(sender);",
    "fs_unlock_recv(receiver);",
    "fs_fallback_end(c, fallback, 1);",
]


def shipped_flags() -> list[list[str]]:
    """What compiles the core into the extension, and into the library."""
    built = [word for found in re.findall(r"^FLAGS \+?= (\[.*\])$", (ROOT / "setup.py").read_text(), re.MULTILINE)
             for word in ast.literal_eval(found)]  # fmt: skip
    script = (CORE / "compile").read_text()
    return [built, [word for found in re.findall(r'^command\+?="(.*?)"', script, re.MULTILINE)
                    for word in shlex.split(found) if word.startswith("-")]]  # fmt: skip


def compiled(statements: str, flags: list[str]) -> subprocess.CompletedProcess[str]:
    return done(*COMPILER, *flags, f"-I{CORE}", "-fsyntax-only", "-xc", "-", given=LOCKS % statements)


@pytest.mark.parametrize("flags", shipped_flags(), ids=["extension", "library"])
def test_what_has_the_right_lock_compiles(flags: list[str]) -> None:
    found = compiled("\n".join(NEED_A_LOCK), [*flags, "-Werror"])
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("statement", NEED_A_LOCK, ids=lambda statement: re.search(r"fs_\w+", statement)[0])
def test_what_has_the_wrong_lock_does_not_compile(statement: str) -> None:
    wrong = LOCK.sub(lambda lock: lock[0].replace(lock[1], OTHERS[lock[1]]), statement)
    assert wrong != statement
    for flags in shipped_flags():
        found = compiled(wrong, flags)
        assert found.returncode != 0, wrong
        assert re.search(r"incompatible[- ]pointer[- ]type", found.stderr), found.stderr


def test_an_event_of_the_other_direction_does_not_compile() -> None:
    assert compiled("fs_change_sending(c, sender, FS_EV_HOLD);", FLAGS).returncode == 0
    found = compiled("fs_change_sending(c, sender, FS_EV_COLLECT);", FLAGS)
    assert found.returncode != 0
    assert "enum-conversion" in found.stderr


def test_the_library_needs_the_c_library_alone(library: Path, tmp_path: Path) -> None:
    """All of it is linked into a program that calls nothing."""
    whole = ["-Wl,--whole-archive", library, "-Wl,--no-whole-archive", "-pthread"]
    program = "int main(void) { return 0; }"
    ended_well(*COMPILER, "-xc", "-", "-xnone", *whole, "-o", tmp_path / "program", given=program)
    ended_well(tmp_path / "program")


PROGRAMS = {
    **dict.fromkeys(("connection", "failures", "life", "search", "sets", "untrusted_users"), (
        "3", r"(rounds|runs), [1-9]\d* (bytes|failures|calls)",
    )),
    **dict.fromkeys(("crashes", "killed"), ("2", r"rounds, [1-9]\d* killed")),
    "cells": ("", "taken"),
    "front": ("1", r"rounds: [1-9]\d* bytes on the ring"),
    "acks": ("1", r"rounds, [1-9]\d* ACKs"),
    "futex_wakes": ("0", "rounds"),
    "moments": ("0", r"rounds, [1-9]\d* moments"),
    "copies": ("", "copies"),
    **dict.fromkeys(("readiness", "pollers", "storms"), ("", "runs")),
}  # fmt: skip
"""Programs of tests/native (each says at its head what it is about), for how many seconds, and what they tell."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_each_call_of_the_core_does(name: str, library: Path, tmp_path: Path) -> None:
    seconds, told = PROGRAMS[name]
    program = build(name, library, tmp_path, f"-I{CORE}/include")
    said = ended_well(program, *seconds.split())
    assert re.search(rf"^[1-9]\d* {told}", said, re.MULTILINE), said


@pytest.fixture(scope="session", params=["-xc -std=c11 -D_DEFAULT_SOURCE", "-xc++ -std=c++11"], ids=["C", "C++"])
def public(request: pytest.FixtureRequest, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The echo server and client of the public header alone."""
    program = tmp_path_factory.mktemp("public") / "public"
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-g", f"-I{CORE}/include", NATIVE / "public.c", "-xnone", library]
    ended_well(*COMPILER, *request.param.split(), *flags, "-pthread", "-o", program)
    return program


@contextmanager
def echo_server(public: Path, connections: int) -> Iterator[tuple[int, list[str]]]:
    """Its port, and at the end what it says of its connections."""
    words = [public, "serve", str(connections)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            port, said = int(server.stdout.readline().removeprefix("port ")), list[str]()
            yield port, said
            out, wrong = server.communicate(timeout=DEADLINE)
            assert (server.returncode, wrong) == (0, "")
            said += sorted(out.splitlines())
        finally:
            server.kill()


def test_a_front_end_of_the_public_header_alone(public: Path) -> None:
    """Clients of itself move, go back half-way, and end their streams; signals interrupt both ends."""
    with echo_server(public, 3) as (port, said):
        words = [str(public), "call", str(port), "1000"]
        clients, called = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)], []
        for client in clients:
            told = client.communicate(timeout=DEADLINE)[0]
            assert client.returncode == 0, told
            found = re.fullmatch(r"called: (.*, on the ring, and back)\n(\d+) messages .*, (\d+) inter.*\n", told)
            assert found, told
            assert int(found[2]) >= 1000
            assert int(found[3]) > 3
            called.append(f"served: {found[1]}")
    assert said == sorted(called)


def test_that_front_end_serves_a_client_on_kernel_tcp(public: Path) -> None:
    with (
        echo_server(public, 2) as (port, said),
        socket.create_connection(("127.0.0.1", port)) as whole,
        socket.create_connection(("127.0.0.1", port)) as cut,
    ):
        for number in range(200):
            sent = bytes([number]) * 3000
            whole.sendall(sent)
            assert whole.recv(3000, socket.MSG_WAITALL) == sent
        whole.shutdown(socket.SHUT_WR)
        assert whole.recv(1) == b""
        cut.sendall(b"unread")
        cut.recv(1)
        cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert said[0].startswith(f"{os.strerror(errno.ECONNRESET)}: 6 bytes, ")
    assert re.match("served: 600000 bytes, (looking for the peer|peer does not use fastsock)", said[1])


# ---- calls of the system -------------------------------------------------------------------------------------

HARMLESS = re.compile(
    r"mem(?:cpy|cmp|set|move|chr)|str(?:len|chr|cmp)|snprintf|(?:__isoc\d+_)?sscanf|inet_ntop|inet_pton"  # no calls
    r"|sigfillset|__sched_cpucount"
    r"|clock_gettime|getauxval|getpid|get[eu]?[ug]id|sched_yield|sched_getcpu|pthread_sigmask|sigprocmask"
    r"|_exit"  # cannot fail
    r"|pthread_(?:mutex_\w+|attr_\w+|detach|tryjoin_np|self)|__cmsg_nxthdr"  # neither
    r"|_GLOBAL_OFFSET_TABLE_|_*errno_location|__tls_get_addr|__assert_fail|__stack_chk_fail|__aarch64_\w+"  # compiler
)
"""What files of the core but syscalls.c may use of the C library. All else can fail, and belongs in the table."""


def names_in(objects: Path, which: str) -> dict[str, set[str]]:
    """Of each object file in an archive, the names that it defines or that it needs."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, name in re.findall(r"^.*\[(.*)\]: (\S+)", ended_well("nm", "-P", "-A", which, objects), re.MULTILINE):
        found[file].add(name)
    return found


def calls_past_the_table(objects: Path) -> dict[str, set[str]]:
    own = set().union(*names_in(objects, "--defined-only").values())
    strange = {
        file: {name for name in names - own if not HARMLESS.fullmatch(name)}
        for file, names in names_in(objects, "--undefined-only").items()
        if file not in ("os-syscalls.c.o", "os-clock.c.o")  # (the clock is the kernel's, whoever stands before it)
    }
    return {file: names for file, names in strange.items() if names}


def test_only_the_table_makes_calls_that_can_fail(library: Path) -> None:
    assert calls_past_the_table(library) == {}
    assert names_in(library, "--undefined-only")["os-syscalls.c.o"] >= {"recv", "send", "poll", "mmap"}


def test_a_call_past_the_table_is_found(library: Path, tmp_path: Path) -> None:
    """The test above passes on what it does not see."""
    source, objects = tmp_path / "stray.c", tmp_path / "libfastsock.a"
    source.write_text(
        '#include "os/syscalls.h"\n'
        "int64_t stray(int fd, void *into) { return fs_now() + recv(fd, into, 1, 0) + fs_system.close(fd); }\n"
        "void *strayed(void) { return malloc((size_t)getpid()); }\n"
    )
    ended_well(*COMPILER, *FLAGS, "-c", source, "-o", tmp_path / "stray.o")
    objects.write_bytes(library.read_bytes())
    ended_well("ar", "rs", objects, tmp_path / "stray.o")
    assert calls_past_the_table(objects) == {"stray.o": {"recv", "malloc"}}


def test_failures_find_what_is_forgotten(library: Path, tmp_path: Path) -> None:
    """A descriptor that stays open where the unread data gets no memory; and a call in the table that nobody makes."""
    leave, seeded = (CORE / "conn/fallback.c").read_text(), tmp_path / "fallback.c"
    closes = "(off_t)size) < 0) {\n        fs_system.close(fd);\n"
    assert closes in leave
    seeded.write_text(leave.replace(closes, closes.replace("fs_system.close(fd);", "")))
    program = (NATIVE / "failures.c").read_text()
    forgetful = tmp_path / "forgetful.c"
    assert "CALL_sysconf," in program
    forgetful.write_text(program.replace("CALL_sysconf,", ""))

    def fails(*words: object) -> tuple[int, str]:
        """Of the program with other sources, which stand before the library's; behind them its arguments."""
        *sources, arguments = words
        into, flags = tmp_path / "failures", [*FLAGS, f"-I{NATIVE}", "-O1", "-U_FORTIFY_SOURCE", "-pthread"]
        ended_well(*COMPILER, *flags, *sources, library, "-o", into)
        found = done(into, *str(arguments).split())
        return found.returncode, found.stdout + found.stderr

    # The first such call of the program in the variant that leaves, with its first error.
    table = (CORE / "os/syscalls.h").read_text()
    calls = re.findall(r"^    (?:CALL|RAW)\(.+?, (\w+), ", table, re.MULTILINE)
    first = f"1 {((1 * 3 + 0) * len(calls) + calls.index('fallocate')) * 4 << 20 | 1}"
    assert fails(NATIVE / "failures.c", first) == (0, "it came\n")
    status, said = fails(NATIVE / "failures.c", seeded, first)
    assert (status, "a descriptor is left" in said) == (1, True)
    status, said = fails(forgetful, "1")
    assert (status, "the scenario never calls sysconf" in said) == (1, True)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no copies but memcpy's")
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_the_copy_in_vectors_is_none_of_memcpy(level: str, tmp_path: Path) -> None:
    """A compiler that sees a loop which copies may call memcpy."""
    compiled = tmp_path / "copy.o"
    ended_well(*COMPILER, *FLAGS, level, "-c", CORE / "os/copy.c", "-o", compiled)
    names = ended_well("nm", "-P", compiled)
    assert re.search(r"^fs_copy_in_vectors T", names, re.MULTILINE)
    assert not re.search(r"mem(cpy|move)", names)


def test_payload_is_copied_by_fs_copy_alone() -> None:
    """Elsewhere a copy has a length that the compiler knows."""
    copies = [
        (path.name, *found)
        for room in ("ring", "conn")
        for path in (CORE / room).iterdir()
        for found in re.findall(r"\b(memcpy|memmove|fs_copy(?:_from)?)\((.*)\)", path.read_text())
    ]
    lengths = [(name, what, arguments.rpartition(", ")[2]) for name, what, arguments in copies if "fs_copy" not in what]
    assert len(copies) - len(lengths) == 5
    assert lengths
    assert [copy for copy in lengths if not re.fullmatch(r"\d+|sizeof .*|count\)", copy[2])] == []


def test_an_ack_that_is_late_is_found(library: Path, tmp_path: Path) -> None:
    """The program passes on what it does not see."""
    found = done(build("acks", library, tmp_path, "-DNO_LIMIT"), "0")
    assert found.returncode == 1
    assert "the sender has posted 1, all was taken, and it is told of 0" in found.stderr
