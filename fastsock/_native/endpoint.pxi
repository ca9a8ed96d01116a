cdef class Endpoint:
    """One end of one TCP connection in this process.

    `fd` is a descriptor of the kernel connection, `descriptors` all that this process knows of. `step` is
    called by every `next_step`-th operation while the path is undecided; None once it is decided.
    """

    def __cinit__(self, int fd):
        self.fd = fd
        self.descriptors = set()
        self.inode = inode_of(fd)
        self.nodelay = fs_option(fd, IPPROTO_TCP, TCP_NODELAY) != 0
        self.receive_timeout = fs_option_ns(fd, SO_RCVTIMEO)
        self.send_timeout = fs_option_ns(fd, SO_SNDTIMEO)
        self.wake_fd = self.peer_fd = -1
        self.habit.score = SCORE_MAX // 2
        self.own = <fs_side *>new_block(sizeof(fs_side))
        fs_store_sc(&self.own.holders, 1)
        by_inode[self.inode] = self

    def __dealloc__(self):
        if self.own != NULL and not self.finished:
            self.let_go()

    # ---- descriptors -------------------------------------------------------------------------------------

    def adopt(self, int fd):
        """Adds a descriptor of this connection."""
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
        elif self.active:
            # Like the kernel, which keeps a connection open while somebody is inside a call on it.
            spare = sys_fcntl(fd, F_DUPFD_CLOEXEC, 0)
            if spare < 0:
                self.finish()
                return
            self.finishing = True
            self.point_to(spare)
        else:
            self.finish()

    cdef void point_to(self, int fd) noexcept:
        # Under both locks: no call on the old number may be under way when its owner closes it.
        with nogil:
            fs_lock(&self.own.recv_lock, own_pid)
            fs_lock(&self.own.send_lock, own_pid)
            self.fd = fd
            fs_unlock(&self.own.send_lock)
            fs_unlock(&self.own.recv_lock)
        self.wake(self.wake_fd)

    cdef void begin(self) noexcept:
        self.active += 1

    cdef int end(self) except -1:
        self.active -= 1
        if self.finishing and not self.active and not self.finished:
            self.finish()
            sys_close(self.fd)
        return 0

    # ---- attaching ---------------------------------------------------------------------------------------

    @property
    def holders(self):
        """Processes that have this connection open. Strikes out forked children that have died unseen."""
        cdef int i
        cdef uint32_t child
        for i in range(4):
            child = fs_load_sc(&self.own.children[i])
            if child and fs_is_dead(child) and fs_swap_if32(&self.own.children[i], child, 0):
                fs_add_sc(&self.own.holders, <uint32_t>-1)
        return fs_load_sc(&self.own.holders)

    @property
    def moved(self):
        """(sending, receiving): which directions are on the ring."""
        return self.moved_sending(), self.moved_receiving()

    cdef bint moved_receiving(self) noexcept nogil:
        return fs_load_acquire(&self.own.moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK) == FS_RECEIVING_MOVED

    cdef bint sender_waits(self) noexcept nogil:
        return self.attached and fs_peer_credit_wait(&self.vi)

    cdef bint gone(self) noexcept nogil:
        """Whether nobody reads our half any more: what is sent gets the kernel's answer."""
        return self.lost or fs_load_sc(&self.vi.tx.doorbell) & FS_GONE

    cdef bint may_switch(self) noexcept nogil:
        """Whether the peer may still turn to the ring."""
        return self.attached and not fs_load_relaxed(&self.own.moved) & (FS_RECEIVING_MOVED | FS_RECEIVING_BACK)

    cdef bint moved_sending(self) noexcept nogil:
        return fs_load_acquire(&self.own.moved) & (FS_SENDING_MOVED | FS_SENDING_BACK) == FS_SENDING_MOVED

    def serve_listener(self):
        """This endpoint is a listener's: it only polls for connections."""
        self.listens = True

    def attach(self, uintptr_t memory, size_t size, int side, int wake_fd, int peer_fd,
               int ack_threshold, int combine_limit):
        """Takes a region and gives consent: what the peer posts after its switch will be read here.

        `wake_fd` is the eventfd this side sleeps on, `peer_fd` the peer's. The mapping and both descriptors
        stay the caller's. Raises ValueError if the region is unsound, OSError if the connection cannot move."""
        cdef fs_vi vi
        cdef const char *wrong = fs_vi_attach(&vi, <void *>memory, size, side)
        cdef bint counted
        if wrong != NULL:
            raise ValueError((<bytes>wrong).decode())
        vi.ack_threshold = 1 if self.receive_limit else min(<uint32_t>ack_threshold, vi.window - 1)  # a small buffer waits for no others
        vi.combine_limit = combine_limit
        vi.own = self.own
        self.own.ends = <uint64_t *>new_block(fs_ends_size(vi.window))
        self.own.send_limit = self.send_limit
        with nogil:
            # Under both locks: what other threads receive and send meanwhile must be counted on one side or the other.
            fs_lock(&self.own.recv_lock, own_pid)
            fs_lock(&self.own.send_lock, own_pid)
            counted = self.count_received(&self.own.kernel_taken)
            if counted:
                vi.count = self.vi.count
                vi.oob_inline = fs_take_over_oob(self.fd)
                self.vi = vi
                self.wake_fd = wake_fd
                self.peer_fd = peer_fd
                # SYNC: attached - pairs with spin, by the locks.
                self.attached = True
                # A thread that sleeps on the kernel's descriptor knows nothing of the eventfd: ring it there.
                if self.exposed or fs_load_sc(&self.own.recv_sleepers):
                    fs_or_sc(&self.vi.rx.doorbell, FS_EXPOSED)
                fs_store_sc(&self.vi.rx.limit, self.receive_limit)
                # SYNC: consent - pairs with try_send: the peer that sees it finds our doorbell state and limit.
                fs_store_sc(&self.vi.rx.ready, FS_READY)
            fs_unlock(&self.own.send_lock)
            fs_unlock(&self.own.recv_lock)
        if not counted:
            free_block(self.own.ends, fs_ends_size(vi.window))
            self.own.ends = NULL
            raise OSError(ENOTCONN, "the connection is being closed, or the kernel does not count its bytes")

    cdef bint count_received(self, uint64_t *taken) noexcept nogil:
        """Bytes of the kernel's stream that were received so far. False if the connection is no longer whole, or the
        kernel does not tell (before Linux 4.19)."""
        cdef uint64_t sent, before, after
        cdef char state
        cdef int waiting = 0
        while True:
            if not tcp_bytes(self.fd, &state, &sent, &before) or sys_ioctl(self.fd, FIONREAD, &waiting) < 0:
                return False
            if not tcp_bytes(self.fd, &state, &sent, &after) or state != TCP_ESTABLISHED:
                return False
            if before == after:  # nothing came between the two counts
                taken[0] = after - <uint64_t>waiting
                return True

    def needs_kernel(self):
        """Whether an option set earlier asks for what only the kernel's stream can do."""
        return fs_needs_kernel(self.fd) != 0

    def expose(self):
        """The descriptor's number was handed out: from now on it must be readable exactly while something waits."""
        cdef int tries = 0
        if self.exposed:
            return
        self.exposed = True
        if not self.attached:
            return
        fs_or_sc(&self.vi.rx.doorbell, FS_EXPOSED)
        # What was posted before was posted without a doorbell byte. Only the peer can put one into our queue.
        if fs_readable(&self.vi) and not fs_events_now(self.fd, POLLIN) and self.kit is not None:
            self.kit.ask_for_doorbell()
            with nogil:
                while tries < 400 and fs_readable(&self.vi) and not fs_events_now(self.fd, POLLIN):
                    tries += 1
                    fs_nap()

    cdef void ring_for_asker(self) noexcept nogil:
        """The peer exposed its descriptor with data already posted and asks for a doorbell byte."""
        fs_lock(&self.own.send_lock, own_pid)
        if self.own.posted != fs_load_relaxed(&self.vi.tx.seen):
            self.ring(fs_peer_doorbell(&self.vi) & FS_EXPOSED)
        fs_unlock(&self.own.send_lock)

    # ---- receiving ---------------------------------------------------------------------------------------

    cdef int64_t try_receive(self, char *into, size_t room, int flags, bint final) noexcept nogil:
        """Bytes received, 0 at the end of the stream, or -errno. `final`: the caller has nothing else to try and
        wants to know of a lost peer (a system call)."""
        cdef int64_t got
        cdef fs_side *own = self.own
        if room == 0:
            return 0
        fs_lock(&own.recv_lock, own_pid)
        got = self.take_stream(into, room, flags, final)
        fs_unlock(&own.recv_lock)
        return got

    cdef int64_t take_stream(self, char *into, size_t room, int flags, bint final) noexcept nogil:
        cdef int64_t got
        cdef uint64_t end
        cdef int looks
        if not self.attached or fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK:
            if self.pending_error:
                return self.take_error()
            got = sys_recv(self.fd, into, room, flags | MSG_DONTWAIT)
            return got if got >= 0 else -errno
        if self.broken:
            return 0
        if not self.moved_receiving():
            got = self.take_kernel(into, room, flags)
            if got != MOVED:
                return got
        for looks in range(4):
            got = fs_take(&self.vi, NULL if flags & MSG_TRUNC else into, room, FS_PEEK if flags & MSG_PEEK else FS_CONSUME)
            if got < 0:
                return VIOLATED
            if got > 0:
                if not flags & MSG_PEEK:
                    if fs_peer_credit_wait(&self.vi):
                        self.serve_sender()
                    if fs_load_relaxed(&self.vi.rx.doorbell) & FS_EXPOSED and (
                            not fs_waiting(&self.vi) or fs_load_relaxed(&self.vi.rx.rung)
                            - fs_load_relaxed(&self.vi.rx.heard) >= FS_EDGES):
                        self.quiet()
                    if fs_load_relaxed64(&self.vi.rx.fin) and fs_end(&self.vi) == FS_BACK:
                        self.go_back_receiving()  # now, so that no doorbell byte stays behind
                return got
            if self.own.fin_taken == 1:
                return 0
            end = fs_end(&self.vi)
            if end == 1:
                return VIOLATED
            if end == FS_FIN:
                self.own.fin_taken = 1
                fs_store_sc(&self.vi.rx.finack, 1)
                self.quiet()
                return 0
            if end == FS_BACK:
                self.go_back_receiving()
                got = sys_recv(self.fd, into, room, flags | MSG_DONTWAIT)
                return got if got >= 0 else -errno
            if end == FS_RESET and self.own.fin_taken == 0:
                self.own.fin_taken = 2  # the kernel's RST follows and says the rest
            if self.pending_error:
                return self.take_error()
            if not final and end == 0:
                return -EAGAIN
            got = self.look_at_lifeline()
            if got == -EAGAIN:
                return got
            # The peer is gone. What it posted before is visible now: look once more, then believe the kernel.
            if not fs_waiting(&self.vi):
                return got
            if got < 0:
                self.pending_error = <int>-got
        return -EAGAIN

    cdef int64_t take_error(self) noexcept nogil:
        """An error that the kernel has told already, and that comes after the bytes that were there."""
        cdef int64_t error = -self.pending_error
        self.pending_error = 0
        return error

    cdef bint peer_ended(self) noexcept nogil:
        """Whether the peer's FIN or RST has come. (POLLRDHUP would also tell of our own SHUT_RD.)"""
        cdef uint64_t sent, received
        cdef char state
        return (not tcp_bytes(self.fd, &state, &sent, &received) or state == TCP_CLOSE or state == TCP_CLOSE_WAIT
                or state == TCP_LAST_ACK or state == TCP_CLOSING or state == TCP_TIME_WAIT)

    cdef int64_t death(self) noexcept nogil:
        """The kernel connection has ended. TCP resets it when a process dies with bytes unread; here they lay in the
        ring, where the kernel did not see them: -ECONNRESET once, then 0."""
        if self.death_told or fs_waiting(&self.vi) or not fs_left_unread(&self.vi):
            return 0
        self.death_told = True
        return -ECONNRESET

    cdef int64_t look_at_lifeline(self) noexcept nogil:
        """0 if the kernel connection has ended, -errno if it failed, -EAGAIN if it lives."""
        cdef char byte
        cdef int64_t got
        cdef int looks
        for looks in range(3):
            got = sys_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
            if got == 0:
                if not self.peer_ended():
                    return 0  # after our own SHUT_RD
                if not fs_load_sc64(&self.vi.rx.fin):
                    self.lost = True  # died: what is sent from here on gets the kernel's answer
                return self.death()
            if got < 0:
                return -errno
            self.quiet()
            if fs_readable(&self.vi):
                break
        return -EAGAIN

    cdef int64_t take_kernel(self, char *into, size_t room, int flags) noexcept nogil:
        """The part of the stream that came before the peer's switch. MOVED when it is exhausted."""
        cdef uint64_t switch_at, left
        cdef int waiting
        cdef int64_t got, more
        cdef char byte
        while True:
            waiting = 0
            # Count first, look for the switch then: doorbell bytes only ever follow the switch, so what was
            # counted before an unset switch is the program's.
            sys_ioctl(self.fd, FIONREAD, &waiting)
            # SYNC: switch - pairs with move_sending.
            switch_at = fs_load_sc64(&self.vi.rx.switch_at)
            left = <uint64_t>waiting
            if switch_at:
                left = switch_at - 1 - self.own.kernel_taken
                if left > <uint64_t>1 << 62:
                    self.vi.violation = b"switch offset in the past"
                    return VIOLATED
                if left == 0:
                    fs_or_sc(&self.own.moved, FS_RECEIVING_MOVED)
                    return MOVED
            elif left == 0:
                got = sys_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
                if got > 0 or (got == 0 and fs_load_sc64(&self.vi.rx.switch_at)):
                    continue  # came just now
                return got if got == 0 else -errno
            got = sys_recv(self.fd, into, room if room < left else left, flags | MSG_DONTWAIT)
            if got < 0:
                return -errno
            if not flags & MSG_PEEK:
                self.own.kernel_taken += <uint64_t>got
            if switch_at and <uint64_t>got == left and room > left:
                # The rest of the kernel's part: go on in the ring, where TCP would have gone on too.
                more = fs_take(&self.vi, NULL if flags & MSG_TRUNC else into + got, room - <size_t>got,
                               FS_PEEK if flags & MSG_PEEK else FS_CONSUME)
                got += more if more > 0 else 0
            return got

    cdef void serve_sender(self) noexcept nogil:
        """The peer waits for credits: acknowledge, wake it, take the plug out of its send buffer."""
        cdef uint32_t wants, bytes_left
        fs_acknowledge(&self.vi)
        wants = fs_answer_sender(&self.vi)
        if wants & FS_WAITS:
            self.wake(self.peer_fd)
        if wants & FS_PLUGGED:
            bytes_left = fs_load_acquire(&self.vi.rx.rung) - fs_load_relaxed(&self.vi.rx.heard)
            if fs_readable(&self.vi) and bytes_left:
                bytes_left -= 1  # one stays as the doorbell byte
            fs_store_sc(&self.vi.rx.heard, fs_load_relaxed(&self.vi.rx.heard) + bytes_left)
            self.swallow(bytes_left)

    cdef void quiet(self) noexcept nogil:
        self.swallow(fs_hush(&self.vi))

    cdef void swallow(self, uint64_t count) noexcept nogil:
        """Takes `count` doorbell bytes from the kernel's queue. Bytes that are still on their way are owed."""
        cdef int64_t got
        cdef int tries = 0
        count += self.own.doorbell_debt
        self.own.doorbell_debt = 0
        while count:
            got = sys_recv(self.fd, junk, count if count < <uint64_t>1 << 30 else <uint64_t>1 << 30, MSG_TRUNC | MSG_DONTWAIT)
            if got > 0:
                count -= <uint64_t>got
            elif got < 0 and errno == EAGAIN and tries < 100:
                tries += 1
                fs_pause()
            else:
                if got < 0 and errno == EAGAIN:
                    self.own.doorbell_debt = <uint32_t>count
                elif got < 0:
                    self.pending_error = errno
                return

    # ---- sending -----------------------------------------------------------------------------------------

    cdef int64_t try_send(self, const char *data, size_t length, int flags) noexcept nogil:
        """Bytes accepted, or -errno; -EAGAIN when there is no credit or no room. `flags` matter to the kernel only:
        without MSG_NOSIGNAL a broken connection raises SIGPIPE."""
        cdef int64_t done = 0, part
        cdef uint32_t doorbell, posted
        cdef int combine
        fs_lock(&self.own.send_lock, own_pid)
        if not self.attached:  # under the lock: another thread may have moved the connection meanwhile
            part = self.kernel_send(data, length, flags)
            fs_unlock(&self.own.send_lock)
            return part
        # SYNC: consent - pairs with attach.
        if not self.moved_sending() and fs_load_sc(&self.vi.tx.ready) == FS_READY and length:
            self.move_sending()
        if (not self.moved_sending() or self.lost or self.own.fin_sent or self.broken
                or fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK
                or fs_load_relaxed(&self.vi.tx.doorbell) & FS_GONE):
            # Not moved yet, moved back, or nobody is left to read the ring: the kernel gives TCP's answer.
            part = -EPIPE if self.broken or self.death_told else self.death() if self.lost and not self.own.fin_sent else 0
            if part == 0:
                part = self.kernel_send(data, length, flags)
            fs_unlock(&self.own.send_lock)
            return part
        if fs_load_relaxed64(&self.vi.rx.fin) and fs_events_now(self.fd, 0):
            # A half-closed peer has died: its FIN was no news. Doorbell bytes make the kernel find out.
            self.lost = True
            part = self.kernel_send(data, length, flags)
            fs_unlock(&self.own.send_lock)
            return part
        combine = self.vi.combine_limit and not self.nodelay and length <= self.vi.combine_limit
        while done < <int64_t>length:
            posted = self.own.posted
            part = fs_post(&self.vi, data + done, length - <size_t>done, FS_DATA, combine)
            # SYNC: left - pairs with leave_ring: either it saw what we posted and stays, or we see that it left.
            if fs_load_sc(&self.vi.tx.ready) == FS_LEFT:
                if part > 0:
                    fs_take_back(&self.vi, posted, part)
                self.go_back_sending()
                if done == 0:
                    done = self.kernel_send(data, length, flags)
                fs_unlock(&self.own.send_lock)
                return done
            if part < 0:
                done = VIOLATED
                break
            if part == 0:
                break
            done += part
            doorbell = fs_peer_doorbell(&self.vi)
            if fs_load_relaxed64(&self.vi.rx.fin):
                doorbell |= FS_EXPOSED
            if doorbell:
                self.ring(doorbell)
        self.note_processor()
        if self.own.posted != self.own.credited:
            self.watch_lifeline()
        if self.vi.violation != NULL:
            done = VIOLATED
        fs_unlock(&self.own.send_lock)
        return done if done or not length else -EAGAIN

    cdef bint plug_if_full(self) noexcept nogil:
        """At the end of a send on an exposed descriptor. True if the ring is full and POLLOUT is false now."""
        cdef bint full = False
        fs_lock(&self.own.send_lock, own_pid)
        if self.moved_sending() and not self.lost and not fs_writable(&self.vi):
            full = self.plug()
        fs_unlock(&self.own.send_lock)
        return full

    cdef void go_back_sending(self) noexcept nogil:
        """The way out: from here on our bytes go through the kernel again. Under the send lock."""
        if not self.own.fin_sent:
            fs_post_fin(&self.vi, FS_BACK)
            self.ring(fs_peer_doorbell(&self.vi) & FS_ASLEEP)
        fs_or_sc(&self.own.moved, FS_SENDING_BACK)

    cdef void go_back_receiving(self) noexcept nogil:
        """The ring is read to its end; what the kernel's queue holds behind the doorbell bytes is the program's again.
        Under the receive lock."""
        cdef int tries = 0
        self.swallow(fs_load_acquire(&self.vi.rx.rung) - fs_load_relaxed(&self.vi.rx.heard))
        while self.own.doorbell_debt and tries < 400:
            tries += 1
            fs_nap()
            self.swallow(0)
        fs_store_sc(&self.vi.rx.heard, fs_load_relaxed(&self.vi.rx.rung))
        fs_or_sc(&self.own.moved, FS_RECEIVING_BACK)

    cdef bint leave_ring(self) noexcept nogil:
        """The way out for a descriptor that is about to be read by somebody else (detach: TLS, C code): both directions
        go back to the kernel. False if bytes lie unread in the ring, which only the peer could move."""
        cdef bint left = False
        fs_lock(&self.own.recv_lock, own_pid)
        fs_lock(&self.own.send_lock, own_pid)
        # SYNC: left - pairs with try_send.
        fs_store_sc(&self.vi.rx.ready, FS_LEFT)
        if not fs_waiting(&self.vi) and not self.own.taken and not (
                fs_load_sc64(&self.vi.rx.switch_at) and not self.moved_receiving()):
            left = True
            if not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK:
                self.go_back_receiving()
            if self.moved_sending() and not fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK:
                self.go_back_sending()
        else:
            fs_store_sc(&self.vi.rx.ready, FS_READY)
        fs_unlock(&self.own.send_lock)
        fs_unlock(&self.own.recv_lock)
        return left

    def leave(self):
        """Takes the connection back to kernel TCP. True if it is there now."""
        if not self.attached or self.finished or self.broken or self.holders > 1:
            return not self.attached
        cdef bint left
        with nogil:
            left = self.leave_ring()
        self.left = left
        return left

    cdef void watch_lifeline(self) noexcept nogil:
        """Nothing was acknowledged for a while: see now and then whether the peer still lives."""
        cdef int64_t now
        self.unacknowledged_sends += 1
        if self.unacknowledged_sends % 4:
            return
        now = fs_now()
        if now - self.last_look >= LOOK_INTERVAL:
            self.last_look = now
            if not fs_load_sc64(&self.vi.rx.fin) and self.peer_ended():
                self.lost = True

    cdef int64_t kernel_send(self, const char *data, size_t length, int flags) noexcept nogil:
        cdef int64_t part = sys_send(self.fd, data, length, flags | MSG_DONTWAIT)
        return part if part >= 0 else -errno

    cdef int64_t try_send_urgent(self, const char *data, size_t length) noexcept nogil:
        """MSG_OOB: all but the last byte are ordinary data; the last one takes its place in the ring and is rung
        on the kernel connection as urgent, which gives the peer its POLLPRI and SIGURG."""
        cdef int64_t part
        cdef uint32_t doorbell
        if not self.attached or not self.moved_sending() or length == 0:
            return -EAGAIN
        fs_lock(&self.own.send_lock, own_pid)
        if length > 1:
            part = fs_post(&self.vi, data, length - 1, FS_DATA, 0)
        else:
            part = fs_post(&self.vi, data, 1, FS_OOB, 0)
            if part == 1:
                fs_store_sc(&self.vi.tx.rung, fs_load_relaxed(&self.vi.tx.rung) + 1)
                self.kernel_send(data, 1, MSG_OOB | MSG_NOSIGNAL)
        if part > 0:
            doorbell = fs_peer_doorbell(&self.vi)
            if doorbell:
                self.ring(doorbell)
        fs_unlock(&self.own.send_lock)
        return part if part > 0 else (-EAGAIN if part == 0 else VIOLATED)

    cdef void move_sending(self) noexcept nogil:
        """The switch: records how many bytes went through the kernel; from here on it carries doorbell bytes."""
        cdef uint64_t sent, received
        cdef char state
        cdef int one = 1
        # Doorbell bytes will need room behind what the peer has not read yet.
        if not fs_events_now(self.fd, POLLOUT) & POLLOUT or not tcp_bytes(self.fd, &state, &sent, &received):
            return
        setsockopt(self.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))  # a doorbell byte waits for no ACK
        # SYNC: switch - pairs with take_kernel.
        fs_store_sc64(&self.vi.tx.switch_at, sent + 1)
        fs_or_sc(&self.own.moved, FS_SENDING_MOVED)

    cdef void ring(self, uint32_t doorbell) noexcept nogil:
        """The peer sleeps, polls its descriptor, or has closed. Under the send lock."""
        if doorbell & FS_ASLEEP and fs_wakes_receiver(&self.vi):
            self.wake(self.peer_fd)
            self.vi.count.doorbells_rung += 1
        if doorbell & FS_EXPOSED and fs_must_ring(&self.vi):
            self.vi.count.doorbells_rung += 1
            if self.kernel_send(junk, 1, MSG_NOSIGNAL) == -EAGAIN:
                # One byte at a time, and the queue is full: it counts as taken what it does not take.
                self.vi.violation = b"stopped reading its doorbell"
        if doorbell & FS_GONE:
            self.lost = True
            self.kernel_send(junk, 1, MSG_NOSIGNAL)  # draws the RST that data to a closed socket draws

    cdef void wake(self, int fd) noexcept nogil:
        cdef uint64_t one = 1
        # (POLLOUT: a hostile peer may have made its eventfd blocking and filled it.)
        if fd >= 0 and fs_events_now(fd, POLLOUT) & POLLOUT:
            sys_write(fd, &one, 8)

    cdef bint plug(self) noexcept nogil:
        """The ring is full and somebody may wait for POLLOUT: fill the kernel's send buffer, which makes it false,
        until the receiver returns credits and drains it. False if credits came meanwhile."""
        cdef int64_t part
        cdef int unsent = 0, any = 0, none = 1, room = 4 * PLUG
        if not self.plugs:
            self.plugs = True
            self.send_buffer_before = fs_option(self.fd, SOL_SOCKET, SO_SNDBUF)
            setsockopt(self.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room))
        else:
            setsockopt(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &any, sizeof(any))
        while sys_ioctl(self.fd, SIOCOUTQNSD, &unsent) == 0 and unsent < PLUG:
            part = self.kernel_send(junk, sizeof(junk), MSG_NOSIGNAL)
            if part <= 0:
                break
            fs_store_sc(&self.vi.tx.rung, fs_load_relaxed(&self.vi.tx.rung) + <uint32_t>part)
        # POLLOUT now needs an empty send queue. What the peer's window holds is acknowledged sooner or later; what
        # lies behind it stays unsent until the peer drains.
        setsockopt(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &none, sizeof(none))
        return not fs_arm_sender(&self.vi, FS_PLUGGED)

    # ---- waiting -----------------------------------------------------------------------------------------

    cdef void note_processor(self) noexcept nogil:
        """Tells the peer where we run: polling for somebody who needs this very processor cannot pay."""
        cdef uint32_t here = <uint32_t>sched_getcpu() + 1
        if fs_load_relaxed(&self.vi.tx.processor) != here:
            fs_store_relaxed(&self.vi.tx.processor, here)

    cdef poll_habit *habits(self) noexcept nogil:
        """A connection on the ring learns for itself; those on the kernel, which may be short, from each other."""
        return &self.habit if self.attached else &kernel_habit

    cdef bint polls(self) noexcept nogil:
        """Whether polling is on and has been paying here."""
        return poll_ns != 0 and self.habits().score >= SCORE_POLLS and (self.local or self.listens)

    cdef int64_t budget(self, int64_t now) noexcept nogil:
        """Nanoseconds that this wait may poll: nothing when it has not been paying, on one processor, or when the
        peer last ran on the processor that we are on."""
        global processors, processors_known
        if not self.polls():
            return 0
        if self.habits().skip > 0:
            self.habits().skip -= 1
            return 0
        if now - processors_known > AFFINITY_INTERVAL:
            processors = fs_usable_processors()
            processors_known = now
        if processors < 2:
            return 0
        if self.attached and fs_load_relaxed(&self.vi.rx.processor) == <uint32_t>sched_getcpu() + 1:
            return 0
        return poll_ns

    cdef void settle(self, int64_t began, bint polled, bint paid) noexcept nogil:
        """Learns from a finished wait whether polling pays on this connection."""
        cdef bint soon
        cdef poll_habit *habit = self.habits()
        if paid:
            self.vi.count.polls_paid += 1
            habit.penalty = 0
            if habit.score < SCORE_MAX:
                habit.score += 1
            return
        soon = fs_now() - began <= WAKE_COST
        if polled:
            self.vi.count.polls_unpaid += 1
            if soon:
                # It came as soon as we slept: the peer needed our processor. Back off for longer each time.
                habit.penalty = min(2 * habit.penalty + 1, PENALTY_MAX)
                habit.skip = habit.penalty
            elif habit.score > 0:
                habit.score -= 1
        elif soon and habit.score < SCORE_MAX:
            habit.score += 1  # polling would have caught it

    cdef bint spin(self, int what) noexcept nogil:
        """Polls for the budget until there is something to receive, or credit to send with."""
        cdef int64_t began = fs_now(), until
        cdef bint ready = False
        cdef int turns
        until = began + self.budget(began)
        self.spun = until != began
        if not self.spun:
            return False
        # SYNC: attached - a moved bit is only ever set under the locks that attach held.
        if what == SEND and self.moved_sending():
            fs_lock(&self.own.send_lock, own_pid)
            fs_arm_sender(&self.vi, FS_HURRY)
            fs_unlock(&self.own.send_lock)
        while not ready and fs_now() < until:
            if not (self.moved_receiving() if what == RECEIVE else self.moved_sending() and not self.gone()):
                fs_lock(&self.own.recv_lock, own_pid)  # under a lock, so that the descriptor is not closed meanwhile
                ready = fs_events_now(self.fd, POLLIN if what == RECEIVE else POLLOUT) != 0
                if not ready and what == RECEIVE and self.may_switch():
                    ready = fs_load_sc64(&self.vi.rx.switch_at) != 0
                fs_unlock(&self.own.recv_lock)
                continue
            for turns in range(64):
                if what == RECEIVE:
                    ready = fs_readable(&self.vi)
                else:
                    # (An ACK that came with DATA may be newer than the one alone.)
                    ready = <int32_t>(fs_load_acquire(&self.vi.tx.acked) - self.own.credited) > 0 or self.gone()
                if ready:
                    break
                fs_pause()
        if self.attached:
            self.note_processor()
        if ready:
            self.settle(began, True, True)
        return ready

    cdef int sleep(self, int what, int64_t deadline) noexcept nogil:
        """Sleeps until something may have happened. 1: look again, 0: the deadline (monotonic ns, negative:
        none) has passed, -EINTR: a signal came."""
        cdef pollfd fds[2]
        cdef int64_t began = fs_now(), rest
        cdef bint attached, moved, ready = False, probe = False, polled = self.spun
        cdef int events
        cdef uint64_t drained
        cdef fs_word32 *lock = &self.own.recv_lock if what == RECEIVE else &self.own.send_lock
        cdef fs_word32 *sleepers = &self.own.recv_sleepers if what == RECEIVE else &self.own.send_sleepers
        rest = -1 if deadline < 0 else (deadline - began if deadline > began else 0)

        fs_lock(lock, own_pid)
        attached = self.attached and not fs_load_relaxed(&self.own.moved) & (
            FS_RECEIVING_BACK if what == RECEIVE else FS_SENDING_BACK)
        moved = self.moved_receiving() if what == RECEIVE else self.moved_sending() and not self.gone()
        fds[0].fd = self.wake_fd
        fds[0].events = POLLIN
        fds[0].revents = 0
        fds[1].fd = self.fd
        fds[1].events = POLLRDHUP if moved else (POLLRDHUP | POLLIN if what == RECEIVE else POLLOUT)
        fds[1].revents = 0
        if attached and what == RECEIVE:
            if not self.exposed and fs_load_relaxed(&self.vi.rx.doorbell) & FS_EXPOSED and not fs_load_sc(sleepers):
                fs_and_sc(&self.vi.rx.doorbell, ~<uint32_t>FS_EXPOSED)  # nobody sleeps on the kernel's any more
                self.quiet()
            self.serve_sender()  # the acknowledgements delayed so far, before we sleep on them
        fs_add_sc(sleepers, 1)
        if attached and what == RECEIVE:
            ready = fs_arm_receiver(&self.vi)
            if ready and not moved:
                ready = fs_load_sc64(&self.vi.rx.switch_at) != 0
        elif moved:
            ready = fs_arm_sender(&self.vi, FS_WAITS) or self.gone()
            if fs_load_sc64(&self.vi.rx.fin) or self.shut_receiving:
                # A half-closed connection: its end is no news, so ask now and then whether the peer is still there.
                fds[1].events = 0
                probe = rest < 0 or rest > PROBE_INTERVAL
        fs_unlock(lock)

        events = 1 if ready else fs_poll2(fds, PROBE_INTERVAL if probe else rest)
        if events < 0:
            events = -errno
        fs_add_sc(sleepers, <uint32_t>-1)
        if fds[0].revents & POLLIN:
            sys_read(fds[0].fd, &drained, 8)
        if attached and what == RECEIVE:
            fs_disarm_receiver(&self.vi)
        elif moved:
            if not ready and (fds[1].revents & POLLERR or fds[1].revents & (POLLHUP | POLLRDHUP) and self.peer_ended()):
                self.lost = True
            if probe and events == 0:
                fs_lock(lock, own_pid)
                self.ring(FS_EXPOSED)
                fs_unlock(lock)
                events = 1
        if attached:
            self.hand_over()
        if events > 0:
            self.settle(began, polled, False)
            return 1
        return events if events == -EINTR else 0

    cdef void hand_over(self) noexcept nogil:
        """A wakeup may have been meant for several sleepers of this side, and one has taken it: arm again for the
        others and pass it on if there is something for them."""
        cdef bint more = False
        if fs_load_sc(&self.own.recv_sleepers):
            more = fs_arm_receiver(&self.vi)
        if fs_load_sc(&self.own.send_sleepers):
            fs_lock(&self.own.send_lock, own_pid)
            if fs_arm_sender(&self.vi, FS_WAITS):
                more = True
            fs_unlock(&self.own.send_lock)
        if more:
            self.wake(self.wake_fd)

    cdef bint nonblocking_by_flag(self) noexcept nogil:
        """Somebody who knows the descriptor's number may have set O_NONBLOCK behind the socket object's back."""
        return self.exposed and sys_fcntl(self.fd, F_GETFL) & O_NONBLOCK

    # ---- ending ------------------------------------------------------------------------------------------

    def shutdown(self, bint receiving, bint sending):
        """Before the kernel's shutdown. Packet FIN for a half-close; and a peer that sends to a socket shut in both
        directions must find nobody there, as in TCP."""
        self.shut_receiving |= receiving
        self.shut_sending |= sending
        if not self.attached or self.broken:
            return
        with nogil:
            fs_lock(&self.own.send_lock, own_pid)
            if sending and not self.own.fin_sent:
                fs_post_fin(&self.vi, FS_FIN)  # also before the switch: a FIN of the kernel alone means death
                self.ring(fs_peer_doorbell(&self.vi) & FS_ASLEEP)
            if self.shut_receiving and self.shut_sending:
                fs_or_sc(&self.vi.rx.doorbell, FS_GONE)
                self.wake(self.peer_fd)
            fs_unlock(&self.own.send_lock)

    def describe(self):
        """Where this end stands, for reports of what went wrong: a dict of numbers."""
        cdef fs_side *own = self.own
        state = dict(fd=self.fd, finished=self.finished, broken=self.broken, attached=self.attached, moved=self.moved, exposed=self.exposed, lost=self.lost,
                     operations=self.operations, holders=self.holders, kernel_taken=own.kernel_taken,
                     sleepers=(fs_load_sc(&own.recv_sleepers), fs_load_sc(&own.send_sleepers)),
                     locks=(fs_load_sc(&own.recv_lock), fs_load_sc(&own.send_lock)))
        if self.attached and not self.finished:
            state.update(
                posted=own.posted, credited=own.credited,
                acked=fs_load_sc(&self.vi.tx.acked), peer_doorbell=fs_load_sc(&self.vi.tx.doorbell),
                peer_ready=fs_load_sc(&self.vi.tx.ready), our_wait=fs_load_sc(&self.vi.tx.credit_wait),
                switched_at=fs_load_sc64(&self.vi.tx.switch_at), rung=fs_load_sc(&self.vi.tx.rung),
                consumed=fs_load_sc(&own.consumed), taken=own.taken, waiting=fs_waiting(&self.vi),
                doorbell=fs_load_sc(&self.vi.rx.doorbell), peer_wait=fs_load_sc(&self.vi.rx.credit_wait),
                peer_switched_at=fs_load_sc64(&self.vi.rx.switch_at), heard=fs_load_sc(&self.vi.rx.heard),
                debt=own.doorbell_debt, fin=fs_load_sc64(&self.vi.rx.fin), fin_sent=own.fin_sent)
        return state

    @property
    def window(self):
        """w of the region, once attached."""
        return self.vi.window

    @property
    def shown_send_buffer(self):
        """SO_SNDBUF before a plug changed it; None if none did."""
        return self.send_buffer_before if self.plugs else None

    @property
    def oob_inline(self):
        return self.vi.oob_inline != 0

    def set_oob_inline(self, bint inline):
        self.vi.oob_inline = inline

    def limit_buffers(self, uint32_t receive, uint32_t send):
        """SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set."""
        self.receive_limit = receive
        self.send_limit = self.own.send_limit = send
        if self.plugs and send:
            self.send_buffer_before = send
        if self.attached:
            fs_store_sc(&self.vi.rx.limit, receive)
            if receive:
                self.vi.ack_threshold = 1

    def on_this_host(self):
        """Whether the peer is obviously here: both ends have one address, or the peer's is a loopback address."""
        cdef unsigned char here[16]
        cdef unsigned char there[16]
        cdef int port, length = fs_end_of(self.fd, 1, there, &port)
        if length == 4 and there[0] == 127:
            return True
        return length > 0 and fs_end_of(self.fd, 0, here, &port) == length and memcmp(here, there, length) == 0

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
        self.wake(self.wake_fd)

    def reset(self):
        """A violation: dissolves the connection (the peer gets a RST) and returns what was wrong."""
        cdef const char *violation = self.vi.violation
        self.broken = True
        self.lost = True
        fs_reset_connection(self.fd)
        self.wake(self.wake_fd)
        return (<bytes>violation).decode() if violation != NULL else "unknown violation"

    cdef bint unread(self) noexcept nogil:
        """Whether bytes of the peer lie here that the program has not read."""
        cdef int waiting = 0
        cdef uint64_t switch_at
        if fs_waiting(&self.vi) or self.own.taken:
            return True
        if self.moved_receiving():
            return False
        switch_at = fs_load_sc64(&self.vi.rx.switch_at)
        if switch_at:
            return switch_at - 1 != self.own.kernel_taken
        sys_ioctl(self.fd, FIONREAD, &waiting)
        return waiting > 0

    def finish(self):
        """The connection ends in this process. If it is the last holder: FIN, or a reset if data lies unread; the
        doorbell bytes are taken out of the kernel's queue, where they would turn its FIN into a RST."""
        cdef bint last, unread
        if self.finished:
            return
        self.finished = True
        self.step = None
        if self.search is not None:
            search, self.search = self.search, None
            search.withdraw(self)
        if self.kit is not None:
            self.kit.before_end()
        if by_inode.get(self.inode) is self:
            del by_inode[self.inode]
        last = self.holders == 1
        if self.attached and last and not self.broken and not self.left:
            with nogil:
                fs_lock(&self.own.recv_lock, own_pid)
                fs_lock(&self.own.send_lock, own_pid)
                # GONE first, then the look: a sender that posts later than our look finds GONE.
                fs_or_sc(&self.vi.rx.doorbell, FS_GONE)
                unread = self.unread()
                if not self.own.fin_sent:
                    fs_post_fin(&self.vi, FS_RESET if unread or fs_lingers_zero(self.fd) else FS_FIN)
                if unread:
                    fs_linger_zero(self.fd)
                elif self.moved_receiving():
                    self.own.fin_taken = 1
                    self.quiet()
                fs_unlock(&self.own.send_lock)
                fs_unlock(&self.own.recv_lock)
                self.wake(self.peer_fd)
        self.let_go()
        if self.kit is not None:
            kit, self.kit = self.kit, None
            kit.release(last and not self.broken and not self.left and not self.own_inherited)

    cdef void let_go(self) noexcept:
        self.add_counters(&totals)
        memset(&self.vi.count, 0, sizeof(fs_counters))
        cdef int i
        for i in range(4):
            fs_swap_if32(&self.own.children[i], own_pid, 0)
        fs_add_sc(&self.own.holders, <uint32_t>-1)
        if not self.own_inherited:
            free_side(self.own, fs_ends_size(self.vi.window) if self.attached else 0)
        self.own = &nobody
        self.vi.own = &nobody

    # ---- statistics --------------------------------------------------------------------------------------

    cdef void add_counters(self, fs_counters *into) noexcept:
        cdef uint64_t *source = <uint64_t *>&self.vi.count
        cdef uint64_t *target = <uint64_t *>into
        cdef size_t i
        for i in range(sizeof(fs_counters) // sizeof(uint64_t)):
            target[i] += source[i]


def counters():
    """The counters of this process: of endpoints that are gone and of those that live, a dict."""
    cdef fs_counters sum = totals
    cdef Endpoint endpoint
    for endpoint in by_inode.values():
        endpoint.add_counters(&sum)
    return sum
