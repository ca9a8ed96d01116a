"""How the two ends of a connection find each other and agree to move.

Both ends are facade sockets that have been used for a while; neither knows the other. The end with the smaller
(address, port) is the *publisher*: it publishes an abstract unix name made of the 4-tuple. The other one, the
*seeker*, looks the name up, makes a region and sends it there. Which end accepted and which connected does not
matter, so a socket may have come about in any way. Everything here runs a few times in a connection's life, as a
`step` that the data calls take while the path is undecided; nothing here blocks (but see `meeting_ms`).
"""

from __future__ import annotations

import _thread
import errno
import os
import socket as stdlib
import struct
import time
from contextlib import suppress

import attrs

from fastsock import addresses, config, regions, sessions
from fastsock._native import connector
from fastsock._native.vi import (
    Endpoint,
    claim,
    install_beginning,
    name_reasons,
    note_reason,
    set_beginning,
    set_poll_budget,
    when_connected,
)
from fastsock.observability import INFO, WARNING, Path, detail, event, paths
from fastsock.thread import start_thread_again

__all__ = ["Reason", "begin_search", "decide", "path_from"]

_socket = stdlib.socket  # the kernel's, whatever is patched later
SEQPACKET = stdlib.SOCK_SEQPACKET | stdlib.SOCK_NONBLOCK


class Reason:
    """Why a connection is on kernel TCP."""

    FEW = "too few operations"
    SEEKING = "looking for the peer"
    EXCLUDED = "address or port excluded"
    REMOTE = "peer on another host"
    PEER = "peer does not use fastsock"
    UNTRUSTED = "peer belongs to another user"
    NAME = "name held by somebody else"
    REFUSED = "peer refused"
    OPTION = "socket option"
    POLLED = "descriptor may be polled"
    DETACHED = "descriptor detached"
    BACK = "taken back to the kernel, or not moved yet"
    OVERRIDDEN = "class with data calls of its own"
    HANDED_OUT = "descriptor handed out"
    FORKED = "shared with another process"
    MEMORY_CAP = "memory cap reached"
    RESOURCES = "out of memory or descriptors"
    ENDING = "ended before it could move"
    VIOLATION = "peer broke the protocol"


DISABLED = "disabled by settings"
FOREIGN = "no connection of fastsock's"
"""What `path_of` says of a socket that has no endpoint."""

REASONS: tuple[str, ...] = tuple(text for name, text in vars(Reason).items() if name.isupper())
"""In the order of the roll's numbers, from 1 on, by which `fastsock ss` is told them: a new one stands last."""

name_reasons(("", *REASONS))


class Violated(Exception):
    """A peer broke the protocol. No error of the kernel's: those are also our own control connection's."""


VERSION = 2
HELLO = struct.Struct("=QIIQ16s")  # struct fs_hello of layout.h
MAGIC = 0x6B636F7374736166
SEEK_SECONDS = 2.0  # that a name is looked up for before the peer counts as foreign, and an answer is waited for
SEEK_MEETINGS = 4  # that came to nothing, before there are no more
TURN_OPERATIONS = 64  # until a connection that waits for its turn to meet comes again; doubled so many times at most:
TURN_DOUBLINGS = 8
MEETING_NAP = 0.0001  # seconds between two steps of an operation that may wait


def _apply(settings: config.Settings) -> None:
    set_poll_budget(settings.poll_us)
    set_beginning(settings.enabled, settings.move_after, settings.meeting_ms > 0)
    connector.set_trust(settings.trust == "any")


config.on_change(_apply)


# ---- the steps ---------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Search:
    """The undecided time of one connection: its `step` method is called by the endpoint's operations."""

    name: bytes
    lookup: connector.Lookup | None = None  # None: this end publishes
    handle: int | None = None
    kit: regions.Kit | None = None
    control: stdlib.socket | None = None
    until: float = 0.0
    looks: int = 0
    reused: bool = False
    stepping: _thread.LockType = attrs.field(factory=_thread.allocate_lock)
    meetings: int = 0
    turns: int = 0
    waited: float = 0.0

    def step(self, endpoint: Endpoint) -> None:
        if not self.stepping.acquire(blocking=False):
            return  # another thread's operation is at it
        try:
            if endpoint.search is not self:
                return  # another thread's operation has ended it since this one looked
            self._step(endpoint)
            if endpoint.operations and config.active().meeting_ms:
                self._await_peer(endpoint, config.active().meeting_ms / 1000)
        except Violated:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None
        except regions.MemoryCapReached:
            decide(endpoint, Reason.MEMORY_CAP)
        except MemoryError:
            decide(endpoint, Reason.RESOURCES)
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                decide(endpoint, Reason.ENDING)
                return
            detail("fastsock.rendezvous_failed", fd=endpoint.fd, error=repr(error))
            decide(endpoint, Reason.RESOURCES)
        finally:
            self.stepping.release()
            if endpoint.search is not self:
                self.withdraw(endpoint)

    def _await_peer(self, endpoint: Endpoint, seconds: float) -> None:
        """Goes on stepping while the other end may still join, and until it consents: for tests (`meeting_ms`)."""
        while self.waited < seconds and not endpoint.finished and not endpoint.peer_consents:
            before = time.monotonic()
            time.sleep(MEETING_NAP)
            if endpoint.search is self:
                self._step(endpoint)
            elif not endpoint.attached:
                return
            self.waited += time.monotonic() - before

    def _step(self, endpoint: Endpoint) -> None:
        start_thread_again()  # if nobody told us when a fork was over
        if endpoint.holders > 1:
            # Another process may read the kernel's stream raw: wait until it has let go.
            _change_reason(endpoint, Reason.FORKED)
            endpoint.next_step = endpoint.operations + 8
            return
        if endpoint.reason != Reason.SEEKING and endpoint.needs_kernel():
            decide(endpoint, Reason.OPTION)
            return
        if endpoint.exposed and not _moves_polled():
            decide(endpoint, Reason.POLLED)
            return
        _change_reason(endpoint, Reason.SEEKING)
        endpoint.next_step = endpoint.operations + 1
        if self.lookup is None:
            self._publish(endpoint)
        elif self.kit is None:
            self._seek(endpoint, self.lookup)
        else:
            self._await_wakeup(endpoint)

    def _publish(self, endpoint: Endpoint) -> None:
        if self.handle is None:
            try:
                self.handle = connector.publish(self.name, endpoint, config.active().meeting_ms > 0)
            except BlockingIOError:
                self._wait_its_turn(endpoint)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                decide(endpoint, Reason.NAME)
            return
        found = connector.arrived(self.handle, endpoint)
        if found is None:
            return
        self.handle = None
        if found is False:
            decide(endpoint, Reason.PEER)
        elif isinstance(found, str):
            violation(endpoint, found)
        else:
            self._move(endpoint, regions.arrived_kit(*found))

    def _wait_its_turn(self, endpoint: Endpoint) -> None:
        """Others use all descriptors that there are for meetings: comes again, ever later."""
        endpoint.next_step = endpoint.operations + (TURN_OPERATIONS << min(self.turns, TURN_DOUBLINGS))
        self.turns += 1

    def _seek(self, endpoint: Endpoint, lookup: connector.Lookup) -> None:
        try:
            found = lookup.finds(endpoint)
        except BlockingIOError:
            self._wait_its_turn(endpoint)
            return
        if not found:
            if lookup.over:
                decide(endpoint, Reason.PEER)
            return
        control = self.control = _socket(stdlib.AF_UNIX, SEQPACKET, 0, lookup.take())
        self.until = time.monotonic() + SEEK_SECONDS
        pid, uid, _ = struct.unpack("3i", control.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_PEERCRED, 12))
        settings = config.active()
        # Under trust="any" a stranger may hold the name. A hello brings things that are for the other end only.
        if uid not in (os.geteuid(), 0) and not (settings.trust == "any" and _owns_other_end(endpoint, uid)):
            decide(endpoint, Reason.UNTRUSTED)
            return
        try:
            self._say_hello(pid, settings, endpoint.fd)
        except ConnectionError:
            self._come_again(endpoint, Reason.PEER)

    def _say_hello(self, pid: int, settings: config.Settings, fd: int) -> None:
        """`fd`, the connection, goes along: it proves to the publisher who is there."""
        assert self.control is not None
        kit = None if self.reused else regions.parked_kit(pid, settings)
        if kit is not None:
            self.kit, self.reused = kit, True
            stdlib.send_fds(self.control, [HELLO.pack(MAGIC, VERSION, 1, kit.size, kit.id)], [fd])
            return
        self.kit, memfd = regions.new_kit(pid, settings)
        try:
            hello = HELLO.pack(MAGIC, VERSION, 0, self.kit.size, self.kit.id)
            stdlib.send_fds(self.control, [hello], [memfd, self.kit.wake_fd, self.kit.peer_fd, fd])
        finally:
            os.close(memfd)

    def _await_wakeup(self, endpoint: Endpoint) -> None:
        assert self.kit is not None
        assert self.control is not None
        if connector.wakeup_seen(self.kit.memory):
            kit, self.kit = self.kit, None
            self._move(endpoint, kit)
            return
        self.looks += 1
        if self.looks % 4:
            return
        try:
            answer = self.control.recv(1)
        except BlockingIOError:
            if time.monotonic() >= self.until:
                decide(endpoint, Reason.PEER)
            return
        except OSError:
            answer = b""
        if connector.wakeup_seen(self.kit.memory):
            return
        if answer == b"?":  # it does not know the old region any more, or its queue is full
            self._come_again(endpoint, Reason.REFUSED)
        elif answer == b"":
            self._come_again(endpoint, Reason.PEER)
        else:
            decide(endpoint, {b"u": Reason.UNTRUSTED, b"!": Reason.RESOURCES}.get(answer, Reason.REFUSED))

    def _come_again(self, endpoint: Endpoint, otherwise: str) -> None:
        """This meeting came to nothing: tries another one, with a new region. The publisher may have withdrawn its name
        because of a fork, and one of its processes publishes it again."""
        self._give_up_meeting()
        self.meetings += 1
        if self.meetings == SEEK_MEETINGS:
            decide(endpoint, otherwise)

    def _give_up_meeting(self) -> None:
        if self.kit is not None:
            self.kit.discard()
            self.kit = None
        self._close()

    def _move(self, endpoint: Endpoint, kit: regions.Kit) -> None:
        if endpoint.search is not self:  # another thread has decided otherwise
            kit.discard()
            return
        if connector.forks_under_way() or not endpoint.begin_attaching():  # a fork since this step began
            kit.discard()
            decide(endpoint, Reason.FORKED)
            return
        try:
            kit.attach(endpoint, config.active())
        except ValueError as error:
            kit.discard()
            violation(endpoint, str(error))
        except (OSError, MemoryError):  # nothing has been consented to
            kit.discard()
            raise
        else:
            paths.moved(endpoint.reason)
            note_reason(endpoint, "")
            endpoint.step = endpoint.search = None
        finally:
            endpoint.end_attaching()
        self._close()
        detail("fastsock.path", path="ring", fd=endpoint.fd, name=self.name.decode())

    def withdraw(self, endpoint: Endpoint) -> None:
        """The search, which the endpoint has forgotten, ends: the name is taken back and a VI not yet taken is refused.
        If a step is under way, that does it when it is over."""
        if not self.stepping.acquire(blocking=False):
            return
        try:
            if self.handle is not None:
                regions.Memory.give_back(connector.withdraw(self.handle, endpoint))
                self.handle = None
            self._give_up_meeting()
        finally:
            self.stepping.release()

    def _close(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None
        if self.lookup is not None:
            self.lookup.close()


def _owns_other_end(endpoint: Endpoint, uid: int) -> bool:
    """Whether the other end of the connection is a socket of this user, by what the kernel says."""
    try:
        here, there = ((addresses.canonical(address), port) for address, port in endpoint.ends())
    except OSError:
        return False
    return addresses.owner(there, here) == uid


def give_back_descriptors(endpoints: list[Endpoint]) -> bool:
    """The program is out of descriptors: gives back those of ours that no moved connection needs. Whether there were
    any."""
    gave = regions.drop_parked()
    for endpoint in endpoints:
        if endpoint.search is not None and not endpoint.attached:
            decide(endpoint, Reason.RESOURCES)
            gave = True
    return gave


def begin_search(endpoint: Endpoint) -> None:
    """Starts the search of a connection that was counted as opened before and has proved busy since."""
    note_reason(endpoint, Reason.FEW)
    endpoint.step = _start
    endpoint.next_step = endpoint.operations


def _start(endpoint: Endpoint) -> None:
    if not claim(endpoint, _start, _wait_for_start):
        return
    settings = config.active()
    try:
        here, there = ((addresses.canonical(address), port) for address, port in endpoint.ends())
    except OSError:
        decide(endpoint, Reason.PEER)  # reset already
        return
    if not addresses.is_local(there[0]):
        endpoint.note_local(False)
        decide(endpoint, Reason.REMOTE)
        return
    endpoint.note_local(True)
    if not settings.permits((here[0], there[0]), (here[1], there[1])) or here == there:
        decide(endpoint, Reason.EXCLUDED)
        return
    if endpoint.exposed and not _moves_polled():
        decide(endpoint, Reason.POLLED)
        return
    if settings.move_after and sessions.delay(endpoint, (here[1], there[1])):
        claim(endpoint, _wait_for_start, _start)
        return
    first, second = sorted((here, there), key=addresses.order)
    name = f"fastsock/{VERSION}/{first[0]}:{first[1]}-{second[0]}:{second[1]}"
    lookup = None if first == here else connector.Lookup(name.encode(), Reason.SEEKING, SEEK_SECONDS)
    endpoint.search = search = Search(name.encode(), lookup)
    if claim(endpoint, _wait_for_start, search.step if lookup is None or settings.meeting_ms else lookup):
        search.step(endpoint)
    else:  # another thread has decided otherwise
        endpoint.search = None


def _moves_polled() -> bool:
    """Whether a connection whose descriptor may be polled moves."""
    settings = config.active()
    return settings.move_polled or not settings.move_after


def _wait_for_start(endpoint: Endpoint) -> None:
    """The step while another thread's operation is in `_start`."""


install_beginning(Reason.FEW, _start, config.active)


def _change_reason(endpoint: Endpoint, reason: str) -> None:
    if endpoint.reason != reason:
        paths.changed(endpoint.reason, reason)
        note_reason(endpoint, reason)


def decide(endpoint: Endpoint, reason: str) -> None:
    """The connection stays on kernel TCP for `reason`. Nothing happens if it is on the ring already."""
    search, endpoint.search = endpoint.search, None
    if search is not None:
        search.withdraw(endpoint)
    counted, endpoint.step = endpoint.step is not when_connected, None
    if endpoint.attached:
        return
    if counted:
        _change_reason(endpoint, reason)
    else:
        note_reason(endpoint, reason)
        if reason != Reason.DETACHED:  # a descriptor passed on unused is no connection of this object's
            paths.opened(reason)
    detail("fastsock.path", path="tcp", fd=endpoint.fd, reason=reason)


def leave(endpoint: Endpoint) -> bool:
    """The way out: takes a connection back to the kernel, before somebody else reads and writes its descriptor. False,
    with an event that says so, where there are no resources for it."""
    if endpoint.attached or endpoint.step is not None:
        decide(endpoint, Reason.DETACHED)
    if endpoint.leave():
        if endpoint.broken:
            report_violation(endpoint, "the connection could not leave the ring whole")
        elif endpoint.bridge:
            event(INFO, "fastsock.bridge", fd=endpoint.fd, process=endpoint.bridge)
        return True
    event(WARNING, "fastsock.stays_on_ring", fd=endpoint.fd)
    return False


def violation(endpoint: Endpoint, what: str) -> None:
    """A peer broke the protocol: its connection is reset, and this operation says so (`Violated`)."""
    decide(endpoint, Reason.VIOLATION)
    endpoint.reset()
    event(WARNING, "fastsock.violation", fd=endpoint.fd, violation=what)
    raise Violated


def report_violation(endpoint: Endpoint, what: str) -> None:
    """For the data calls, which raise themselves."""
    event(WARNING, "fastsock.violation", fd=endpoint.fd, violation=what)


def path_from(standing: tuple[bool, bool, bool, str]) -> Path:
    """The path of a connection whose endpoint stands so (`Endpoint.standing`): "ring" once a direction has moved."""
    sending, receiving, attached, reason = standing
    if not (sending or receiving):
        return Path("tcp", reason or (Reason.BACK if attached else Reason.SEEKING))
    return Path("ring", "both directions" if sending and receiving else "sending" if sending else "receiving")


def start_over(endpoint: Endpoint) -> None:
    """In a forked child: the thread that was at a step is not in this process, and the meeting is the parent's."""
    claim(endpoint, _wait_for_start, _start)
    search = endpoint.search
    if search is not None:
        search.stepping = _thread.allocate_lock()
        search.handle = None
        with suppress(OSError):
            search._close()
        if search.kit is not None:
            search.kit.discard()
            search.kit = None
        endpoint.next_step = endpoint.operations
