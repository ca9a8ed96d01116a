# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Receiving and sending on an endpoint, for calls of the program: on the ring, or on kernel TCP with our own wait while the path
is undecided. Includes waiting and errors. The `caller` of a call is a socket object or a descriptor number; it is only used to
check that it still means the endpoint, and to read its timeout.
"""

from libc.stdint cimport int64_t, uint32_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.core_rendezvous cimport fs_is_searching
from fastsock._native.socket_lifecycle cimport is_nonblocking, means, timeout_of_caller
from fastsock._native.registry cimport is_undecided, operate, path_events

from os import pread as os_pread

cdef extern from *:
    """
    /* Returns 1 if this interpreter has no other thread. */
    static int fs_only_thread(void) {
        PyThreadState *own = PyThreadState_Get();
        return PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(own)) == own && !PyThreadState_Next(own);
    }
    """
    bint fs_only_thread()
    int errno

cdef enum:
    UNGUARDED = 65536       # bytes that may be copied with the GIL held
    KERNEL_STRIDE = 262144  # bytes of a large send after which the connection may move
    FILE_PIECE = 1048576    # bytes read from a file for one send
    IOV_MAX = 1024          # buffers of one call (limits.h)
    LOOK_AGAIN = -100_001   # nothing was received, and the path may have changed: try again


# ---- waiting and errors --------------------------------------------------------------------------------------


cdef fail(Endpoint endpoint, int64_t result):
    """Raises the exception for a negative result of fs_try_recv, fs_try_send or fs_end_partial."""
    global errno
    if result == FS_TIMED_OUT:
        raise TimeoutError("timed out")
    if result == FS_VIOLATED:
        path_events.report_violation(endpoint, endpoint.reset())
        result = -ECONNRESET
    errno = <int>-result
    PyErr_SetFromErrno(OSError)


cdef bint run_signal_handlers(Endpoint endpoint, object caller) except -1:
    """Runs pending signal handlers. Returns true if one has closed a descriptor of the endpoint or changed the socket's timeout.
    Changes by other threads do not matter: as on TCP, the call goes on, even if its descriptor is closed."""
    cdef Py_ssize_t numbers = len(endpoint.descriptors)
    cdef int64_t timeout = timeout_of_caller(caller)
    PyErr_CheckSignals()
    return len(endpoint.descriptors) != numbers or timeout_of_caller(caller) != timeout


cdef int wait(Endpoint endpoint, object caller, int what, fs_wait_limit *patience, bint *signalled, bint polled=False) except -1:
    """Polls, unless the caller has done so, then sleeps. Returns 1 to try again, 0 if the time is over. Raises what a signal handler
    raises. Sets `signalled` if a signal has ended the sleep or its handler has changed something: see `goes_on`."""
    cdef bint ready = False
    cdef int event
    cdef int64_t until = fs_wait_deadline(patience)
    cdef fs_fd_change *fd_change
    signalled[0] = False
    if 0 <= until <= fs_now():
        return 0  # the caller has just tried
    if not polled:
        with nogil:
            ready = fs_spin(&endpoint.c, what)
    if ready:
        fs_wait_spent(patience, until)
        return 1
    if run_signal_handlers(endpoint, caller):  # a signal during polling would not end the sleep
        signalled[0] = True
        return 1
    fd_change = NULL if fs_only_thread() else fs_fd_change_subscribe()
    with nogil:
        event = fs_sleep(&endpoint.c, what, until, fd_change)
    if fd_change != NULL:
        fs_fd_change_unsubscribe(fd_change)
    fs_wait_spent(patience, until)
    if event == -EINTR:
        signalled[0] = True
        PyErr_CheckSignals()
        return 1
    return event


cdef inline bint sleeps_in_kernel(Endpoint endpoint, int64_t timeout) noexcept:
    """Returns true if a wait may be the kernel's own blocking call. That saves a poll() and a release of the GIL. Not allowed if
    another thread could move the connection meanwhile, as the call would miss the bytes in the ring. While a thread is in such a
    call, `operate` takes no steps. So with other threads it is used only before the first step: later, a thread that only
    receives would prevent one that only sends from moving."""
    return (timeout < 0 and not fs_is_attached(&endpoint.c) and not fs_load_relaxed(&endpoint.c.stands.pending_error)
            and (not is_undecided(endpoint)
                 or not fs_is_searching(&endpoint.path) and endpoint.path.operations < endpoint.path.next
                 or fs_only_thread()))


cdef bint goes_on(Endpoint endpoint, object caller, bint blocks, fs_wait_limit *patience) except -1:
    """Called after a signal. Returns true if the caller still means the endpoint. A blocking call becomes non-blocking if the handler
    has made the socket or its descriptor so."""
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
    """A blocking receive on kernel TCP, which polls first. `whole`: MSG_WAITALL; set to false when the kernel's call has returned
    data, as it has decided how much. Returns bytes, LOOK_AGAIN or -errno (-EINTR: see `goes_on`). Raises what a signal handler raises."""
    cdef bint polled = False
    cdef int64_t got = fs_receive_polling(&endpoint.c, into, room, flags, &polled)
    if got != -EAGAIN:
        return got
    if polled:
        if run_signal_handlers(endpoint, caller):
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
    """A receive call. `polled`: the caller has polled already. Returns the number of bytes; or USE_KERNEL if the path is decided for
    kernel TCP and the call would sleep, or if the caller no longer means this endpoint."""
    cdef int64_t got
    cdef Py_ssize_t filled = 0
    cdef bint blocks, whole, waited = False, slept, signalled = False
    cdef int look
    cdef fs_call call
    cdef fs_wait_limit patience
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # a socket object with a timeout still waits
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
                signalled = got == -EINTR
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
                if not wait(endpoint, caller, FS_RECEIVE, &patience, &signalled, polled):
                    got = fs_wait_error(&patience)
                elif signalled:
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
    """For MSG_PEEK with MSG_WAITALL, a rare combination: sleeps for short times. Returns true if more data may come."""
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
    return not run_signal_handlers(endpoint, caller) and more


cdef int readable_within(Endpoint endpoint, object caller, int64_t timeout) except -1:
    """Waits at most `timeout` ns (-1: for ever) until a receive would not block. Returns 1 if so, 0 if not; USE_KERNEL if the path is
    decided for kernel TCP, or if the caller no longer means this endpoint. Errors are left for the next receive. Raises what a
    signal handler raises."""
    cdef char byte
    cdef int64_t got
    cdef fs_wait_limit patience = fs_wait_limit_of(timeout)
    cdef int look = FS_FINAL if timeout == 0 else FS_NOT_FINAL
    cdef bint signalled = False
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
            if not wait(endpoint, caller, FS_RECEIVE, &patience, &signalled):
                return False
            if signalled and not means(caller, endpoint):
                return USE_KERNEL
            look = FS_IF_TOLD
        return True
    finally:
        endpoint.end(&call)


cdef bytes receive_bytes(Endpoint endpoint, object caller, int64_t timeout, Py_ssize_t size, int flags):
    """Returns the received bytes, or None for USE_KERNEL."""
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
                # No data yet: wait first, so that the bytes object gets the right size.
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
    """Returns byte views of the buffers, or None if the stdlib's call would raise."""
    try:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
    except (TypeError, BufferError, ValueError):
        return None
    return None if any([view.readonly for view in views]) or len(views) > IOV_MAX else views


cdef Py_ssize_t receive_scattered(Endpoint endpoint, object caller, int64_t timeout, list views, int flags) except -1:
    """Receives into several buffers, through one bytes object. The extra copy does not matter for these rare calls."""
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
    """Tries to send once. `asleep`: with the kernel's blocking send. `waits`: the caller will wait if there are no credits."""
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
    """Returns how much of a send to try at once. `whole`: all of it if SO_SNDTIMEO is set, as it applies to the whole call."""
    if length <= KERNEL_STRIDE or flags & MSG_OOB or fs_sends_on_ring(&endpoint.c):
        return length
    return length if whole and fs_timeout_option(&endpoint.c, FS_SEND) >= 0 else KERNEL_STRIDE


cdef bint plug_if_full(Endpoint endpoint) noexcept:
    """Called at the end of a send that does not wait. Returns true if the ring is full; the descriptor is then not writable."""
    cdef bint full
    with nogil:
        full = fs_plug_if_full(&endpoint.c)
    return full


cdef Py_ssize_t stale_caller(Py_ssize_t sent) except -1:
    """The result of a send whose caller no longer means the endpoint: USE_KERNEL, or EBADF if a part was sent."""
    global errno
    if sent:
        errno = EBADF
        PyErr_SetFromErrno(OSError)
    return USE_KERNEL


cdef int64_t send_part(Endpoint endpoint, object caller, fs_wait_limit *patience, bint blocks, const char *data, Py_ssize_t length,
                       int flags, int how, bint before) except? -100_004:
    """One send with the kernel's semantics: everything if the socket blocks, else as much as there is room for. Returns the number of
    bytes, or the result of fs_end_partial, or USE_KERNEL if the caller no longer means this endpoint. `before`: the program's call
    has sent data before, so a signal ends it."""
    cdef int64_t part, piece, sent = 0
    cdef bint asleep, again = False, signalled = False
    while True:
        asleep = sleeps_in_kernel(endpoint, patience.timeout)
        piece = stride(endpoint, length - sent, flags, asleep and how == SEND)
        part = post_once(endpoint, data + sent, piece, flags, asleep, patience.timeout != 0)
        if part > 0 or part == length == 0:
            sent += part
            if sent == length or asleep and part < piece:
                return sent  # a short blocking send of the kernel ends the call
            if blocks and patience.timeout or part == piece:
                operate(endpoint)  # a long send may move in between
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
                    again = True  # credits came after the attempt
                    continue
            elif not wait(endpoint, caller, FS_SEND, patience, &signalled):
                part = fs_wait_error(patience)
            elif signalled:
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
    """A send call of the program. `how`: SEND is one send of the kernel, SEND_ALL as many as socket.sendall makes, SEND_FILE as many
    as os.sendfile. Returns the number of bytes, or USE_KERNEL if the endpoint has ended or the caller no longer means it. Adds the
    bytes sent to `total`, also if this raises."""
    cdef int64_t part
    cdef Py_ssize_t sent = 0
    cdef bint blocks
    cdef fs_call call
    cdef fs_wait_limit patience
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # a socket object with a timeout still waits
    patience = fs_wait_limit_of(timeout)
    blocks = timeout < 0
    if not fs_call_enter(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            part = send_part(endpoint, caller, &patience, blocks, data + sent, length - sent, flags, how,
                             how == SEND_FILE and total[0])
            if part == USE_KERNEL:
                return stale_caller(sent)
            if part < 0:
                if how == SEND_FILE and total[0]:
                    return sent  # errors after a partial send are dropped, as by the kernel
                fail(endpoint, part)
            sent += part
            total[0] += part
            if sent == length or how == SEND or how == SEND_FILE and (patience.heard or not blocks):
                return sent
            if (run_signal_handlers(endpoint, caller) or patience.heard) and not goes_on(endpoint, caller, blocks, &patience):
                return stale_caller(sent)
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
    """os.sendfile: reads the file and sends its data, all of it if the socket blocks. `total`: see `transmit`. Returns the number of
    bytes, or USE_KERNEL if nothing was sent."""
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
    """Joins the buffers, so that they are not mixed with the data of other threads. Returns None if the stdlib's call would
    raise."""
    try:
        return b"".join([memoryview(buffer).cast("B") for buffer in buffers]) if len(buffers) <= IOV_MAX else None
    except (TypeError, BufferError, ValueError):
        return None
