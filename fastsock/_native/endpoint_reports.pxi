# What is told of endpoints: where one stands, and what they counted.

cdef dict description(Endpoint self):
    cdef fs_side *own = self.own
    state = dict(fd=self.fd, side=<uintptr_t>own, finished=self.finished, broken=is_broken(self),
                 attached=is_attached(self), standing=standing_of(self), exposed=is_exposed(self),
                 lost=fs_load_relaxed(&self.lost) != 0,
                 operations=self.operations, holders=self.holders, kernel_taken=own.kernel_taken,
                 sleepers=(fs_load_sc(&self.recv_sleepers), fs_load_sc(&self.send_sleepers)),
                 locks=(fs_load_sc(&own.recv_lock.word), fs_load_sc(&own.send_lock.word)),
                 leaving=fs_load_sc(&own.leaving.word))
    if is_attached(self) and not self.finished:
        state.update(
            posted=own.posted, credited=fs_load_relaxed(&own.credited),
            acked=fs_load_sc(&self.vi.tx.acked), peer_doorbell=fs_load_sc(&self.vi.tx.doorbell),
            peer_ready=fs_load_sc(&self.vi.tx.ready), our_wait=fs_load_sc(&self.vi.tx.credit_wait),
            switched_at=fs_load_sc64(&self.vi.tx.switch_at), rung=fs_load_sc(&self.vi.tx.rung),
            consumed=fs_load_sc(&own.consumed), taken=fs_load_relaxed(&own.taken), waiting=fs_waiting(&self.vi),
            doorbell=fs_load_sc(&self.vi.rx.doorbell), peer_wait=fs_load_sc(&self.vi.rx.credit_wait),
            peer_switched_at=fs_load_sc64(&self.vi.rx.switch_at), heard=fs_load_sc(&self.vi.rx.heard),
            peer_rung=fs_load_sc(&self.vi.rx.rung),
            debt=own.doorbell_debt, bytes_unsent=own.bytes_unsent, fin=fs_load_sc64(&self.vi.rx.fin), fin_sent=own.fin_sent)
    return state


cdef tuple standing_of(Endpoint self):
    """What a connection's path is told from: (sending moved, receiving moved, attached, reason)."""
    return self.moved_sending(), self.moved_receiving(), is_attached(self), self.reason


def counters():
    """The counters of this process: of endpoints that are gone and of those that live, a dict."""
    cdef fs_counters sum = totals
    cdef Endpoint endpoint
    for endpoint in by_inode.values():
        endpoint.add_counters(&sum)
    return dict(
        bytes_sent=fs_load_relaxed64(&sum.bytes_sent), bytes_received=fs_load_relaxed64(&sum.bytes_received),
        messages_sent=fs_load_relaxed64(&sum.messages_sent), messages_received=fs_load_relaxed64(&sum.messages_received),
        acks_alone=fs_load_relaxed64(&sum.acks_alone), acks_piggybacked=fs_load_relaxed64(&sum.acks_piggybacked),
        sends_combined=fs_load_relaxed64(&sum.sends_combined), doorbells_rung=fs_load_relaxed64(&sum.doorbells_rung),
        polls_paid=fs_load_relaxed64(&sum.polls_paid), polls_unpaid=fs_load_relaxed64(&sum.polls_unpaid),
        poll_ns=fs_load_relaxed64(&sum.poll_ns), poll_unpaid_ns=fs_load_relaxed64(&sum.poll_unpaid_ns),
        sleeps=fs_load_relaxed64(&sum.sleeps), system_calls=fs_load_relaxed64(&sum.system_calls))
