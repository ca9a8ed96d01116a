# The way out: a moved connection goes back to the kernel, because somebody else is about to read its descriptor raw.
#
# One side is the *leaver*, the other one its peer. What the leaver sent lies in the ring, with BACK behind it, and
# what follows goes through the kernel: nothing more to do. What the leaver has not read must come out of the
# kernel's queue instead, and only the peer can put it there. So
#
#   1. the leaver withdraws consent (LEFT) and asks the peer's connection thread, which posts BACK behind what it
#      posted and sends nothing more until it is settled (HELD);
#   2. the leaver takes everything up to BACK, the kernel's part of the stream included, into a memfd, the *parcel*,
#      and the doorbell bytes out of the kernel's queue, which is empty now;
#   3. the peer's connection thread sends the parcel through the kernel, and the peer goes on there.
#
# This file has the leaver; its peer is in leavers_peer.pxi. A peer that cannot take part (closed, shut down, dead, stopped,
# no room in the kernel) leaves a bridge as the only way (bridge.pxi). docs/design.md argues why nothing is lost or doubled.

cdef extern from "asking.h" nogil:
    int fs_ask(uint64_t token, const unsigned char *id, int side, int parcel)

cdef extern from *:
    """
    #include <stdlib.h>
    #ifndef MFD_CLOEXEC
    #define MFD_CLOEXEC 1
    #endif
    /* Memory for so many bytes, all of it there already: no write of them fails. -1: there is none. */
    static int fs_new_parcel(uint64_t size) {
        int fd = (int)syscall(SYS_memfd_create, "fastsock-parcel", MFD_CLOEXEC);
        if (fd >= 0 && fallocate(fd, 0, 0, (off_t)size) < 0) {
            close(fd);
            return -1;
        }
        return fd;
    }
    """
    int fs_new_parcel(uint64_t) nogil
    int sys_ftruncate "ftruncate"(int, int64_t) nogil
    void *malloc(size_t) nogil
    void free(void *) nogil

cdef enum:
    PIECE = 65536               # bytes collected at a time
    # in nanoseconds
    ANSWER_TIME = 1_000_000_000   # that the peer's connection thread gets for an answer
    ASK_INTERVAL = 50_000_000     # between two requests for the same

cdef enum:  # how leave_ring ends
    IN_KERNEL = 1    # the kernel's stream is the whole stream
    NEEDS_BRIDGE = 2
    DISSOLVED = 3    # a violation

cdef uint64_t KIND = ~<uint64_t>0xffffffff  # of a FIN: the rest is its place

# What the leaver took out of the ring and the kernel's queue.
cdef struct parcel_t:
    int fd          # memfd, -1: nothing
    uint64_t room   # bytes that it can take for certain
    uint64_t size
    uint64_t returned  # bytes of it that are in the kernel's queue again
    bint unknown       # how many they are is not known yet,
    uint64_t crossed   # and these of them are across the bridge


# ---- reading up to BACK --------------------------------------------------------------------------------------

cdef void hear_all(Endpoint self) noexcept nogil:
    """Everything in the ring is read, and the peer rings no more: takes the doorbell bytes out of the kernel's queue. Those that
    have not come are owed. Under the receive lock."""
    cdef uint32_t rung = fs_load_acquire(&self.vi.rx.rung)
    cdef uint32_t count = rung - fs_load_relaxed(&self.vi.rx.heard)
    fs_store_sc(&self.vi.rx.heard, rung)
    if count or self.own.doorbell_debt:
        swallow(self, count)


cdef bint take_doorbells(Endpoint self, int64_t deadline) noexcept nogil:
    """hear_all, until nothing is owed. False if some bytes have not come by the deadline. Without the lock between two looks:
    whoever receives then takes what is owed before anything else (take_stream)."""
    cdef bint owed
    cdef fs_side *own
    while True:
        own = lock_receiving(self)
        hear_all(self)
        owed = own.doorbell_debt != 0
        fs_unlock(&own.recv_lock)
        if not owed:
            return True
        if fs_now() > deadline:
            return False
        fs_nap()


cdef bint let_go_on(Endpoint self) noexcept nogil:
    """It is settled: wakes who waits for that at the peer that was held. One that polls sleeps on the kernel's descriptor, and
    only its own side can make an edge there: its connection thread is asked to. False if there is no room for the
    request now."""
    tell_peer(self)
    return not fs_peer_doorbell(&self.vi) & FS_EXPOSED or ask_peer(self, -1) != -EAGAIN


cdef void press(Endpoint self) noexcept nogil:
    """let_go_on, again and again. With no lock, and without the GIL."""
    cdef int64_t deadline = fs_now() + ANSWER_TIME
    while not let_go_on(self) and fs_now() < deadline:  # more requests than the thread's queue takes
        fs_nap_aside()


cdef bint settle(Endpoint self) noexcept nogil:
    """Tells a peer that is held that it may go on. False if it still has to be asked (press)."""
    # SYNC: settled - pairs with held and put_back.
    if fs_load_sc(&self.vi.rx.ready) == FS_LEFT:
        fs_swap_if32(&self.vi.rx.settled, FS_UNSETTLED, FS_GO_ON)
        return let_go_on(self)
    return True


cdef void settle_with_peer(Endpoint self) noexcept nogil:
    """settle, of a leaver. With no lock."""
    if not settle(self):
        press(self)


cdef void settle_in_turn(Endpoint self) noexcept nogil:
    """settle, under the receive lock."""
    if not settle(self):
        self.late |= LATE_REQUEST


cdef void go_back_receiving(Endpoint self) noexcept nogil:
    """The ring is read to BACK: what the kernel's queue holds behind the doorbell bytes is the program's again. Under
    the receive lock."""
    if self.vi.oob_inline:
        fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, 1)
    fs_or_sc(&self.own.moved, FS_RECEIVING_BACK)
    free_receive_buffer(self)
    hear_all(self)  # what is owed then is taken before the next receive
    settle_in_turn(self)


# ---- leaving -------------------------------------------------------------------------------------------------

cdef int ask_peer(Endpoint self, int parcel) noexcept nogil:
    """0 or -errno."""
    # SYNC: token - pairs with answer_asks.
    return fs_ask(fs_load_acquire64(&self.vi.region.asks[1 - self.vi.side]), self.region_id, 1 - self.vi.side, parcel)


cdef bint await_end_of_ring(Endpoint self) noexcept nogil:
    """Until it is known where the ring's stream ends: at BACK, FIN or with the peer's death. False if the peer does not
    say so in time."""
    cdef int64_t now = fs_now(), deadline = now + ANSWER_TIME, ask_next = now
    cdef int looks = 0
    # SYNC: end of stream - pairs with fs_post_fin.
    while not fs_load_sc64(&self.vi.rx.fin):
        looks += 1
        if looks > 200:
            if peer_ended(self):
                return True
            fs_nap()
        now = fs_now()
        if now > deadline:
            return False
        if now >= ask_next:
            ask_next = now + ASK_INTERVAL
            ask_peer(self, -1)
        fs_pause()
    return True


cdef uint64_t unread_by(Endpoint self) noexcept nogil:
    """Bytes that lie unread, or are on their way through the kernel, once it is known where the ring's stream ends. Under the
    receive lock."""
    cdef uint64_t switch_at = fs_load_sc64(&self.vi.rx.switch_at)
    cdef uint64_t count = fs_available(&self.vi, PARCEL_MAX)
    if switch_at and not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_MOVED:
        count += switch_at - 1 - self.own.kernel_taken
    return count


cdef void prepare_parcel(Endpoint self, parcel_t *parcel) noexcept nogil:
    """Before anything is taken, since what is taken must be kept: a descriptor and memory for all that lies unread."""
    cdef fs_side *own = lock_receiving(self)
    cdef uint64_t room = unread_by(self)
    fs_unlock(&own.recv_lock)
    if 0 < room <= PARCEL_MAX:
        parcel.fd = fs_new_parcel(room)
        parcel.room = room if parcel.fd >= 0 else 0


cdef bint keep(parcel_t *parcel, const char *bytes, int64_t count) noexcept nogil:
    cdef int64_t done = 0, part
    while done < count:
        part = sys_write(parcel.fd, bytes + done, <size_t>(count - done))
        if part <= 0:
            return False
        done += part
    parcel.size += <uint64_t>count
    return True


cdef void trim(parcel_t *parcel) noexcept nogil:
    """The parcel's memory becomes as long as what is in it."""
    if parcel.fd >= 0:
        sys_ftruncate(parcel.fd, <int64_t>parcel.size)


cdef int collect(Endpoint self, parcel_t *parcel, char *piece, int64_t deadline) noexcept nogil:
    """Takes everything that is unread, in the kernel's queue and in the ring, and the doorbell bytes. IN_KERNEL if
    nothing is left but what the kernel's queue holds. While FS_COLLECTING is set."""
    cdef int64_t got
    cdef bint more = True
    cdef fs_side *own
    while fs_load_sc64(&self.vi.rx.switch_at) and not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_MOVED:
        own = lock_receiving(self)
        got = take_kernel(self, piece, PIECE, 0)
        fs_unlock(&own.recv_lock)
        if got == VIOLATED:
            return DISSOLVED
        if got > 0:
            if not keep(parcel, piece, got):
                return DISSOLVED  # more than the peer has told of
        elif got == -EAGAIN and fs_now() <= deadline:
            fs_nap()
        elif got != MOVED:
            return NEEDS_BRIDGE
    while more and fs_load_relaxed(&self.own.moved) & FS_RECEIVING_MOVED:
        own = lock_receiving(self)
        more = fs_waiting(&self.vi) or fs_load_relaxed(&self.own.taken)
        got = fs_take(&self.vi, piece, PIECE, FS_CONSUME) if more else 0
        fs_unlock(&own.recv_lock)
        if got < 0 or got > 0 and not keep(parcel, piece, got):
            return DISSOLVED
    own = lock_receiving(self)
    more = fs_end(&self.vi) != 1
    if more:
        fs_or_sc(&self.own.moved, FS_RECEIVING_BACK)
    fs_unlock(&own.recv_lock)
    if not more:
        return DISSOLVED
    return IN_KERNEL if take_doorbells(self, deadline) else NEEDS_BRIDGE


cdef int give_back(Endpoint self, parcel_t *parcel) noexcept nogil:
    """Has the peer send the parcel again, and learns how much of it the kernel took."""
    cdef int64_t now = fs_now(), deadline = now + ANSWER_TIME
    cdef uint32_t told = 0
    cdef bint asked = False, ended
    while True:
        # SYNC: returned - pairs with put_back.
        told = fs_load_sc(&self.vi.rx.returned)
        if told:
            break
        if not asked:
            asked = ask_peer(self, parcel.fd) == 0
        now = fs_now()
        ended = peer_ended(self)
        if now > deadline or ended or fs_load_sc(&self.vi.rx.settled) == FS_REFUSED:
            # SYNC: settled - pairs with put_back: it has begun, or will not.
            if (fs_swap_if32(&self.vi.rx.settled, FS_UNSETTLED, FS_GO_ON)
                    or fs_load_sc(&self.vi.rx.settled) != FS_RETURNING):
                let_go_on(self)
                return NEEDS_BRIDGE
            told = fs_load_sc(&self.vi.rx.returned)
            if told:
                break
            parcel.unknown = True  # killed or stopped within the one system call
            return NEEDS_BRIDGE
        fs_nap()
    parcel.returned = told - 1
    if parcel.returned > parcel.size:
        return DISSOLVED
    return IN_KERNEL if parcel.returned == parcel.size else NEEDS_BRIDGE


cdef void let_peer_leave(Endpoint self) noexcept nogil:
    """The peer may be leaving as well, and want bytes of ours again: before anybody else writes to the descriptor, it
    gets them, or is told that it is too late."""
    cdef int64_t deadline
    cdef fs_side *own
    # SYNC: left - pairs with take_back.
    if (fs_swap_if32(&self.vi.tx.ready, FS_READY, FS_TOO_LATE)
            or fs_swap_if32(&self.vi.tx.ready, FS_NOT_YET, FS_TOO_LATE)):
        return
    deadline = fs_now() + ANSWER_TIME
    while fs_load_sc(&self.vi.tx.settled) == FS_UNSETTLED and not leaver_ended(self) and fs_now() <= deadline:
        fs_nap()
    # Whatever has ended the wait: a parcel that comes from here on is not sent any more, as it would come behind what is
    # written to the descriptor. One that is being sent is sent under the send lock.
    # SYNC: settled - pairs with give_back and put_back.
    fs_swap_if32(&self.vi.tx.settled, FS_UNSETTLED, FS_REFUSED)
    own = lock_sending(self)
    end_turn_to_send(self, own)


cdef bint collecting(Endpoint self) noexcept nogil:
    """Whether a leaver of this side takes what lies unread, so that nobody else may receive. (A collector asks itself with
    take_stream only, behind what it has taken from the kernel.)"""
    return is_attached(self) and fs_load_acquire(&self.own.moved) & FS_COLLECTING != 0


cdef int64_t beside_collector(Endpoint self) noexcept nogil:
    """What a receive gets while another holder collects: -EAGAIN. VIOLATED if that one was killed or has failed: then the stream
    has a hole. Under the receive lock, without which nobody stops collecting."""
    if is_broken(self):
        return 0
    if not fs_turn_free(&self.own.leaving):
        return -EAGAIN
    break_off(self, b"what lay unread was lost with the process of this side that took it")
    return VIOLATED


cdef fs_side *begin_leaving(Endpoint self) noexcept nogil:
    """Until end_leaving. The lock `leaving` is a mark of the one holder that leaves, which the kernel takes back if it is killed:
    nobody waits for this lock but another leaver, which has no other turn, and could do nothing before the first one is done."""
    cdef fs_side *own
    cdef int turn
    while True:
        own = self.own
        turn = fs_try_lock(&own.leaving, own_pid)
        if turn == FS_BUSY:
            fs_give_way(&own.leaving)
        elif own != self.own:
            give_up(&own.leaving, turn)
        else:
            fs_keep(&own.leaving)
            return own


cdef void end_leaving(Endpoint self, fs_side *own, bint whole) noexcept nogil:
    """Others receive again, if the stream is whole."""
    cdef int turn
    if whole and fs_load_relaxed(&own.moved) & FS_COLLECTING:
        turn = fs_lock(&own.recv_lock, own_pid)  # (a bridge may have put another side in place of this one)
        fs_and_sc(&own.moved, ~<uint32_t>FS_COLLECTING)
        give_up(&own.recv_lock, turn)
    fs_unkeep(&own.leaving)
    fs_unlock(&own.leaving)
    wake_own(self)


cdef int take_back(Endpoint self, parcel_t *parcel, char *piece) noexcept nogil:
    """Takes both directions back to the kernel. The receive lock is held for looks and copies only. Between two of them other
    holders go on: before FS_COLLECTING is set one may read as far as BACK, which is looked for then; afterwards they do
    not receive."""
    cdef bint returns, attached, told = True
    cdef int outcome
    cdef uint64_t switch_at
    cdef fs_side *own
    if fs_load_relaxed(&self.own.moved) & FS_OUT:
        return IN_KERNEL
    if collecting(self):
        return DISSOLVED  # an earlier leaver was killed at it
    # SYNC: left - pairs with answer_leaver and let_peer_leave.
    returns = fs_swap_if32(&self.vi.rx.ready, FS_READY, FS_LEFT) or fs_load_sc(&self.vi.rx.ready) == FS_LEFT
    own = lock_sending(self)
    go_back_sending(self, False)
    if own.bytes_unsent:
        self.late_sending = True  # whoever waits for room already: what is written to the descriptor must not come first
    if not end_turn_to_send(self, own):
        return DISSOLVED
    attached = fs_load_sc(&self.vi.tx.ready) != FS_NOT_YET
    if attached and not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK:
        told = await_end_of_ring(self)
        prepare_parcel(self, parcel)
    own = lock_receiving(self)
    if fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK:
        # The peer left first, or another holder has read up to its BACK. It may still be at it, and wait for us by now.
        fs_unlock(&own.recv_lock)
        settle_with_peer(self)
        return IN_KERNEL if take_doorbells(self, fs_now() + ANSWER_TIME) else NEEDS_BRIDGE
    if not attached or not told:
        # A peer that has not attached finds LEFT when it does, and has never moved.
        if not attached:
            fs_or_sc(&self.own.moved, FS_RECEIVING_BACK)
        fs_unlock(&own.recv_lock)
        settle_with_peer(self)
        return NEEDS_BRIDGE if attached else IN_KERNEL
    switch_at = fs_load_sc64(&self.vi.rx.switch_at)
    # (A kernel whose socket is shut in both directions answers bytes with RST, and drops what it has not sent yet.)
    returns = (returns and fs_load_sc64(&self.vi.rx.fin) & KIND == FS_BACK and not peer_ended(self)
               and not fs_load_relaxed(&self.vi.rx.doorbell) & FS_SHUT)
    if not returns and (fs_waiting(&self.vi) or fs_load_relaxed(&self.own.taken) or switch_at and not self.moved_receiving()
                        and switch_at - 1 != self.own.kernel_taken):
        fs_unlock(&own.recv_lock)
        settle_with_peer(self)
        return NEEDS_BRIDGE
    if unread_by(self) > parcel.room:  # no memory, or no descriptor for it: a bridge needs no parcel
        fs_unlock(&own.recv_lock)
        settle_with_peer(self)
        return NEEDS_BRIDGE
    fs_or_sc(&self.own.moved, FS_COLLECTING)
    fs_unlock(&own.recv_lock)
    outcome = collect(self, parcel, piece, fs_now() + ANSWER_TIME)
    trim(parcel)
    if outcome == IN_KERNEL and parcel.size:
        return give_back(self, parcel)
    settle_with_peer(self)
    return outcome


cdef int leave_ring(Endpoint self, parcel_t *parcel) noexcept nogil:
    """take_back, and what comes before somebody else may use the descriptor. Between begin_leaving and end_leaving."""
    cdef int outcome
    cdef char *piece = <char *>malloc(PIECE)
    if piece == NULL:
        return NEEDS_BRIDGE
    outcome = take_back(self, parcel, piece)
    free(piece)
    trim(parcel)  # also if nothing was taken: a bridge reads it to its end
    if outcome != DISSOLVED and not fs_load_relaxed(&self.own.moved) & FS_OUT:
        let_peer_leave(self)
        if self.vi.oob_inline:
            fs_set_option(self.fd, SOL_SOCKET, SO_OOBINLINE, 1)
        if outcome == IN_KERNEL:
            fs_or_sc(&self.own.moved, FS_OUT)
    return outcome


# ---- for the rest of the core --------------------------------------------------------------------------------

cdef bint out(Endpoint self) noexcept nogil:
    return fs_load_relaxed(&self.own.moved) & FS_OUT != 0


cdef int keep_parcel(Endpoint self, parcel_t *parcel) except -1:
    """Gives the loop's transport what the peer cannot put into our kernel queue again. Doorbell bytes that have not come are no
    hindrance: the transport takes them out of what it reads (`hear`), and nothing was returned in front of which they could come.
    But nobody knows what comes where the peer was stopped within its one send of the parcel: that connection is given up."""
    cdef size_t left
    cdef int64_t got, deadline
    if parcel.unknown or self.own.doorbell_debt and parcel.returned or not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK:
        return DISSOLVED
    # What was returned is in our kernel's queue, in front of all else: it is taken out again.
    deadline = fs_now() + ANSWER_TIME
    while parcel.returned:
        got = look_in_kernel(self, NULL, parcel.returned, MSG_TRUNC)
        if got > 0:
            parcel.returned -= <uint64_t>got
        elif got != -EAGAIN or fs_now() > deadline:
            return DISSOLVED
        else:
            fs_nap_aside()
    left = <size_t>parcel.size
    self.queue.keep_late(self.wake_fd, _os.pread(parcel.fd, left, 0))
    fs_or_sc(&self.own.moved, FS_OUT)
    return IN_KERNEL


cdef bint leave(Endpoint self) except -1:
    """Endpoint.leave of a connection that has a region."""
    cdef parcel_t parcel
    cdef int outcome = DISSOLVED
    cdef int64_t process
    cdef fs_call call
    cdef fs_side *own
    parcel.fd = -1
    parcel.size = parcel.room = parcel.returned = parcel.crossed = 0
    parcel.unknown = False
    if not self.begin(&call):
        return True
    with nogil:
        own = begin_leaving(self)
    try:
        with nogil:
            outcome = leave_ring(self, &parcel)
        if outcome == NEEDS_BRIDGE and self.driven:
            # A bridge would take the descriptor away under the loop, which has it registered. Its transport can do
            # without: what is unread goes to it, and not through the kernel.
            if parcel.size == 0:
                return False
            outcome = keep_parcel(self, &parcel)
        elif outcome == NEEDS_BRIDGE:
            process = bridge(self, &parcel)
            if process > 0:
                self.bridge = <int>process
                self.kit.before_end()
            elif parcel.size == 0:
                return False
            else:
                outcome = DISSOLVED  # without the parcel the stream would have a hole
        if outcome == DISSOLVED:
            self.reset()
    finally:
        with nogil:
            end_leaving(self, own, outcome != DISSOLVED)
        if parcel.fd >= 0:
            sys_close(parcel.fd)
        self.end(&call)
    return True
