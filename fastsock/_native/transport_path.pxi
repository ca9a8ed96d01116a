# The path of a transport's connection: when it moves to the ring or stays on kernel TCP, and how its endpoint ends. Part of
# transport.pyx.

cdef extern from "Python.h":
    object PyContext_CopyCurrent()

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6


# ---- from the kernel to the ring -----------------------------------------------------------------------------


cdef int note_read(Transport self) except -1:
    """Counts a read. Called from the loop's transport, so the current context is the protocol's."""
    self.operations += 1
    if acts(self):
        if not self.in_context:
            self.context = PyContext_CopyCurrent()
        take_next_step(self)
    return 0


cdef inline bint acts(Transport self) noexcept:
    """Returns true if the operation just counted needs a step: not while a published name has no answer yet."""
    return self.operations >= self.acts_at and (
        self.endpoint is None or self.endpoint.path.listing_state == NULL or fs_load_relaxed(self.endpoint.path.listing_state) != FS_LISTING_WAITING)


cdef int note_context(Transport self) except -1:
    """Keeps a copy of the current context, which is that of the protocol's calls. Later changes on kernel TCP are taken over
    by the reads with which the connection looks for its peer."""
    if self.context is None:
        self.context = PyContext_CopyCurrent()
    return 0


cdef int take_next_step(Transport self) except -1:
    """Takes the next step of a busy connection to find its peer and to move."""
    if self.endpoint is None:
        begin(self)
        if self.endpoint is None:
            return 0
    self.endpoint.path.operations = self.operations - 1
    try:
        operate(self.endpoint)
    except ConnectionResetError as error:
        self._force_close(error)
        return 0
    if self.endpoint is None:
        return 0
    if fs_is_attached(&self.endpoint.c):
        self.acts_at = 0
        if not self.entered:
            enter(self)
    else:
        self.acts_at = acts_again_at(self.endpoint)
    return 0


cdef int begin(Transport self) except -1:
    """Gives a busy connection an endpoint, if it can move: not if it is being closed."""
    cdef Endpoint endpoint
    self.acts_at = INT64_MAX
    self.write_to_lower = self.lower.write
    sock = self.lower.get_extra_info("socket")
    fd = sock.fileno() if sock is not None and int(sock.family) in (AF_INET, AF_INET6) else -1
    if fd < 0:
        return 0
    endpoint = Endpoint(fd)
    endpoint.adopt(fd)
    begin_search(endpoint, self.operations, self.reason)
    endpoint.session = self.session
    return drive(self, endpoint)


cdef int drive(Transport self, Endpoint endpoint) except -1:
    """Makes the transport the only user of an endpoint."""
    cdef fs_call call
    self.endpoint = endpoint
    self.acts_at = 0
    endpoint.queue = self.queue
    self.queue.begun.add(self)
    if fs_call_enter(&endpoint.c, &call):  # another thread may close it while this one waits for the lock
        with nogil:
            fs_drive_by_loop(&endpoint.c)
        endpoint.end(&call)
    return 0


cdef int take_over(Transport self, Endpoint endpoint) except -1:
    """Takes over the endpoint of a socket object. Only this transport uses it from now on. An attached endpoint must have
    a slot in the queue's event set already."""
    self.operations = endpoint.path.operations
    drive(self, endpoint)
    if fs_is_attached(&endpoint.c):
        enter(self)
    else:
        note_connected(endpoint)
    return 0


cdef int enter(Transport self) except -1:
    """Gives a connection that has attached to the queue."""
    if not fs_pin(&self.endpoint.c):
        return 0  # it has ended, and its memory is freed
    self.entered = self.in_context = True
    note_context(self)
    with nogil:
        fs_drive_by_loop(&self.endpoint.c)
    return self.queue.enter(self)


cdef bint sends_on_ring(Transport self) except -1:
    """Returns true if the next bytes go to the ring. Switches to the ring if the peer is ready and the kernel's part is
    complete."""
    if not fs_kernel_is_next(&self.endpoint.c):
        return True
    if self.sends_file or not fs_may_switch(&self.endpoint.c) or self.lower.get_write_buffer_size():
        return False
    return fs_switch_if_ready(&self.endpoint.c)


# ---- on kernel TCP -------------------------------------------------------------------------------------------


cdef int stay_on_kernel(Transport self, int reason) except -1:
    """Keeps the connection on kernel TCP. It must not have a region."""
    self.kernel_because = reason
    if self.endpoint is not None:
        decide_tcp(self.endpoint, reason)
    else:
        if self.acts_at != INT64_MAX:
            fs_count_changed(self.reason, reason)
        self.last_info = None
        self.reason = reason
    self.acts_at = INT64_MAX
    return 0


cdef tuple info_of_path(Transport self):
    """Returns what `Endpoint.standing` returns, also before the endpoint is there and after its end."""
    if self.endpoint is not None:
        return info_of(self.endpoint)
    return (False, False, False, reason_texts[self.reason]) if self.last_info is None else self.last_info


# ---- the end -------------------------------------------------------------------------------------------------


cdef int end_endpoint(Transport self) except -1:
    """Ends this side of the ring: FIN, or a reset if bytes are unread. Called before the descriptor is closed."""
    cdef Endpoint endpoint = self.endpoint
    if endpoint is None:
        return 0
    self.last_info = info_of(endpoint)
    endpoint.path.operations = self.operations
    self.queue.forget(self)
    self.entered = False
    self.endpoint = endpoint.queue = None
    self.acts_at = INT64_MAX
    endpoint.forget(fs_fd(&endpoint.c))
    return unpin(endpoint)


cdef int fail(Transport self, int64_t result) except -1:
    """Ends the connection because of a negative result of the endpoint."""
    if result == FS_VIOLATED:
        path_events.report_violation(self.endpoint, self.endpoint.reset())
        result = -ECONNRESET
    self._force_close(OSError(<int>-result, _os.strerror(<int>-result)))
    return 0
