"""Random use of the ring, against the simplest truth: what one end sent and the other did not take is a list."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from native.ring import Interference, Region, layout, library

SIDES = st.sampled_from([0, 1])
SIZES = st.one_of(st.integers(1, 64), st.sampled_from([1, 47, 48, 49, 2048, 32768]), st.integers(1, 70_000))


class Ring(RuleBasedStateMachine):
    """Both ends of a region, each sending and receiving."""

    @initialize(
        window=st.sampled_from([1, 2, 3, 5, 32]) | st.integers(1, 64),
        chunk=st.sampled_from([1024, 1088, 2048, 8192, 32768]),
        threshold=st.integers(1, 63),
        counts=st.tuples(*[st.sampled_from([0, 0, 2**31 - 20, 2**32 - 20])] * 2),
        limit=st.sampled_from([0, 0, 1, 50_000]),
        in_vectors=st.booleans(),
    )
    def begin(
        self, window: int, chunk: int, threshold: int, counts: tuple[int, int], limit: int, in_vectors: bool
    ) -> None:
        library().copy_in_vectors(in_vectors)
        self.region = Region(window, chunk)
        threshold = 1 if limit else min(threshold, max(window - 1, 1))  # a small buffer waits for no others
        self.ends = self.region.ends(threshold, counts)
        self.unread: tuple[list[int], list[int]] = ([], [])
        self.kinds = [0, 0]
        self.taken_ends = [False, False]
        self.posts = 0
        for end in self.ends:
            end.limit(limit)

    @rule(side=SIDES, size=SIZES, combine=st.booleans())
    def post(self, side: int, size: int, combine: bool) -> None:
        if self.kinds[side]:
            return
        self.posts += 1
        data = (bytes(range(self.posts % 251, 251)) * (size // (251 - self.posts % 251) + 1))[:size]
        posted = self.ends[side].post(data, combine)
        assert 0 <= posted <= min(size, self.region.chunk)
        if posted:
            self.unread[side].extend(data[:posted])
        else:
            assert not self.ends[side].writable()

    @rule(side=SIDES)
    def seal(self, side: int) -> None:
        self.ends[side].seal()

    @rule(side=SIDES, room=SIZES)
    def take(self, side: int, room: int) -> None:
        assert self.ends[1 - side].take(room) == bytes(self.unread[side][:room])
        del self.unread[side][:room]

    @rule(side=SIDES, room=SIZES)
    def peek(self, side: int, room: int) -> None:
        assert self.ends[1 - side].take(room, peek=True) == bytes(self.unread[side][:room])

    @rule(side=SIDES, room=SIZES)
    def discard(self, side: int, room: int) -> None:
        assert self.ends[1 - side].discard(room) == min(room, len(self.unread[side]))
        del self.unread[side][:room]

    @rule(side=SIDES, size=SIZES, room=SIZES)
    def take_while_posting(self, side: int, size: int, room: int) -> None:
        with Interference(lambda: self.take(side, room)):
            self.post(side, size, True)

    @rule(side=SIDES, size=SIZES, room=SIZES)
    def post_while_taking(self, side: int, size: int, room: int) -> None:
        with Interference(lambda: self.post(side, size, True)):
            self.take(side, room)

    @rule(side=SIDES)
    def acknowledge(self, side: int) -> None:
        self.ends[side].acknowledge()

    @rule(side=SIDES)
    def take_credits(self, side: int) -> None:
        self.ends[side].take_credits()

    @precondition(lambda self: self.posts > 8)
    @rule(side=SIDES, kind=st.sampled_from(["FS_FIN", "FS_RESET", "FS_BACK"]))
    def post_fin(self, side: int, kind: str) -> None:
        if not self.kinds[side]:
            self.kinds[side] = layout()[kind]
            self.ends[side].post_fin(self.kinds[side])

    @rule(side=SIDES)
    def take_end(self, side: int) -> None:
        end = self.ends[1 - side].of_stream()
        assert end == (0 if self.unread[side] else self.kinds[side])
        if end:
            self.ends[1 - side].fin_taken()
            self.taken_ends[side] = True

    @invariant()
    def both_ends_know_what_waits(self) -> None:
        for side, end in enumerate(getattr(self, "ends", ())):
            stream, peer = self.unread[side], self.ends[1 - side]
            assert bool(peer.waiting()) == bool(stream)
            readable = bool(stream) or bool(self.kinds[side] and not self.taken_ends[side])
            assert bool(peer.readable()) == readable
            assert peer.available(1000) == min(1000, len(stream))
            assert (end.posted() - end.credited()) % 2**32 <= self.region.window
            assert end.arena_used() <= library().arena(self.region.window, self.region.chunk)

    @invariant()
    def what_was_read_can_be_sent_again(self) -> None:
        for side, end in enumerate(getattr(self, "ends", ())):
            if not self.unread[side]:
                assert end.writable()

    def teardown(self) -> None:
        for side, end in enumerate(getattr(self, "ends", ())):
            peer = self.ends[1 - side]
            while self.unread[side]:
                self.take(side, 70_000)
            peer.acknowledge()
            end.take_credits()
            assert end.credited() == end.posted() == peer.consumed()
            assert end.arena_used() == 0
            sent, received = end.counters(), peer.counters()
            assert sent["messages_sent"] == received["messages_received"]
