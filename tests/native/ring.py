"""The ring of the C headers, from Python: regions, their ends, and the words in them.

`library.c` is compiled with the core's files as they are; nothing of the installed package is involved.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
CORE = HERE.parent.parent / "core"
SOURCES = [
    str(HERE / "library.c"),
    *(str(CORE / name) for name in ("ring/robust_lock.c", "rendezvous/upgrade_delay.c")),
    *map(str, sorted((CORE / "os").glob("*.c"))),
]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", *WARNINGS, "-O1", "-g", "-fPIC", "-shared"]
VIOLATION = -1
WIDE = {"magic", "asks", "set", "fin", "switch_at", "commit"}
"""Fields of eight bytes; the others have four."""

ACT = ctypes.CFUNCTYPE(None)


class Violation(Exception):
    """The peer did what cannot be; the text says what."""


@functools.cache
def library() -> ctypes.CDLL:
    """The library, compiled and loaded once per process."""
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    with tempfile.TemporaryDirectory() as directory:
        binary = Path(directory) / "ring.so"
        subprocess.run([*compiler, *FLAGS, f"-I{CORE}", *SOURCES, "-o", str(binary)], check=True, timeout=110)
        lib = ctypes.CDLL(str(binary))
    u32, u64, size, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
    for name, result, *arguments in (
        ("commit_word", u64, u32, u32, u32, u32),
        ("slots", u32, u32),
        ("region_size", size, u32, u32),
        ("half_size", size, u32),
        ("arena_offset", size, u32, ctypes.c_int),
        ("near", u32, u32),
        ("arena", u32, u32, u32),
        ("gap", u32, u32, u32, ctypes.c_int),
        ("spare_offset", u32, u32, u32, ctypes.c_int),
        ("format", None, pointer, u32, u32, ctypes.c_char_p),
        ("recycle", None, pointer, u32),
        ("interfere_once", None, ACT),
        ("copy_in_vectors", None, ctypes.c_int),
        ("end_new", pointer, pointer, size, ctypes.c_int, u32, u32, u32, ctypes.POINTER(ctypes.c_char_p)),
        ("churn", None, pointer),
        ("leave_errors_in_forks", ctypes.c_int),
        ("lock_try", ctypes.c_int, pointer, ctypes.c_int),
        ("lock_release", None, pointer, ctypes.c_int),
        ("lock_word", u32, pointer, ctypes.c_int),
        ("holders_of", pointer, pointer),
        ("end_post", ctypes.c_int64, pointer, ctypes.c_char_p, size, ctypes.c_int),
        ("end_take", ctypes.c_int64, pointer, pointer, size, ctypes.c_int),
        ("end_post_fin", None, pointer, u64),
        ("end_of_stream", u64, pointer),
        ("end_take_credits", ctypes.c_int, pointer),
        ("end_limit", None, pointer, u32),
        ("end_available", size, pointer, size),
        ("end_violation", ctypes.c_char_p, pointer),
        ("end_arena_used", u64, pointer),
        ("end_counters", ctypes.POINTER(u64), pointer),
        *((f"end_{name}", None, pointer) for name in ("free", "never_piggybacked", "fin_taken", "acknowledge", "seal")),
        *((f"end_{name}", u32, pointer) for name in ("posted", "credited", "consumed")),
        *((f"end_{name}", ctypes.c_int, pointer) for name in ("waiting", "readable", "writable")),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class _Number(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_uint64)]


@functools.cache
def layout() -> dict[str, int]:
    """Those constants, sizes ("fs_direction") and offsets ("fs_direction.acked") of the headers that the tests use."""
    numbers, table = (_Number * 1000).in_dll(library(), "layout"), {}
    for number in numbers:
        if number.name is None:
            return table
        table[number.name.decode()] = number.value
    raise AssertionError("the table has no end")


def commit_word(sequence: int, length: int, type: int = 1, state: int = 1) -> int:
    """A descriptor's commit word; the sequence is the descriptor's number plus one."""
    return int(library().commit_word(sequence, length, type, state))


class Region:
    """A formatted region in private memory."""

    def __init__(self, window: int = 4, chunk: int = 1024) -> None:
        self.window, self.chunk, self.slots = window, chunk, int(library().slots(window))
        self.memory = mmap.mmap(-1, library().region_size(window, chunk))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        library().format(self.address, window, chunk, b"0123456789abcdef")

    def _place(self, name: str, half: int, number: int) -> tuple[int, int]:
        struct, _, field = name.partition(".")
        start = 0
        if struct != "fs_region":
            start = layout()["fs_region"] + half * library().half_size(self.slots)
        if struct == "fs_descriptor":
            start += layout()["fs_direction"] + number % self.slots * layout()["fs_descriptor"]
        return start + layout()[name], 8 if field in WIDE else 4

    def get(self, name: str, half: int = 0, number: int = 0) -> int:
        """A word, such as "fs_direction.acked"; `half` 0 carries what side 0 sends, `number` is a descriptor's."""
        at, width = self._place(name, half, number)
        return int.from_bytes(self.memory[at : at + width], "little")

    def put(self, name: str, value: int, half: int = 0, number: int = 0) -> None:
        """Writes a word, as a hostile peer would."""
        at, width = self._place(name, half, number)
        self.memory[at : at + width] = value.to_bytes(width, "little")

    def ends(self, ack_threshold: int = 1, counts: tuple[int, int] = (0, 0)) -> tuple[End, End]:
        """Both ends. `counts`: descriptors that went before in each half."""
        first, second = counts
        return End(self, 0, ack_threshold, first, second), End(self, 1, ack_threshold, second, first)


COUNTERS = ("bytes_sent", "bytes_received", "messages_sent", "messages_received", "acks_alone", "acks_piggybacked")


class End:
    """One end of a region. Violations are raised."""

    def __init__(
        self,
        region: Region,
        side: int,
        ack_threshold: int = 1,
        sending: int = 0,
        receiving: int = 0,
        size: int | None = None,
    ) -> None:
        wrong = ctypes.c_char_p()
        size = len(region.memory) if size is None else size
        self.region = region  # keeps the memory
        self._end = library().end_new(region.address, size, side, ack_threshold, sending, receiving, wrong)
        if wrong.value is not None:
            raise Violation(wrong.value.decode())

    def __del__(self) -> None:
        if self._end:
            library().end_free(self._end)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """The rest of library.c: `end.writable()` is end_writable()."""
        return functools.partial(getattr(library(), f"end_{name}"), self._end)

    def _checked(self, result: int, wrong: int = VIOLATION) -> int:
        if result == wrong:
            raise Violation(library().end_violation(self._end).decode())
        return result

    def post(self, data: bytes, combine: bool = False) -> int:
        """Bytes posted, 0 without credit or room."""
        return self._checked(library().end_post(self._end, data, len(data), combine))

    def take(self, room: int, peek: bool = False) -> bytes:
        """Up to `room` bytes of the stream."""
        buffer = ctypes.create_string_buffer(room)
        got = self._checked(library().end_take(self._end, buffer, room, peek))
        return buffer.raw[:got]

    def discard(self, room: int) -> int:
        """Takes and counts up to `room` bytes."""
        return self._checked(library().end_take(self._end, None, room, False))

    def take_credits(self) -> None:
        """Takes in the peer's acknowledgements."""
        self._checked(library().end_take_credits(self._end))

    def of_stream(self) -> int:
        """0, FS_FIN, FS_RESET or FS_BACK."""
        return self._checked(library().end_of_stream(self._end), wrong=1)

    def counters(self) -> dict[str, int]:
        """What this end counted."""
        counters = library().end_counters(self._end)
        return {name: counters[index] for index, name in enumerate(COUNTERS)}


class Interference:
    """Lets `act` run between the next look at a commit word and the swap of it, at the latest until the block ends.
    What `act` raises is raised by the block."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act, self.error = act, None
        self.callback = ACT(self._run)  # held while C may call it

    def _run(self) -> None:
        try:
            self.act()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> None:
        library().interfere_once(self.callback)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        library().interfere_once(ACT())
        if self.error is not None:
            raise self.error
