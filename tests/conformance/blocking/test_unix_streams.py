"""Stream sockets of AF_UNIX: what differs from TCP in the kernel differs on the ring as well.

`conformance/test_unix_streams.py` runs the bodies of the other files on them."""

import array
import errno
import fcntl
import os
import select
import socket
import struct
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.pairs import (
    KINDS,
    Pair,
    configured,
    fill,
    leave,
    make_pair,
    move,
    path_of,
    poll_mask,
    read_exactly,
    read_to_eof,
    socket_class,
    when_main_sleeps,
)

pytestmark = pytest.mark.usefixtures("bounded")

RINGS = [kind for kind in KINDS if KINDS[kind].moves]


@pytest.fixture
def pair(kind: str) -> Iterator[Pair]:
    with make_pair(kind, socket.AF_UNIX) as pair:
        yield pair


def test_bytes_of_all_sizes(pair: Pair) -> None:
    near, far = pair
    for size in (1, 48, 49, 4000, 70_000):
        near.sendall(bytes([size % 251]) * size)
        assert read_exactly(far, size) == bytes([size % 251]) * size
        far.sendall(b"done")
        assert near.recv(10) == b"done"
    pair.check_path()


def test_more_than_the_kernel_takes_unread(pair: Pair, kind: str) -> None:
    """The kernel has its bytes in front of those that follow by the ring."""
    near, far = pair
    near.sendall(b"k" * 100_000)
    assert read_exactly(far, 50_000) == b"k" * 50_000
    far.sendall(b"answer")
    near.sendall(b"r" * 1000)
    assert read_exactly(far, 51_000) == b"k" * 50_000 + b"r" * 1000
    assert near.recv(100) == b"answer"
    pair.check_path()


def test_the_peer_closes_with_bytes_unread(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"unread")
    far.sendall(b"last")
    far.close()
    assert near.recv(100) == b"last"
    with pytest.raises(ConnectionResetError):
        near.recv(100)
    assert near.recv(100) == b""


def test_the_peer_closes_with_bytes_unread_that_alone_were_on_the_ring(kind: str) -> None:
    """It has never sent, so its own direction is in the kernel."""
    with configured(kind), socket_class(kind != "kernel")(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        with socket_class(kind != "kernel")(socket.AF_UNIX) as near:
            near.connect(listener.getsockname())
            far = listener.accept()[0]
            for _ in range(300):
                near.sendall(b"x")
                assert far.recv(10) == b"x"
                time.sleep(0.001)
                if path_of(near) == "ring":
                    break
            near.sendall(b"unread")
            far.close()
            with pytest.raises(ConnectionResetError):
                near.recv(10)
            assert near.recv(10) == b""


@pytest.mark.parametrize("told", ["before", "after"])
def test_the_peer_ends_its_stream_and_closes_with_bytes_unread(pair: Pair, told: str) -> None:
    near, far = pair
    near.sendall(b"unread")
    far.shutdown(socket.SHUT_WR)
    if told == "before":
        assert near.recv(10) == b""
    far.close()
    with pytest.raises(ConnectionResetError):
        near.recv(10)
    assert near.recv(10) == b""


def error_of(sock: socket.socket) -> str | None:
    number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.errorcode[number] if number else None


def outcome(call: Callable[..., Any], *arguments: object) -> Any:
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def has_error(sock: socket.socket) -> bool:
    return bool(poll_mask(sock) & select.POLLERR)


ASKS: dict[str, Callable[[socket.socket], Any]] = {
    "SO_ERROR": error_of,
    "recv": lambda sock: outcome(sock.recv, 10),
    "send": lambda sock: outcome(sock.send, b"x"),
    "poll": has_error,
}


@pytest.mark.parametrize(
    "told",
    [
        {"poll": True, "SO_ERROR": "ECONNRESET", "recv": b""},
        {"recv": "ECONNRESET", "SO_ERROR": None, "poll": False},
        {"send": "EPIPE", "recv": "ECONNRESET", "poll": False},
        {"send": "EPIPE", "SO_ERROR": "ECONNRESET", "poll": False, "recv": b""},
    ],
    ids=" ".join,
)
def test_the_error_of_bytes_left_unread_is_told_once(pair: Pair, told: dict[str, Any]) -> None:
    """A send that finds the end tells another one, and does not take it away."""
    near, far = pair
    near.sendall(b"unread")
    far.close()
    assert {ask: ASKS[ask](near) for ask in told} == told


def test_a_send_waits_for_room_when_the_peer_closes(pair: Pair) -> None:
    near, far = pair
    fill(near)
    closing = when_main_sleeps(far.close)
    assert outcome(near.send, b"more") == "ECONNRESET"
    closing.result()
    assert [outcome(near.send, b"x"), outcome(near.recv, 10)] == ["EPIPE", b""]


def test_a_send_has_done_a_part_when_the_peer_closes(pair: Pair) -> None:
    """It has taken the error with it."""
    near, far = pair
    closing = when_main_sleeps(far.close)
    assert 0 < near.send(bytes(20 << 20)) < 20 << 20
    closing.result()
    assert [outcome(near.send, b"x"), error_of(near), outcome(near.recv, 10)] == ["EPIPE", None, b""]


def test_peeking_for_all_shows_what_there_is(pair: Pair) -> None:
    """TCP waits for the rest."""
    near, far = pair
    far.sendall(b"a part")
    assert near.recv(10, socket.MSG_PEEK | socket.MSG_WAITALL) == b"a part"
    assert near.recv(10) == b"a part"


@pytest.mark.parametrize("last", ["of its own", "of both"])
def test_the_end_of_a_stream_that_was_shut_in_both_directions_is_no_reset(pair: Pair, last: str) -> None:
    near, far = pair
    far.sendall(b"last")
    near.shutdown(socket.SHUT_RDWR)
    if last == "of both":
        assert far.recv(100) == b""
    far.close()
    assert read_to_eof(near) == b"last"
    with pytest.raises(BrokenPipeError):
        near.send(b"x")


def test_a_send_after_the_peer_has_closed(pair: Pair) -> None:
    """The first one is refused: TCP would take it."""
    near, far = pair
    far.close()
    for _ in range(2):
        with pytest.raises(BrokenPipeError):
            near.send(b"x")
    assert near.recv(1) == b""


def test_a_send_after_the_peer_has_shut_receiving(pair: Pair) -> None:
    near, far = pair
    far.shutdown(socket.SHUT_RD)
    with pytest.raises(BrokenPipeError):
        near.send(b"x")
    far.sendall(b"the other way")
    assert near.recv(100) == b"the other way"
    assert far.recv(1) == b""


def test_what_was_sent_before_the_peer_has_shut_receiving(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"before")
    far.shutdown(socket.SHUT_RD)
    assert far.recv(100) == b"before"
    assert far.recv(100) == b""


@pytest.mark.parametrize("leaves", ["near", "far", "nobody"])
@pytest.mark.parametrize("unread", [b"", b"unread"])
def test_leaving_an_end_that_is_shut_for_receiving(pair: Pair, unread: bytes, leaves: str) -> None:
    """The kernel does not take bytes for it any more: what lay unread is delivered all the same."""
    near, far = pair
    if unread:
        far.sendall(unread)
    near.shutdown(socket.SHUT_RD)
    for name, sock in (("near", near), ("far", far)):
        if name == leaves:
            leave(sock)
    assert read_to_eof(near) == unread
    with pytest.raises(BrokenPipeError):
        far.send(b"x")
    near.sendall(b"the other way")
    assert far.recv(100) == b"the other way"
    near.close()
    assert far.recv(100) == b""


def test_lingering_for_no_time_is_no_reset(pair: Pair) -> None:
    near, far = pair
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.sendall(b"last")
    far.close()
    assert read_to_eof(near) == b"last"


@pytest.mark.parametrize("how", ["closes", "half-closes", "both half-close"])
def test_what_poll_says_of_the_end(pair: Pair, how: str) -> None:
    near, far = pair
    if how == "closes":
        far.close()
    else:
        far.shutdown(socket.SHUT_WR)
    if how == "both half-close":
        near.shutdown(socket.SHUT_WR)
    poll = select.poll()
    everything = select.POLLIN | select.POLLOUT | select.POLLRDHUP | select.POLLPRI
    poll.register(near, everything)
    over = select.POLLHUP if how != "half-closes" else 0
    assert poll.poll(1000) == [(near.fileno(), select.POLLIN | select.POLLOUT | select.POLLRDHUP | over)]


def test_truncating_takes_nothing_away(pair: Pair) -> None:
    """TCP throws the bytes away with this flag."""
    near, far = pair
    near.sendall(b"bytes")
    assert far.recv(100, socket.MSG_TRUNC) == b"bytes"


def test_an_address_is_refused(pair: Pair) -> None:
    near, _ = pair
    with pytest.raises(OSError, match="already connected"):
        near.sendto(b"x", "\0nobody")
    with pytest.raises(OSError, match="already connected"):
        near.sendmsg([b"x"], [], 0, "\0nobody")


def test_the_sender_is_named(pair: Pair) -> None:
    near, far = pair
    far.sendall(b"from the end with a name")
    assert near.recvfrom(100) == (b"from the end with a name", near.getpeername())
    near.sendall(b"from the other")
    assert far.recvfrom(100)[0] == b"from the other"


def test_credentials_are_the_kernels(pair: Pair) -> None:
    for sock in pair:
        said = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        assert struct.unpack("3i", said) == (os.getpid(), os.getuid(), os.getgid())


def pass_on(sender: socket.socket, receiver: socket.socket) -> None:
    ours, theirs = os.pipe()
    socket.send_fds(sender, [b"take it"], [theirs])
    text, numbers, _, _ = socket.recv_fds(receiver, 100, 1)
    assert text == b"take it"
    os.write(numbers[0], b"through the pipe")
    assert os.read(ours, 100) == b"through the pipe"
    for number in (ours, theirs, numbers[0]):
        os.close(number)


def test_descriptors_travel_along(pair: Pair) -> None:
    near, far = pair
    pass_on(near, far)
    pass_on(far, near)
    near.sendall(b"and bytes")
    assert far.recv(100) == b"and bytes"


def test_descriptors_travel_behind_bytes(pair: Pair) -> None:
    near, far = pair
    ours, theirs = os.pipe()
    near.sendall(b"in front")
    near.sendmsg([b"with it"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs]))])
    near.sendall(b"behind")
    assert read_exactly(far, 8) == b"in front"
    text, numbers, _, _ = socket.recv_fds(far, 7, 1)
    assert (text, len(numbers)) == (b"with it", 1)
    assert far.recv(100) == b"behind"
    for number in (ours, theirs, numbers[0]):
        os.close(number)


def test_credentials_travel_along(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"before")
    assert far.recv(100) == b"before"
    far.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    near.sendall(b"after")
    text, ancillary, _, _ = far.recvmsg(100, socket.CMSG_SPACE(12))
    assert (text, [kind for _, kind, _ in ancillary]) == (b"after", [socket.SCM_CREDENTIALS])
    assert struct.unpack("3i", ancillary[0][2])[0] == os.getpid()


@pytest.mark.parametrize("address", ["path", "abstract", "unnamed client, sending before it is accepted"])
def test_addresses(kind: str, address: str) -> None:
    with tempfile.TemporaryDirectory() as folder, configured(kind):
        name = f"{folder}/socket" if address != "abstract" else f"\0fastsock test {os.getpid()} {kind}"
        far_class, near_class = socket_class(KINDS[kind].far_fastsock), socket_class(KINDS[kind].near_fastsock)
        with far_class(socket.AF_UNIX) as listener, near_class(socket.AF_UNIX) as near:
            listener.bind(name)
            listener.listen(1)
            near.connect(name)
            for i in range(50):
                near.sendall(b"%d" % (i % 10))
            far, said = listener.accept()
            with far:
                assert read_exactly(far, 50) == b"0123456789" * 5
                if KINDS[kind].moves:
                    move(near, far)
                shown = os.fsencode(name) if address == "abstract" else name
                assert (said, near.getpeername(), far.getsockname()) == ("", shown, shown)


def test_what_the_peer_has_not_read_is_counted(pair: Pair) -> None:
    """The kernel counts the memory that it takes."""
    near, far = pair

    def unread() -> int:
        return struct.unpack("i", fcntl.ioctl(near, termios.TIOCOUTQ, b"\0" * 4))[0]

    for size in (1, 49, 4000):
        near.sendall(b"x" * size)
        assert unread() >= size
        near.sendall(b"x")
        assert unread() >= size + 1
        assert read_exactly(far, size + 1) == b"x" * (size + 1)
        assert unread() == 0


@pytest.mark.parametrize("kind", RINGS)
def test_the_setting_leaves_them_to_the_kernel(kind: str) -> None:
    import fastsock

    with (
        fastsock.configure(**KINDS[kind].settings, unix_streams=False),
        fastsock.socket(socket.AF_UNIX) as listener,
        fastsock.socket(socket.AF_UNIX) as near,
    ):
        listener.bind("")
        listener.listen(1)
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:
            for _ in range(50):
                near.sendall(b"x")
                far.sendall(far.recv(1))
                assert near.recv(1) == b"x"
            assert (path_of(near), path_of(far)) == ("tcp", "tcp")


@pytest.mark.parametrize("kind", RINGS)
def test_fastsock_ss_shows_its_ends(pair: Pair) -> None:
    from fastsock.tools import introspection

    pair.check_path()
    name = "@" + pair.near.getpeername()[1:].decode()
    [process] = introspection.query({os.getpid()})
    shown = [(each.local, each.peer, each.path, each.peer_pid) for each in process.connections]
    assert sorted(shown) == [("-", name, "ring", os.getpid()), (name, "-", "ring", os.getpid())]
