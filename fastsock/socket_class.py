"""`fastsock.socket`: a subclass of the stdlib's socket class, with native data calls.

A TCP socket gets an endpoint when it is connected, or when it is made from a descriptor. Other sockets behave like the
parent class.
"""

from __future__ import annotations

import errno
import os
import select
import socket as stdlib
import sys
from abc import ABCMeta

from fastsock import fd_handoff, path_events
from fastsock._native import control, registry, socket_lifecycle, socket_methods
from fastsock._native.registry import Endpoint

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["fromfd", "socket"]

_Kernel = stdlib.socket
SO_RCVTIMEO, SO_SNDTIMEO = 20, 21  # asm-generic/socket.h; not in the stdlib
# Options that the ring does not support: the connection stays on kernel TCP.
_KEEPS_KERNEL = {
    (stdlib.SOL_SOCKET, stdlib.SO_RCVLOWAT),
    (stdlib.SOL_SOCKET, 42),  # SO_PEEK_OFF
    (stdlib.SOL_SOCKET, 60),  # SO_ZEROCOPY
    (stdlib.IPPROTO_TCP, 31),  # TCP_ULP: kernel TLS
    (stdlib.IPPROTO_TCP, 19),  # TCP_REPAIR
    (stdlib.IPPROTO_TCP, stdlib.TCP_CORK),
}
# Options that the ring supports too.
_FLOW = {(stdlib.SOL_SOCKET, option) for option in (stdlib.SO_RCVBUF, stdlib.SO_SNDBUF, SO_RCVTIMEO, SO_SNDTIMEO)}
# Options whose value is kept by the endpoint while the connection is on the ring.
_RING_VIEW = {
    (stdlib.SOL_SOCKET, stdlib.SO_OOBINLINE): "oob_inline",
    (stdlib.SOL_SOCKET, stdlib.SO_SNDBUF): "shown_send_buffer",
    (stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY): "nodelay",
}


class _Class(ABCMeta):
    """While `socket.socket` is ours, sockets made before the patch are instances of it too, and so are objects of
    classes derived before, such as ssl.SSLSocket. ABCMeta allows subclasses with an abstract base."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Kernel) if cls._stands_for_all() else type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Kernel) if cls._stands_for_all() else type.__subclasscheck__(cls, subclass)

    def _stands_for_all(cls) -> bool:
        return cls is socket and stdlib.socket is cls


class socket(_Kernel, metaclass=_Class):
    """Like `socket.socket`. Connections within this host move to shared memory if both ends use fastsock."""

    __slots__ = ("_buffer_limits", "_endpoint", "_handed_out", "_timeout_ns")

    _endpoint: Endpoint | None
    _timeout_ns: int  # for the native calls: -1 blocking, 0 non-blocking
    _buffer_limits: tuple[int, int]  # SO_RCVBUF and SO_SNDBUF in bytes, 0: not set
    _handed_out: bool  # fileno() was called: the descriptor may be polled

    if not TYPE_CHECKING:
        __init__ = socket_lifecycle.init
        recv = socket_methods.recv
        recv_into = socket_methods.recv_into
        recvfrom = socket_methods.recvfrom
        recvfrom_into = socket_methods.recvfrom_into
        recvmsg = socket_methods.recvmsg
        recvmsg_into = socket_methods.recvmsg_into
        send = socket_methods.send
        sendall = socket_methods.sendall
        sendto = socket_methods.sendto
        sendmsg = socket_methods.sendmsg
        accept = socket_lifecycle.accept
        connect = socket_lifecycle.connect
        connect_ex = socket_lifecycle.connect_ex
        fileno = socket_lifecycle.fileno
        settimeout = socket_lifecycle.settimeout
        setblocking = socket_lifecycle.setblocking
        setsockopt = socket_lifecycle.setsockopt
        getsockopt = socket_lifecycle.getsockopt
        _real_close = socket_lifecycle.real_close
        __del__ = socket_lifecycle.finalize

    # Used by the native calls (socket_lifecycle.install).
    _NOTED = _KEEPS_KERNEL | _FLOW
    _leave_rights = staticmethod(fd_handoff.leave_rights)

    @staticmethod
    def _is_tls(sock: _Kernel) -> bool:
        ssl = sys.modules.get("ssl")
        return ssl is not None and isinstance(sock, ssl.SSLSocket)

    # ---- from socket to endpoint -------------------------------------------------------------------------

    def _begin_listening(self) -> None:
        endpoint = socket_lifecycle.new_endpoint(self)
        if endpoint is not None:
            endpoint.serve_listener()

    def _adopt(self) -> None:
        """Takes over a descriptor that was inherited, received or duplicated."""
        if not socket_lifecycle.may_move(self):
            return
        fd = _Kernel.fileno(self)
        known = registry.find(fd)
        if known is not None and known.driven:
            return  # uvloop makes a temporary object to set an option
        if known is not None:
            known.adopt(fd)
            known.expose()
            self._endpoint = known
        elif not _Kernel.getsockopt(self, stdlib.SOL_SOCKET, stdlib.SO_ACCEPTCONN):
            socket_lifecycle.begin_connecting(self)

    def listen(self, *args: Any) -> None:
        """Like socket.listen."""
        super().listen(*args)
        if socket_lifecycle.may_move(self):
            self._begin_listening()
            control.set_backlog(args[0] if args else min(stdlib.SOMAXCONN, 128))

    # ---- the rest of the descriptor's life ---------------------------------------------------------------

    def dup(self) -> socket:
        """Like socket.dup: both descriptors belong to the same connection."""
        fd = _dup(_Kernel.fileno(self))
        sock = self.__class__(self.family, self.type, self.proto, fileno=fd)
        sock.settimeout(self.gettimeout())
        return sock

    def detach(self) -> int:
        """Like socket.detach. The connection goes back to kernel TCP, so that other code can use the descriptor. If
        that is not possible (no process or descriptor for a bridge), it stays on the ring; then use the descriptor with
        `fastsock.socket(fileno=...)` or, under patch(), with the functions of `os`."""
        endpoint, self._endpoint = socket_lifecycle.endpoint_now(self), None
        if endpoint is not None and not endpoint.driven:
            try:
                left = path_events.leave(endpoint)
            except BaseException:
                self._endpoint = endpoint  # a signal handler raised, and nothing was done; or the connection was reset
                raise
            if left:
                endpoint.forget(_Kernel.fileno(self))
            else:
                endpoint.expose()
        return super().detach()

    def _keep_number(self) -> int:
        """Like detach, for callers that will use the descriptor only with our functions of `os`: the connection stays
        where it is. Returns -1, without any change, if the socket has no endpoint or its number was handed out
        before."""
        if socket_lifecycle.endpoint_now(self) is None or self._handed_out:
            return -1
        self._endpoint = None
        return super().detach()

    def shutdown(self, how: int, /) -> None:
        """Like socket.shutdown."""
        endpoint = socket_lifecycle.endpoint_now(self)
        if endpoint is None:
            super().shutdown(how)
            return
        receiving, sending = how in (stdlib.SHUT_RD, stdlib.SHUT_RDWR), how in (stdlib.SHUT_WR, stdlib.SHUT_RDWR)
        stood = endpoint.shutdown(receiving, sending)
        try:
            super().shutdown(how)
        except OSError as error:
            if error.errno != errno.ENOTCONN or not stood:
                raise
        finally:
            endpoint.wake_own()

    # ---- options -----------------------------------------------------------------------------------------

    def _set_option(self, level: int, option: int, *args: Any) -> None:
        """Like setsockopt, for a connection with a region."""
        endpoint = self._endpoint
        assert endpoint is not None
        if not endpoint.left:
            if (level, option) == (stdlib.SOL_SOCKET, stdlib.SO_OOBINLINE):
                value = _number_in(args)  # None: the kernel reports the error
                if value is not None and endpoint.set_oob_inline(bool(value)):
                    return
            if (level, option) == (stdlib.IPPROTO_TCP, stdlib.TCP_CORK) and _number_in(args) is not None:
                return  # no effect on the ring, and must not delay doorbell bytes
        _Kernel.setsockopt(self, level, option, *args)
        if (level, option) == (stdlib.IPPROTO_TCP, stdlib.TCP_NODELAY):
            endpoint.nodelay = bool(_Kernel.getsockopt(self, level, option))
            if not endpoint.left:
                _Kernel.setsockopt(self, level, option, 1)  # doorbell bytes must not wait for an ACK
        elif (level, option) in socket._NOTED:
            self._note_option(level, option)

    def _option(self, level: int, option: int, *args: Any) -> Any:
        """Like getsockopt, for a connection with a region."""
        endpoint = self._endpoint
        assert endpoint is not None
        shown = _Kernel.getsockopt(self, level, option, *args)
        if not endpoint.left and (level, option) in _RING_VIEW:
            # The kernel's value now applies to doorbell bytes.
            value = getattr(endpoint, _RING_VIEW[level, option])
            if value is not None:
                return int(value) if isinstance(shown, int) else int(value).to_bytes(4, sys.byteorder)[: len(shown)]
        return shown

    def _note_option(self, level: int, option: int) -> None:
        """Called when an option in `_NOTED` was set."""
        endpoint = self._endpoint
        if (level, option) in _KEEPS_KERNEL:
            if endpoint is not None:
                registry.decide(endpoint, path_events.Reason.OPTION)
        elif option in (stdlib.SO_RCVBUF, stdlib.SO_SNDBUF):
            limits = list(self._buffer_limits)
            limits[option == stdlib.SO_SNDBUF] = _Kernel.getsockopt(self, stdlib.SOL_SOCKET, option)
            self._buffer_limits = (limits[0], limits[1])
            if endpoint is not None:
                endpoint.limit_buffers(*self._buffer_limits)
        elif endpoint is not None:
            endpoint.forget_timeouts()

    # ---- files -------------------------------------------------------------------------------------------

    def _sendfile_use_sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        # The kernel's sendfile would write past the ring, also if another thread moves the connection meanwhile.
        if self._endpoint is None or not (self._endpoint.attached or self._endpoint.undecided):
            return super()._sendfile_use_sendfile(file, offset, count)  # type: ignore[misc,no-any-return]
        self._check_sendfile_params(file, offset, count)  # type: ignore[attr-defined]
        try:
            fd = file.fileno()
            size = os.fstat(fd).st_size
        except (AttributeError, OSError) as error:  # includes io.UnsupportedOperation
            raise stdlib._GiveupOnSendfile(error) from None  # type: ignore[attr-defined]
        if not size:
            return 0
        if self.gettimeout() == 0:
            raise ValueError("non-blocking sockets are not supported")
        end = sys.maxsize if count is None else offset + count
        at = offset
        try:
            while at < end:
                try:
                    sent = socket_methods.send_file(self, fd, at, min(end - at, 1 << 30))
                except BlockingIOError:  # O_NONBLOCK or SO_SNDTIMEO, which sendfile ignores
                    select.select([], [self], [])
                    continue
                except OSError as error:
                    if at > offset or error.errno is None:  # None: the timeout
                        raise
                    raise stdlib._GiveupOnSendfile(error) from None  # type: ignore[attr-defined]
                if not sent:
                    break
                at += sent
        finally:
            if at > offset and hasattr(file, "seek"):
                file.seek(at)
        return at - offset


_OWN_NAMES = {name: getattr(socket, name) for name in ("__module__", "__doc__")}


def show_as_stdlib(shown: bool) -> None:
    """Gives our class the name and docstring of the stdlib's while it is `socket.socket`: for `repr`, for warnings
    (filters match their text), and for pickle and pydoc (which look up the class in its module)."""
    for name, own in _OWN_NAMES.items():
        setattr(socket, name, getattr(_Kernel, name) if shown else own)


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> socket:
    """Like socket.fromfd: returns a socket on a duplicate of `fd`."""
    return socket(family, type, proto, fileno=_dup(fd))


def _number_in(args: tuple[Any, ...]) -> int | None:
    """Returns the int in these arguments of setsockopt, given as a number or as bytes, or None."""
    if len(args) != 1:
        return None
    try:
        if isinstance(args[0], int):
            return args[0] if -(2**31) <= args[0] < 2**31 else None
        data = memoryview(args[0]).tobytes()[:4]
    except TypeError:
        return None
    return int.from_bytes(data, sys.byteorder) if len(data) == 4 else None


def _made_room(error: OSError) -> bool:
    """Returns true if a call failed for lack of descriptors and fastsock has freed some, so the call can be
    repeated."""
    return error.errno in (errno.EMFILE, errno.ENFILE) and registry.give_back_descriptors()


def _dup(fd: int) -> int:
    try:
        return stdlib.dup(fd)
    except OSError as error:
        if not _made_room(error):
            raise
    return stdlib.dup(fd)


socket_lifecycle.install(socket)
