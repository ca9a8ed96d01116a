"""The ring of the C headers: its geometry, what it calls a violation, and random use against a `bytearray`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from fastsock import SettingError, Settings
from fastsock._native import control
from native.model import Ring
from native.ring import End, Interference, Region, Violation, commit_word, layout, library

DATA = 1
INLINED, SEALED, OPEN = 1, 2, 3
SPARE, SPARES = 4_456_448, 2


def violates(text: str) -> contextlib.AbstractContextManager[object]:
    """The block is to find a violation with exactly this text."""
    return pytest.raises(Violation, match=f"^{re.escape(text)}$")


def constant(name: str) -> int:
    return layout()[name]


# ---- geometry ------------------------------------------------------------------------------------------------


def test_python_has_the_constants_of_the_headers() -> None:
    assert constant("FS_VERSION") == control.VERSION
    assert int.from_bytes(b"fs-look1", "little") == control.LOOK_MAGIC
    assert int.from_bytes(b"fs-seen1", "little") == control.SEEN_MAGIC


@pytest.mark.parametrize(("setting", "name"), [("window", "WINDOW"), ("chunk_size", "CHUNK")])
def test_the_settings_bounds_are_those_of_the_headers(setting: str, name: str) -> None:
    """Settings are read without the native part, so that they have their own."""
    layout = (Path(__file__).parents[2] / "core/wire/region.h").read_text()

    def bound(end: str) -> int:
        found = re.search(rf"#define FS_{name}_{end} (\d+)", layout)
        assert found is not None
        return int(found[1])

    for value in (bound("MIN"), bound("MAX")):
        assert getattr(Settings(**{setting: value, "ack_threshold": 1}), setting) == value
    for value in (bound("MIN") - 64, bound("MAX") + 64):
        with pytest.raises(SettingError):
            Settings(**{setting: value, "ack_threshold": 1})


@pytest.mark.parametrize(("window", "slots"), [(1, 1), (2, 2), (3, 4), (5, 8), (32, 32), (33, 64), (1024, 1024)])
@pytest.mark.parametrize("chunk", [1024, 32768])
def test_parts_of_a_region_follow_each_other(window: int, slots: int, chunk: int) -> None:
    lib, near = library(), library().near(slots)
    half = constant("fs_direction") + slots * constant("fs_descriptor")
    assert lib.slots(window) == slots
    assert lib.half_size(slots) == half
    assert lib.arena_offset(slots, 0) == constant("fs_region") + 2 * half
    assert lib.arena_offset(slots, 1) == lib.arena_offset(slots, 0) + near
    assert (lib.arena_offset(slots, 1) + near) % 4096 == 0
    assert lib.arena(window, chunk) == near + window * chunk
    ends = [lib.arena_offset(slots, side) + lib.arena(window, chunk) + lib.gap(window, chunk, side) for side in (0, 1)]
    assert ends[0] == lib.arena_offset(slots, 1) + near + window * chunk
    assert ends[1] == ends[0] + window * chunk
    spares = [lib.arena_offset(slots, side) + lib.spare_offset(window, chunk, side) for side in (0, 1)]
    assert spares == [ends[1], ends[1] + SPARES * SPARE]
    size = lib.region_size(window, chunk)
    assert size % 4096 == 0
    assert 0 <= size - spares[1] - SPARES * SPARE < 4096


def test_a_message_up_to_48_bytes_rides_in_its_line() -> None:
    region = Region()
    near, far = region.ends()
    assert near.post(b"x" * 48) == 48
    assert near.post(b"y" * 49) == 49
    assert region.get("fs_descriptor.commit", 0, 0) == commit_word(1, 48, DATA, INLINED)
    assert region.get("fs_descriptor.commit", 0, 1) == commit_word(2, 49, DATA, SEALED)
    assert far.take(100) == b"x" * 48 + b"y" * 49


def test_a_recycled_region_is_as_new_but_for_its_arenas() -> None:
    region = Region()
    near, far = region.ends()
    near.post(b"x" * 1000)
    far.take(10)
    far.post(b"y")
    near.post_fin(constant("FS_FIN"))
    header = region.memory[:64]
    library().recycle(region.address, region.window)
    assert region.memory[:64] == header
    arenas = library().arena_offset(region.slots, 0)
    assert not any(region.memory[64:arenas])
    near, far = region.ends()
    assert near.post(b"again") == 5
    assert far.take(100) == b"again"


# ---- violations --------------------------------------------------------------------------------------------


def wrong_header(field: str, value: int) -> None:
    region = Region()
    region.put(f"fs_region.{field}", value)
    End(region, 0)


@pytest.mark.parametrize(
    ("field", "value", "violation"),
    [
        ("magic", 0, "region without the magic number"),
        ("magic", int.from_bytes(b"fastsock", "big"), "region without the magic number"),
        ("version", 1, "region of another version"),
        ("kind", 1, "region of another kind of socket"),
        ("window", 0, "window out of range"),
        ("window", 1025, "window out of range"),
        ("window", 2**32 - 1, "window out of range"),
        ("chunk", 0, "chunk size out of range"),
        ("chunk", 960, "chunk size out of range"),
        ("chunk", 1025, "chunk size out of range"),
        ("chunk", 32832, "chunk size out of range"),
        ("window", 8, "region of the wrong size"),
        ("chunk", 2048, "region of the wrong size"),
    ],
)
def test_an_unsound_header_is_refused(field: str, value: int, violation: str) -> None:
    with violates(violation):
        wrong_header(field, value)


def test_a_short_region_is_refused() -> None:
    region = Region()
    with violates("region shorter than its header"):
        End(region, 0, size=127)
    with violates("region of the wrong size"):
        End(region, 0, size=len(region.memory) - 4096)


def test_only_the_constant_words_of_the_header_are_believed() -> None:
    region = Region(window=4, chunk=1024)
    region.put("fs_region.slots", 2**31)
    region.put("fs_region.arena", 2**31)
    near, far = region.ends()
    assert near.post(b"x" * 1024) == 1024
    assert far.take(2000) == b"x" * 1024


@pytest.mark.parametrize(
    ("word", "violation"),
    [
        (commit_word(2, 10), "descriptor out of sequence"),
        (commit_word(0, 10), "descriptor out of sequence"),
        (commit_word(2**31, 10), "descriptor out of sequence"),
        (commit_word(1, 0), "descriptor with an impossible length"),
        (commit_word(1, 1025, state=SEALED), "descriptor with an impossible length"),
        (commit_word(1, 65535, state=SEALED), "descriptor with an impossible length"),
        (commit_word(1, 0, state=OPEN), "descriptor with an impossible length"),
        (commit_word(1, 10, type=0), "descriptor of an unknown type"),
        (commit_word(1, 10, type=2), "descriptor of an unknown type"),
        (commit_word(1, 10, type=3), "descriptor of an unknown type"),
        (commit_word(1, 10, type=255, state=OPEN), "descriptor of an unknown type"),
        (commit_word(1, 10, state=0), "descriptor in an impossible state"),
        (commit_word(1, 10, state=4), "descriptor in an impossible state"),
        (commit_word(1, 10, state=255), "descriptor in an impossible state"),
        (commit_word(1, 49, state=INLINED), "descriptor in an impossible state"),
    ],
)
@pytest.mark.parametrize("peek", [False, True])
def test_an_impossible_commit_word(word: int, violation: str, peek: bool) -> None:
    region = Region()
    region.put("fs_descriptor.commit", word, half=0)
    _, far = region.ends()
    with violates(violation):
        far.take(100, peek)


def span(region: Region) -> int:
    """From the beginning of the arena of half 0 to its end."""
    return library().spare_offset(region.window, region.chunk, 0) + SPARES * SPARE


@pytest.mark.parametrize("state", [SEALED, OPEN])
@pytest.mark.parametrize("offset", [-99, 0, 1, 2**31, 2**32 - 1, 2**32 - 50])
def test_a_payload_outside_of_the_arena(offset: int, state: int) -> None:
    region = Region(window=4, chunk=1024)
    if offset < 2**31:
        offset += span(region)
    region.put("fs_descriptor.commit", commit_word(1, 100, state=state))
    region.put("fs_descriptor.offset", offset)
    _, far = region.ends()
    with violates("descriptor in an impossible state"):
        far.take(1000)


def test_a_payload_may_end_where_the_arena_does() -> None:
    region = Region(window=4, chunk=1024)
    region.put("fs_descriptor.commit", commit_word(1, 100, state=SEALED))
    region.put("fs_descriptor.offset", span(region) - 100)
    assert len(region.ends()[1].take(1000)) == 100


@pytest.mark.parametrize("word", [0, commit_word(5 - 4, 10)], ids=["zeroed", "one round earlier"])
def test_a_slot_not_posted_yet_is_no_violation(word: int) -> None:
    region = Region()
    _, far = region.ends(counts=(4, 0))
    region.put("fs_descriptor.commit", word, number=4)
    assert far.take(10) == b""
    assert not far.waiting()


def test_a_descriptor_that_changes_while_it_is_read() -> None:
    region = Region()
    near, far = region.ends()
    near.post(b"x" * 100)
    assert far.take(60) == b"x" * 60
    region.put("fs_descriptor.commit", commit_word(1, 50, state=SEALED))
    with violates("descriptor changed while it was read"):
        far.take(1)


def test_an_open_descriptor_that_changes_its_sequence() -> None:
    region = Region()
    region.put("fs_descriptor.commit", commit_word(1, 10, state=OPEN))
    _, far = region.ends()
    with (
        violates("open descriptor changed its sequence"),
        Interference(lambda: region.put("fs_descriptor.commit", commit_word(2, 10, state=OPEN))),
    ):
        far.take(10)


@pytest.mark.parametrize("acked", [4, 2**31, 2**32 - 1, 0, 1], ids=lambda acked: f"acked {acked}")
def test_an_ack_of_what_was_not_posted_or_acked_before(acked: int) -> None:
    region = Region()
    near, far = region.ends()
    for _ in range(3):
        near.post(b"x")
    far.take(2)
    near.take_credits()
    assert near.credited() == 2
    region.put("fs_direction.acked", acked)
    with violates("ACK of a descriptor never posted"):
        near.take_credits()


@pytest.mark.parametrize("ack", [2, 2**31 - 1])
def test_a_piggybacked_ack_of_what_was_not_posted(ack: int) -> None:
    region = Region()
    near, far = region.ends()
    near.post(b"x")
    far.post(b"y")
    region.put("fs_descriptor.ack", ack, half=1)
    assert near.take(10) == b"y"
    with violates("ACK of a descriptor never posted"):
        near.take_credits()


@pytest.mark.parametrize("kind", [0, 4 << 32, 1 << 63, (1 << 32) + (1 << 40)])
def test_a_fin_of_no_kind(kind: int) -> None:
    region = Region()
    _, far = region.ends(counts=(7, 0))
    region.put("fs_direction.fin", kind | 7)
    with violates("FIN at an impossible place"):
        far.of_stream()


@pytest.mark.parametrize("place", [0, 6, 8, 2**32 - 1])
@pytest.mark.parametrize("kind", ["FS_FIN", "FS_RESET", "FS_BACK"])
def test_a_fin_at_an_impossible_place(kind: str, place: int) -> None:
    region = Region()
    _, far = region.ends(counts=(7, 0))
    region.put("fs_direction.fin", constant(kind) | place)
    with violates("FIN at an impossible place"):
        far.of_stream()


# ---- credits, doorbells and the end, case by case ------------------------------------------------------------


def test_a_sender_always_has_credit_when_everything_was_read() -> None:
    """Also when the peer's acknowledgements lie unread in this end's own half: a program may send requests for as
    long as they are taken, and read the answers later."""
    near, far = Region(window=32).ends(ack_threshold=16)
    for _ in range(100):
        if near.post(b"request") == 0:
            pytest.fail("no credit, and nobody left who would give one")
        assert far.take(100) == b"request"
        if far.post(b"answer") == 0:
            break  # the answers are unread, so their sender may well be out of credit


@pytest.mark.parametrize("count", [2**31 - 20])
def test_a_stream_that_is_never_answered_has_no_end(count: int) -> None:
    """After more descriptors than half the range of their numbers, none of which was acknowledged by DATA."""
    near, far = Region(window=8).ends(ack_threshold=4, counts=(count, 0))
    near.never_piggybacked()
    for _ in range(40):
        assert near.post(b"x") == 1
        assert far.take(10) == b"x"


@pytest.mark.parametrize("chunk", [1024, 2048, 4096, 8192, 32768])
def test_a_post_that_finds_no_room_is_not_called_writable(chunk: int) -> None:
    near, far = Region(window=8, chunk=chunk).ends(ack_threshold=1)
    size = 0
    for step in range(1000):
        size = (size * 5 + 577) % chunk + 1
        if near.post(b"x" * size) == 0:
            assert not near.writable(), f"{near.arena_used()} bytes used, {size} wanted"
            far.take(size // 2 + step % 64)


def test_room_before_the_end_of_the_arena_within_a_buffer_limit() -> None:
    """The rest of the arena is too short for the payload, and the limit leaves even less."""
    near, far = Region(window=64, chunk=4096).ends(ack_threshold=1)
    near.limit(1)  # and the other buffer's default: 196,609 bytes
    sizes = [4032] + 62 * [4096] + [1600]
    for number, size in enumerate(sizes):
        # (The first one comes earlier: in front of it the near part of the arena was left out, which counts meanwhile.)
        if number == 31 or number > 32:
            oldest = sizes[max(number - 32, 0)]
            assert len(far.take(oldest)) == oldest
        assert near.post(b"x" * size) == size
    assert near.arena_used() == 128_576
    assert near.post(b"x" * 4096) or not near.writable()


def fill(end: End, piece: int = 1024) -> int:
    """Posts until nothing more is taken. Bytes posted."""
    sent = 0
    while posted := end.post(b"x" * piece):
        sent += posted
    return sent


@pytest.mark.parametrize("size", [2, 49, 1000])
@pytest.mark.parametrize("read", [0, 1, 6, 7])
def test_a_reader_that_stops_anywhere_leaves_a_spare_part(read: int, size: int) -> None:
    """Also within the descriptor that a spare part has: there is another one."""
    near, far = Region(window=8, chunk=1024).ends(ack_threshold=7)
    sent = sum(near.post(b"x" * size) for _ in range(12))
    taken = len(far.take(read * size + 1))
    sent += fill(near)
    assert sent - taken >= SPARE
    assert not near.writable()
    while got := far.take(1 << 20):
        taken += len(got)
    assert taken == sent
    assert near.writable()


def test_no_spare_part_is_used_within_a_buffer_limit() -> None:
    near, _ = Region(window=32, chunk=32768).ends()
    near.limit(1)  # and the other buffer's default: 196,609 bytes
    assert fill(near) <= 196_609


def test_a_payload_lies_in_one_part_of_its_arena() -> None:
    """What no longer fits into the near part begins the far one, behind the near part of the other direction."""
    for half in (0, 1):
        region = Region(window=8, chunk=4096)
        ends = region.ends()
        near, gap = library().near(8), library().gap(8, 4096, half)
        places = [(near - 128, 0), (64, near - 128), (65, near + gap), (64, near + gap + 128)]
        for number, (size, offset) in enumerate(places):
            assert ends[half].post(bytes([number + 1]) * size) == size
            assert region.get("fs_descriptor.offset", half, number) == offset
        said = b"".join(bytes([number + 1]) * size for number, size in enumerate(size for size, _ in places))
        assert ends[1 - half].take(len(said)) == said


def test_small_posts_share_a_descriptor_up_to_the_end_of_a_part() -> None:
    region = Region(window=8, chunk=4096)
    near, far = region.ends(ack_threshold=7)
    part = library().near(8)
    near.post(b"first")
    for _ in range(part // 64):
        assert near.post(b"x" * 64, combine=True) == 64
    assert near.posted() == 2
    assert near.post(b"x" * 64, combine=True) == 64
    assert near.posted() == 3
    assert far.take(2 * part) == b"first" + b"x" * (part // 64 * 64 + 64)


def test_random_use_against_a_bytearray() -> None:
    run_state_machine_as_test(
        Ring,
        settings=settings(
            max_examples=200,
            stateful_step_count=60,
            report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
