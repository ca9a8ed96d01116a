# How an endpoint ends in this process.

cdef bint left_unread(Endpoint self) noexcept nogil:
    """Whether bytes of the peer lie here that the program has not read."""
    cdef int waiting = 0
    cdef uint64_t switch_at
    if fs_waiting(&self.vi) or fs_load_relaxed(&self.own.taken):
        return True
    if self.moved_receiving():
        return False
    switch_at = fs_load_sc64(&self.vi.rx.switch_at)
    if switch_at:
        return switch_at - 1 != self.own.kernel_taken
    sys_ioctl(self.fd, FIONREAD, &waiting)
    return waiting > 0


cdef bint shut(Endpoint self, bint receiving, bint sending) noexcept nogil:
    """Endpoint.shutdown, which the kernel's follows. In the turn to send, also of a connection that has no region yet: `attach`
    takes it too, so that either the region is here by now, or the connection gets none. A FIN that only the kernel sends
    would be taken for a death on the ring.

    Whether the connection stood before: then the shutdown succeeds, whatever the kernel says. The peer hears of it in the
    ring, and may have reset the connection before the kernel's shutdown begins."""
    cdef fs_side *own = lock_sending(self)
    cdef bint stood = False
    # (Relaxed: a call that runs beside this one may be the earlier one.)
    if receiving:
        fs_store_relaxed(&self.shut_receiving, 1)
    if sending:
        fs_store_relaxed(&self.shut_sending, 1)
    if is_attached(self) and not is_broken(self):
        stood = lifeline(self) != OVER
        if sending and not own.fin_sent:
            fs_post_fin(&self.vi, FS_FIN)  # also before the switch
            ring(self, fs_peer_doorbell(&self.vi) & FS_ASLEEP)
        if fs_load_relaxed(&self.shut_receiving) and fs_load_relaxed(&self.shut_sending):
            fs_or_sc(&self.vi.rx.doorbell, FS_SHUT)
            tell_peer(self)
    end_turn_to_send(self, own)
    return stood


cdef int end_here(Endpoint self) except -1:
    """The connection ends in this process: says goodbye at once, and gives back the memory as soon as no call and no loop's
    transport is inside any more."""
    cdef fs_call call
    if not self.begin(&call):
        return 0
    try:
        say_goodbye(self)
    finally:
        if self.active > 1 or self.kept:
            fs_store_relaxed(&self.number, <uint32_t>-1)
            self.fd = -1  # its owner closes it now, and the number may mean another connection at once
            wake_own(self)
            tell_of_number()
        self.end(&call)
    return 0


cdef int finish_with_last_call(Endpoint self, int spare) except -1:
    """The program closes the connection with calls inside, for which `spare` was made. (The last of them may be over by now, or
    another thread have decided otherwise.)"""
    if self.fd != spare:
        sys_close(spare)
        return 0
    self.finishing = True
    return 0 if self.active else end_last_call(self)


cdef int end_last_call(Endpoint self) except -1:
    """The program has closed the connection, and the last call is over that was inside then."""
    cdef int fd = self.fd
    end_here(self)
    sys_close(fd)
    return 0


cdef int say_goodbye(Endpoint self) except -1:
    """The connection ends in this process, and on the ring if this is the last holder."""
    self.finished = True
    self.step = None
    if self.search is not None:
        search, self.search = self.search, None
        search.withdraw(self)
    if self.session is not None:
        session, self.session = self.session, None
        # (A loop's transport on the ring counts no operations, but each is a message at least now and then.)
        session.note(self.operations + <int64_t>(
            fs_load_relaxed64(&self.vi.count.messages_sent) + fs_load_relaxed64(&self.vi.count.messages_received)))
    if self.kit is not None:
        self.kit.before_end()
    return let_go(self)


cdef int let_go(Endpoint self) except -1:
    """If this is the last holder: FIN, or a reset if data lies unread; the doorbell bytes are taken out of the kernel's
    queue, where they would turn its FIN into a RST."""
    cdef bint last, unread, whole
    cdef fs_side *own
    if by_inode.get(self.inode) is self:
        del by_inode[self.inode]
    strike(self)
    last = let_go_unless_last(self.own)
    whole = last and not is_broken(self) and not out(self) and not self.bridged
    self.recyclable = whole and not self.own_inherited
    if is_attached(self) and whole:
        with nogil:
            own = lock_both(self)
            # GONE first, then the look: a sender that posts later than our look finds GONE.
            fs_or_sc(&self.vi.rx.doorbell, FS_GONE)
            unread = left_unread(self)
            if not self.own.fin_sent:
                fs_post_fin(&self.vi, FS_RESET if unread or fs_lingers_zero(self.fd) else FS_FIN)
            if unread:
                fs_linger_zero(self.fd)
            elif self.moved_receiving():
                fs_store_relaxed(&self.own.fin_taken, 1)
                self.quiet()
            end_both(self, own)
            tell_peer(self)
    fs_add_counters(&totals, &self.vi.count, True)
    if last:
        count_out(self.own)
    return 0


cdef bint let_go_unless_last(fs_side *own) noexcept:
    """Whether this process is the last that holds the connection. Then it is counted until `count_out`, when all is said;
    otherwise it holds the connection no longer.

    One swap decides: of two that end at once one lets go, and the other one finds itself alone. (If each looked at the number
    and took itself out later, both would find two, and nobody would say FIN.) Who is alone stays alone, as a fork counts
    only what `by_inode` has. It stays counted while it speaks, since the parent gives the memory to another connection once
    nobody is counted (`free_side`).

    Who is killed before the swap is struck out, or counted for good: then nobody is the last, and the kernel's FIN alone ends
    the connection, as where all are killed. The same goes for who is killed while it speaks as the last. Who is killed
    behind the swap had nothing to say. It has left `children` before: struck out as well it would be counted out twice, and
    somebody would speak as the last who is not."""
    cdef uint32_t holders
    cdef int child
    while True:
        holders = count_holders(own)
        if holders <= 1:
            return True
        child = forget_child(own)
        if fs_swap_if32(&own.holders, holders, holders - 1):
            return False
        if child >= 0:
            fs_swap_if32(&own.children[child], 0, own_pid)


cdef uint32_t count_holders(fs_side *own) noexcept nogil:
    """Processes that have this connection open. Strikes out forked children that have died unseen."""
    cdef int i
    cdef uint32_t child
    for i in range(4 if knows_children(own) else 0):
        child = fs_load_sc(&own.children[i])
        if child and fs_is_dead(child) and fs_swap_if32(&own.children[i], child, 0):
            fs_add_sc(&own.holders, <uint32_t>-1)
    return fs_load_sc(&own.holders)


cdef bint knows_children(fs_side *own) noexcept nogil:
    """Whether `children` means to this process what it means to the one that opened the connection. In another PID namespace the
    numbers are other processes' or nobody's: a holder there is not noted, and strikes out nobody. So one that is killed there is
    counted for good, and none that lives is taken for dead."""
    return own.pid_space == own_pid_space


cdef void note_child(fs_side *own) noexcept nogil:
    """This process holds the connection since a fork: it is struck out if it is killed (one of the first, at least)."""
    cdef int i
    for i in range(4 if knows_children(own) else 0):
        if fs_swap_if32(&own.children[i], 0, own_pid):
            break


cdef int forget_child(fs_side *own) noexcept nogil:
    """Where it was noted, -1: nowhere."""
    cdef int i
    for i in range(4 if knows_children(own) else 0):
        if fs_swap_if32(&own.children[i], own_pid, 0):
            return i
    return -1


cdef void count_out(fs_side *own) noexcept nogil:
    """This process holds the connection no longer."""
    forget_child(own)
    fs_add_sc(&own.holders, <uint32_t>-1)


cdef int release(Endpoint self) except -1:
    """Gives back the memory of an endpoint that has said goodbye, once no call and no loop's transport is inside."""
    if not self.finished or self.active or self.kept:
        return 0
    free_own(self)
    fs_store_relaxed(&self.attached_word, 0)
    if self.kit is not None:
        kit, self.kit = self.kit, None
        kit.release(self.recyclable)
    return 0


cdef int let_loose(Endpoint self) except -1:
    """The loop's transport, which kept the endpoint's memory, is done with it."""
    self.kept = False
    return release(self)


cdef void free_own(Endpoint self) noexcept:
    """Gives back what this process holds of the side's memory."""
    if self.own == &nobody:
        return
    if self.bridged and not self.bridged_inherited:
        free_side(self.vi.own, fs_ends_size(self.vi.window))
    if not self.own_inherited:
        free_side(self.own, fs_ends_size(self.vi.window) if is_attached(self) else 0)
    self.own = &nobody
    self.vi.own = &nobody
