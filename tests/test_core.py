"""The core is a library for C: built with a compiler alone, of headers that stand alone, and driven without Python."""

import ast
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core"
NATIVE = ROOT / "tests" / "native"
COMPILER = shlex.split(os.environ.get("CC", "cc"))
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", f"-I{CORE}"]
DEADLINE = 110



@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    command = [CORE / "compile", folder, "-O1", "-U_FORTIFY_SOURCE", "-Werror"]
    asserts = {**os.environ, "FASTSOCK_DEBUG": "1"}
    done = subprocess.run(command, env=asserts, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "libfastsock.a"


def build(name: str, library: Path, folder: Path, *flags: str) -> Path:
    """A program of tests/native."""
    subprocess.run(
        [*COMPILER, *FLAGS, *flags, "-O1", "-g", "-U_FORTIFY_SOURCE", str(NATIVE / f"{name}.c"), str(library),
         "-pthread", "-o", str(folder / name)],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    return folder / name


def test_each_header_stands_alone() -> None:
    """So that an include says what a file needs, and their order says nothing."""
    for header in sorted(CORE.rglob("*.h")):
        line = f'#include "{header.relative_to(CORE)}"\n'
        done = subprocess.run(
            [*COMPILER, *FLAGS, "-fsyntax-only", "-xc", "-"],
            input=line, capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), header


@pytest.mark.parametrize("standard", ["c11", "gnu11"])
@pytest.mark.parametrize("other", ["netinet/tcp.h", "linux/tcp.h", "netinet/in.h", "sys/epoll.h"])
def test_the_public_header_goes_with_what_else_a_program_includes(other: str, standard: str) -> None:
    """In either order. (Two of them exclude each other, so the public header has neither.)"""
    ours, theirs = '#include "fastsock.h"\n', f"#include <{other}>\n"
    for lines in (ours + theirs, theirs + ours):
        done = subprocess.run(
            [*COMPILER, *FLAGS, f"-I{CORE}/include", f"-std={standard}", "-fsyntax-only", "-xc", "-"],
            input=lines + "int main(void) { return fs_pid_space() == fs_own_pid_space; }\n",
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), lines


TURNS = """
#include "connection/hear.h"
#include "connection/leave.h"
#include "connection/ringing.h"
#include "connection/send.h"
#include "connection/state.h"
#include "connection/turns.h"
#include "ring/mending.h"

void program(struct fs_connection *c, struct fs_sender *sender, struct fs_receiver *receiver, struct fs_leaver *leaver,
             struct fs_both both, struct fs_parcel *parcel, char *bytes) {
    %s
}
"""
TURN = re.compile(r"\b(?:both\.)?(sender|receiver|leaver)\b")
OTHERS = {"sender": "receiver", "receiver": "sender", "leaver": "sender"}
NEED_A_TURN = [
    "fs_post(&c->vi, sender, bytes, 1, FS_DATA, 0, NULL);",
    "fs_post_fin(&c->vi, sender, FS_FIN);",
    "fs_take_credits(&c->vi, sender);",
    "fs_arm_sender(&c->vi, sender, FS_WAITS);",
    "fs_mend_sender(&c->vi, sender);",
    "fs_take(&c->vi, receiver, bytes, 1, FS_CONSUME);",
    "fs_acknowledge(&c->vi, receiver);",
    "fs_hush(&c->vi, receiver);",
    "fs_mend_receiver(&c->vi, receiver);",
    "fs_ring(c, sender, FS_ASLEEP);",
    "fs_switch_sending(c, both.sender);",
    "fs_take_doorbell_bytes(c, both.receiver);",
    "fs_change_sending(sender, FS_EV_HOLD);",
    "fs_change_receiving(receiver, FS_EV_COLLECT);",
    "fs_change_leaving(leaver, FS_EV_OUT);",
    "fs_leave_ring(c, leaver, parcel);",
    "fs_go_out(c, leaver);",
    "sender = fs_lock_sending(c);",
    "receiver = fs_take_turn_to_receive(c, 1);",
    "fs_unlock_sending(sender);",
    "fs_unlock_receiving(receiver);",
    "fs_end_turn_to_send(c, sender);",
    "fs_end_turn_to_receive(c, receiver);",
    "fs_end_leaving(c, leaver, 1);",
]


def shipped_flags() -> list[list[str]]:
    """What compiles the core into the extension, and into the library."""
    built = [word for found in re.findall(r"^FLAGS \+?= (\[.*\])$", (ROOT / "setup.py").read_text(), re.MULTILINE)
             for word in ast.literal_eval(found)]  # fmt: skip
    script = (CORE / "compile").read_text()
    return [built, [word for found in re.findall(r'^command\+?="(.*?)"', script, re.MULTILINE)
                    for word in shlex.split(found) if word.startswith("-")]]  # fmt: skip


def compiled(statements: str, flags: list[str]) -> subprocess.CompletedProcess[str]:
    command = [*COMPILER, *flags, f"-I{CORE}", "-fsyntax-only", "-xc", "-"]
    program = TURNS % statements
    return subprocess.run(command, input=program, capture_output=True, text=True, timeout=DEADLINE, check=False)


@pytest.mark.parametrize("flags", shipped_flags(), ids=["extension", "library"])
def test_what_has_the_right_turn_compiles(flags: list[str]) -> None:
    done = compiled("\n".join(NEED_A_TURN), [*flags, "-Werror"])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("statement", NEED_A_TURN, ids=lambda statement: re.search(r"fs_\w+", statement)[0])
def test_what_has_the_wrong_turn_does_not_compile(statement: str) -> None:
    wrong = TURN.sub(lambda turn: turn[0].replace(turn[1], OTHERS[turn[1]]), statement)
    assert wrong != statement
    for flags in shipped_flags():
        done = compiled(wrong, flags)
        assert done.returncode != 0, wrong
        assert re.search(r"incompatible[- ]pointer[- ]type", done.stderr), done.stderr


def test_an_event_of_the_other_direction_does_not_compile() -> None:
    assert compiled("fs_change_sending(sender, FS_EV_HOLD);", FLAGS).returncode == 0
    done = compiled("fs_change_sending(sender, FS_EV_COLLECT);", FLAGS)
    assert done.returncode != 0
    assert "enum-conversion" in done.stderr


def test_the_library_needs_the_c_library_alone(library: Path, tmp_path: Path) -> None:
    """All of it is linked into a program that calls nothing."""
    whole = ["-Wl,--whole-archive", str(library), "-Wl,--no-whole-archive", "-pthread"]
    done = subprocess.run(
        [*COMPILER, "-xc", "-", "-xnone", *whole, "-o", str(tmp_path / "program")],
        input="int main(void) { return 0; }", capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([tmp_path / "program"], timeout=DEADLINE, check=False).returncode == 0


def test_a_program_in_c_drives_connections(library: Path, tmp_path: Path) -> None:
    source = ROOT / "tests/native/front.c"
    includes = [f"-I{CORE}/include", f"-I{CORE}"]
    program = tmp_path / "front"
    subprocess.run(
        [*COMPILER, *FLAGS, "-O1", "-g", *includes, str(source), str(library), "-pthread", "-o", str(program)],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    done = subprocess.run([program, "1"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"[1-9]\d* rounds: [1-9]\d* bytes on the ring", done.stdout)


# ---- calls of the system -------------------------------------------------------------------------------------

HARMLESS = re.compile(
    r"mem(?:cpy|cmp|set|move)|strlen|snprintf|(?:__isoc\d+_)?sscanf|inet_ntop|inet_pton|sigfillset"  # no calls
    r"|__sched_cpucount"
    r"|clock_gettime|getpid|get[eu]?[ug]id|sched_yield|sched_getcpu|pthread_sigmask|sigprocmask|_exit"  # cannot fail
    r"|pthread_(?:mutex_\w+|attr_\w+|detach|tryjoin_np|self)|__cmsg_nxthdr"  # neither
    r"|_GLOBAL_OFFSET_TABLE_|_*errno_location|__tls_get_addr|__assert_fail|__stack_chk_fail|__aarch64_\w+"  # compiler
)
"""What files of the core but system.c may use of the C library. All else can fail, and belongs in the table."""


def names_in(objects: Path, which: str) -> dict[str, set[str]]:
    """Of each object file in an archive, the names that it defines or that it needs."""
    done = subprocess.run(
        ["nm", "-P", "-A", which, str(objects)], capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    found: dict[str, set[str]] = defaultdict(set)
    for file, name in re.findall(r"^.*\[(.*)\]: (\S+)", done.stdout, re.MULTILINE):
        found[file].add(name)
    return found


def calls_past_the_table(objects: Path) -> dict[str, set[str]]:
    own = set().union(*names_in(objects, "--defined-only").values())
    strange = {
        file: {name for name in names - own if not HARMLESS.fullmatch(name)}
        for file, names in names_in(objects, "--undefined-only").items()
        if file != "base-system.c.o"
    }
    return {file: names for file, names in strange.items() if names}


def test_only_the_table_makes_calls_that_can_fail(library: Path) -> None:
    assert calls_past_the_table(library) == {}
    assert names_in(library, "--undefined-only")["base-system.c.o"] >= {"recv", "send", "poll", "malloc", "mmap"}


def test_a_call_past_the_table_is_found(library: Path, tmp_path: Path) -> None:
    """The test above passes on what it does not see."""
    source, objects = tmp_path / "stray.c", tmp_path / "libfastsock.a"
    source.write_text(
        '#include "base/system.h"\n'
        "int64_t stray(int fd, void *into) { return fs_now() + recv(fd, into, 1, 0) + fs_system.close(fd); }\n"
        "void *strayed(void) { return malloc((size_t)getpid()); }\n"
    )
    subprocess.run(
        [*COMPILER, *FLAGS, "-c", str(source), "-o", str(tmp_path / "stray.o")], check=True, timeout=DEADLINE
    )
    objects.write_bytes(library.read_bytes())
    subprocess.run(["ar", "rs", str(objects), str(tmp_path / "stray.o")], check=True, timeout=DEADLINE)
    assert calls_past_the_table(objects) == {"stray.o": {"recv", "malloc"}}


@pytest.mark.parametrize("name", ["connection", "failures", "life", "search", "sets", "strangers"])
def test_what_each_call_of_the_core_does(name: str, library: Path, tmp_path: Path) -> None:
    """Connections whose ends move, leave, fork, close and die under load; how long one lives; calls of the system
    that fail, while connections live and while they look for each other; and those that a stranger makes block."""
    program = build(name, library, tmp_path)
    done = subprocess.run([program, "3"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* (rounds|runs), [1-9]\d* (bytes|failures|calls)", done.stdout, re.MULTILINE)


LAST_CALL = "    CALL(long, sysconf, -1, (int what), (what))\n"


def test_failures_find_what_is_forgotten(library: Path, tmp_path: Path) -> None:
    """A descriptor that stays open where the parcel gets no memory; and a call in the table that nobody makes."""
    core, program = tmp_path / "core", tmp_path / "failures"
    shutil.copytree(CORE, core)
    table, leave = core / "base/system.h", core / "connection/leave.c"
    closes = "(off_t)size) < 0) {\n        fs_system.close(fd);\n"
    assert LAST_CALL in table.read_text()
    assert closes in leave.read_text()
    table.write_text(
        table.read_text().replace(LAST_CALL, f"{LAST_CALL[:-1]} \\\n    CALL(int, fsync, -1, (int fd), (fd))\n")
    )
    leave.write_text(leave.read_text().replace(closes, closes.replace("fs_system.close(fd);", "")))
    subprocess.run([core / "compile", tmp_path / "built", "-O0"], check=True, timeout=DEADLINE)

    def fails(folder: Path, built: Path, *arguments: str) -> tuple[int, str]:
        flags = [*FLAGS[:-1], f"-I{folder}", "-O1", "-U_FORTIFY_SOURCE", "-pthread"]
        subprocess.run(
            [*COMPILER, *flags, str(NATIVE / "failures.c"), str(built), "-o", str(program)],
            check=True,
            timeout=DEADLINE,
        )
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)
        return done.returncode, done.stdout + done.stderr

    def round_of(folder: Path, name: str) -> str:
        """The first such call of the program in the variant that leaves, with its first error."""
        calls = re.findall(r"^    (?:CALL|RAW)\(.+?, (\w+), ", (folder / "base/system.h").read_text(), re.MULTILINE)
        return str(((1 * 3 + 0) * len(calls) + calls.index(name)) * 4 << 20 | 1)

    assert fails(CORE, library, "1", round_of(CORE, "fallocate")) == (0, "it came\n")
    seeded = fails(core, tmp_path / "built/libfastsock.a", "1", round_of(core, "fallocate"))
    assert seeded[0] == 1
    assert "a descriptor is left" in seeded[1]
    status, said = fails(core, tmp_path / "built/libfastsock.a", "1")
    assert status == 1
    assert "the scenario never calls fsync" in said


def test_copies_into_and_out_of_the_ring(library: Path, tmp_path: Path) -> None:
    program = build("copies", library, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* copies", done.stdout, re.MULTILINE)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="there are no copies but memcpy's")
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_the_copy_in_vectors_is_none_of_memcpy(level: str, tmp_path: Path) -> None:
    """A compiler that sees a loop which copies may call memcpy."""
    compiled = tmp_path / "copy.o"
    subprocess.run(
        [*COMPILER, *FLAGS, level, "-c", str(CORE / "base/copy.c"), "-o", str(compiled)], check=True, timeout=DEADLINE
    )
    done = subprocess.run(["nm", "-P", compiled], capture_output=True, text=True, check=True, timeout=DEADLINE)
    assert re.search(r"^fs_copy_in_vectors T", done.stdout, re.MULTILINE)
    assert not re.search(r"mem(cpy|move)", done.stdout)


def test_payload_is_copied_by_fs_copy_alone() -> None:
    """Elsewhere a copy has a length that the compiler knows."""
    copies = [
        (path.name, *found)
        for room in ("ring", "connection")
        for path in (CORE / room).iterdir()
        for found in re.findall(r"\b(memcpy|memmove|fs_copy)\((.*)\)", path.read_text())
    ]
    lengths = [(name, what, arguments.rpartition(", ")[2]) for name, what, arguments in copies if what != "fs_copy"]
    assert len(copies) - len(lengths) == 4
    assert lengths
    assert [copy for copy in lengths if not re.fullmatch(r"\d+|sizeof .*|count\)", copy[2])] == []


def test_a_sender_with_a_limit_gets_each_ack_alone(library: Path, tmp_path: Path) -> None:
    """Also where the receiver's side posts at the same time, with the ACK in its descriptor."""
    program = build("acks", library, tmp_path)
    done = subprocess.run([program, "1"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* rounds, [1-9]\d* ACKs", done.stdout, re.MULTILINE)


def test_an_ack_that_is_late_is_found(library: Path, tmp_path: Path) -> None:
    """The test above passes on what it does not see."""
    program = build("acks", library, tmp_path, "-DNO_LIMIT")
    done = subprocess.run([program, "0"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 1
    assert "the sender has posted 1, all was taken, and it is told of 0" in done.stderr


def test_who_sleeps_on_a_bell_hears_of_everything(library: Path, tmp_path: Path) -> None:
    program = build("bells", library, tmp_path)
    done = subprocess.run([program, "0"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* rounds", done.stdout, re.MULTILINE)


def test_what_comes_between_two_steps_of_a_call(library: Path, tmp_path: Path) -> None:
    program = build("moments", library, tmp_path)
    done = subprocess.run([program, "0"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* rounds, [1-9]\d* moments", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ["readiness", "pollers"])
def test_epoll_poll_and_select_tell_of_the_ring_what_the_kernel_tells_of_tcp(
    name: str, library: Path, tmp_path: Path
) -> None:
    """A table of scripts, on TCP and on the ring; and threads, moves, closes and other instances."""
    program = build(name, library, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* runs", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ["crashes", "killed"])
def test_whoever_is_killed_in_the_middle_of_a_turn_is_mended(name: str, library: Path, tmp_path: Path) -> None:
    """At each store of the ring, with and without limits to its buffers; and at calls of the system."""
    program = build(name, library, tmp_path)
    done = subprocess.run([program, "2"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^[1-9]\d* rounds, [1-9]\d* killed", done.stdout, re.MULTILINE)
