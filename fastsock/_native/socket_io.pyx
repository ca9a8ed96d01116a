# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Receiving and sending on an endpoint, as a call of the program does: on the ring, or on the kernel with the wait made ours
while the path is undecided; how such a call waits, and what it raises. It knows neither socket objects nor descriptors, and
asks one thing of them: whether the `caller` of a call, a socket object or a number, still means the endpoint.
"""

from libc.stdint cimport int64_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.core_rendezvous cimport fs_is_searching
from fastsock._native.socket_lifecycle cimport facade, is_nonblocking, means, timeout_of_caller
from fastsock._native.registry cimport is_undecided, operate

from os import pread as os_pread

cdef extern from *:
    """
    /* Whether no other thread of this interpreter can run Python code. */
    static int fs_only_thread(void) {
        PyThreadState *own = PyThreadState_Get();
        return PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(own)) == own && !PyThreadState_Next(own);
    }
    """
    bint fs_only_thread()
    int errno

cdef enum:
    UNGUARDED = 65536       # bytes that may be copied with the GIL held
    KERNEL_STRIDE = 262144  # bytes of a large send between two looks at whether the connection may move
    FILE_PIECE = 1048576    # bytes of a file read ahead of one send
    IOV_MAX = 1024          # buffers of one call (limits.h)
    LOOK_AGAIN = -100_001   # instead of a number of bytes: nothing was received, and the path may be another one


# ---- waiting, and what a call raises -------------------------------------------------------------------------


cdef fail(Endpoint endpoint, int64_t result):
    """Raises what a negative result of fs_try_recv, fs_try_send or fs_end_partial means."""
    global errno
    if result == FS_TIMED_OUT:
        raise TimeoutError("timed out")
    if result == FS_VIOLATED:
        facade._report_violation(endpoint, endpoint.reset())
        result = -ECONNRESET
    errno = <int>-result
    PyErr_SetFromErrno(OSError)


cdef bint hear_signals(Endpoint endpoint, object caller) except -1:
    """Runs the handlers of signals that have come. Whether one has changed what a call on this endpoint goes by: a number was
    closed, or the socket has another timeout. (What another thread does meanwhile is no matter of the call's, as on TCP: it
    goes on, also when its number is closed.)"""
    cdef Py_ssize_t numbers = len(endpoint.descriptors)
    cdef int64_t timeout = timeout_of_caller(caller)
    PyErr_CheckSignals()
    return len(endpoint.descriptors) != numbers or timeout_of_caller(caller) != timeout


cdef int wait(Endpoint endpoint, object caller, int what, fs_wait_limit *patience, bint *heard, bint polled=False) except -1:
    """Polls, unless the caller has, then sleeps. 1: look again, 0: the time is over. Raises what a signal handler raises.
    `heard`: a signal has ended the sleep, or its handler has changed something: see `goes_on`."""
    cdef bint ready = False
    cdef int event
    cdef int64_t until = fs_wait_deadline(patience)
    cdef fs_fd_change *fd_change
    heard[0] = False
    if 0 <= until <= fs_now():
        return 0  # the caller has just tried
    if not polled:
        with nogil:
            ready = fs_spin(&endpoint.c, what)
    if ready:
        fs_wait_spent(patience, until)
        return 1
    if hear_signals(endpoint, caller):  # (one that came while we polled would not wake the sleep)
        heard[0] = True
        return 1
    fd_change = NULL if fs_only_thread() else fs_fd_change_subscribe()
    with nogil:
        event = fs_sleep(&endpoint.c, what, until, fd_change)
    if fd_change != NULL:
        fs_fd_change_unsubscribe(fd_change)
    fs_wait_spent(patience, until)
    if event == -EINTR:
        heard[0] = True
        PyErr_CheckSignals()
        return 1
    return event


cdef inline bint sleeps_in_kernel(Endpoint endpoint, int64_t timeout) noexcept:
    """Whether a wait may be the kernel's own blocking call, which saves a poll, and two turns with the GIL that other threads
    want. Not where another thread could move the connection meanwhile: the call would not find the bytes in the ring. (While
    somebody is in such a call nobody takes a step: `operate`. So among other threads it is for the time before the first
    step. Later, one that only receives would keep one that only sends from moving.)"""
    return (timeout < 0 and not fs_is_attached(&endpoint.c) and not fs_load_relaxed(&endpoint.c.stands.pending_error)
            and (not is_undecided(endpoint)
                 or not fs_is_searching(&endpoint.path) and endpoint.path.operations < endpoint.path.next
                 or fs_only_thread()))


cdef bint goes_on(Endpoint endpoint, object caller, bint blocks, fs_wait_limit *patience) except -1:
    """Behind a signal: whether the caller still means the endpoint. A call that blocked does so no more where the handler has made
    the socket or its descriptor non-blocking."""
    if not means(caller, endpoint):
        return False
    if blocks and is_nonblocking(caller, endpoint):
        patience.timeout = 0
    return True


# ---- receiving -----------------------------------------------------------------------------------------------


cdef int64_t try_once(Endpoint endpoint, char *into, Py_ssize_t room, int flags, int final) noexcept:
    cdef int64_t got
    if fs_is_attached(&endpoint.c) and room <= UNGUARDED:
        return fs_try_recv(&endpoint.c, into, room, flags, final)
    with nogil:
        got = fs_try_recv(&endpoint.c, into, room, flags, final)
    return got


cdef int64_t receive_in_kernel(Endpoint endpoint, object caller, char *into, Py_ssize_t room, int flags, bint *whole) except? -100_002:
    """A blocking receive on the kernel path, polling first. `whole`: MSG_WAITALL, false from then on where the kernel has decided how
    much that is. -EINTR: see `goes_on`. Raises what a signal handler raises."""
    cdef bint polled = False
    cdef int64_t got = fs_receive_polling(&endpoint.c, into, room, flags, &polled)
    if got != -EAGAIN:
        return got
    if polled:
        if hear_signals(endpoint, caller):
            return -EINTR
        if not sleeps_in_kernel(endpoint, -1):
            return LOOK_AGAIN  # a handler, or another thread, has moved the connection
    got = fs_receive_asleep(&endpoint.c, into, room, flags | (MSG_WAITALL if whole[0] else 0), polled)
    whole[0] = whole[0] and got <= 0
    if got == -EINTR:
        PyErr_CheckSignals()
    return got


cdef Py_ssize_t receive(Endpoint endpoint, object caller, int64_t timeout, char *into, Py_ssize_t room, int flags,
                        bint polled=False) except -1:
    """One receive call, of which the caller may have `polled`. Bytes received; USE_KERNEL when the kernel path is decided and the
    call would sleep, or when the caller means something else by now."""
    cdef int64_t got
    cdef Py_ssize_t filled = 0
    cdef bint blocks, whole, waited = False, slept, heard = False
    cdef int look
    cdef fs_call call
    cdef fs_wait_limit patience
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    patience = fs_wait_limit_of(timeout)
    look = FS_FINAL if timeout == 0 else FS_NOT_FINAL
    blocks = timeout < 0
    whole = flags & MSG_WAITALL and timeout < 0
    flags &= ~MSG_WAITALL
    if not fs_call_enter(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            slept = sleeps_in_kernel(endpoint, patience.timeout) and room > 0
            if slept:
                got = receive_in_kernel(endpoint, caller, into + filled, room - filled, flags, &whole)
                if got == LOOK_AGAIN:
                    continue
                heard = got == -EINTR
            else:
                got = try_once(endpoint, into + filled, room - filled, flags, look)
            if got > 0 and flags & MSG_PEEK:
                if not whole or got == room or not more_to_peek(endpoint, caller, &patience):
                    return got
                continue
            if got > 0:
                filled += got
                if not whole or filled == room:
                    return filled
                continue
            if got == 0:
                return filled
            if got == -EAGAIN and patience.timeout != 0 and not (slept and fs_timeout_option(&endpoint.c, FS_RECEIVE) >= 0):
                if not may_be_on_ring(endpoint) and not filled:
                    with nogil:
                        fs_spin(&endpoint.c, FS_RECEIVE)
                    fs_store_relaxed(&endpoint.c.spun, 0)
                    return USE_KERNEL
                if not fs_may_wait(&endpoint.c, FS_RECEIVE, &patience):
                    look = FS_FINAL
                    continue
                if not waited:
                    waited = True
                    look = FS_IF_TOLD
                if not wait(endpoint, caller, FS_RECEIVE, &patience, &heard, polled):
                    got = fs_wait_error(&patience)
                elif heard:
                    got = -EINTR
                else:
                    polled = False
                    continue
                polled = False
            got = fs_end_partial(&endpoint.c, filled, got)
            if got > 0:
                return got
            if got != FS_RETRY:
                fail(endpoint, got)
            if not goes_on(endpoint, caller, blocks, &patience):
                return USE_KERNEL
            if patience.timeout == 0:
                look = FS_FINAL
    finally:
        endpoint.end(&call)


cdef bint more_to_peek(Endpoint endpoint, object caller, fs_wait_limit *patience) except? True:
    """MSG_PEEK with MSG_WAITALL, which nobody uses in earnest: naps while more may still come."""
    cdef bint more
    cdef int64_t until
    if not fs_may_wait(&endpoint.c, FS_RECEIVE, patience):
        return False
    until = fs_wait_deadline(patience)
    if 0 <= until <= fs_now():
        return False
    with nogil:
        more = fs_wait_for_more(&endpoint.c)
    fs_wait_spent(patience, until)
    return not hear_signals(endpoint, caller) and more


cdef int readable_within(Endpoint endpoint, object caller, int64_t timeout) except -1:
    """Whether a receive would not block, at the latest `timeout` ns from now (-1: without end). USE_KERNEL: the kernel path is
    decided, or the caller means something else by now. What an error is the next receive tells. Raises what a signal handler raises."""
    cdef char byte
    cdef int64_t got
    cdef fs_wait_limit patience = fs_wait_limit_of(timeout)
    cdef int look = FS_FINAL if timeout == 0 else FS_NOT_FINAL
    cdef bint heard = False
    cdef fs_call call
    if timeout >= 0:
        patience.deadline = fs_now() + timeout
    if not fs_call_enter(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while not fs_load_relaxed(&endpoint.c.stands.pending_error):
            got = try_once(endpoint, &byte, 1, MSG_PEEK, look)
            if got < 0 and got != -EAGAIN and got != FS_VIOLATED:
                fs_note_error(&endpoint.c, <uint32_t>-got)
            if got != -EAGAIN:
                return True
            if not may_be_on_ring(endpoint):
                return USE_KERNEL
            if not wait(endpoint, caller, FS_RECEIVE, &patience, &heard):
                return False
            if heard and not means(caller, endpoint):
                return USE_KERNEL
            look = FS_IF_TOLD
        return True
    finally:
        endpoint.end(&call)


cdef bytes receive_bytes(Endpoint endpoint, object caller, int64_t timeout, Py_ssize_t size, int flags):
    """None: USE_KERNEL."""
    cdef bytes data
    cdef Py_ssize_t got, room = size
    cdef bint polled = False
    cdef fs_call call
    if fs_is_attached(&endpoint.c) and fs_receives_on_ring(&endpoint.c) and not flags & MSG_WAITALL:
        if not fs_call_enter(&endpoint.c, &call):
            return None
        try:
            room = fs_available(&endpoint.c.ring, size)
            if room == 0 and not flags & MSG_DONTWAIT and timeout != 0:
                # Nothing there yet: wait first, so that the bytes object gets its right size.
                with nogil:
                    polled = not fs_spin(&endpoint.c, FS_RECEIVE)
                room = fs_available(&endpoint.c.ring, size)
        finally:
            endpoint.end(&call)
        if room == 0:
            room = size if size < UNGUARDED else UNGUARDED
    data = PyBytes_FromStringAndSize(NULL, room)
    got = receive(endpoint, caller, timeout, PyBytes_AS_STRING(data), room, flags, polled)
    if got == USE_KERNEL:
        return None
    if flags & MSG_TRUNC:
        return bytes(got) if got != room else data
    if got == room:
        return data
    return data[:got]


cdef list writable_views(buffers):
    """Byte views of the buffers, or None if the stdlib's call would object."""
    try:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
    except (TypeError, BufferError, ValueError):
        return None
    return None if any([view.readonly for view in views]) or len(views) > IOV_MAX else views


cdef Py_ssize_t receive_scattered(Endpoint endpoint, object caller, int64_t timeout, list views, int flags) except -1:
    """By way of one bytes object: a copy more, on calls that nobody makes where it counts."""
    cdef Py_ssize_t at = 0
    cdef bytes data = receive_bytes(endpoint, caller, timeout, sum([len(view) for view in views]), flags)
    if data is None:
        return USE_KERNEL
    for view in views:
        part = data[at : at + len(view)]
        view[: len(part)] = part
        at += len(part)
    return len(data)


# ---- sending -------------------------------------------------------------------------------------------------


cdef int64_t post_once(Endpoint endpoint, const char *data, Py_ssize_t length, int flags, bint asleep, bint waits) noexcept:
    """One attempt. `asleep`: by the kernel's own blocking send. `waits`: the caller waits for credits if there are none."""
    cdef int64_t sent
    cdef int polls = FS_POLLS_FIRST if waits else 0
    if flags & MSG_OOB:
        return fs_try_send_urgent(&endpoint.c, data, length, flags)
    if fs_is_attached(&endpoint.c) and length <= UNGUARDED:
        return fs_try_send(&endpoint.c, data, length, flags | polls)
    if asleep:
        return fs_send_asleep(&endpoint.c, data, length, flags)
    with nogil:
        sent = fs_try_send(&endpoint.c, data, length, flags | polls)
    return sent


cdef inline Py_ssize_t stride(Endpoint endpoint, Py_ssize_t length, int flags, bint whole) noexcept:
    """How much of a send is tried at once. `whole`: as much as the kernel's own call takes, which its SO_SNDTIMEO is for."""
    if length <= KERNEL_STRIDE or flags & MSG_OOB or fs_sends_on_ring(&endpoint.c):
        return length
    return length if whole and fs_timeout_option(&endpoint.c, FS_SEND) >= 0 else KERNEL_STRIDE


cdef bint plug_if_full(Endpoint endpoint) noexcept:
    """At the end of a send that does not wait: whether the ring is full."""
    cdef bint full
    with nogil:
        full = fs_plug_if_full(&endpoint.c)
    return full


cdef Py_ssize_t lost_number(Py_ssize_t sent) except -1:
    """What a send returns whose caller means something else by now: the kernel's call does it, or none if a part was sent."""
    global errno
    if sent:
        errno = EBADF
        PyErr_SetFromErrno(OSError)
    return USE_KERNEL


cdef int64_t send_part(Endpoint endpoint, object caller, fs_wait_limit *patience, bint blocks, const char *data, Py_ssize_t length,
                       int flags, int how, bint before) except? -100_004:
    """One send as the kernel makes it: everything if the socket blocks, else what there is room for, or less where it stops early;
    or what fs_end_partial says. `before`: the program's call has sent something, and a signal ends it. USE_KERNEL: the caller means something
    else by now."""
    cdef int64_t part, piece, sent = 0
    cdef bint asleep, again = False, heard = False
    while True:
        asleep = sleeps_in_kernel(endpoint, patience.timeout)
        piece = stride(endpoint, length - sent, flags, asleep and how == SEND)
        part = post_once(endpoint, data + sent, piece, flags, asleep, patience.timeout != 0)
        if part > 0 or part == length == 0:
            sent += part
            if sent == length or asleep and part < piece:
                return sent  # (a blocking send of the kernel's that is cut short has decided that this is all)
            if blocks and patience.timeout or part == piece:
                operate(endpoint)  # a long send moves on its way
                continue
            part = -EAGAIN
        elif part == 0:
            part = -EAGAIN
        if part == -EINTR:
            PyErr_CheckSignals()
        elif part == -EAGAIN and not (asleep and fs_timeout_option(&endpoint.c, FS_SEND) >= 0):
            if sent and patience.timeout > 0:
                return sent
            if not fs_may_wait(&endpoint.c, FS_SEND, patience):
                if not again and fs_sends_on_ring(&endpoint.c) and not plug_if_full(endpoint):
                    again = True  # credits came between the attempt and the plug
                    continue
            elif not wait(endpoint, caller, FS_SEND, patience, &heard):
                part = fs_wait_error(patience)
            elif heard:
                part = -EINTR
            else:
                operate(endpoint)
                continue
        if part == -EINTR:
            patience.heard = True
        part = fs_end_partial(&endpoint.c, sent, part)
        if part != FS_RETRY:
            return part
        if before:
            return 0
        if not goes_on(endpoint, caller, blocks, patience):
            return USE_KERNEL
        operate(endpoint)


cdef Py_ssize_t transmit(Endpoint endpoint, object caller, int64_t timeout, const char *data, Py_ssize_t length, int flags,
                         int how, Py_ssize_t *total) except -1:
    """One send call of the program: SEND is one of the kernel's, SEND_ALL as many as it takes, as socket.sendall makes them, and
    SEND_FILE as many as os.sendfile's are. USE_KERNEL when the endpoint has ended: the number is closed, or means something else;
    and so does the caller. `total`: counts what is sent, also where this raises."""
    cdef int64_t part
    cdef Py_ssize_t sent = 0
    cdef bint blocks
    cdef fs_call call
    cdef fs_wait_limit patience
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    patience = fs_wait_limit_of(timeout)
    blocks = timeout < 0
    if not fs_call_enter(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            part = send_part(endpoint, caller, &patience, blocks, data + sent, length - sent, flags, how,
                             how == SEND_FILE and total[0])
            if part == USE_KERNEL:
                return lost_number(sent)
            if part < 0:
                if how == SEND_FILE and total[0]:
                    return sent  # (and nobody hears of an error, as with the kernel's own)
                fail(endpoint, part)
            sent += part
            total[0] += part
            if sent == length or how == SEND or how == SEND_FILE and (patience.heard or not blocks):
                return sent
            if (hear_signals(endpoint, caller) or patience.heard) and not goes_on(endpoint, caller, blocks, &patience):
                return lost_number(sent)
            patience.heard = False
            if not fs_wait_next_part(&patience):
                fail(endpoint, FS_TIMED_OUT)
            operate(endpoint)
    finally:
        if fs_is_exposed(&endpoint.c):
            plug_if_full(endpoint)
        endpoint.end(&call)


cdef Py_ssize_t transmit_buffer(Endpoint endpoint, object caller, int64_t timeout, object data, int flags, int how,
                                Py_ssize_t *total=NULL) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t sent, nobody_asks = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        sent = transmit(endpoint, caller, timeout, <const char *>view.buf, view.len, flags, how,
                        &nobody_asks if total == NULL else total)
    finally:
        PyBuffer_Release(&view)
    return sent


cdef Py_ssize_t transmit_file(Endpoint endpoint, object caller, int64_t timeout, int file, int64_t at, Py_ssize_t count,
                              Py_ssize_t *total) except -1:
    """os.sendfile: reads the file and sends what it read, all of it if the socket blocks. `total`: as `transmit`. USE_KERNEL if
    nothing was sent."""
    cdef Py_ssize_t sent = 0
    cdef bytes piece = None
    while count > total[0]:
        piece = os_pread(file, min(count - total[0], FILE_PIECE), at + total[0])
        if not piece:
            break
        sent = transmit_buffer(endpoint, caller, timeout, piece, 0, SEND_FILE, total)
        if sent < len(piece) or timeout >= 0:
            break
    return USE_KERNEL if sent == USE_KERNEL and not total[0] else total[0]


cdef bytes gathered(buffers):
    """One piece, so that the pieces of one call are not mixed with another thread's. None if the stdlib's call would
    object."""
    try:
        return b"".join([memoryview(buffer).cast("B") for buffer in buffers]) if len(buffers) <= IOV_MAX else None
    except (TypeError, BufferError, ValueError):
        return None
