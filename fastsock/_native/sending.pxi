# send, sendall, sendto, sendmsg.

cdef object kernel_sendto = _socket.socket.sendto
cdef object kernel_send = _socket.socket.send
cdef object kernel_sendall = _socket.socket.sendall
cdef object kernel_sendmsg = _socket.socket.sendmsg


cdef int64_t post_once(Endpoint endpoint, const char *data, Py_ssize_t length, int flags, bint asleep) noexcept:
    """One attempt. `asleep`: by the kernel's own blocking send."""
    cdef int64_t sent
    if flags & MSG_OOB:
        return fs_try_send_urgent(&endpoint.c, data, length, flags)
    if fs_is_attached(&endpoint.c) and length <= UNGUARDED:
        return fs_try_send(&endpoint.c, data, length, flags)
    if length > KERNEL_STRIDE and not fs_sends_on_ring(&endpoint.c):
        length = KERNEL_STRIDE
    if asleep:
        fs_note_in_kernel(&endpoint.c, 1)
        with nogil:
            sent = sys_send(fs_number(&endpoint.c), data, length, flags)
            if sent < 0:
                sent = -errno
        fs_note_in_kernel(&endpoint.c, -1)
        return sent
    with nogil:
        sent = fs_try_send(&endpoint.c, data, length, flags)
    return sent


cdef Py_ssize_t transmit(Endpoint endpoint, int64_t timeout, const char *data, Py_ssize_t length, int flags,
                         bint all) except -1:
    """One send call. Everything if the socket blocks or `all` is set, else what there is room for. USE_KERNEL when the endpoint
    has ended: the number is closed, or means something else."""
    cdef int64_t part, deadline = -1
    cdef Py_ssize_t sent = 0
    cdef bint quiet = False, waited = False, full, asleep
    cdef fs_call call
    if flags & MSG_DONTWAIT and timeout < 0:
        timeout = 0  # (a socket object with a timeout waits all the same)
    if not fs_begin(&endpoint.c, &call):
        return USE_KERNEL
    try:
        while True:
            asleep = sleeps_in_kernel(endpoint, timeout)
            part = post_once(endpoint, data + sent, length - sent, flags, asleep)
            if asleep and part < min(length - sent, KERNEL_STRIDE):
                # Cut short: by a signal, O_NONBLOCK, SO_SNDTIMEO or an error.
                sent += max(part, 0)
                if sent and not all:
                    break
                if part == -EINTR or part > 0:
                    PyErr_CheckSignals()
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
                with nogil:
                    full = not fs_is_exposed(&endpoint.c) or fs_plug_if_full(&endpoint.c)
                if not full and not waited:
                    waited = True  # credits came between the attempt and the plug
                    continue
                if sent and not all:
                    return sent
                fail(endpoint, -EAGAIN)
            if sent and timeout > 0 and not all:
                break
            if not waited:
                timeout = patience(endpoint, timeout, FS_SEND, &quiet)
                if timeout == 0:
                    continue
                waited = True
                deadline = deadline_after(timeout)
            try:
                if not wait(endpoint, FS_SEND, deadline):
                    if sent and quiet:
                        break
                    run_out(quiet)
            except BaseException:
                if sent and not all:
                    break
                raise
            operate(endpoint)
        if fs_is_exposed(&endpoint.c):
            with nogil:
                fs_plug_if_full(&endpoint.c)
        return sent
    finally:
        endpoint.end(&call)


cdef inline bint sends_ours(Endpoint endpoint, int flags):
    if endpoint is None:
        return False
    if flags & MSG_OOB:
        return fs_is_attached(&endpoint.c)
    return fs_is_attached(&endpoint.c) or endpoint.step is not None


cdef Py_ssize_t transmit_buffer(Endpoint endpoint, int64_t timeout, object data, int flags, bint all) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t sent
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        sent = transmit(endpoint, timeout, <const char *>view.buf, view.len, flags, all)
    finally:
        PyBuffer_Release(&view)
    return sent


cdef inline bint gives(Endpoint endpoint, object flags, int *bits):
    """Takes the flags of a send call that is driven here. False: the stdlib's call does it."""
    if endpoint is None:
        return False
    try:
        bits[0] = flags
    except (TypeError, OverflowError):
        return False
    return sends_ours(endpoint, bits[0])


cdef bytes gathered(buffers):
    """One piece, so that the pieces of one call are not mixed with another thread's. None if the stdlib's call would
    object."""
    try:
        return b"".join([memoryview(buffer).cast("B") for buffer in buffers]) if len(buffers) <= IOV_MAX else None
    except (TypeError, BufferError, ValueError):
        return None


def send(self, data=MISSING, flags=0, /):
    """As socket.send."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    cdef Py_ssize_t sent
    if data is not MISSING and gives(endpoint, flags, &bits):
        sent = transmit_buffer(endpoint, timeout_of(self), data, bits, False)
        if sent != USE_KERNEL:
            return sent
    return kernel_send(self) if data is MISSING else kernel_send(self, data, flags)


def sendall(self, data=MISSING, flags=0, /):
    """As socket.sendall. A long one may move to the ring on its way."""
    cdef int bits
    cdef Endpoint endpoint = endpoint_of(self)
    if data is not MISSING and gives(endpoint, flags, &bits):
        if transmit_buffer(endpoint, timeout_of(self), data, bits, True) != USE_KERNEL:
            return None
    return kernel_sendall(self) if data is MISSING else kernel_sendall(self, data, flags)


def sendto(self, *args):
    """As socket.sendto: on a connected TCP socket the address is not looked at."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if len(args) in (2, 3) and isinstance(args[len(args) - 1], tuple) and gives(
            endpoint, args[1] if len(args) == 3 else 0, &bits):
        kernel_sendto(self, b"", *args[1:])  # it objects to an address that is none
        sent = transmit_buffer(endpoint, timeout_of(self), args[0], bits, False)
        if sent != USE_KERNEL:
            return sent
    return kernel_sendto(self, *args)


def sendmsg(self, buffers=MISSING, ancdata=(), flags=0, address=None, /):
    """As socket.sendmsg: a TCP stream carries no ancillary data, which the stdlib's call says in its own words."""
    cdef int bits
    cdef Py_ssize_t sent
    cdef Endpoint endpoint = endpoint_of(self)
    if ancdata and endpoint is None:
        if not isinstance(ancdata, (list, tuple)):
            try:
                ancdata = list(ancdata)
            except TypeError:
                return kernel_sendmsg(self, buffers, ancdata)
        on_rights(ancdata)  # descriptors of ours may be among what it passes on
    if gives(endpoint, flags, &bits):
        if not isinstance(buffers, (list, tuple)):
            try:
                buffers = list(buffers)
            except TypeError:
                return kernel_sendmsg(self, buffers)
        plain = ancdata == () and address is None
        if fs_is_attached(&endpoint.c) and not plain:
            kernel_sendmsg(self, (), ancdata, flags, address)  # no bytes, but it objects to what is wrong with the rest
        piece = gathered(buffers) if plain or fs_is_attached(&endpoint.c) else None
        if piece is not None:
            sent = transmit_buffer(endpoint, timeout_of(self), piece, bits, False)
            if sent != USE_KERNEL:
                return sent
    return kernel_sendmsg(self) if buffers is MISSING else kernel_sendmsg(self, buffers, ancdata, flags, address)
