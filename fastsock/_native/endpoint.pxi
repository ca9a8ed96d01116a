cdef class Endpoint:
    """One end of one TCP connection in this process.

    `fd` is a descriptor of the kernel connection, `descriptors` all that this process knows of. `step` is
    called by every `next_step`-th operation while the path is undecided; None once it is decided.
    """

    def __cinit__(self, int fd):
        self.fd = fd
        self.wake_fd = self.peer_fd = self.place = -1  # before anything can fail: `strike` would take another's place away
        self.descriptors = set()
        self.inode = inode_of(fd)
        self.receive_timeout = self.send_timeout = NOT_ASKED
        take_up_polling(&self.habit)
        self.own = <fs_side *>new_block(sizeof(fs_side))
        fs_store_sc(&self.own.holders, 1)
        self.own.pid_space = own_pid_space
        by_inode[self.inode] = self
        self.place = enroll(self.inode)

    def __dealloc__(self):
        strike(self)
        if self.own != NULL:
            if not self.finished:
                fs_add_counters(&totals, &self.vi.count, True)
                count_out(self.own)
            free_own(self)

    # ---- descriptors -------------------------------------------------------------------------------------

    def adopt(self, int fd):
        """Adds a descriptor of this connection. One that had the number before was closed behind our back."""
        before = by_descriptor.get(fd)
        if before is not None and before is not self:
            before.forget(fd)
        self.descriptors.add(fd)
        by_descriptor[fd] = self

    def forget(self, int fd):
        """`fd` is about to be closed, or no longer means this connection. With the last one the endpoint ends."""
        if by_descriptor.get(fd) is self:
            del by_descriptor[fd]
        if fd not in self.descriptors:
            return
        self.descriptors.discard(fd)
        if self.descriptors:
            if fd == self.fd:
                self.point_to(next(iter(self.descriptors)))
        elif (self.active or is_attached(self)) and fs_inode(fd) != self.inode:
            # Closed behind our back: the number may be somebody else's, and the kernel has ended the connection.
            self.point_to(-1)
            end_here(self)
        elif self.active:
            # Like the kernel, which keeps a connection open while somebody is inside a call on it.
            spare = sys_fcntl(fd, F_DUPFD_CLOEXEC, 0)
            if spare < 0:
                end_here(self)
                return
            try:
                self.point_to(spare)
            finally:
                finish_with_last_call(self, spare)
        else:
            end_here(self)

    cdef int point_to(self, int fd) except -1:
        # Under both locks: no call on the old number may be under way when its owner closes it. While they are waited
        # for, another thread may decide otherwise, or end the endpoint: the last decision counts, whoever acts on it.
        cdef fs_side *own
        cdef fs_call call
        if not self.begin(&call):
            return 0
        fs_store_relaxed(&self.number, <uint32_t>fd)
        with nogil:
            own = lock_both(self)
            self.fd = <int>fs_load_relaxed(&self.number)
            end_both(self, own)
        wake_own(self)
        if self.active > 1:
            tell_of_number()
        return self.end(&call)

    cdef int64_t timeout_option(self, int what) noexcept:
        """SO_RCVTIMEO or SO_SNDTIMEO, nanoseconds; -1: not set. Asked of the kernel by the first wait."""
        if what == RECEIVE:
            if self.receive_timeout == NOT_ASKED:
                self.receive_timeout = fs_option_ns(self.fd, SO_RCVTIMEO)
            return self.receive_timeout
        if self.send_timeout == NOT_ASKED:
            self.send_timeout = fs_option_ns(self.fd, SO_SNDTIMEO)
        return self.send_timeout

    cdef bint begin(self, fs_call *call) noexcept:
        """Whether a call may touch this endpoint: it has not ended. It does not end then before `end`, with the same `call`,
        which stays where it is meanwhile. The one place that says so; with the GIL."""
        if self.finished:
            return False
        call.endpoint = <PyObject *>self
        call.outer = fs_innermost_call()
        fs_set_innermost_call(call)
        self.active += 1
        return True

    cdef int end(self, fs_call *call) except -1:
        fs_set_innermost_call(call.outer)
        self.active -= 1
        if self.finished:
            release(self)
        elif self.finishing and not self.active:
            end_last_call(self)
        return 0

    # ---- attaching ---------------------------------------------------------------------------------------

    @property
    def attached(self):
        return is_attached(self)

    @property
    def exposed(self):
        return is_exposed(self)

    @property
    def broken(self):
        return is_broken(self)

    @property
    def nodelay(self):
        return is_nodelay(self)

    @nodelay.setter
    def nodelay(self, bint on):
        fs_store_relaxed(&self.nodelay_word, on)

    @property
    def holders(self):
        """Processes that have this connection open."""
        return count_holders(self.own)

    @property
    def peer_consents(self):
        """Whether the other end is attached too."""
        return is_attached(self) and fs_load_sc(&self.vi.tx.ready) != 0

    @property
    def standing(self):
        """What a connection's path is told from: (sending moved, receiving moved, attached, reason)."""
        return standing_of(self)

    cdef bint moved_receiving(self) noexcept nogil:
        return fs_load_acquire(&self.own.moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK) == FS_RECEIVING_MOVED

    cdef bint sender_waits(self) noexcept nogil:
        return is_attached(self) and fs_peer_credit_wait(&self.vi)

    cdef bint gone(self) noexcept nogil:
        """Whether nobody reads our half any more, as far as was seen (peer_lost looks): what is sent gets the kernel's
        answer."""
        return fs_load_relaxed(&self.lost) or fs_load_sc(&self.vi.tx.doorbell) & FS_GONE

    cdef bint may_switch(self) noexcept nogil:
        """Whether the peer may still turn to the ring."""
        return is_attached(self) and not fs_load_relaxed(&self.own.moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)

    cdef bint kernel_part_read(self, uint64_t switch_at) noexcept nogil:
        return kernel_part_read(self, switch_at)

    cdef bint position(self, uint64_t *taken) noexcept nogil:
        """How far the kernel's stream was read, by whomever. False: the kernel does not tell."""
        cdef int64_t mark
        return kernel_position(self, taken, &mark)

    cdef bint moved_sending(self) noexcept nogil:
        return fs_load_acquire(&self.own.moved) & (FS_SENDING_MOVED | FS_SENDING_BACK) == FS_SENDING_MOVED

    def serve_listener(self):
        """This endpoint is a listener's: it only polls for connections."""
        self.listens = True

    def begin_attaching(self):
        """Whether the endpoint may attach now, and no other process will share it before `end_attaching`."""
        if self.attaching or count_holders(self.own) > 1:
            return False
        self.attaching = PyThread_get_thread_ident()
        return True

    def end_attaching(self):
        """It is attached, with everything that belongs to it, or will not be."""
        self.attaching = 0

    def attach(self, uintptr_t memory, size_t size, int side, int wake_fd, int peer_fd,
               int ack_threshold, int combine_limit, bint combine_when_full=True):
        """Takes a region and gives consent: what the peer posts after its switch will be read here.

        `wake_fd` is the eventfd this side sleeps on, `peer_fd` the peer's. The mapping and both descriptors
        stay the caller's. Raises ValueError if the region is unsound, OSError if the connection cannot move."""
        cdef fs_vi vi
        cdef const char *wrong = fs_vi_attach(&vi, <void *>memory, size, side)
        cdef bint counted
        cdef fs_side *own
        if wrong != NULL:
            raise ValueError((<bytes>wrong).decode())
        vi.ack_threshold = 1 if self.receive_limit else min(<uint32_t>ack_threshold, max(vi.window - 1, 1))  # a small buffer waits for no others
        vi.combine_limit = combine_limit
        if not combine_when_full:
            vi.combine_from = <uint32_t>-1
        vi.own = self.own
        self.own.ends = <uint64_t *>new_block(fs_ends_size(vi.window))
        with nogil:
            # Under both locks: what other threads receive and send meanwhile must be counted on one side or the other.
            own = lock_both(self)
            # (A thread that is about to shut the sending direction found no region for its FIN: see `shut`.)
            counted = (fs_load_sc(&own.holders) == 1 and not fs_load_relaxed(&self.shut_sending)
                       and self.count_received(&own.kernel_taken))
            if counted:
                vi.oob_inline = fs_option(self.fd, SOL_SOCKET, SO_OOBINLINE)
                fs_vi_become(&self.vi, &vi)
                fs_limit_sends(&self.vi, self.send_limit)
                memcpy(self.region_id, vi.region.id, 16)
                self.wake_fd = wake_fd
                self.peer_fd = peer_fd
                fs_store_relaxed(&self.nodelay_word, fs_option(self.fd, IPPROTO_TCP, TCP_NODELAY) != 0)
                # SYNC: attached - pairs with is_attached: finds `vi`, the eventfds. (Sequentially consistent for expose.)
                fs_store_sc(&self.attached_word, 1)
                keep_receive_buffer(self)
                # A thread that sleeps on the kernel's descriptor knows nothing of the eventfd: ring it there.
                # SYNC: exposed - pairs with expose.
                if fs_load_sc(&self.exposed_word) or fs_load_sc(&self.recv_sleepers):
                    fs_or_sc(&self.vi.rx.doorbell, FS_EXPOSED)
                fs_store_sc(&self.vi.rx.limit, self.receive_limit)
                # SYNC: consent - pairs with try_send: the peer that sees it finds our doorbell state and limit.
                fs_store_sc(&self.vi.rx.ready, FS_READY)
            unlock_both(own)
        if not counted:
            free_block(self.own.ends, fs_ends_size(vi.window))
            self.own.ends = NULL
            raise OSError(ENOTCONN, "the connection is being closed or shared, or the kernel does not count its bytes")

    cdef bint count_received(self, uint64_t *taken) noexcept nogil:
        """Bytes of the kernel's stream that were received so far. False if the connection is no longer whole, or the
        kernel does not tell (before Linux 4.19)."""
        cdef uint64_t sent, before, after, waiting
        cdef int64_t mark
        cdef char state
        while True:
            if not tcp_bytes(self.fd, &state, &sent, &before) or not kernel_waiting(self.fd, &waiting, &mark):
                return False
            if not tcp_bytes(self.fd, &state, &sent, &after) or state != TCP_ESTABLISHED:
                return False
            if before == after:  # nothing came between the two counts
                taken[0] = after - waiting
                return True

    def needs_kernel(self):
        """Whether an option set earlier asks for what only the kernel's stream can do."""
        return fs_needs_kernel(self.fd) != 0

    def expose(self):
        """The descriptor's number was handed out: from now on it must be readable exactly while something waits."""
        cdef int64_t deadline
        cdef bint told
        cdef fs_call call
        if is_exposed(self) or self.driven or not self.begin(&call):
            return
        try:
            # SYNC: exposed - pairs with attach, which writes `attached` and then looks here: one sees the other.
            fs_store_sc(&self.exposed_word, 1)
            if not fs_load_sc(&self.attached_word):
                return
            with nogil:
                told = tell_exposed(self)
            # What was posted before was posted without a doorbell byte. Only the peer can put one into our queue.
            if told and self.kit is not None and self.lacks_doorbell_byte():
                self.kit.ask_for_doorbell()
                with nogil:
                    deadline = fs_now() + EXPOSE_NS
                    while self.lacks_doorbell_byte() and fs_now() < deadline:
                        # (The byte is an event, unless bytes of the kernel's part lie in front of it.)
                        if not fs_events_within(self.fd, POLLIN, 1):
                            continue
                        sched_yield()
        finally:
            self.end(&call)

    cdef bint lacks_doorbell_byte(self) noexcept nogil:
        """Whether something waits in the ring and neither a doorbell byte nor the end of the kernel's stream says so. While its part
        of the stream is not read to its end, POLLIN does not tell: the byte, which comes behind it, is told by its count."""
        if not fs_readable(&self.vi):
            return False
        if self.moved_receiving():
            return not fs_events_now(self.fd, POLLIN)
        return fs_load_acquire(&self.vi.rx.rung) == fs_load_relaxed(&self.vi.rx.heard) and not peer_ended(self)

    cdef void ring_for_asker(self) noexcept nogil:
        """The peer exposed its descriptor with data already posted and asks for a doorbell byte; or it has left."""
        answer_ask(self)

    # ---- receiving ---------------------------------------------------------------------------------------

    cdef int64_t try_receive(self, char *into, size_t room, int flags, bint final) noexcept nogil:
        """Bytes received, 0 at the end of the stream, or -errno. `final`: the caller has nothing else to try and
        wants to know of a lost peer (a system call)."""
        cdef int64_t got
        cdef int looks
        cdef fs_side *own
        if room == 0:
            return 0
        for looks in range(2):
            own = take_turn(self, False, PATIENCE)
            if own == NULL:
                return -EAGAIN  # a stopped process has the turn: the caller looks for signals, and tries again
            # What a dead holder left cannot always be mended.
            got = VIOLATED if self.vi.violation != NULL and not is_broken(self) else take_stream(self, into, room, flags, final)
            if not end_turn_to_receive(self, own) or got != -EAGAIN:
                break
        return got

    cdef void serve_sender(self) noexcept nogil:
        """The peer waits for credits: acknowledge, wake it, take the plug out of its send buffer."""
        answer_credit_wait(self)

    cdef void quiet(self) noexcept nogil:
        take_doorbell_bytes(self)

    # ---- sending -----------------------------------------------------------------------------------------

    cdef int64_t try_send(self, const char *data, size_t length, int flags) noexcept nogil:
        """Bytes accepted, or -errno; -EAGAIN when there is no credit or no room. `flags` matter to the kernel only:
        without MSG_NOSIGNAL a broken connection raises SIGPIPE."""
        return send_stream(self, data, length, flags)

    cdef bint plug_if_full(self) noexcept nogil:
        """At the end of a send on an exposed descriptor. True if the ring is full and POLLOUT is false now."""
        return plug_full_ring(self)

    def leave(self):
        """Takes the connection back to the kernel, because somebody else is about to read and write the descriptor. False
        if that is not possible; it stays where it was then. If the peer cannot help, the near end of a bridge takes
        the place of the kernel connection."""
        return not is_attached(self) or self.finished or is_broken(self) or self.left or leave(self)

    @property
    def left(self):
        """Whether somebody else reads and writes the descriptor by now."""
        return out(self)

    cdef int64_t try_send_urgent(self, const char *data, size_t length) noexcept nogil:
        """MSG_OOB: all but the last byte are ordinary data; the last one takes its place in the ring and is rung
        on the kernel connection as urgent, which gives the peer its POLLPRI and SIGURG."""
        return send_urgent(self, data, length)

    cdef void move_sending(self) noexcept nogil:
        """The switch: records how many bytes went through the kernel; from here on it carries doorbell bytes."""
        switch_sending(self)

    cdef bint ask_peer(self) noexcept nogil:
        """Whether a peer whose end of stream was seen is dead. Under the send lock."""
        return probe_peer(self)

    # ---- waiting -----------------------------------------------------------------------------------------

    cdef poll_habit *habits(self) noexcept nogil:
        """A connection on the ring learns for itself; those on the kernel, which may be short, from each other."""
        return &self.habit if is_attached(self) else &kernel_habit

    cdef bint polls(self) noexcept nogil:
        """Whether polling is on and has been paying here, and nobody else waits for the processor."""
        return poll_ns != 0 and fs_load_relaxed(&self.habits().score) >= SCORE_POLLS and self.may_look_in_kernel(fs_now())

    cdef bint may_look_in_kernel(self, int64_t now) noexcept nogil:
        """Whether polling the kernel's stream can win anything: for a peer on this host, while nobody else waits for a processor."""
        return (self.listens or self.on_this_host()) and not crowded(now)

    cdef int64_t budget(self, int64_t now) noexcept nogil:
        """Nanoseconds that this wait may poll."""
        if not is_attached(self) and not self.may_look_in_kernel(now):
            return 0
        return may_poll(self.habits(), now, fs_load_relaxed(&self.vi.rx.processor) if is_attached(self) else 0)

    cdef void settle(self, int64_t began, bint polled, bint paid) noexcept nogil:
        """Learns from a finished wait whether polling pays on this connection."""
        learn(self.habits(), &self.vi.count, began, polled, paid)

    cdef bint spin(self, int what) noexcept nogil:
        """Polls for the budget until there is something to receive, or credit to send with."""
        return poll_for(self, what)

    cdef int sleep(self, int what, int64_t deadline, news_t *news) noexcept nogil:
        """Sleeps until something may have happened. 1: look again, 0: the deadline (monotonic ns, negative:
        none) has passed, -EINTR: a signal came. `news`: of numbers; NULL where no other thread can change one."""
        return sleep_for(self, what, deadline, news)

    cdef bint nonblocking_by_flag(self) noexcept nogil:
        """Somebody who knows the descriptor's number may have set O_NONBLOCK behind the socket object's back."""
        return is_exposed(self) and sys_fcntl(self.fd, F_GETFL) & O_NONBLOCK

    # ---- ending ------------------------------------------------------------------------------------------

    def shutdown(self, bint receiving, bint sending):
        """Before the kernel's shutdown. Packet FIN for a half-close; and a peer that sends to a socket shut in both
        directions must find nobody there, as in TCP. Whether an ENOTCONN of the kernel's is to be passed over (`shut`)."""
        cdef fs_call call
        cdef bint stood = False
        if self.begin(&call):
            try:
                with nogil:
                    stood = shut(self, receiving, sending)
            finally:
                self.end(&call)
        return stood

    def describe(self):
        """Where this end stands, for reports of what went wrong: a dict of numbers."""
        return description(self)

    @property
    def window(self):
        """w of the region, once attached."""
        return self.vi.window

    @property
    def shown_send_buffer(self):
        """SO_SNDBUF as the program knows it; None if that is the kernel's."""
        return fs_load_relaxed(&self.send_buffer_before) or None

    @property
    def oob_inline(self):
        return self.vi.oob_inline != 0

    def set_oob_inline(self, bint inline):
        """False if the endpoint has ended: then the option is the kernel's alone."""
        cdef fs_call call
        if not self.begin(&call):
            return False
        try:
            with nogil:
                put_oob_inline(self, inline)
        finally:
            self.end(&call)
        return True

    def limit_buffers(self, uint32_t receive, uint32_t send):
        """SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set."""
        cdef fs_call call
        if not self.begin(&call):
            return
        try:
            note_limits(self, receive, send)
        finally:
            self.end(&call)

    cdef bint on_this_host(self) noexcept nogil:
        """Whether the peer is known to be on this host, or obviously so: both ends have one address, or the peer's is a loopback
        address. Asked of the kernel by the first wait."""
        cdef unsigned char here[16]
        cdef unsigned char there[16]
        cdef int port, length
        cdef uint32_t where = fs_load_relaxed(&self.locality)  # (two threads that ask get the same answer)
        if where == LOCALITY_UNKNOWN:
            length = fs_end_of(self.fd, 1, there, &port)
            where = HERE if (length == 4 and there[0] == 127) or (
                length > 0 and fs_end_of(self.fd, 0, here, &port) == length and memcmp(here, there, length) == 0) else ELSEWHERE
            fs_store_relaxed(&self.locality, where)
        return where == HERE

    def note_local(self, bint here):
        """Whether the peer is on this host, which whoever decides the path has found out."""
        fs_store_relaxed(&self.locality, HERE if here else ELSEWHERE)

    def ends(self):
        """((address, port), (address, port)), local end first, addresses packed. OSError if not connected."""
        cdef unsigned char address[16]
        cdef int port, remote, length
        result = []
        for remote in range(2):
            length = fs_end_of(self.fd, remote, address, &port)
            if length < 0:
                raise OSError(errno, "no address")
            result.append(((<char *>address)[:length], port))
        return tuple(result)

    def wake_own_sleepers(self):
        """After a shutdown: threads that sleep in a call on this connection look again."""
        wake_own(self)

    def reset(self):
        """A violation: dissolves the connection (the peer gets a RST) and returns what was wrong."""
        cdef const char *violation = self.vi.violation
        fs_store_relaxed(&self.broken_word, 1)
        fs_store_relaxed(&self.lost, 1)
        fs_reset_connection(self.fd)
        wake_own(self)
        return (<bytes>violation).decode() if violation != NULL else "unknown violation"

    def finish(self):
        """The connection ends in this process. If it is the last holder: FIN, or a reset if data lies unread; the
        doorbell bytes are taken out of the kernel's queue, where they would turn its FIN into a RST."""
        end_here(self)

    # ---- statistics --------------------------------------------------------------------------------------

    cdef void add_counters(self, fs_counters *into) noexcept:
        fs_add_counters(into, &self.vi.count, False)
