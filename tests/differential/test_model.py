"""Random conversations against the simplest truth: what was sent and not yet received is a ``bytearray``.

Both ends send, receive, peek, half-close, change descriptors and ask for readiness in any order, without
ever waiting. Nothing is assumed about how much a connection holds, except that an empty one takes a byte.
"""

import contextlib
import errno
import select
import socket
from socket import MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from pairs import SECONDS, eventually, make_pair, payload, poll_mask, raises_errno, read_to_eof

ENDS = st.sampled_from([0, 1])
SIZES = st.one_of(
    st.integers(0, 64),
    st.sampled_from([2047, 2048, 2049, 32767, 32768, 32769, 65536]),
    st.integers(0, 200_000),
)


class Conversation(RuleBasedStateMachine):
    """Rules over one pair; ``kind`` is set by a subclass."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.resources = contextlib.ExitStack()
        pair = self.resources.enter_context(make_pair(self.kind))
        self.socks = [pair.near, pair.far]
        for sock in self.socks:
            sock.setblocking(False)
        self.unread = [bytearray(), bytearray()]
        """Per end, what it sent and the other has not received."""
        self.ended = [False, False]
        """Per end, whether it half-closed."""
        self.sends = 0

    def await_readable(self, end: int) -> None:
        assert select.select([self.socks[end]], [], [], SECONDS)[0], "sent bytes, or the end, do not arrive"

    @rule(end=ENDS, size=SIZES, cut=st.integers(0, 200_000), gather=st.booleans())
    def send(self, end: int, size: int, cut: int, gather: bool) -> None:
        self.sends += 1
        sock, data = self.socks[end], payload(size, seed=self.sends)
        call = (lambda: sock.sendmsg([data[:cut], data[cut:]])) if gather else (lambda: sock.send(data))
        if self.ended[end]:
            with raises_errno(errno.EPIPE):
                call()
            return
        try:
            sent = call()
        except BlockingIOError:
            assert self.unread[end], "an empty connection takes at least a byte"
        else:
            assert min(size, 1) <= sent <= size
            self.unread[end] += data[:sent]

    def received(self, end: int, call) -> bytes:
        """What ``call`` received on this end: some of the unread bytes, or the end, or nothing yet."""
        unread = self.unread[1 - end]
        if not unread and not self.ended[1 - end]:
            with raises_errno(errno.EAGAIN):
                call()
            return b""
        self.await_readable(end)
        data = call()
        assert bool(data) == bool(unread)
        assert data == unread[: len(data)]
        return data

    @rule(end=ENDS, size=SIZES.filter(bool), waitall=st.booleans())
    def recv(self, end: int, size: int, waitall: bool) -> None:
        flags = MSG_DONTWAIT | (MSG_WAITALL if waitall else 0)
        data = self.received(end, lambda: self.socks[end].recv(size, flags))
        assert len(data) <= size
        del self.unread[1 - end][: len(data)]

    @rule(end=ENDS, size=SIZES.filter(bool))
    def peek(self, end: int, size: int) -> None:
        assert len(self.received(end, lambda: self.socks[end].recv(size, MSG_PEEK))) <= size

    @rule(end=ENDS, size=SIZES.filter(bool), start=st.integers(0, 50))
    def recv_into_part_of_a_buffer(self, end: int, size: int, start: int) -> None:
        room = bytearray(b"." * (start + size + 10))

        def call() -> bytes:
            got = self.socks[end].recv_into(memoryview(room)[start:], size)
            return bytes(room[start : start + got])

        data = self.received(end, call)
        assert len(data) <= size
        assert room == b"." * start + data + b"." * (size - len(data) + 10)
        del self.unread[1 - end][: len(data)]

    @rule(end=ENDS, sizes=st.lists(SIZES, min_size=1, max_size=4).filter(any))
    def recvmsg_into_several_buffers(self, end: int, sizes: list[int]) -> None:
        rooms = [bytearray(size) for size in sizes]

        def call() -> bytes:
            got = self.socks[end].recvmsg_into(rooms)[0]
            return b"".join(rooms)[:got]

        data = self.received(end, call)
        del self.unread[1 - end][: len(data)]

    @rule(end=ENDS)
    def is_readable_when_it_should_be(self, end: int) -> None:
        expected = bool(self.unread[1 - end] or self.ended[1 - end])
        eventually(lambda: bool(poll_mask(self.socks[end]) & select.POLLIN), expected)

    @rule(end=ENDS)
    def is_writable_when_empty(self, end: int) -> None:
        if not self.unread[end]:
            eventually(lambda: bool(poll_mask(self.socks[end]) & select.POLLOUT), True)

    @rule(end=ENDS, detach=st.booleans())
    def change_descriptor(self, end: int, detach: bool) -> None:
        old = self.socks[end]
        new = type(old)(fileno=old.detach()) if detach else old.dup()
        self.resources.enter_context(new)
        old.close()
        new.setblocking(False)
        self.socks[end] = new

    @precondition(lambda self: self.sends > 5)
    @rule(end=ENDS)
    def half_close(self, end: int) -> None:
        if not self.ended[end]:
            self.socks[end].shutdown(socket.SHUT_WR)
            self.ended[end] = True

    def teardown(self) -> None:
        with self.resources:
            for end, sock in enumerate(self.socks):
                sock.settimeout(SECONDS)
                if not self.ended[end]:
                    sock.shutdown(socket.SHUT_WR)
            for end, sock in enumerate(self.socks):
                assert read_to_eof(sock) == self.unread[1 - end]


def test_any_conversation_agrees_with_the_model(kind: str) -> None:
    machine = type("Conversation", (Conversation,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
