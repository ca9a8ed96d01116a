# Waiting on an endpoint: polling for the budget, and sleeping on the eventfd and the kernel connection.

cdef void note_processor(Endpoint self) noexcept nogil:
    """Tells the peer where we run: polling for somebody who needs this very processor cannot pay."""
    cdef uint32_t here = <uint32_t>sched_getcpu() + 1
    if fs_load_relaxed(&self.vi.tx.processor) != here:
        fs_store_relaxed(&self.vi.tx.processor, here)


cdef bint poll_for(Endpoint self, int what) noexcept nogil:
    """Polls for the budget until there is something to receive, or credit to send with."""
    cdef int64_t began = fs_now(), until, now = began
    cdef bint ready = False
    cdef int turn, turns
    cdef fs_side *own
    # (What `spun` says of another thread's wait that overlaps with this one teaches that wait wrong once.)
    if waits_for_leaver(self) if what == SEND else collecting(self):
        fs_store_relaxed(&self.spun, 0)
        return False
    until = began + self.budget(began)
    fs_store_relaxed(&self.spun, until != began)
    if until == began:
        return False
    # (Without `attached`: a moved bit is only ever set under the locks that attach held, and read with acquire.)
    if what == SEND and self.moved_sending():
        own = take_turn(self, True, PATIENCE)
        if own == NULL:
            return False
        fs_arm_sender(&self.vi, FS_HURRY)
        end_turn_to_send(self, own)
    while not ready:
        now = fs_now()
        if now >= until:
            break
        if not (self.moved_receiving() if what == RECEIVE else self.moved_sending() and not self.gone()):
            own = take_turn(self, False, PATIENCE)  # under a lock, so that the descriptor is not closed meanwhile
            if own == NULL:
                break
            ready = fs_events_now(self.fd, POLLIN if what == RECEIVE else POLLOUT) != 0
            if not ready and what == RECEIVE and self.may_switch():
                ready = fs_load_sc64(&self.vi.rx.switch_at) != 0
            fs_unlock(&own.recv_lock)
            if not ready:
                sched_yield()  # we cannot tell whether the peer waits for this very processor
            continue
        turns = 1 if shares_processor(fs_load_relaxed(&self.vi.rx.processor)) else LOOKS
        for turn in range(turns):
            if what == RECEIVE:
                ready = fs_readable(&self.vi)
            else:
                # (An ACK that came with DATA may be newer than the one alone.)
                ready = <int32_t>(fs_load_acquire(&self.vi.tx.acked) - fs_load_relaxed(&self.own.credited)) > 0 or self.gone()
            if ready:
                break
            fs_pause()
        if not ready and turns == 1:
            sched_yield()
    if is_attached(self):
        note_processor(self)
    fs_count(&self.vi.count.poll_ns, <uint64_t>(min(now, until) - began))
    if ready:
        self.settle(began, True, True)
    else:
        fs_count(&self.vi.count.poll_unpaid_ns, <uint64_t>(min(now, until) - began))
    return ready


cdef int sleep_for(Endpoint self, int what, int64_t deadline, news_t *news) noexcept nogil:
    """Sleeps until something may have happened. 1: look again, 0: the deadline (monotonic ns, negative:
    none) has passed, -EINTR: a signal came."""
    cdef pollfd fds[3]
    cdef int64_t began = fs_now(), rest
    cdef bint attached, moved, ready = False, probe = False, looks = False, polled = fs_load_relaxed(&self.spun), waits = False
    cdef int events
    cdef uint64_t drained
    cdef fs_side *own = take_turn(self, what == SEND, PATIENCE)
    cdef fs_word32 *sleepers = &self.recv_sleepers if what == RECEIVE else &self.send_sleepers
    cdef fs_word32 *watchers = &self.recv_watchers if what == RECEIVE else &self.send_watchers
    cdef bint watches
    if own == NULL:
        return -EINTR  # a stopped process has the turn: the caller looks for signals, and whether its time is up
    rest = -1 if deadline < 0 else (deadline - began if deadline > began else 0)

    if what == RECEIVE and collecting(self):
        fs_unlock(&own.recv_lock)
        return doze(rest)
    attached = is_attached(self) and not fs_load_relaxed(&self.own.moved) & (
        FS_RECEIVING_BACK if what == RECEIVE else FS_SENDING_BACK)
    moved = self.moved_receiving() if what == RECEIVE else self.moved_sending() and not self.gone()
    fds[1].fd = self.fd
    fds[1].events = POLLRDHUP if moved else (POLLRDHUP | POLLIN if what == RECEIVE else POLLOUT)
    fds[1].revents = 0
    if attached and what == RECEIVE:
        # SYNC: exposed - by the receive lock, see tell_exposed.
        if (not is_exposed(self) and fs_load_relaxed(&self.vi.rx.doorbell) & FS_EXPOSED and not fs_load_sc(sleepers)
                and not shared(self)):
            fs_and_sc(&self.vi.rx.doorbell, ~<uint32_t>FS_EXPOSED)  # nobody sleeps on the kernel's any more
            self.quiet()
        answer_credit_wait(self)  # the acknowledgements delayed so far, before we sleep on them
    if what == SEND and waits_for_leaver(self):
        # The eventfd tells when it is settled; or it is time to look whether the peer lives.
        waits = True
        probe = rest < 0 or rest > PROBE_INTERVAL
        fds[1].events = 0
    fs_add_sc(sleepers, 1)
    # Who waits for the kernel alone leaves the eventfd to those who wait for the ring: it would take their wakeups.
    watches = attached or waits
    fds[0].fd = self.wake_fd if watches else -1
    fds[0].events = POLLIN | fs_other_file()
    fds[0].revents = 0
    fds[2].fd = news.fd if news != NULL else -1
    fds[2].events = POLLIN
    fds[2].revents = 0
    if watches:
        fs_add_sc(watchers, 1)
        # Before it arms: whoever takes the wakeup that comes for it knows then that it may have been for this process.
        fs_or_sc(&own.sleeps, FS_SLEEPS_RECEIVING if what == RECEIVE else FS_SLEEPS_SENDING)
    if attached and what == RECEIVE:
        ready = fs_arm_receiver(&self.vi)
        if ready and not moved:
            ready = fs_load_sc64(&self.vi.rx.switch_at) != 0
    elif moved:
        ready = fs_arm_sender(&self.vi, FS_WAITS) or self.gone()
        if fs_load_sc64(&self.vi.rx.fin) or fs_load_relaxed(&self.shut_receiving):
            # A half-closed connection: its end is no news, so ask now and then whether the peer is still there.
            fds[1].events = 0
            probe = rest < 0 or rest > PROBE_INTERVAL
        if not ready:
            leave_byte(self)
    if watches and self.wake_fd < 0 and (rest < 0 or rest > DEAF_INTERVAL):
        # The program has closed our eventfd: nothing but the end of the connection would wake us.
        probe = looks = True
        rest = DEAF_INTERVAL
    elif probe:
        rest = PROBE_INTERVAL
    elif shared(self) and (rest < 0 or rest > SHARED_INTERVAL):
        # A sleeper of another process may take the wakeup that was for us, and be killed with it.
        probe = looks = True
        rest = SHARED_INTERVAL
    if what == RECEIVE:
        end_turn_to_receive(self, own)  # (a plug may have to be taken out of the peer's way)
    else:
        end_turn_to_send(self, own)

    events = 1 if ready else fs_poll3(fds, rest)
    if events < 0:
        events = -errno
    if attached and not ready:
        fs_count(&self.vi.count.sleeps, 1)
        fs_count(&self.vi.count.system_calls, 2 if fds[0].revents & POLLIN else 1)
    fs_add_sc(sleepers, <uint32_t>-1)
    if watches:
        fs_add_sc(watchers, <uint32_t>-1)
    if not fs_is_ours(fds[0].revents):
        lose_eventfd(self)
    elif fds[0].revents & POLLIN:
        sys_read(fds[0].fd, &drained, 8)
    if fds[2].revents:
        fs_store_relaxed(&news.over, 1)  # it was told, or closed by somebody who closes what is not his
    if attached and what == RECEIVE:
        fs_disarm_receiver(&self.vi)
    elif moved and not waits:
        if not ready and fds[1].revents & (POLLERR | POLLHUP | POLLRDHUP) and not peer_lost(self) and lifeline(self) == ALIVE:
            fs_store_relaxed(&self.shut_receiving, 1)  # by somebody who knows the number
        if probe and not looks and events == 0:
            own = lock_sending(self)
            probe_peer(self)
            end_turn_to_send(self, own)
    if probe and events == 0:
        events = 1
    if watches:
        hand_over(self)
    if events > 0:
        self.settle(began, polled, False)
        return 1
    return events if events == -EINTR else 0


cdef void lose_eventfd(Endpoint self) noexcept nogil:
    """The number on which this side sleeps is not ours any more. In both turns, like every change of what waits go by."""
    cdef fs_side *own = lock_both(self)
    if not fs_is_our_eventfd(self.wake_fd):
        self.wake_fd = -1
    end_both(self, own)


cdef int doze(int64_t rest) noexcept nogil:
    """As sleep_for, while another holder takes the connection back to the kernel: that is soon over, and no event tells of its end
    to everybody who waits for it."""
    cdef pollfd none[3]
    cdef int events
    none[0].fd = none[1].fd = none[2].fd = -1
    events = fs_poll3(none, rest if 0 <= rest < COLLECTING_INTERVAL else COLLECTING_INTERVAL)
    if events < 0:
        return -errno
    return 0 if 0 <= rest < COLLECTING_INTERVAL else 1


cdef bint shared(Endpoint self) noexcept nogil:
    """Whether another process holds the connection as well, and perhaps sleeps on it."""
    return fs_load_relaxed(&self.own.holders) > 1


cdef void hand_over(Endpoint self) noexcept nogil:
    """A wakeup may have been meant for several sleepers of this side, and one has taken it: arm again for the
    others and pass it on if there is something for them."""
    cdef uint32_t passed = 0, elsewhere = fs_load_sc(&self.own.sleeps) if shared(self) else 0
    cdef bint more = False
    cdef fs_side *own
    if elsewhere & FS_SLEEPS_RECEIVING or fs_load_sc(&self.recv_watchers):
        if fs_arm_receiver(&self.vi):
            passed |= FS_SLEEPS_RECEIVING
    if elsewhere & FS_SLEEPS_SENDING or fs_load_sc(&self.send_watchers):
        own = lock_sending(self)
        if fs_load_relaxed(&own.moved) & FS_SENDING_BACK:
            more = not waits_for_leaver(self)
        elif self.moved_sending():  # (who still sends through the kernel waits for that, however empty the ring is)
            more = fs_arm_sender(&self.vi, FS_WAITS) or own.fin_sent or self.gone()
        end_turn_to_send(self, own)
        if more:
            passed |= FS_SLEEPS_SENDING
    if passed & elsewhere:
        # Once: there may be nobody any more, and we, who sleep on the same eventfd, would wake ourselves for ever.
        fs_and_sc(&self.own.sleeps, ~passed)
    if passed:
        wake_own(self)
    if passed & elsewhere:
        let_others_wake(self)


cdef void let_others_wake(Endpoint self) noexcept nogil:
    """Gives a sleeper of another process the time to take the wakeup, which we would take ourselves with our next sleep. (If
    it comes too late, it looks by itself after SHARED_INTERVAL.)"""
    cdef int tries
    for tries in range(20):
        if not fs_events_now(self.wake_fd, POLLIN):
            break
        sched_yield()
