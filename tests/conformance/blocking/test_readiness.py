"""What select, poll and epoll report in every state of a connection: level-triggered, exactly as on TCP.

The table below is the reference; the kernel's own pair proves it right. Each state is built by a function
on the examined socket and its peer, and examined on the end that connected and on the end that accepted.
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
STATES: dict[str, tuple[State, int, bool]] = {}


def state(mask: int, at_once: bool = False) -> Callable[[State], State]:
    """Enters a state and its mask into the table; ``at_once`` where no news from the peer is awaited."""

    def enter(build: State) -> State:
        STATES[build.__name__] = (build, mask, at_once)
        return build

    return enter


@state(POLLOUT, at_once=True)
def idle(sock: socket.socket, peer: socket.socket) -> None:
    pass


@state(POLLOUT, at_once=True)
def idle_after_a_conversation(sock: socket.socket, peer: socket.socket) -> None:
    for _ in range(100):
        sock.sendall(b"question")
        assert peer.recv(100) == b"question"
        peer.sendall(b"answer")
        assert sock.recv(100) == b"answer"


@state(POLLOUT, at_once=True)
def idle_after_sending(sock: socket.socket, peer: socket.socket) -> None:
    for _ in range(200):
        sock.sendall(b"read at once")
        assert peer.recv(100) == b"read at once"


@state(POLLOUT, at_once=True)
def own_bytes_unread_by_the_peer(sock: socket.socket, peer: socket.socket) -> None:
    sock.sendall(b"unread")


@state(POLLIN | POLLOUT)
def data_waiting(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")


@state(POLLIN | POLLOUT)
def much_data_waiting(sock: socket.socket, peer: socket.socket) -> None:
    fill(peer)


@state(POLLIN | POLLOUT, at_once=True)
def data_peeked_at(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    assert sock.recv(100, socket.MSG_PEEK) == b"data"


@state(POLLIN | POLLOUT, at_once=True)
def data_partly_read(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    assert sock.recv(3) == b"dat"


@state(POLLOUT, at_once=True)
def drained(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    assert sock.recv(100) == b"data"


@state(POLLOUT, at_once=True)
def drained_after_much(sock: socket.socket, peer: socket.socket) -> None:
    sent = fill(peer)
    assert read_exactly(sock, sent) == pattern(sent)


@state(ENDED)
def peer_half_closed(sock: socket.socket, peer: socket.socket) -> None:
    peer.shutdown(SHUT_WR)


@state(ENDED)
def peer_half_closed_after_data(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    peer.shutdown(SHUT_WR)


@state(ENDED, at_once=True)
def end_of_stream_read(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    peer.shutdown(SHUT_WR)
    assert sock.recv(100) == b"data"
    assert sock.recv(100) == sock.recv(100) == b""


@state(POLLOUT, at_once=True)
def own_half_closed(sock: socket.socket, peer: socket.socket) -> None:
    sock.shutdown(SHUT_WR)


@state(ENDED, at_once=True)
def own_reading_shut(sock: socket.socket, peer: socket.socket) -> None:
    sock.shutdown(SHUT_RD)


@state(GONE, at_once=True)
def own_both_shut(sock: socket.socket, peer: socket.socket) -> None:
    sock.shutdown(SHUT_RDWR)


@state(POLLOUT, at_once=True)
def peer_reading_shut(sock: socket.socket, peer: socket.socket) -> None:
    peer.shutdown(SHUT_RD)


@state(GONE)
def both_half_closed(sock: socket.socket, peer: socket.socket) -> None:
    sock.shutdown(SHUT_WR)
    peer.shutdown(SHUT_WR)


@state(ENDED)
def peer_closed(sock: socket.socket, peer: socket.socket) -> None:
    peer.close()


@state(ENDED)
def peer_closed_after_data(sock: socket.socket, peer: socket.socket) -> None:
    peer.sendall(b"data")
    peer.close()


@state(GONE | POLLERR)
def peer_closed_and_sent_to(sock: socket.socket, peer: socket.socket) -> None:
    peer.close()
    sock.sendall(b"too late")


@state(GONE | POLLERR)
def peer_closed_with_bytes_unread(sock: socket.socket, peer: socket.socket) -> None:
    sock.sendall(b"never read")
    peer.close()


@state(GONE | POLLERR)
def peer_closed_with_bytes_unread_after_data(sock: socket.socket, peer: socket.socket) -> None:
    sock.sendall(b"never read")
    peer.sendall(b"data")
    peer.close()


@state(GONE | POLLERR)
def reset_by_linger(sock: socket.socket, peer: socket.socket) -> None:
    reset(peer)


@state(GONE, at_once=True)
def reset_noticed(sock: socket.socket, peer: socket.socket) -> None:
    reset(peer)
    with pytest.raises(ConnectionResetError):
        sock.recv(100)


@state(0, at_once=True)
def send_side_full(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)


@state(POLLIN)
def send_side_full_and_data_waiting(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)
    peer.sendall(b"data")


@state(0, at_once=True)
def send_side_full_and_data_read(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)
    peer.sendall(b"data")
    assert sock.recv(100) == b"data"
    fill(sock)  # with its own bytes the peer tells of what it has read before


@state(POLLOUT)
def send_side_drained_again(sock: socket.socket, peer: socket.socket) -> None:
    sent = fill(sock)
    assert read_exactly(peer, sent) == pattern(sent)


@state(POLLOUT, at_once=True)
def send_side_full_and_half_closed(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)
    sock.shutdown(SHUT_WR)


@state(POLLIN | POLLRDHUP)
def send_side_full_and_peer_half_closed(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)
    peer.shutdown(SHUT_WR)


@state(GONE | POLLERR)
def send_side_full_and_peer_closed(sock: socket.socket, peer: socket.socket) -> None:
    fill(sock)
    peer.close()


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
    build, mask, at_once = STATES[name]
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
