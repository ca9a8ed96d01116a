# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Receiving and sending on an endpoint, as a call of the program does: on the ring, or on the kernel with the wait made ours
while the path is undecided; how such a call waits, and what it raises. It knows neither socket objects nor descriptors, and
asks one thing of them: whether the `caller` of a call, a socket object or a number, still means the endpoint.
"""

from libc.stdint cimport int64_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

from fastsock._native.channel cimport fs_look_after
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.meeting cimport fs_is_searching
from fastsock._native.sockets cimport facade, is_nonblocking, means, timeout_of_caller
from fastsock._native.vi cimport is_undecided, operate

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
    IOV_MAX = 1024          # buffers of one call (limits.h)
    LOOK_AGAIN = -100_001   # instead of a number of bytes: nothing was received, and the path may be another one


# ---- waiting, and what a call raises -------------------------------------------------------------------------


cdef fail(Endpoint endpoint, int64_t result):
    """Raises what a negative result of fs_try_receive or fs_try_send means."""
    global errno
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


cdef int wait(Endpoint endpoint, object caller, int what, int64_t deadline, bint *heard, bint polled=False) except -1:
    """Polls, unless the caller has, then sleeps. 1: look again, 0: the deadline has passed. Raises what a signal handler raises.
    `heard`: a signal has ended the sleep, or its handler has changed something: see `goes_on`."""
    cdef bint ready = False
    cdef int event
    cdef fs_news *news
    heard[0] = False
    if 0 <= deadline <= fs_now():
        return 0  # the caller has just tried
    if not polled:
        with nogil:
            ready = fs_spin(&endpoint.c, what)
    if ready:
        return 1
    if hear_signals(endpoint, caller):  # (one that came while we polled would not wake the sleep)
        heard[0] = True
        return 1
    news = NULL if fs_only_thread() else fs_join_news()
    with nogil:
        event = fs_sleep(&endpoint.c, what, deadline, news)
    if news != NULL:
        fs_leave_news(news)
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
                 or not fs_is_searching(&endpoint.course) and endpoint.course.operations < endpoint.course.next
                 or fs_only_thread()))


cdef bint goes_on(Endpoint endpoint, object caller, bint blocks, int64_t *timeout) except -1:
    """Behind a signal: whether the caller still means the endpoint. A call that blocked does so no more where the handler has made
    the socket or its descriptor non-blocking."""
    if not means(caller, endpoint):
        return False
    if blocks and is_nonblocking(caller, endpoint):
        timeout[0] = 0
    return True


cdef run_out(bint quiet):
    """Raises what a call raises whose time has run out (`quiet`: fs_call_timeout)."""
    global errno
    if quiet:
        errno = EAGAIN
        PyErr_SetFromErrno(OSError)
    raise TimeoutError("timed out")


# ---- receiving -----------------------------------------------------------------------------------------------


cdef int64_t try_once(Endpoint endpoint, char *into, Py_ssize_t room, int flags, int final) noexcept:
    cdef int64_t got
    if fs_is_attached(&endpoint.c) and room <= UNGUARDED:
        return fs_try_receive(&endpoint.c, into, room, flags, final)
    with nogil:
        got = fs_try_receive(&endpoint.c, into, room, flags, final)
    return got


cdef int64_t receive_in_kernel(Endpoint endpoint, object caller, char *into, Py_ssize_t room, int flags) except? -100_002:
    """A blocking receive on the kernel path, polling first. -EINTR: see `goes_on`. Raises what a signal handler raises."""
    cdef bint polled = False
    cdef int64_t got = fs_receive_polling(&endpoint.c, into, room, flags, &polled)
    if got != -EAGAIN:
        return got
    if polled:
        if hear_signals(endpoint, caller):
            return -EINTR
        if not sleeps_in_kernel(endpoint, -1):
            return LOOK_AGAIN  # a handler, or another thread, has moved the connection
    got = fs_receive_asleep(&endpoint.c, into, room, flags, polled)
    if got == -EINTR:
        PyErr_CheckSignals()
    return got


cdef Py_ssize_t receive(Endpoint endpoint, object caller, int64_t timeout, char *into, Py_ssize_t room, int flags,
                        bint polled=False) except -1:
    """One receive call, of which the caller may have `polled`. Bytes received; USE_KERNEL when the kernel path is decided and the
    call would sleep, or when the caller means something else by now."""
    cdef int64_t got, deadline = -1
    cdef Py_ssize_t filled = 0
    cdef bint blocks, whole, quiet = False, waited = False, slept, heard = False
    cdef int look
    cdef fs_call call
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    look = FS_FINAL if timeout == 0 else FS_NOT_FINAL
    blocks = timeout < 0
    whole = flags & MSG_WAITALL and timeout < 0
    flags &= ~MSG_WAITALL
    if not fs_begin(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            slept = sleeps_in_kernel(endpoint, timeout) and room > 0
            if slept:
                got = receive_in_kernel(endpoint, caller, into + filled, room - filled, flags)
                if got == LOOK_AGAIN:
                    continue
                if got == -EINTR:
                    if filled:
                        return filled
                    if not goes_on(endpoint, caller, blocks, &timeout):
                        return USE_KERNEL
                    if timeout == 0:
                        look = FS_FINAL
                    continue
            else:
                got = try_once(endpoint, into + filled, room - filled, flags, look)
            if got > 0 and flags & MSG_PEEK:
                if not whole or got == room or not more_to_peek(endpoint, caller):
                    return got
                continue
            if got > 0:
                filled += got
                if not whole or filled == room:
                    return filled
                continue
            if got == 0:
                return filled
            if got != -EAGAIN or timeout == 0 or slept and fs_timeout_option(&endpoint.c, FS_RECEIVE) >= 0:
                if filled:
                    if got != -EAGAIN:
                        fs_note_error(&endpoint.c, <uint32_t>-got)
                    return filled
                fail(endpoint, got)
            if not undecided(endpoint) and not filled:
                with nogil:
                    fs_spin(&endpoint.c, FS_RECEIVE)
                fs_store_relaxed(&endpoint.c.spun, 0)
                return USE_KERNEL
            if not waited:
                timeout = fs_call_timeout(&endpoint.c, FS_RECEIVE, timeout, &quiet)
                look = FS_FINAL if timeout == 0 else FS_IF_TOLD
                if timeout == 0:
                    continue
                waited = True
                deadline = fs_deadline(timeout)
            if not wait(endpoint, caller, FS_RECEIVE, deadline, &heard, polled):
                if filled:
                    return filled
                run_out(quiet)
            polled = False
            if heard:
                if filled:
                    return filled  # as the kernel does: a signal ends a call that has some of it
                if not goes_on(endpoint, caller, blocks, &timeout):
                    return USE_KERNEL
                if timeout == 0:
                    look = FS_FINAL
    finally:
        endpoint.end(&call)


cdef bint more_to_peek(Endpoint endpoint, object caller) except? True:
    """MSG_PEEK with MSG_WAITALL, which nobody uses in earnest: naps while more may still come."""
    cdef bint more
    with nogil:
        more = fs_nap_for_more(&endpoint.c)
    return not hear_signals(endpoint, caller) and more


cdef int readable_within(Endpoint endpoint, object caller, int64_t timeout) except -1:
    """Whether a receive would not block, at the latest `timeout` ns from now (-1: without end). USE_KERNEL: the kernel path is
    decided, or the caller means something else by now. What an error is the next receive tells. Raises what a signal handler raises."""
    cdef char byte
    cdef int64_t got, deadline = fs_deadline(timeout)
    cdef int look = FS_FINAL if timeout == 0 else FS_NOT_FINAL
    cdef bint heard = False
    cdef fs_call call
    if not fs_begin(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while not fs_load_relaxed(&endpoint.c.stands.pending_error):
            got = try_once(endpoint, &byte, 1, MSG_PEEK, look)
            if got < 0 and got != -EAGAIN and got != FS_VIOLATED:
                fs_note_error(&endpoint.c, <uint32_t>-got)
            if got != -EAGAIN:
                return True
            if not undecided(endpoint):
                return USE_KERNEL
            if not wait(endpoint, caller, FS_RECEIVE, deadline, &heard):
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
        if not fs_begin(&endpoint.c, &call):
            return None
        try:
            room = fs_available(&endpoint.c.vi, size)
            if room == 0 and not flags & MSG_DONTWAIT and timeout != 0:
                # Nothing there yet: wait first, so that the bytes object gets its right size.
                with nogil:
                    polled = not fs_spin(&endpoint.c, FS_RECEIVE)
                room = fs_available(&endpoint.c.vi, size)
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
    if length > KERNEL_STRIDE and not fs_sends_on_ring(&endpoint.c):
        length = KERNEL_STRIDE
    if asleep:
        return fs_send_asleep(&endpoint.c, data, length, flags)
    with nogil:
        sent = fs_try_send(&endpoint.c, data, length, flags | polls)
    return sent


cdef bint plug_if_full(Endpoint endpoint) noexcept:
    """At the end of a send that does not wait: whether the ring is full. A program that polls for room is looked after then."""
    cdef bint full
    with nogil:
        full = fs_plug_if_full(&endpoint.c)
    if full and fs_is_exposed(&endpoint.c):
        fs_look_after(&endpoint.c)
    return full


cdef Py_ssize_t lost_number(Py_ssize_t sent) except -1:
    """What a send returns whose caller means something else by now: the kernel's call does it, or none if a part was sent."""
    global errno
    if sent:
        errno = EBADF
        PyErr_SetFromErrno(OSError)
    return USE_KERNEL


cdef Py_ssize_t transmit(Endpoint endpoint, object caller, int64_t timeout, const char *data, Py_ssize_t length, int flags,
                         bint all) except -1:
    """One send call. Everything if the socket blocks or `all` is set, else what there is room for. USE_KERNEL when the endpoint
    has ended: the number is closed, or means something else; and so does the caller."""
    cdef int64_t part, deadline = -1
    cdef Py_ssize_t sent = 0
    cdef bint blocks, quiet = False, waited = False, full, asleep, heard = False
    cdef fs_call call
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    blocks = timeout < 0
    if not fs_begin(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            asleep = sleeps_in_kernel(endpoint, timeout)
            part = post_once(endpoint, data + sent, length - sent, flags, asleep, timeout != 0)
            if asleep and part < min(length - sent, KERNEL_STRIDE):
                # Cut short: by a signal, O_NONBLOCK, SO_SNDTIMEO or an error.
                sent += max(part, 0)
                if sent and not all:
                    break
                if part == -EINTR or part > 0:
                    PyErr_CheckSignals()
                    if not goes_on(endpoint, caller, blocks, &timeout):
                        return lost_number(sent)
                    continue
                if part == -EAGAIN and fs_timeout_option(&endpoint.c, FS_SEND) >= 0:
                    fail(endpoint, part)
            if part >= 0:
                sent += part
                if sent == length:
                    break
                if part and (timeout < 0 or timeout and all or part == KERNEL_STRIDE):
                    operate(endpoint)  # a long send moves on its way
                    continue
                part = -EAGAIN
            if part != -EAGAIN:
                if sent and not all:
                    break
                fail(endpoint, part)
            if timeout == 0:
                full = not fs_sends_on_ring(&endpoint.c) or plug_if_full(endpoint)
                if not full and not waited:
                    waited = True  # credits came between the attempt and the plug
                    continue
                if sent and not all:
                    return sent
                fail(endpoint, -EAGAIN)
            if sent and timeout > 0 and not all:
                break
            if not waited:
                timeout = fs_call_timeout(&endpoint.c, FS_SEND, timeout, &quiet)
                if timeout == 0:
                    continue
                waited = True
                deadline = fs_deadline(timeout)
            if not wait(endpoint, caller, FS_SEND, deadline, &heard):
                if sent and quiet:
                    break
                run_out(quiet)
            if heard:
                if sent and not all:
                    break  # as the kernel does: a signal ends a call that has sent some of it
                if not goes_on(endpoint, caller, blocks, &timeout):
                    return lost_number(sent)
            operate(endpoint)
        if fs_is_exposed(&endpoint.c):
            plug_if_full(endpoint)
        return sent
    finally:
        endpoint.end(&call)


cdef Py_ssize_t transmit_buffer(Endpoint endpoint, object caller, int64_t timeout, object data, int flags, bint all) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t sent
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        sent = transmit(endpoint, caller, timeout, <const char *>view.buf, view.len, flags, all)
    finally:
        PyBuffer_Release(&view)
    return sent


cdef bytes gathered(buffers):
    """One piece, so that the pieces of one call are not mixed with another thread's. None if the stdlib's call would
    object."""
    try:
        return b"".join([memoryview(buffer).cast("B") for buffer in buffers]) if len(buffers) <= IOV_MAX else None
    except (TypeError, BufferError, ValueError):
        return None
