"""What `fastsock tcpdump` shows of moved connections, to whom, and what it costs the program: nothing that ends or
stops it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness.pairs import KernelSocket, pattern, until
from harness.processes import ended, environment, running

from fastsock._native.control import TAP_MAGIC, TAP_SIZE, VERSION
from fastsock.tools import introspection, taps, tcpdump
from fastsock.tools.pcapng import ACK, FIN, PSH, RST, SYN
from fastsock.tools.taps import Packet, Taps

pytestmark = pytest.mark.usefixtures("bounded")

CORE = Path(__file__).parents[2] / "core"

TALK = """
    fastsock.patch()
    with make_pair("ring") as pair:
        near, far = pair
        say(f"{near.getsockname()[1]} {far.getsockname()[1]}")
        for line in sys.stdin:
            exec(line)
            say("done")
"""
"""Both ends are one process's. It executes lines that it is told."""

ROUNDS = "for i in range({}): near.sendall({}); far.recv(99); far.sendall({}); near.recv(99)"


@contextlib.contextmanager
def watched(pid: int, snaplen: int = 1 << 18, port: int = 0) -> Iterator[Taps]:
    """The process shows its bytes."""
    seen = Taps({pid}, snaplen, port, pytest.fail)
    seen.search()
    until(lambda: any(each.tap.answer == taps.SHOWS for each in seen.processes.values()), "the process shows its bytes")
    try:
        yield seen
    finally:
        seen.close()


def do(program: Any, line: str) -> None:
    program.tell(line)
    assert program.line() == "done"


def stream(packets: list[Packet], port: int) -> bytes:
    """The bytes that the end with this port has sent, which must be without gaps."""
    own = [each for each in packets if each.flow.ends[each.side][1] == port and each.length]
    for before, after in itertools.pairwise(own):
        assert after.seq == before.seq + before.length
    return b"".join(each.data for each in own)


def test_both_directions_come_in_order_and_once():
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, ROUNDS.format(50, "b'GET %d\\r\\n' % i", "b'+%d\\r\\n' % i"))
            packets = list(seen.packets(last=True))
    assert stream(packets, near) == b"".join(b"GET %d\r\n" % i for i in range(50))
    assert stream(packets, far) == b"".join(b"+%d\r\n" % i for i in range(50))
    assert [each.flow.ends[each.side][1] for each in packets if each.length] == [near, far] * 50
    assert {str(address) for each in packets for address, _ in each.flow.ends} == {"127.0.0.1"}
    asked, answered = packets[0], packets[1]
    assert asked.comment.startswith(f"pid {program.pid} ")
    assert asked.seq + asked.length == answered.ack
    assert {each.flags for each in packets} == {PSH | ACK}
    assert sorted(each.when for each in packets) == [each.when for each in packets]


def test_many_bytes_go_round_the_page():
    step, steps = 1 << 20, 12
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid) as seen:
            packets = []
            do(program, "reads = lambda: Task(lambda: read_exactly(far, 1 << 20))")
            for _ in range(steps):
                do(program, "task = reads(); near.sendall(pattern(1 << 20)); task.join()")
                packets += seen.packets(last=True)
            assert seen.lost() == 0
    assert stream(packets, near) == pattern(step) * steps


def test_a_part_of_each_packet_is_kept_and_all_bytes_count():
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid, snaplen=7) as seen:
            do(program, "task = Task(lambda: read_exactly(far, 1 << 22)); near.sendall(pattern(1 << 22)); task.join()")
            packets = list(seen.packets(last=True))
            assert seen.lost() == 0
    assert sum(each.length for each in packets) == 1 << 22
    assert {len(each.data) for each in packets} == {7}
    assert packets[0].data == pattern(1 << 22)[:7]
    stream(packets, near)


def test_an_observer_that_does_not_read_loses_packets_and_holds_nobody_up():
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, "task = Task(lambda: read_exactly(far, 1 << 24)); near.sendall(pattern(1 << 24)); task.join()")
            packets = list(seen.packets(last=True))
            process = next(iter(seen.processes.values()))
            assert process.tap.dropped == process.dropped == seen.lost() > 100
            do(program, "near.sendall(b'and again'); far.recv(99)")
            packets += seen.packets(last=True)
    shown = [each for each in packets if each.flow.ends[each.side][1] == near]
    assert shown[-1].data == b"and again"
    assert shown[-1].seq - shown[0].seq == 1 << 24  # a gap is one
    assert sum(each.length for each in shown) < 1 << 24


@pytest.mark.parametrize(
    ("ends", "letters"),
    [
        ("near.close(); far.recv(1); far.close()", "FF"),
        (
            "near.shutdown(socket.SHUT_WR); far.recv(1); far.sendall(b'rest'); near.recv(9); far.close(); near.close()",
            "FPF",
        ),
        ("near.sendall(b'unread'); far.close(); near.close()", "PR"),
    ],
    ids=["closed", "half-closed", "reset"],
)
def test_a_connection_that_begins_and_ends(ends: str, letters: str):
    source = """
        fastsock.patch()
        with make_pair("ring"):
            say("is there")
            told()
            kept = make_pair("ring")
            near, far = kept.__enter__()
            near.sendall(b"hello")
            far.recv(9)
            exec(sys.argv[1])
            say("done")
            told()
    """
    with running(source, ends) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            assert program.line() == "done"
            packets = list(seen.packets(last=True))
            assert not seen.flows
    shown = "".join(tcpdump.LETTERS[each.flags & (FIN | RST | PSH)] for each in packets)
    assert shown.endswith(f"P{letters}")
    last = [each for each in packets if each.flags & FIN and not each.flags & RST]
    assert all(
        each.seq == max(other.seq + other.length for other in packets if other.side == each.side) for each in last
    )


def test_the_handshake_of_a_connection_that_is_seen_from_its_first_byte():
    source = """
        fastsock.patch(_meeting_ms=2000)
        def both():
            listener = listening()
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
            reads = Task(lambda: far.recv(9))
            near.sendall(b"first")
            reads.join()
            return near, far
        kept = [both()]
        say("is there")
        told()
        kept.append(both())
        say(path_of(kept[-1][0]) + " " + str(kept[-1][0].getsockname()[1]))
        told()
    """
    with running(source) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            path, port = program.line().split()
            packets = list(seen.packets(last=True))
    assert path == "ring"
    assert [(each.flags, each.seq, each.ack) for each in packets[:2]] == [(SYN, 0, 1), (SYN | ACK, 0, 1)]
    assert [(each.flags, each.seq, each.data) for each in packets[2:]] == [(ACK, 1, b""), (PSH | ACK, 1, b"first")]
    assert packets[0].flow.ends[packets[0].side][1] == int(port)


def test_a_unix_stream(tmp_path):
    source = """
        fastsock.patch(unix_streams=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        near = socket.socket(socket.AF_UNIX)
        near.connect(sys.argv[1])
        far, _ = listener.accept()
        follows = threading.Thread(target=settle, args=(far,), kwargs=dict(leads=False), daemon=True)
        follows.start()
        settle(near)
        follows.join()
        say("moved")
        told()
        near.sendall(b"question"); far.recv(99); far.sendall(b"answer"); near.recv(99)
        say("done")
        told()
    """
    path = str(tmp_path / "listener")
    with running(source, path) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            program.line()
            packets = list(seen.packets(last=True))
    assert [each.data for each in packets] == [b"question", b"answer"]
    answered = packets[1]
    address, port = answered.flow.ends[answered.side]
    assert (str(address), answered.flow.names[answered.side]) == ("127.85.0.1", path)
    assert 1024 <= port < 32768
    assert f"{path} (unix stream)" in packets[0].comment
    assert f"UNIX {path}.{port} > -." in tcpdump.line(answered)


def test_only_the_port_that_is_asked_for():
    source = """
        fastsock.patch()
        with make_pair("ring") as one, make_pair("ring") as two:
            say(one.near.getsockname()[1])
            told()
            for near, far in one, two:
                near.sendall(b"x"); far.recv(9)
            say("done")
            told()
    """
    with running(source) as program:
        port = int(program.line())
        with watched(program.pid, port=port) as seen:
            program.tell()
            program.line()
            packets = list(seen.packets(last=True))
    assert [port in (each.flow.ends[0][1], each.flow.ends[1][1]) for each in packets] == [True]


def test_a_forked_child_goes_on_in_the_page_of_its_parent():
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'parent'); far.recv(9)")
            do(program, "pid = os.fork(); pid or (far.sendall(b'child'), os._exit(0)); near.recv(9); os.wait()")
            packets = list(seen.packets(last=True))
    assert stream(packets, near) == b"parent"
    assert stream(packets, far) == b"child"


def test_the_end_of_a_process_is_the_end_of_its_connections():
    with running(TALK) as program:
        program.line()
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'last words'); far.recv(99)")
            program.process.kill()
            program.wait()
            seen.searched = 0
            seen.search()
            packets = list(seen.packets())
            assert not seen.processes
            assert not seen.flows
    assert packets[0].data == b"last words"
    assert [each.comment for each in packets if each.flags & FIN] == [f"pid {program.pid} has ended"] * 2


def test_two_processes_show_each_byte_once():
    server = """
        fastsock.patch()
        listener = listening()
        say(listener.getsockname()[1])
        sock, _ = listener.accept()
        settle(sock, leads=False)
        while data := sock.recv(99):
            sock.sendall(data.upper())
    """
    client = """
        fastsock.patch()
        sock = connect(int(sys.argv[1]))
        settle(sock)
        say("moved")
        told()
        for i in range(20):
            sock.sendall(b"%d a" % i); sock.recv(99)
        sock.close()
        say("done")
        told()
    """
    with running(server) as far, running(client, port := int(far.line())) as near:
        near.line()
        with watched(far.pid) as seen:
            seen.pids = {far.pid, near.pid}
            seen.searched = 0
            seen.search()
            until(lambda: [each.tap.answer for each in seen.processes.values()] == [taps.SHOWS] * 2, "both do")
            near.tell()
            near.line()
            far.wait()
            packets = list(seen.packets(last=True))
    assert stream(packets, port) == b"".join(b"%d A" % i for i in range(20))
    assert [each.flow.ends[each.side][1] == port for each in packets if each.length] == [False, True] * 20
    assert len([each for each in packets if each.flags & FIN]) == 2


# ---- who may look ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["fastsock.patch(tcpdump=False)", "__import__('ctypes').CDLL(None).prctl(4, 0)"])
def test_a_process_that_does_not_want_to_be_seen(how: str):
    with running(TALK) as program:
        program.line()
        do(program, how)
        remarks: list[str] = []
        (name,) = names_of(program.pid)
        seen = Taps(None, 99, 0, remarks.append)
        seen._offer(name, program.pid)
        until(lambda: seen.processes[name].tap.answer, "it answers")
        assert not list(seen.packets())
        assert taps.REMARKS[taps.REFUSED] in remarks[0]
        do(program, "near.sendall(b'as ever'); far.recv(9)")


def names_of(pid: int) -> list[bytes]:
    """Also of a process whose descriptors nobody may see."""
    asked = introspection.names()
    return [name for name, found in introspection.present(asked, 1).items() if found == pid]


def test_one_observer_at_a_time():
    with running(TALK) as program:
        program.line()
        remarks: list[str] = []
        other = Taps({program.pid}, 99, 0, remarks.append)
        with watched(program.pid) as seen:
            other.search()
            until(lambda: next(iter(other.processes.values())).tap.answer, "it answers")
            list(other.packets())
            assert taps.REMARKS[taps.BUSY] in remarks[0]
            do(program, "near.sendall(b'x'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"x"]
        with watched(program.pid) as seen:  # the next one need not wait
            do(program, "near.sendall(b'y'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"y"]


def offer(pid: int, size: int, flags: int = os.MFD_ALLOW_SEALING, seals: int = taps.SEALS) -> int:
    """Offers a file as a page, and returns it."""
    memfd = os.memfd_create("page", os.MFD_CLOEXEC | flags)
    os.ftruncate(memfd, size)
    if flags & os.MFD_ALLOW_SEALING:
        fcntl.fcntl(memfd, taps.ADD_SEALS, seals)
    (name,) = introspection.names({pid})
    with KernelSocket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memfd))]
        sender.sendmsg([taps.OFFER.pack(TAP_MAGIC, VERSION, 0)], rights, 0, name)
    return memfd


@pytest.mark.parametrize(
    "page",
    [
        {"size": TAP_SIZE - 4096},
        {"size": TAP_SIZE, "seals": 1},
        {"size": TAP_SIZE, "flags": 0},
        {"size": 0},
        {"size": 4096},
    ],
    ids=["short", "may shrink", "unsealed", "empty", "one page"],
)
def test_a_page_that_is_none(page: dict[str, int]):
    with running(TALK) as program:
        program.line()
        before = len(os.listdir(f"/proc/{program.pid}/fd"))
        memfd = offer(program.pid, **page)
        for _ in range(3):
            do(program, "near.sendall(b'x' * 100); assert_ = far.recv(200)")
        assert introspection.query({program.pid})
        assert os.pread(memfd, 1 << 12, 0).strip(b"\0") == b""
        assert len(os.listdir(f"/proc/{program.pid}/fd")) == before
        os.close(memfd)


def test_a_hostile_observer_harms_its_own_records_only():
    """It writes anything anywhere in the page while bytes go by."""
    drawn = random.Random(7)
    source = """
        fastsock.patch()
        with make_pair("ring") as pair:
            near, far = pair
            say("moved")
            for i in range(3000):
                data = pattern(1 + i * 37 % 5000)
                near.sendall(data)
                assert read_exactly(far, len(data)) == data
            say("well")
            told()
    """
    with running(source.replace('say("moved")', 'say("moved"); told()')) as program:
        program.line()
        memfd = offer(program.pid, TAP_SIZE)
        with mmap.mmap(memfd, TAP_SIZE) as page:
            struct.pack_into("=Q", page, 8, time.monotonic_ns())
            until(lambda: struct.unpack_from("=I", page, 64)[0], "the process answers")
            program.tell()
            writes = 0
            while not program_said(program):
                struct.pack_into("=Q", page, 8, time.monotonic_ns())
                word = drawn.choice([drawn.getrandbits(64), drawn.getrandbits(23) * 8, (1 << 64) - 8, 0])
                struct.pack_into("=Q", page, drawn.choice([0, 72, 72, 80, 4096 + drawn.randrange(1 << 19) * 8]), word)
                writes += 1
            assert program.line() == "well"
            assert writes > 100
        os.close(memfd)


def program_said(program: Any) -> bool:
    return bool(select.select([program.process.stdout], [], [], 0)[0])


def test_an_observer_that_is_gone_is_forgotten():
    """With its page: a stopped one has not looked for a while."""
    with running(TALK) as program:
        program.line()
        memfd = offer(program.pid, TAP_SIZE)
        with mmap.mmap(memfd, TAP_SIZE) as page:
            struct.pack_into("=QQI", page, 0, 0, time.monotonic_ns(), 1 << 16)
            until(lambda: struct.unpack_from("=I", page, 64)[0], "the process answers")
            do(program, "near.sendall(b'seen'); far.recv(9)")
            written = struct.unpack_from("=Q", page, 72)[0]
            struct.pack_into("=Q", page, 8, 0)  # it has not looked since long ago
            do(program, "near.sendall(b'unseen'); far.recv(9)")
            assert struct.unpack_from("=Q", page, 72)[0] == written > 0
        os.close(memfd)
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'y'); far.recv(9)")
            assert [each.data for each in seen.packets(last=True)] == [b"y"]


# ---- the command -------------------------------------------------------------------------------------------


@attrs.frozen
class Block:
    kind: int
    body: bytes

    def options(self, at: int) -> dict[int, bytes]:
        found = {}
        while at < len(self.body):
            code, length = struct.unpack_from("=HH", self.body, at)
            if not code:
                break
            found[code] = self.body[at + 4 : at + 4 + length]
            at += 4 + length + -length % 4
        return found


def blocks(data: bytes) -> list[Block]:
    """The blocks of a pcapng stream."""
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        assert length % 4 == 0
        assert struct.unpack_from("=I", data, at + length - 4)[0] == length
        found.append(Block(kind, data[at + 8 : at + length - 4]))
        at += length
    return found


def sum_of(data: bytes) -> int:
    """The Internet's sum, as RFC 1071 has it."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def captured(program: Any, tmp_path: Path, *options: object) -> tuple[bytes, str]:
    """What the command writes, and says, while the program answers five questions."""
    file = tmp_path / "out"
    words = [sys.executable, "-m", "fastsock", "tcpdump", "--pid", program.pid, *options]
    with open(file, "wb") as out:
        command = subprocess.Popen([*map(str, words)], stdout=out, stderr=subprocess.PIPE, env=environment())
    try:

        def look() -> bool:
            do(program, ROUNDS.format(5, "b'question %d' % i", "b'answer'"))
            return command.poll() is not None or (time.sleep(0.1) or file.stat().st_size > 3000)

        until(look, "there are packets")
        command.send_signal(signal.SIGINT)
        said = command.communicate(timeout=20)[1].decode()
        assert command.returncode == 0, said
    finally:
        command.kill()
    return file.read_bytes(), said


def test_a_pcapng_stream(tmp_path):
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        data, said = captured(program, tmp_path, "-w", "-")
    found = blocks(data)
    assert [each.kind for each in found[:3]] == [0x0A0D0D0A, 1, 6]
    assert struct.unpack("=IHHq", found[0].body[:16]) == (0x1A2B3C4D, 1, 0, -1)
    assert struct.unpack_from("=H", found[1].body)[0] == 101
    assert found[1].options(8)[2] == b"pid %d" % program.pid
    sent = {near: b"", far: b""}
    for each in found[2:-1]:
        assert each.kind == 6
        interface, high, low, kept, length = struct.unpack_from("=5I", each.body)
        packet = each.body[20 : 20 + kept]
        assert (interface, kept, abs((high << 32 | low) / 1e9 - time.time()) < 60) == (0, length, True)
        assert (packet[0], packet[9], struct.unpack_from("!H", packet, 2)[0]) == (0x45, 6, length)
        assert sum_of(packet[:20]) == 0xFFFF
        pseudo = packet[12:20] + struct.pack("!II", 6, length - 20)
        assert sum_of(pseudo + packet[20:]) == 0xFFFF
        source, _ = struct.unpack_from("!HH", packet, 20)
        sent[source] += packet[40:]
    assert sent[near].startswith(b"question ")
    assert set(re.split(rb"(?<=r)(?=a)", sent[far])) == {b"answer"}
    assert (found[-1].kind, found[-1].options(12)[5]) == (5, bytes(8))
    assert re.search(r"\d+ packets captured, 0 dropped", said)


def test_lines(tmp_path):
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        data, _ = captured(program, tmp_path, "-A", "port", near)
    lines = data.decode().splitlines()
    ends = rf"IP 127\.0\.0\.1\.{near} > 127\.0\.0\.1\.{far}"
    pattern = rf"\d\d:\d\d:\d\d\.\d{{6}} {ends}: Flags \[P\.\], seq \d+:\d+, ack \d+, length 10"
    assert re.fullmatch(pattern, lines[0])
    assert re.fullmatch(r"question \d", lines[1])


def test_it_ends_after_so_many_packets(tmp_path):
    with running(TALK) as program:
        program.line()
        data, said = captured(program, tmp_path, "-X", "-c", "3")
    assert "3 packets captured" in said
    assert data.decode().count("Flags") == 3
    assert "\t0x0000:  7175 6573 7469 6f6e 20" in data.decode()


def test_wireshark_reads_it(tmp_path):
    """As one conversation, with nothing to complain of."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    with running(TALK) as program:
        program.line()
        data, _ = captured(program, tmp_path, "-w", "-")
    (tmp_path / "stream.pcapng").write_bytes(data)
    read = [
        "tshark",
        "-r",
        str(tmp_path / "stream.pcapng"),
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
    ]
    odd = "tcp.analysis.flags or tcp.checksum.status == 0 or ip.checksum.status == 0 or _ws.malformed"
    assert ended([*read, "-Y", odd], None).stdout == ""
    followed = ended([*read, "-q", "-z", "follow,tcp,ascii,0"], None).stdout
    assert re.search(r"^question 0\n(?:.*\n)+?\s+6\nanswer", followed, re.MULTILINE)


@pytest.mark.parametrize(
    "words", [["port"], ["port", "0"], ["port", "65536"], ["host", "here"], ["-c", "0"], ["--pid", "x"]], ids=" ".join
)
def test_what_it_does_not_understand(words: list[str]):
    done = ended([sys.executable, "-m", "fastsock", "tcpdump", *words], 2)
    assert done.stderr.startswith("fastsock: ")
    assert done.stdout == ""


def test_no_such_process():
    done = ended([sys.executable, "-m", "fastsock", "tcpdump", "--pid", (1 << 31) - 1], 1)
    assert "no such process" in done.stderr


def test_the_layouts_are_those_of_the_header():
    header = (CORE / "wire/tap_page.h").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"sizeof\(struct (\w+)\) == (\d+)", header)}
    assert sizes["fs_tap_start"] == taps.BEGUN.size
    assert taps.OFFER.size == 32
