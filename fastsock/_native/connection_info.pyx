# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The state of a connection and its counters, for reading only. `Endpoint` has the operations."""

from libc.stdint cimport uint64_t, uintptr_t

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.core_rendezvous cimport *

cdef extern from "errno.h":
    int errno

# By their numbers (core/include/fastsock_types.h).
cdef list reason_texts = [fs_reason_text(number).decode() for number in range(FS_REASONS)]


cdef class ConnectionInfo:
    """The state of one end of a connection (connection_info.pyi explains the attributes)."""

    @property
    def fd(self):
        return fs_fd(&self.c)

    @property
    def holders(self):
        return fs_count_holders(fs_own(&self.c))

    @property
    def attached(self):
        return fs_is_attached(&self.c)

    @property
    def peer_consents(self):
        return fs_is_attached(&self.c) and fs_load_sc(&self.c.ring.tx.ready) != 0

    @property
    def window(self):
        return self.c.ring.window

    @property
    def exposed(self):
        return fs_is_exposed(&self.c)

    @property
    def driven(self):
        return fs_is_loop_driven(&self.c)

    @property
    def broken(self):
        return fs_is_broken(&self.c)

    @property
    def wrong(self):
        return (<bytes>self.c.ring.violation).decode() if self.c.ring.violation != NULL else ""

    @property
    def own_fault(self):
        return self.c.own_fault != 0

    @property
    def left(self):
        return fs_has_fallen_back(&self.c)

    @property
    def finished(self):
        return fs_has_ended(&self.c)

    @property
    def oob_inline(self):
        return self.c.ring.oob_inline != 0

    @property
    def undecided(self):
        return fs_is_undecided(&self.path)

    @property
    def searching(self):
        return fs_is_searching(&self.path)

    @property
    def stage(self):
        return fs_path_state_name(self.path.state).decode()

    @property
    def operations(self):
        return self.path.operations

    @property
    def reason(self):
        return reason_texts[self.path.reason]

    @property
    def standing(self):
        return info_of(self)

    def ends(self):
        """Returns ((address, port), (address, port)), the local end first, addresses packed. Raises OSError if not connected."""
        cdef unsigned char address[16]
        cdef int port, remote, length
        result = []
        for remote in range(2):
            length = fs_endpoint_address(fs_fd(&self.c), remote, address, &port)
            if length < 0:
                raise OSError(errno, "no address")
            result.append(((<char *>address)[:length], port))
        return tuple(result)

    def describe(self):
        """Returns the state of this end as a dict, for error reports."""
        return description(&self.c) | {"standing": info_of(self), "operations": self.path.operations,
                                         "stage": self.stage}


cdef tuple info_of(ConnectionInfo self):
    """(sending has moved, receiving has moved, attached, reason): the input of path_events.path_from."""
    return fs_sends_on_ring(&self.c), fs_receives_on_ring(&self.c), fs_is_attached(&self.c), self.reason


cdef dict description(fs_connection *c):
    """Returns the state of a connection as a dict of numbers."""
    cdef fs_shared_side *own = fs_own(c)
    state = dict(fd=fs_fd(c), side=<uintptr_t>own, finished=fs_has_ended(c), broken=fs_is_broken(c),
                 attached=fs_is_attached(c), exposed=fs_is_exposed(c), lost=fs_peer_is_lost(c),
                 holders=fs_count_holders(own), kernel_taken=fs_load_relaxed64(&own.receiver.kernel_taken),
                 sleepers=(fs_load_sc(&c.recv_sleepers), fs_load_sc(&c.send_sleepers)),
                 locks=(fs_load_sc(&own.receiver.lock.word), fs_load_sc(&own.sender.lock.word)),
                 leaving=fs_load_sc(&own.fallback.lock.word))
    if fs_is_attached(c) and not fs_has_ended(c):
        state.update(
            posted=fs_load_relaxed(&own.sender.posted), credited=fs_load_relaxed(&own.sender.credited),
            acked=fs_load_sc(&c.ring.tx.acked), peer_doorbell=fs_load_sc(&c.ring.tx.doorbell),
            peer_ready=fs_load_sc(&c.ring.tx.ready), our_wait=fs_load_sc(&c.ring.tx.credit_wait),
            switched_at=fs_load_sc64(&c.ring.tx.switch_at), rung=fs_load_sc(&c.ring.tx.rung),
            consumed=fs_load_sc(&own.receiver.consumed), taken=fs_load_relaxed(&own.receiver.taken), waiting=fs_has_descriptor(&c.ring),
            doorbell=fs_load_sc(&c.ring.rx.doorbell), peer_wait=fs_load_sc(&c.ring.rx.credit_wait),
            peer_switched_at=fs_load_sc64(&c.ring.rx.switch_at), heard=fs_load_sc(&c.ring.rx.heard),
            peer_rung=fs_load_sc(&c.ring.rx.rung),
            debt=own.receiver.doorbell_debt, bytes_unsent=own.sender.bytes_unsent,
            fin=fs_load_sc64(&c.ring.rx.fin), fin_sent=own.sender.fin_sent)
    return state


cdef dict counts(fs_counters *count):
    """Returns the counters by name."""
    return dict(
        bytes_sent=fs_load_relaxed64(&count.bytes_sent), bytes_received=fs_load_relaxed64(&count.bytes_received),
        messages_sent=fs_load_relaxed64(&count.messages_sent),
        messages_received=fs_load_relaxed64(&count.messages_received),
        acks_alone=fs_load_relaxed64(&count.acks_alone), acks_piggybacked=fs_load_relaxed64(&count.acks_piggybacked),
        sends_combined=fs_load_relaxed64(&count.sends_combined),
        doorbells_rung=fs_load_relaxed64(&count.doorbells_rung),
        polls_paid=fs_load_relaxed64(&count.polls_paid), polls_unpaid=fs_load_relaxed64(&count.polls_unpaid),
        poll_ns=fs_load_relaxed64(&count.poll_ns), poll_unpaid_ns=fs_load_relaxed64(&count.poll_unpaid_ns),
        sleeps=fs_load_relaxed64(&count.sleeps), system_calls=fs_load_relaxed64(&count.system_calls))


cdef tuple names_of_counters():
    """Returns the names in the order of the C structure, which datagrams use: each counter is set to its index, then sorted."""
    cdef fs_counters numbered
    cdef size_t place
    for place in range(sizeof(fs_counters) // sizeof(uint64_t)):
        (<uint64_t *>&numbered)[place] = place
    named = counts(&numbered)
    assert sorted(named.values()) == list(range(sizeof(fs_counters) // sizeof(uint64_t))), "a counter has no name here"
    return tuple(sorted(named, key=named.get))


COUNTERS = names_of_counters()
