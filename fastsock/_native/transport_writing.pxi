# The sending side of a transport: what the ring has no room for waits in the backlog.

cdef int post(Transport self, const char *data, Py_ssize_t length) except -1:
    """A write that goes to the ring; into the backlog, behind what waits there, as far as there is no room."""
    cdef int64_t sent = 0
    if length == 0:
        return 0
    self.origin.queue.writes += 1
    if self.backlog_size == 0:
        sent = fs_try_send(&self.endpoint.c, data, length, MSG_NOSIGNAL)
        if sent == length:
            return 0
        if sent < 0:
            if sent != -EAGAIN:
                self.fail(sent)
                return 0
            sent = 0
    if self.backlog is None:
        self.backlog = _deque()
    self.backlog.append(PyBytes_FromStringAndSize(data + sent, length - sent))
    self.backlog_size += length - sent
    self.origin.queue.heat(self)  # which arms for credits when polling does not pay
    if self.lower_ended:
        self.origin.queue.watch(self)
    pause_protocol_if_full(self)
    return 0


cdef bint send_backlog(Transport self) except -1:
    """Sends from the backlog what there is room for now. Whether anything was sent."""
    cdef int64_t sent
    cdef bint any = False
    cdef bytes piece
    self.credit = False
    while self.backlog_size and self.endpoint is not None:
        piece = self.backlog[0]
        sent = fs_try_send(
            &self.endpoint.c, PyBytes_AS_STRING(piece) + self.first_sent, PyBytes_GET_SIZE(piece) - self.first_sent, MSG_NOSIGNAL
        )
        if sent < 0:
            if sent != -EAGAIN:
                self.fail(sent)
                return True
            if fs_kernel_is_next(&self.endpoint.c):
                hand_backlog_down(self)
                return True
            break
        any = True
        self.backlog_size -= sent
        self.first_sent += sent
        if self.first_sent < PyBytes_GET_SIZE(piece):
            break
        self.backlog.popleft()
        self.first_sent = 0
    if any:
        self.flushing = True
        resume_protocol_if_empty(self)
        self.flushing = False
        if not self.backlog_size:
            backlog_is_empty(self)
    return any


cdef int hand_backlog_down(Transport self) except -1:
    """The peer has gone back to the kernel."""
    cdef list pieces = list(self.backlog)
    pieces[0] = pieces[0][self.first_sent :]
    drop_backlog(self)
    for piece in pieces:
        self.lower.write(piece)
    resume_protocol_if_empty(self)
    backlog_is_empty(self)
    return 0


cdef void drop_backlog(Transport self) noexcept:
    if self.backlog_size:
        self.backlog.clear()
        self.backlog_size = self.first_sent = 0


cdef int backlog_is_empty(Transport self) except -1:
    """What close and write_eof left for later."""
    if self.closing:
        self.end_endpoint()
        self.lower.close()
    elif self.write_ended:
        end_sending(self)
    return 0


cdef int end_sending(Transport self) except -1:
    cdef bint stood = False
    if self.entered:
        stood = self.endpoint.shutdown(False, True)  # packet FIN: a FIN of the kernel alone means death
    else:
        self.stay_on_kernel(policy.ENDING)  # whose FIN the loop's transport sends when it has sent all before it
    try:
        self.lower.write_eof()
    except OSError as error:
        if error.errno != ENOTCONN or not stood:
            raise
    return 0


cdef int pause_protocol_if_full(Transport self) except -1:
    if self.backlog_size > self.high_water and not self.protocol_paused:
        self.protocol_paused = True
        call_protocol(self, "pause_writing")
    return 0


cdef int resume_protocol_if_empty(Transport self) except -1:
    if self.protocol_paused and self.backlog_size <= self.low_water:
        self.protocol_paused = False
        call_protocol(self, "resume_writing")
    return 0
