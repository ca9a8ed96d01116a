"""The command `fastsock tcpdump`: the pcapng stream and the lines that it writes."""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness.observing import ROUNDS, TALK, do
from harness.pairs import until
from harness.processes import ended, environment, running

from fastsock.tools import taps

pytestmark = pytest.mark.usefixtures("bounded")

CORE = Path(__file__).parents[2] / "core"


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
