"""`fastsock tcpdump`: prints the bytes of moved connections like tcpdump(8), or writes them as a pcapng stream."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO

import attrs

from fastsock.tools.pcapng import ACK, FIN, HEAD, PSH, RST, SYN, Writer, packet
from fastsock.tools.taps import Packet, Taps

__all__ = ["Options", "port_of", "run"]

PAUSE = 0.02
"""Seconds between two looks while nothing comes."""
LETTERS = {SYN: "S", FIN: "F", RST: "R", PSH: "P", ACK: "."}
MOST = 65535
"""Bytes of an IP packet."""


@attrs.frozen(kw_only=True)
class Options:
    """What to show."""

    pids: set[int] | None
    file: str | None
    """Where the pcapng stream goes: - is the standard output. None: lines are printed."""
    count: int | None
    """Ends after so many packets."""
    snaplen: int
    port: int
    """0: all."""
    text: bool
    """Prints bytes as text."""
    dump: bool
    """Prints bytes as hexadecimal numbers, and as text."""


def port_of(words: Sequence[str]) -> int:
    """Returns the port of the filter `port N`, 0 of none. Raises ValueError for any other."""
    if not words:
        return 0
    if len(words) == 2 and words[0] == "port" and words[1].isdecimal() and 0 < int(words[1]) < 1 << 16:
        return int(words[1])
    raise ValueError(f"the filter can be `port N` only, not {' '.join(words)!r}")


def run(options: Options) -> int:
    """Shows packets until Ctrl-C, SIGTERM, `count`, or the end of all of `pids`. Returns 1 if none of `pids` is a
    process. Raises OSError if processes cannot be queried, or the file cannot be written."""
    if options.pids is not None and not any(map(_runs, options.pids)):
        _remark("no such process")
        return 1
    with contextlib.ExitStack() as stack:
        out: Shown = Lines(options)
        if options.file is not None:
            out = Stream(stack.enter_context(_opened(options.file)), options.snaplen)
        taps = Taps(options.pids, options.snaplen, options.port, _remark)
        stack.callback(taps.close)
        with _told() as told:
            _remark("listening on the processes under fastsock, Ctrl-C ends")
            for each in _all(taps, options, told):
                if options.count is not None and out.count == options.count:
                    break
                out.show(each) if each is not None else out.flush()
        out.end(taps)
        _remark(f"{out.count} packets captured, {taps.lost()} dropped (the observer was too slow)")
    return 0


def _all(taps: Taps, options: Options, told: list[bool]) -> Iterator[Packet | None]:
    """All packets as they come, and None after each look. Ends with the processes in `options.pids`, or once `told`."""
    over = False
    while not (told or (over and not taps.processes)):
        over = options.pids is not None and not any(map(_runs, options.pids))
        taps.search()
        came = False
        for each in taps.packets():
            came = True
            yield each
        yield None
        if not came:
            time.sleep(PAUSE)
    yield from taps.packets(last=True)


@contextlib.contextmanager
def _told() -> Iterator[list[bool]]:
    """A list that is no more empty after Ctrl-C or SIGTERM. The next one has its usual effect."""
    told: list[bool] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore(*_: object) -> None:
        told.append(True)
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, restore)
    try:
        yield told
    finally:
        restore()


def _runs(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def _opened(name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if name != "-":
        return open(name, "wb")
    if sys.stdout.isatty():
        raise RuntimeError("-w - writes binary data: send it to a file or a pipe")
    return contextlib.nullcontext(sys.stdout.buffer)


def _remark(text: str) -> None:
    print(f"fastsock tcpdump: {text}", file=sys.stderr, flush=True)


# ---- pcapng ------------------------------------------------------------------------------------------------


class Shown:
    """Where packets go."""

    count = 0

    def show(self, each: Packet) -> None:
        self.count += 1

    def flush(self) -> None:
        """All of them that came at once were shown."""

    def end(self, taps: Taps) -> None:
        self.flush()


class Stream(Shown):
    """A pcapng stream, with an interface for each process."""

    def __init__(self, file: IO[bytes], snaplen: int) -> None:
        self.writer = Writer(file, f"fastsock {importlib.metadata.version('fastsock')}")
        self.snaplen = snaplen
        self.flush()

    def show(self, each: Packet) -> None:
        super().show(each)
        process = each.process
        if process.interface < 0:
            process.interface = self.writer.interface(f"pid {process.pid}", process.command, self.snaplen)
        here, there = each.flow.ends[each.side], each.flow.ends[1 - each.side]
        made = packet(here, there, each.flags, each.seq, each.ack, each.data, each.length)
        length = HEAD[here[0].version] + each.length
        self.writer.packet(process.interface, each.when, made[: self.snaplen], length, each.outbound, each.comment)

    def flush(self) -> None:
        self.writer.file.flush()

    def end(self, taps: Taps) -> None:
        for process in [*taps.past, *taps.processes.values()]:
            if process.interface >= 0:
                self.writer.dropped(process.interface, time.time_ns(), process.dropped)
        self.flush()


# ---- lines -------------------------------------------------------------------------------------------------


class Lines(Shown):
    """Lines as of tcpdump -nn."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def show(self, each: Packet) -> None:
        super().show(each)
        print(line(each))
        if self.options.dump:
            print("\n".join(dump(each.data)), end="\n" if each.data else "")
        elif self.options.text and each.data:
            print(text(each.data))

    def flush(self) -> None:
        sys.stdout.flush()


def line(each: Packet) -> str:
    """Returns the line of a packet."""
    seconds, ns = divmod(each.when, 1_000_000_000)
    clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{ns // 1000:06}"
    flow, side = each.flow, each.side
    if any(flow.names):
        kind, names = "UNIX", [name or "-" for name in flow.names]
    else:
        kind = "IP6" if flow.ends[0][0].version == 6 else "IP"
        names = [str(address) for address, _ in flow.ends]
    ends = [f"{name}.{port}" for name, (_, port) in zip(names, flow.ends, strict=True)]
    letters = "".join(letter for bit, letter in LETTERS.items() if each.flags & bit)
    seq = f"{each.seq}:{each.seq + each.length}" if each.length else f"{each.seq}"
    ack = f", ack {each.ack}" if each.flags & ACK else ""
    return f"{clock} {kind} {ends[side]} > {ends[1 - side]}: Flags [{letters}], seq {seq}{ack}, length {each.length}"


def text(data: bytes) -> str:
    """Returns bytes as text, dots for what is none."""
    return "".join(chr(byte) if 32 <= byte < 127 or byte in b"\n\t" else "" if byte == 13 else "." for byte in data)


def dump(data: bytes) -> Iterator[str]:
    """Lines of hexadecimal numbers, and text."""
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        words = " ".join(part[i : i + 2].hex() for i in range(0, len(part), 2))
        yield f"\t0x{at:04x}:  {words:39}  {''.join(chr(byte) if 32 < byte < 127 else '.' for byte in part)}"
