# recv, recv_into, recvfrom, recvfrom_into, recvmsg, recvmsg_into.

cdef enum:
    RECEIVE_FLAGS = MSG_PEEK | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_TRUNC | MSG_WAITALL | 0x40000000  # MSG_CMSG_CLOEXEC
    USE_KERNEL = -2  # the stdlib's call does the rest
    UNGUARDED = 65536  # bytes that may be copied with the GIL held
    IOV_MAX = 1024     # buffers of one call (limits.h)

cdef object kernel_recv = _socket.socket.recv
cdef object kernel_recv_into = _socket.socket.recv_into
cdef object kernel_recvfrom = _socket.socket.recvfrom
cdef object kernel_recvfrom_into = _socket.socket.recvfrom_into
cdef object kernel_recvmsg = _socket.socket.recvmsg
cdef object kernel_recvmsg_into = _socket.socket.recvmsg_into


cdef int64_t try_once(Endpoint endpoint, char *into, Py_ssize_t room, int flags, bint final) noexcept:
    cdef int64_t got
    if fs_is_attached(&endpoint.c) and room <= UNGUARDED:
        return fs_try_receive(&endpoint.c, into, room, flags, final)
    with nogil:
        got = fs_try_receive(&endpoint.c, into, room, flags, final)
    return got


cdef int64_t receive_in_kernel(Endpoint endpoint, char *into, Py_ssize_t room, int flags) except? -100_002:
    """A blocking receive on the kernel path, polling first: bytes, 0 at the end of the stream, or -errno. Each look is an
    attempt. Raises what a signal handler raises."""
    cdef int64_t got = -EAGAIN, began = fs_now(), until
    cdef int looks = 0
    until = began + fs_budget(&endpoint.c, began)
    if until != began:
        fs_note_in_kernel(&endpoint.c, 1)
        with nogil:
            while got == -EAGAIN and (looks == 0 or fs_now() < until):
                got = sys_recv(fs_number(&endpoint.c), into, room, flags | MSG_DONTWAIT)
                looks += 1
                if got < 0:
                    got = -errno
                    sched_yield()  # we cannot tell whether the peer waits for this very processor
        fs_note_in_kernel(&endpoint.c, -1)
        if got != -EAGAIN:
            if looks > 1:
                fs_settle_wait(&endpoint.c, began, True, True)
            return got
        fs_count(&endpoint.c.vi.count.poll_ns, <uint64_t>(until - began))
        PyErr_CheckSignals()  # a signal that came while we polled would not wake the sleep
        if not sleeps_in_kernel(endpoint, -1):
            return -EINTR  # its handler has moved the connection: look again
        began = fs_now()
    fs_note_in_kernel(&endpoint.c, 1)
    with nogil:
        got = sys_recv(fs_number(&endpoint.c), into, room, flags)
        if got < 0:
            got = -errno
    fs_note_in_kernel(&endpoint.c, -1)
    if got == -EINTR:
        PyErr_CheckSignals()
    else:
        fs_settle_wait(&endpoint.c, began, looks > 0, False)
    return got


cdef Py_ssize_t receive(Endpoint endpoint, int64_t timeout, char *into, Py_ssize_t room, int flags) except -1:
    """One receive call. Bytes received; USE_KERNEL when the kernel path is decided and the call would sleep."""
    cdef int64_t got, deadline = -1
    cdef Py_ssize_t filled = 0
    cdef bint whole, quiet = False, waited = False, slept
    cdef fs_call call
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    whole = flags & MSG_WAITALL and timeout < 0
    flags &= ~MSG_WAITALL
    if not fs_begin(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            slept = sleeps_in_kernel(endpoint, timeout) and room > 0
            if slept:
                try:
                    got = receive_in_kernel(endpoint, into + filled, room - filled, flags)
                except BaseException:
                    if filled:
                        return filled
                    raise
                if got == -EINTR:
                    continue
            else:
                got = try_once(endpoint, into + filled, room - filled, flags, timeout == 0 or waited)
            if got > 0 and flags & MSG_PEEK:
                if not whole or got == room or not more_to_peek(endpoint):
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
                timeout = patience(endpoint, timeout, FS_RECEIVE, &quiet)
                if timeout == 0:
                    continue
                waited = True
                deadline = deadline_after(timeout)
            try:
                if not wait(endpoint, FS_RECEIVE, deadline):
                    if filled:
                        return filled
                    run_out(quiet)
            except BaseException:
                if filled:
                    return filled  # as the kernel does: what came before the signal is delivered
                raise
    finally:
        endpoint.end(&call)


cdef bint more_to_peek(Endpoint endpoint) except? True:
    """MSG_PEEK with MSG_WAITALL, which nobody uses in earnest: naps while more may still come."""
    cdef int events
    with nogil:
        events = fs_events_now(endpoint.c.fd, POLLRDHUP)
        fs_nap()
    PyErr_CheckSignals()
    return not events & (POLLRDHUP | POLLHUP | POLLERR) and not fs_sender_waits(&endpoint.c)


cdef inline bint ours(Endpoint endpoint, int flags):
    """Whether this receive is driven here and not by the stdlib's call."""
    if endpoint is None or flags & ~RECEIVE_FLAGS:
        return False
    # (An error that the kernel has told already is told here, or never.)
    return undecided(endpoint) or fs_load_relaxed(&endpoint.c.stands.pending_error) or fs_polls(&endpoint.c)


cdef bytes receive_bytes(Endpoint endpoint, int64_t timeout, Py_ssize_t size, int flags):
    """None: USE_KERNEL."""
    cdef bytes data
    cdef Py_ssize_t got, room = size
    cdef fs_call call
    if fs_is_attached(&endpoint.c) and fs_receives_on_ring(&endpoint.c) and not flags & MSG_WAITALL:
        if not fs_begin(&endpoint.c, &call):
            return None
        try:
            room = fs_available(&endpoint.c.vi, size)
            if room == 0 and not flags & MSG_DONTWAIT and timeout != 0:
                # Nothing there yet: wait first, so that the bytes object gets its right size.
                with nogil:
                    fs_spin(&endpoint.c, FS_RECEIVE)
                room = fs_available(&endpoint.c.vi, size)
        finally:
            endpoint.end(&call)
        if room == 0:
            room = size if size < UNGUARDED else UNGUARDED
    data = PyBytes_FromStringAndSize(NULL, room)
    got = receive(endpoint, timeout, PyBytes_AS_STRING(data), room, flags)
    if got == USE_KERNEL:
        return None
    if flags & MSG_TRUNC:
        return bytes(got) if got != room else data
    if got == room:
        return data
    return data[:got]


cdef object MISSING = object()
cdef enum:
    SENSIBLE = 1 << 30  # bytes of one receive call; whoever asks for more gets less

cdef Py_ssize_t NONSENSE = <Py_ssize_t>1 << 40  # the stdlib's call tells what it thinks of it


cdef inline bint asks(Endpoint endpoint, object size, object flags, Py_ssize_t *room, int *bits):
    """Takes the arguments of a receive call that is driven here. False: the stdlib's call does it, or says in its
    own words what is wrong with them."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
        room[0] = size
    except (TypeError, OverflowError):
        return False
    if SENSIBLE < room[0] < NONSENSE and fs_is_attached(&endpoint.c):
        room[0] = SENSIBLE
    return 0 <= room[0] <= SENSIBLE and ours(endpoint, bits[0])


cdef inline bint takes_no_ancillary(Endpoint endpoint, object size):
    """Room for ancillary data stays empty on a TCP stream; a size that is none is the stdlib's to complain about."""
    return endpoint is not None and isinstance(size, int) and 0 <= size <= 0x7fffffff


def recv(self, bufsize=MISSING, flags=0, /):
    """As socket.recv."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, timeout_of(self), room, bits)
        if data is not None:
            return data
    return kernel_recv(self) if bufsize is MISSING else kernel_recv(self, bufsize, flags)


def recvfrom(self, bufsize=MISSING, flags=0, /):
    """As socket.recvfrom: a TCP socket tells no address."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, timeout_of(self), room, bits)
        if data is not None:
            return data, None
    return kernel_recvfrom(self) if bufsize is MISSING else kernel_recvfrom(self, bufsize, flags)


cdef Py_ssize_t receive_buffer(Endpoint endpoint, object self, object buffer, object nbytes, object flags) except -3:
    cdef Py_buffer view
    cdef Py_ssize_t got, room
    cdef int bits
    if not asks(endpoint, nbytes, flags, &room, &bits):
        return USE_KERNEL
    try:
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    except (TypeError, BufferError):
        return USE_KERNEL
    try:
        if room > view.len:
            return USE_KERNEL
        return receive(endpoint, timeout_of(self), <char *>view.buf, room if room else view.len, bits)
    finally:
        PyBuffer_Release(&view)


def recv_into(self, buffer, nbytes=0, flags=0):
    """As socket.recv_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recv_into(self, buffer, nbytes, flags) if got == USE_KERNEL else got


def recvfrom_into(self, buffer, nbytes=0, flags=0):
    """As socket.recvfrom_into."""
    cdef Py_ssize_t got = receive_buffer(endpoint_of(self), self, buffer, nbytes, flags)
    return kernel_recvfrom_into(self, buffer, nbytes, flags) if got == USE_KERNEL else (got, None)


def recvmsg(self, bufsize=MISSING, ancbufsize=0, flags=0, /):
    """As socket.recvmsg: a TCP stream carries no ancillary data."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t room
    cdef int bits
    if takes_no_ancillary(endpoint, ancbufsize) and asks(endpoint, bufsize, flags, &room, &bits):
        data = receive_bytes(endpoint, timeout_of(self), room, bits)
        if data is not None:
            return data, [], 0, None
    return kernel_recvmsg(self) if bufsize is MISSING else kernel_recvmsg(self, bufsize, ancbufsize, flags)


cdef list writable_views(buffers):
    """Byte views of the buffers, or None if the stdlib's call would object."""
    try:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
    except (TypeError, BufferError, ValueError):
        return None
    return None if any([view.readonly for view in views]) or len(views) > IOV_MAX else views


cdef Py_ssize_t receive_scattered(Endpoint endpoint, int64_t timeout, list views, int flags) except -1:
    """By way of one bytes object: a copy more, on calls that nobody makes where it counts."""
    cdef Py_ssize_t at = 0
    cdef bytes data = receive_bytes(endpoint, timeout, sum([len(view) for view in views]), flags)
    if data is None:
        return USE_KERNEL
    for view in views:
        part = data[at : at + len(view)]
        view[: len(part)] = part
        at += len(part)
    return len(data)


def recvmsg_into(self, buffers=MISSING, ancbufsize=0, flags=0, /):
    """As socket.recvmsg_into."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t got, room
    cdef int bits
    if takes_no_ancillary(endpoint, ancbufsize) and asks(endpoint, 0, flags, &room, &bits):
        if not isinstance(buffers, (list, tuple)):
            try:
                buffers = list(buffers)
            except TypeError:
                return kernel_recvmsg_into(self, buffers)
        views = writable_views(buffers)
        if views is not None:
            got = receive_scattered(endpoint, timeout_of(self), views, bits)
            if got != USE_KERNEL:
                return got, [], 0, None
    return kernel_recvmsg_into(self) if buffers is MISSING else kernel_recvmsg_into(self, buffers, ancbufsize, flags)
