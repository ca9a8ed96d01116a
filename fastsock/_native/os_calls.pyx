# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""Descriptor tracking: the calls of `os` on a descriptor that is a connection of ours, and who is about to use one raw. Every
other descriptor pays for one look into a dict."""

from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t
from libc.string cimport strcmp
from cpython.object cimport PyObject

from fastsock._native.core cimport (
    FS_RECEIVE, FS_SEND, fs_is_loop_driven, fs_is_exposed, fs_receives_on_ring, fs_sends_on_ring,
)
from fastsock._native.core_ring cimport (
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, O_NONBLOCK, sys_fcntl,
)
from fastsock._native.endpoint cimport Endpoint, by_descriptor
from fastsock._native.socket_io cimport (
    SEND, USE_KERNEL, gathered, has_pending_error, readable_within, receive_bytes, receive_scattered, transmit_buffer, transmit_file,
    may_be_on_ring, writable_views,
)
from fastsock._native.registry cimport endpoint_at, operate

import os
import _socket

cdef enum:
    SENDFILE_MOST = 0x7ffff000  # bytes of one call (MAX_RW_COUNT)

cdef object os_read = os.read
cdef object os_write = os.write
cdef object os_readinto = getattr(os, "readinto", None)  # from 3.14 on
cdef object os_readv = os.readv
cdef object os_writev = os.writev
cdef object os_sendfile = os.sendfile
cdef object os_close = os.close
cdef object os_closerange = os.closerange
cdef object socket_close = _socket.close
cdef object os_dup = os.dup
cdef object os_dup2 = os.dup2


cdef Endpoint ring_endpoint(object fd, int what):
    """The endpoint behind a descriptor if this call (FS_RECEIVE or FS_SEND) is ours to drive, else None."""
    cdef Endpoint endpoint
    if fd not in by_descriptor:
        return None
    endpoint = endpoint_at(fd)
    if endpoint is None:
        return None
    if fs_is_loop_driven(&endpoint.c):  # what moves, and when, is its loop's decision: the stdlib's loops call os.sendfile
        return endpoint if (fs_receives_on_ring(&endpoint.c) if what == FS_RECEIVE else fs_sends_on_ring(&endpoint.c)) else None
    operate(endpoint)
    # (One that is undecided too: another thread may move it while this call waits.)
    return endpoint if may_be_on_ring(endpoint) or has_pending_error(endpoint) else None


cdef int64_t descriptor_timeout(Endpoint endpoint, int fd) noexcept:
    """0: O_NONBLOCK is set. Asked only where somebody knows the number, or a loop or a selector does, who could have set it: the
    others are connections of `multiprocessing`, which block."""
    if not (fs_is_exposed(&endpoint.c) or fs_is_loop_driven(&endpoint.c) or endpoint.numbered):
        return -1
    return 0 if sys_fcntl(fd, F_GETFL) & O_NONBLOCK else -1


def read(fd, Py_ssize_t n, /):
    """As os.read."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_RECEIVE)
    if endpoint is None or n < 0:
        return os_read(fd, n)
    data = receive_bytes(endpoint, fd, descriptor_timeout(endpoint, fd), n, 0)
    return os_read(fd, n) if data is None else data


def readable(fd, int64_t timeout, /):
    """Whether a read of `fd` would not block within `timeout` ns (-1: without end), as `poll` says it; the number need not be
    handed out for this. None: ask the kernel, which decides it for this connection, or somebody polls the number anyhow."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_RECEIVE)
    if endpoint is None or fs_is_exposed(&endpoint.c):
        return None
    cdef int ready = readable_within(endpoint, fd, timeout)
    return None if ready == USE_KERNEL else ready != 0


def readv(fd, buffers, /):
    """As os.readv."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_RECEIVE)
    cdef list views = writable_views(buffers) if endpoint is not None else None
    if views is None:
        return os_readv(fd, buffers)
    got = receive_scattered(endpoint, fd, descriptor_timeout(endpoint, fd), views, 0)
    return os_readv(fd, buffers) if got == USE_KERNEL else got


def readinto(fd, buffer, /):
    """As os.readinto, where there is one."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_RECEIVE)
    cdef list views = writable_views([buffer]) if endpoint is not None else None
    if views is None:
        return os_readinto(fd, buffer)
    got = receive_scattered(endpoint, fd, descriptor_timeout(endpoint, fd), views, 0)
    return os_readinto(fd, buffer) if got == USE_KERNEL else got


def write(fd, data, /):
    """As os.write."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_SEND)
    if endpoint is None:
        return os_write(fd, data)
    sent = transmit_buffer(endpoint, fd, descriptor_timeout(endpoint, fd), data, 0, SEND)
    return os_write(fd, data) if sent == USE_KERNEL else sent


def writev(fd, buffers, /):
    """As os.writev."""
    cdef Endpoint endpoint = ring_endpoint(fd, FS_SEND)
    cdef bytes piece = gathered(buffers) if endpoint is not None else None
    if piece is None:
        return os_writev(fd, buffers)
    sent = transmit_buffer(endpoint, fd, descriptor_timeout(endpoint, fd), piece, 0, SEND)
    return os_writev(fd, buffers) if sent == USE_KERNEL else sent


def sendfile(out_fd, in_fd, offset, count, *args, **kwargs):
    """As os.sendfile: reads the file and sends what it read."""
    cdef Endpoint endpoint = ring_endpoint(out_fd, FS_SEND)
    cdef Py_ssize_t total = 0, sent
    if endpoint is None or args or kwargs or count <= 0:
        return os_sendfile(out_fd, in_fd, offset, count, *args, **kwargs)
    at = os.lseek(in_fd, 0, os.SEEK_CUR) if offset is None else offset
    try:
        sent = transmit_file(endpoint, out_fd, descriptor_timeout(endpoint, out_fd), in_fd, at, min(count, SENDFILE_MOST), &total)
    finally:
        if offset is None and total:
            os.lseek(in_fd, at + total, os.SEEK_SET)
    return os_sendfile(out_fd, in_fd, offset, count) if sent == USE_KERNEL else sent


cdef int forget_number(object fd) except -1:
    """The descriptor is about to be closed, or replaced: a ring connection's last one says FIN first."""
    cdef Endpoint endpoint
    if fd in by_descriptor:
        endpoint = endpoint_at(fd)
        if endpoint is not None:
            endpoint.forget(fd)
    return 0


def close(fd):
    """As os.close."""
    forget_number(fd)
    os_close(fd)


def close_socket(fd, /):
    """As the function socket.close, which takes a number."""
    forget_number(fd)
    socket_close(fd)


def closerange(fd_low, fd_high, /):
    """As os.closerange."""
    if by_descriptor and isinstance(fd_low, int) and isinstance(fd_high, int):
        for fd in [fd for fd in by_descriptor if fd_low <= fd < fd_high]:
            forget_number(fd)
    os_closerange(fd_low, fd_high)


def dup(fd, /):
    """As os.dup: the new descriptor belongs to the same endpoint."""
    cdef Endpoint endpoint = endpoint_at(fd) if fd in by_descriptor else None
    new = os_dup(fd)
    if endpoint is not None:
        endpoint.adopt(new)
        if is_standard(new) and on_raw is not None:
            try:
                on_raw(fd)
            except BaseException:
                close(new)
                raise
    return new


def dup2(fd, fd2, inheritable=True):
    """As os.dup2: fd2's connection, if it was one, loses a descriptor, and fd's gains one."""
    cdef Endpoint endpoint = endpoint_at(fd) if fd in by_descriptor else None
    if endpoint is not None and on_raw is not None and somebody_has(fd2):
        on_raw(fd)
    if fd2 != fd and fd2 in by_descriptor and can_dup2(fd, fd2):
        forget_number(fd2)
    new = os_dup2(fd, fd2, inheritable)
    if endpoint is not None:
        endpoint.adopt(new)
    return new


cdef bint can_dup2(object fd, object fd2) except -1:
    """Whether os.dup2 will replace `fd2`, which is open. Where it fails, what `fd2` means stays as it is."""
    return (isinstance(fd, int) and 0 <= fd <= INT_MAX and sys_fcntl(fd, F_GETFD) != -1
            and fd2 < os.sysconf("SC_OPEN_MAX"))


cdef bint is_standard(object fd) except -1:
    """C code has these numbers for ever, and so have `sys.stdin` and its kin, also while nothing is open there."""
    return isinstance(fd, int) and 0 <= fd <= 2


cdef bint somebody_has(object fd) except -1:
    """Whether a file object, a socket object or C code may go on using this number, whatever it comes to mean, without asking
    us: it is open, and no connection of ours."""
    if is_standard(fd):
        return True
    if not isinstance(fd, int) or not 0 <= fd <= INT_MAX or sys_fcntl(fd, F_GETFD) == -1:
        return False
    return fd not in by_descriptor or endpoint_at(fd) is None  # (None: C code has closed ours, and the number was taken)


# ---- who is about to use a descriptor raw --------------------------------------------------------------------

cdef extern from "Python.h":
    ctypedef int (*audit_hook)(const char *, PyObject *, void *) except -1
    int PySys_AddAuditHook(audit_hook, void *) except -1

cdef object on_raw = None
cdef object on_system = None
cdef bint hears_audits = False


cdef int hear_audit(const char *event, PyObject *arguments, void *nothing) except -1:
    """Three events that come before what they tell of: `open`, of io.open, os.fdopen and io.FileIO, that make a file object on a
    number; `fcntl.fcntl`, which may copy one; `os.system`."""
    if on_raw is None or not by_descriptor:
        return 0
    if event[0] == c"o":
        if strcmp(event, b"open") == 0:
            path = (<tuple>arguments)[0]
            if type(path) is int and path in by_descriptor:
                on_raw(path)
        elif strcmp(event, b"os.system") == 0:
            on_system()
    elif event[0] == c"f" and strcmp(event, b"fcntl.fcntl") == 0:
        fd, command = (<tuple>arguments)[:2]
        if (command == F_DUPFD or command == F_DUPFD_CLOEXEC) and fd in by_descriptor:
            on_raw(fd)
    return 0


def watch_raw(descriptor, system):
    """Has `descriptor` called with a connection's descriptor before a file object is made on it, a file object's number comes to
    mean it or C code copies it, and `system` before the shell of os.system inherits descriptors. None: no more."""
    global on_raw, on_system, hears_audits
    on_raw, on_system = descriptor, system
    if on_raw is not None and not hears_audits:
        hears_audits = True  # (a hook cannot be taken out again)
        PySys_AddAuditHook(hear_audit, NULL)
