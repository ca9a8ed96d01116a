# The peer of a leaver (way_out.pxi): it posts BACK, waits until the leaver is settled, sends what that had not read once
# more, and goes on in the kernel.

cdef extern from *:
    """
    /* Bytes of a parcel; -1 if it is not in memory, where no read blocks. */
    static inline int64_t fs_parcel_size(int fd) {
        struct stat st;
        return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
    }
    """
    int64_t fs_parcel_size(int) nogil
    int64_t sys_pread "pread"(int, void *, size_t, int64_t) nogil

cdef enum:
    PARCEL_MAX = 1 << 26        # bytes that a peer is willing to send again
    HELD_TIME = 5_000_000_000   # nanoseconds that a sender waits for a leaver to be settled


cdef void go_back_sending(Endpoint self, bint held) noexcept nogil:
    """From here on our bytes go through the kernel again: at once, or once it is settled (`held`). Under the send
    lock."""
    cdef uint32_t before
    if fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK:
        return
    self.own.sending_step = 1
    fs_or_sc(&self.own.moved, FS_SENDING_BACK | (FS_SENDING_HELD if held and not self.own.fin_sent else 0))
    if not self.own.fin_sent:
        # A leaver puts a doorbell byte in front of what lies unread, exposed or not: a peer that exposes its descriptor
        # later finds nobody here whom it could ask for one. Before BACK: a peer that reads up to it believes `rung`.
        if not held and self.own.posted != fs_load_relaxed(&self.vi.tx.seen):
            ring(self, FS_EXPOSED)
        # SYNC: end of stream - by fs_post_fin.
        fs_post_fin(&self.vi, FS_BACK)
        ring(self, fs_peer_doorbell(&self.vi) & FS_ASLEEP)
    if self.plugs:
        fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0)
        fs_events_now(self.fd, POLLOUT)  # see tell_pollers
        self.plugs = False
    before = fs_load_relaxed(&self.send_buffer_before)
    if 0 < before < WIDENED:
        fs_set_option(self.fd, SOL_SOCKET, SO_SNDBUF, before // 2)  # (the kernel doubles it)
    fs_store_relaxed(&self.send_buffer_before, 0)
    self.own.sending_step = 0
    if not self.driven:  # (of a loop's connection `nodelay` is about the ring alone; the kernel has what the program has set)
        fs_set_option(self.fd, IPPROTO_TCP, TCP_NODELAY, is_nodelay(self))
    wake_own(self)  # senders of this side that sleep until credits come


cdef void answer_leaver(Endpoint self) noexcept nogil:
    """Whether and how this side goes on after the peer has left. Under the send lock."""
    # SYNC: left - pairs with take_back.
    if is_attached(self) and fs_load_sc(&self.vi.tx.ready) == FS_LEFT:
        go_back_sending(self, True)


cdef bint goes_on_in_kernel(Endpoint self) noexcept nogil:
    """This side sends through the kernel again, because the peer has left, or because it is about to leave itself. Whether it
    may do so now: not while the peer that left is unsettled, as what that wants again comes first. A peer that leaves from
    here on gets nothing again. Under the send lock."""
    # SYNC: left - pairs with take_back.
    if fs_swap_if32(&self.vi.tx.ready, FS_READY, FS_TOO_LATE) or fs_load_sc(&self.vi.tx.ready) != FS_LEFT:
        return True
    if fs_load_sc(&self.vi.tx.settled) == FS_UNSETTLED and not self.own.fin_sent:
        fs_or_sc(&self.own.moved, FS_SENDING_HELD)
    return not held(self)


cdef bint leaver_ended(Endpoint self) noexcept nogil:
    """Whether the peer, which has left, will not say any more how that is settled. (After a half-close the end of its
    stream says nothing.)"""
    cdef int stands = lifeline(self)
    return stands == OVER or stands == STREAM_ENDED and fs_load_sc64(&self.vi.rx.fin) & KIND != FS_FIN


cdef bint held(Endpoint self) noexcept nogil:
    """Whether what this side sends must wait until the peer that left is settled. Under the send lock."""
    if not fs_load_relaxed(&self.own.moved) & FS_SENDING_HELD:
        return False
    # SYNC: settled - pairs with settle_with_peer and give_back.
    if fs_load_sc(&self.vi.tx.settled) == FS_UNSETTLED:
        if not self.held_since:
            self.held_since = fs_now()
        if not leaver_ended(self) and fs_now() - self.held_since < <int64_t>HELD_TIME:
            return True
        fs_swap_if32(&self.vi.tx.settled, FS_UNSETTLED, FS_REFUSED)
    fs_and_sc(&self.own.moved, ~<uint32_t>FS_SENDING_HELD)
    return False


cdef void tell_pollers(Endpoint self) noexcept nogil:
    """It is settled, and this side goes on in the kernel. A program that polls for POLLOUT by edge, and was refused while this side
    was held, has never seen it false: setting the option, to what it is, makes an edge if there is room. If there is none, the
    kernel makes one later for whoever it has told so: a look does that."""
    fs_set_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, fs_option(self.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT))
    fs_events_now(self.fd, POLLOUT)


cdef void put_back(Endpoint self, int parcel) noexcept nogil:
    """The peer has left and asks for the bytes that it had not read: they go out once more, in front of what this
    side sends next."""
    cdef int64_t size = fs_parcel_size(parcel), sent
    cdef char *bytes
    cdef fs_side *own
    if not 0 < size <= PARCEL_MAX:
        return
    bytes = <char *>malloc(<size_t>size)
    if bytes == NULL:
        return
    if sys_pread(parcel, bytes, <size_t>size, 0) == size:
        own = lock_sending(self)
        answer_leaver(self)
        own.sending_step = 1
        # SYNC: settled - pairs with give_back, which may have stopped waiting.
        if (is_attached(self) and fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK
                and fs_load_sc(&self.vi.tx.ready) == FS_LEFT
                and fs_swap_if32(&self.vi.tx.settled, FS_UNSETTLED, FS_RETURNING)):
            sent = send_in_kernel(self, bytes, <size_t>size, MSG_NOSIGNAL)
            # SYNC: returned - pairs with give_back.
            fs_store_sc(&self.vi.tx.returned, 1 + <uint32_t>(sent if sent > 0 else 0))
            fs_and_sc(&self.own.moved, ~<uint32_t>FS_SENDING_HELD)
            tell_pollers(self)
        own.sending_step = 0
        end_turn_to_send(self, own)
        wake_own(self)
        tell_peer(self)
    free(bytes)


cdef bint waits_for_leaver(Endpoint self) noexcept nogil:
    """Whether this side's senders wait until the peer that left is settled."""
    return (is_attached(self) and fs_load_relaxed(&self.own.moved) & FS_SENDING_HELD
            and fs_load_sc(&self.vi.tx.settled) == FS_UNSETTLED)
