# The path of a transport's connection: when it moves to the ring or stays on kernel TCP, and how its endpoint ends. Part of
# transport.pyx.

cdef extern from "Python.h":
    object PyContext_CopyCurrent()


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
    return self.operations >= self.acts_at and (self.is_early or not fs_awaits_answer(self.endpoint.c))


cdef int note_context(Transport self) except -1:
    """Keeps a copy of the current context, which is that of the protocol's calls. Later changes on kernel TCP are taken over
    by the reads with which the connection looks for its peer."""
    if self.context is None:
        self.context = PyContext_CopyCurrent()
    return 0


cdef int take_next_step(Transport self) except -1:
    """Takes the next step of a busy connection to find its peer and to move."""
    cdef Endpoint endpoint
    if self.is_early:
        drive(self)
        if self.operations < self.acts_at:
            return 0
    endpoint = self.endpoint
    if self.write_to_lower is None:
        self.write_to_lower = self.lower.write
    fs_set_operations(endpoint.c, self.operations)
    try:
        if self.queue.poller == NULL:
            self.queue.make_poller()
        step(endpoint, self.queue.poller, <void *>self)  # (the queue's `begun` holds a reference)
    except ConnectionResetError as error:
        self._force_close(error)
        return 0
    except OSError:  # the queue has no descriptor, so nothing can wait for the ring
        decide(endpoint, FS_REASON_RESOURCES)
    if self.endpoint is None:
        return 0
    if fs_is(endpoint.c, FS_IS_ATTACHED):
        self.acts_at = 0
        if not self.entered:
            enter(self)
    else:
        self.acts_at = fs_steps_at(endpoint.c)
    return 0


cdef int begin(Transport self) except -1:
    """Drives the connection of the lower transport, if it may move: from now on, or once it has made some operations."""
    cdef int number, reason = 0
    cdef uint32_t left
    sock = self.lower.get_extra_info("socket")
    if sock is None:
        return 0
    number = sock.fileno()
    left = fs_libc_left(number, &reason)
    if left == 0:
        return drive_by_number(self, number)
    self.is_early = True
    self.acts_at = left
    self.last_info = (False, False, False, reason_texts[reason])
    return 0


cdef int drive(Transport self) except -1:
    """Drives it from now on, if it is early."""
    if not self.is_early:
        return 0
    sock = self.lower.get_extra_info("socket")
    return drive_by_number(self, -1 if sock is None else sock.fileno())


cdef int drive_by_number(Transport self, int number) except -1:
    cdef Endpoint endpoint = endpoint_of(number)
    self.is_early = False
    self.acts_at = INT64_MAX
    self.last_info = None
    if endpoint is None:
        return 0
    self.endpoint = endpoint
    self.operations = fs_operations_of(endpoint.c)
    self.acts_at = fs_steps_at(endpoint.c)
    self.queue.begun.add(self)
    return 0


cdef int enter(Transport self) except -1:
    """Gives a connection that has attached to the queue."""
    self.entered = self.in_context = True
    note_context(self)
    with nogil:
        fs_drive_by_loop(self.endpoint.c)
    return self.queue.enter(self)


cdef bint hands_over(Transport self) except -1:
    """Gives the connection to the front end, and what waits for room to the loop's own transport, which goes on with both. Returns false if
    that is not possible: the end of a stream, or bytes after those in the ring, have come to that transport already."""
    cdef Endpoint endpoint = self.endpoint
    if self.state != OPEN or self.sends_file or self.lower_ended or self.late is not None:
        return False
    if self.entered and fs_peer_is_back(endpoint.c):
        return False
    fs_set_operations(endpoint.c, self.operations)
    try:
        if not hand_over(endpoint, self.queue.poller, <void *>self):
            return False
    except OSError as error:
        self._force_close(error)
        return True
    self.queue.forget(self)
    self.entered = False
    self.endpoint = None
    if self.backlog_size:
        hand_backlog_down(self)
    return True


cdef bint sends_on_ring(Transport self) except -1:
    """Returns true if the next bytes go to the ring. Switches to the ring if the peer is ready and the kernel's part is
    complete."""
    if not fs_kernel_is_next(self.endpoint.c):
        return True
    if self.sends_file or not fs_may_switch(self.endpoint.c) or self.lower.get_write_buffer_size():
        return False
    return fs_switch_if_ready(self.endpoint.c)


# ---- the end -------------------------------------------------------------------------------------------------


cdef tuple info_of_path(Transport self):
    """Returns info_of the endpoint, also after its end; None if the connection is not served."""
    if self.endpoint is not None:
        return info_of(self.endpoint)
    if self.is_early and self.lower is not None and self.state == OPEN:
        drive(self)
        return info_of_path(self)
    if self.last_info is None and self.lower is not None and self.state != LOST:
        sock = self.lower.get_extra_info("socket")
        return None if sock is None or sock.fileno() < 0 else _standing(sock.fileno())
    return self.last_info


cdef int end_endpoint(Transport self) except -1:
    """Ends this side of the ring: FIN, or a reset if bytes are unread. Called before the descriptor is closed."""
    cdef Endpoint endpoint = self.endpoint
    if endpoint is None:
        self.is_early = False
        self.acts_at = INT64_MAX
        return 0
    self.last_info = info_of(endpoint)
    fs_set_operations(endpoint.c, self.operations)
    self.queue.forget(self)
    self.entered = False
    self.endpoint = None
    self.acts_at = INT64_MAX
    return end_of(endpoint)


cdef int fail(Transport self, int64_t result) except -1:
    """Ends the connection because of a negative result of the endpoint."""
    if result == FS_VIOLATED:
        reset(self.endpoint)
        result = -ECONNRESET
    self._force_close(OSError(<int>-result, _os.strerror(<int>-result)))
    return 0
