"""What select, poll and epoll report in every state of a connection: level-triggered, exactly as on TCP.

The table below is the reference; the kernel's own pair proves it right. Each state is built on the examined
socket and its peer, and examined on the end that connected and on the end that accepted.
"""

import select
import socket
from collections.abc import Callable
from select import POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP
from socket import SHUT_RD, SHUT_RDWR, SHUT_WR

import pytest
from harness.pairs import Pair, eventually, fill, names_of, pattern, poll_mask, read_exactly, reset

ENDED = POLLIN | POLLOUT | POLLRDHUP
GONE = ENDED | POLLHUP

State = Callable[[socket.socket, socket.socket], object]


def reads(sock: socket.socket, expected: bytes, size: int = 100, flags: int = 0) -> None:
    assert sock.recv(size, flags) == expected


def drains(sock: socket.socket, sent: int) -> None:
    assert read_exactly(sock, sent) == pattern(sent)


def converse(sock: socket.socket, peer: socket.socket) -> None:
    for _ in range(100):
        for sender, receiver in ((sock, peer), (peer, sock)):
            sender.sendall(b"question or answer")
            reads(receiver, b"question or answer")


def send_often(sock: socket.socket, peer: socket.socket) -> None:
    for _ in range(200):
        sock.sendall(b"read at once")
        reads(peer, b"read at once")


def notice_reset(sock: socket.socket, peer: socket.socket) -> None:
    reset(peer)
    with pytest.raises(ConnectionResetError):
        sock.recv(100)


OUT, BOTH, FAILED = POLLOUT, POLLIN | POLLOUT, GONE | POLLERR
AT_ONCE = True
"""Where no news from the peer is awaited."""

STATES: dict[str, tuple[int, bool, State]] = {
    "idle": (OUT, AT_ONCE, lambda sock, peer: None),
    "idle_after_a_conversation": (OUT, AT_ONCE, converse),
    "idle_after_sending": (OUT, AT_ONCE, send_often),
    "own_bytes_unread_by_the_peer": (OUT, AT_ONCE, lambda sock, peer: sock.sendall(b"unread")),
    "data_waiting": (BOTH, False, lambda sock, peer: peer.sendall(b"data")),
    "much_data_waiting": (BOTH, False, lambda sock, peer: fill(peer)),
    "data_peeked_at": (
        BOTH, AT_ONCE, lambda sock, peer: (peer.sendall(b"data"), reads(sock, b"data", 100, socket.MSG_PEEK)),
    ),
    "data_partly_read": (BOTH, AT_ONCE, lambda sock, peer: (peer.sendall(b"data"), reads(sock, b"dat", 3))),
    "drained": (OUT, AT_ONCE, lambda sock, peer: (peer.sendall(b"data"), reads(sock, b"data"))),
    "drained_after_much": (OUT, AT_ONCE, lambda sock, peer: drains(sock, fill(peer))),
    "peer_half_closed": (ENDED, False, lambda sock, peer: peer.shutdown(SHUT_WR)),
    "peer_half_closed_after_data": (ENDED, False, lambda sock, peer: (peer.sendall(b"data"), peer.shutdown(SHUT_WR))),
    "end_of_stream_read": (
        ENDED, AT_ONCE,
        lambda sock, peer: (
            peer.sendall(b"data"), peer.shutdown(SHUT_WR), *(reads(sock, data) for data in (b"data", b"", b"")),
        ),
    ),
    "own_half_closed": (OUT, AT_ONCE, lambda sock, peer: sock.shutdown(SHUT_WR)),
    "own_reading_shut": (ENDED, AT_ONCE, lambda sock, peer: sock.shutdown(SHUT_RD)),
    "own_both_shut": (GONE, AT_ONCE, lambda sock, peer: sock.shutdown(SHUT_RDWR)),
    "peer_reading_shut": (OUT, AT_ONCE, lambda sock, peer: peer.shutdown(SHUT_RD)),
    "both_half_closed": (GONE, False, lambda sock, peer: (sock.shutdown(SHUT_WR), peer.shutdown(SHUT_WR))),
    "peer_closed": (ENDED, False, lambda sock, peer: peer.close()),
    "peer_closed_after_data": (ENDED, False, lambda sock, peer: (peer.sendall(b"data"), peer.close())),
    "peer_closed_and_sent_to": (FAILED, False, lambda sock, peer: (peer.close(), sock.sendall(b"too late"))),
    "peer_closed_with_bytes_unread": (FAILED, False, lambda sock, peer: (sock.sendall(b"never read"), peer.close())),
    "peer_closed_with_bytes_unread_after_data": (
        FAILED, False, lambda sock, peer: (sock.sendall(b"never read"), peer.sendall(b"data"), peer.close()),
    ),
    "reset_by_linger": (FAILED, False, lambda sock, peer: reset(peer)),
    "reset_noticed": (GONE, AT_ONCE, notice_reset),
    "send_side_full": (0, AT_ONCE, lambda sock, peer: fill(sock)),
    "send_side_full_and_data_waiting": (POLLIN, False, lambda sock, peer: (fill(sock), peer.sendall(b"data"))),
    "send_side_full_and_data_read": (  # filled again: with its own bytes the peer tells what it has read before
        0, AT_ONCE, lambda sock, peer: (fill(sock), peer.sendall(b"data"), reads(sock, b"data"), fill(sock)),
    ),
    "send_side_drained_again": (OUT, False, lambda sock, peer: drains(peer, fill(sock))),
    "send_side_full_and_half_closed": (OUT, AT_ONCE, lambda sock, peer: (fill(sock), sock.shutdown(SHUT_WR))),
    "send_side_full_and_peer_half_closed": (
        POLLIN | POLLRDHUP, False, lambda sock, peer: (fill(sock), peer.shutdown(SHUT_WR)),
    ),
    "send_side_full_and_peer_closed": (FAILED, False, lambda sock, peer: (fill(sock), peer.close())),
}  # fmt: skip


def epoll_mask(sock: socket.socket) -> int:
    with select.epoll() as epoll:
        epoll.register(sock, POLLIN | POLLOUT | POLLRDHUP)
        return sum(mask for _, mask in epoll.poll(0))


def select_sets(sock: socket.socket) -> list[bool]:
    return [bool(ready) for ready in select.select([sock], [sock], [sock], 0)]


@pytest.mark.parametrize("end", ["connected", "accepted"])
@pytest.mark.parametrize("name", STATES)
def test_the_table(pair: Pair, name: str, end: str) -> None:
    sock, peer = pair if end == "connected" else reversed(tuple(pair))
    mask, at_once, build = STATES[name]
    build(sock, peer)
    if not at_once:
        eventually(lambda: names_of(poll_mask(sock)), names_of(mask))
    assert names_of(poll_mask(sock)) == names_of(mask)
    assert names_of(epoll_mask(sock)) == names_of(mask)
    # select(2): readable is IN, HUP or ERR; writable is OUT or ERR; exceptional is PRI.
    assert select_sets(sock) == [bool(mask & (POLLIN | POLLHUP | POLLERR)), bool(mask & (POLLOUT | POLLERR)), False]
    for asked in (0, POLLIN, POLLOUT, POLLRDHUP, POLLIN | POLLRDHUP):
        assert names_of(poll_mask(sock, asked)) == names_of(mask & (asked | POLLHUP | POLLERR))
    assert names_of(poll_mask(sock)) == names_of(mask), "looking changes nothing"
