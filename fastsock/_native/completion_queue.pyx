# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The completion queue of one loop: it polls hot connections natively, delivers what came in batches, and leaves quiet
ones, armed, to its event set.

It knows of a transport what `Driven` says. What is read, sent and told is the transport's.
"""

from libc.stdint cimport int64_t, uint32_t
from cpython.object cimport PyObject

from fastsock._native.core_control cimport fs_set_register, fs_reoffer_pages
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, totals

import contextvars as _contextvars
import gc as _gc
import os as _os
from collections import deque as _deque

cdef extern from "Python.h":
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    Py_ssize_t PyObject_Size(object) except -1

cdef enum:
    SWEEPS_PER_LOOK = 4  # at the clock
    LOOKS = 16           # between two looks at the clock, and at the hints, while nothing comes
    HINTS = 256          # taken at a time,
    TAKES = 64           # and so often before the loop goes on: a peer may make up hints without end
    ANSWER_LOOKS = 100   # at a connection whose protocol has just answered: one or two microseconds

cdef enum:  # nanoseconds
    SLICE = 200_000      # of one turn of the queue while protocols answer from their callbacks
    SPIN = 20_000        # of one turn while nothing comes, before the loop looks at its other descriptors
    LOOP_WORKS = 8_000   # between two turns: the loop had other things to do
    COOL = 1_000_000     # after which a quiet connection among busy ones is armed and left to the event set


cdef double PROBE = 0.5  # seconds between two questions whether a half-closed peer, whose end is no news, is still there


cdef object ready_callbacks(loop):
    """The deque in which a loop of asyncio's or of uvloop keeps the callbacks that are ready to run. uvloop shows it to the
    garbage collector only."""
    cdef object ready = getattr(loop, "_ready", None)
    if ready is not None:
        return ready
    for ready in _gc.get_referents(loop):
        if type(ready) is _deque:
            return ready
    # Of another kind of loop we cannot tell: one that is never idle has everything delivered in the next turn.
    return (None, None)


cdef class QueuedConnection:
    """A connection of a loop, as the queue sees it: what a transport is, and what it has to answer."""

    cdef bint something(self) noexcept nogil:
        """Whether there is something to receive, or credit for the backlog. A look at one or two cache lines."""
        return False

    cdef bint progress(self) except -1:
        """Delivers what came, sends what waits. Whether anything happened. Exceptions of the protocol are reported as
        the loop does."""
        raise NotImplementedError

    cdef bint arm(self) except -1:
        """Says that we wait until our event set is told. True if something is there already."""
        raise NotImplementedError

    cdef int keep_late(self, bytes data) except -1:
        """Bytes of a connection that leaves the ring, which come before everything else that the kernel has."""
        raise NotImplementedError

    cdef int end_endpoint(self) except -1:
        """Our end of the ring: FIN, or a reset if bytes lie unread. Before the descriptor is closed."""
        raise NotImplementedError


cdef inline uint32_t processor_of_peer(QueuedConnection transport) noexcept nogil:
    """1 + the processor that the peer last ran on; 0: unknown."""
    return fs_load_relaxed(&transport.endpoint.c.ring.rx.processor)


cdef inline bint loop_is_idle(CompletionQueue self) except -1:
    """Whether no callback of the loop is ready, so that what is delivered now overtakes none."""
    return PyObject_Size(self.ready) == 0


cdef class CompletionQueue:
    """Polls the hot connections of one loop and delivers what came; arms the quiet ones.

    While something is hot, `turn` is a callback of every turn of the loop. It never keeps the loop for longer than SLICE
    and it sleeps never: with nothing to deliver for the polling budget, all are armed and the event set sleeps, whose
    descriptor the loop watches. While it comes in every turn the set is awake: a peer that posts to an armed connection leaves a
    hint, which costs it no system call, and the queue takes the hints with each look.

    It delivers where a selector would: behind the callbacks that were ready when it looked. If none is ready, what it sees
    is delivered at once. Otherwise it notes who has something (`seen`) and delivers to these in its next turn, when the
    callbacks that were ready before it have run: a loop takes its ready callbacks in their order.
    """

    def __cinit__(self, loop):
        self.loop = loop
        self.call_soon = loop.call_soon
        self.turn_method = self.turn
        self.context = _contextvars.Context()
        self.ready = ready_callbacks(loop)
        self.hot = []
        self.seen = []
        self.begun = set()
        self.watched = set()
        fs_spin_stats_init(&self.spin_stats)

    def __dealloc__(self):
        if self.set != NULL:
            fs_event_set_end(self.set)

    # ---- members -----------------------------------------------------------------------------------------

    @property
    def epoll(self):
        return self.set.epoll if self.set != NULL else -1

    def admit(self, Endpoint endpoint not None):
        """An endpoint of this queue is about to attach, and gets a place in the event set. What can fail comes before it
        consents: OSError without descriptors for the set, or if that takes no more."""
        cdef int failed
        if self.set == NULL:
            self.make_set()
        failed = fs_slot_alloc(&endpoint.c, self.set)
        if failed:
            raise OSError(-failed, _os.strerror(-failed))

    def keep_late(self, uint32_t place, bytes data not None):
        """Of the endpoint that has this place and leaves the ring: bytes that are not in the kernel's queue again."""
        cdef QueuedConnection transport = <QueuedConnection>fs_slot_member(self.set, place)
        transport.keep_late(data)

    def dismiss(self, Endpoint endpoint not None):
        """The endpoint has not attached, or goes."""
        if self.set != NULL:
            fs_slot_free(&endpoint.c, self.set)

    cdef int make_set(self) except -1:
        cdef int failed
        cdef fs_event_set *made = fs_event_set_new(&failed)
        if made == NULL:
            raise OSError(-failed, _os.strerror(-failed))
        try:
            self.loop.add_reader(made.epoll, self.wake)
        except BaseException:
            fs_event_set_end(made)
            raise
        self.set = made
        return 0

    cdef int enter(self, QueuedConnection transport) except -1:
        """The transport's endpoint has been attached, and `admit` was called for it."""
        fs_slot_put_member(self.set, fs_slot_of(&transport.endpoint.c), <void *>transport)  # `begun` keeps it until it leaves
        fs_set_register(self.set, &transport.endpoint.c)
        self.heat(transport)
        return 0

    cdef void forget(self, QueuedConnection transport) noexcept:
        """The transport's endpoint is about to end."""
        self.watched.discard(transport)
        self.cool(transport)
        if transport.endpoint is not None and self.set != NULL:
            fs_slot_free(&transport.endpoint.c, self.set)
        self.begun.discard(transport)

    cdef int heat(self, QueuedConnection transport) except -1:
        """Polls the transport from the next turn on."""
        transport.last_event = fs_now()
        if not transport.hot:
            transport.hot = True
            self.hot.append(transport)
        return self.order_turn()

    cdef int order_turn(self) except -1:
        if not self.scheduled and not self.closed:
            self.scheduled = True
            self.quiet_since = 0
            if self.set != NULL:
                fs_set_awake(self.set)
            self.call_soon(self.turn_method, context=self.context)
        return 0

    cdef void cool(self, QueuedConnection transport) noexcept:
        if transport.hot:
            transport.hot = False
            self.stale = True

    def close(self):
        """The loop is about to be closed: its connections end with their transports."""
        cdef QueuedConnection transport
        for transport in list(self.begun):
            transport.end_endpoint()
        self.closed = True
        if self.probe_timer is not None:
            self.probe_timer.cancel()
        if self.set != NULL:
            self.loop.remove_reader(self.set.epoll)
            fs_event_set_end(self.set)
            self.set = NULL

    cdef bint leave_to_set(self, QueuedConnection transport) except -1:
        """Arms the transport, unless something is there already: whether it is left to the event set."""
        if transport.arm():
            return False
        self.cool(transport)
        return True

    # ---- half-closed peers -------------------------------------------------------------------------------

    cdef int watch(self, QueuedConnection transport) except -1:
        """The transport has a backlog, and the kernel's stream from its peer has ended."""
        if transport.endpoint is None or transport in self.watched or self.closed:
            return 0
        if fs_probe_loop_peer(&transport.endpoint.c):
            self.heat(transport)
            return 0
        self.watched.add(transport)
        if self.probe_timer is None:
            self.probe_timer = self.loop.call_later(PROBE, self.probe, context=self.context)
        return 0

    def probe(self):
        """The queue's timer, while there is something to watch."""
        cdef QueuedConnection transport
        watched = self.watched
        self.watched = set()
        self.probe_timer = None
        for transport in watched:
            if transport.backlog_size:
                self.watch(transport)

    # ---- turns -------------------------------------------------------------------------------------------

    def wake(self):
        """The loop's callback for the event set's descriptor: somebody has told it."""
        cdef bint ordered = self.scheduled
        cdef list woken = []
        fs_set_awake(self.set)
        fs_event_set_drain(self.set)
        if not self.hot and self.quiet_since and fs_has_hints(self.set):  # before heat() begins a new wait
            fs_spin_stats_update(&self.spin_stats, &totals, self.quiet_since, self.budget > 0, False)
        self.take_hints(woken)
        self.quiet_since = 0
        if PyObject_Size(self.ready) <= self.scheduled:  # nothing but our own turn
            self.sweep_all()
        elif not ordered:
            self.seen = woken  # behind what is ready: that is where heat() has put the turn
        if not self.scheduled:
            self.rest()

    cdef int take_hints(self, list woken) except -1:
        """Polls those that the event set has hints of, and that were armed; `woken` gets them too, unless it is None."""
        cdef uint32_t places[HINTS]
        cdef int n, i, takes
        cdef QueuedConnection transport
        fs_reoffer_pages(self.set)
        for takes in range(TAKES):
            n = fs_take_hints(self.set, places, HINTS)
            if n == 0:
                return 0
            for i in range(n):
                member = fs_slot_member(self.set, places[i])
                if member == NULL:
                    continue
                transport = <QueuedConnection>member
                if not transport.hot:
                    fs_disarm_receiver(&transport.endpoint.c.ring, FS_SET_ASLEEP)
                    self.heat(transport)
                    if woken is not None:
                        woken.append(transport)

    cdef int rest(self) except -1:
        """Nothing is hot: the event set sleeps, unless it has hints by now."""
        cdef int takes
        for takes in range(2):
            if self.set == NULL or self.scheduled or not fs_prepare_sleep(self.set):
                return 0
            self.take_hints(None)
        self.order_turn()  # hints come and come: the loop does its other work in between
        return 0

    def turn(self):
        """The queue's callback in a turn of the loop."""
        cdef int64_t now = fs_now()
        cdef bint loop_works = now - self.left_at > LOOP_WORKS
        cdef bint any
        if self.closed:
            return
        try:  # (`scheduled` is still true, so that heat() does not order a turn ahead of the one ordered below)
            any = self.sweep_all()
            if not loop_is_idle(self):
                self.look(fs_now())
            if not any and self.hot and not self.seen:
                now = fs_now()
                if not self.quiet_since:
                    self.quiet_since = now
                    self.spun = 0
                    self.budget = fs_spin_budget(&self.spin_stats, now, self.peer_processor())
                if now - self.quiet_since >= self.budget:
                    fs_count(&totals.poll_unpaid_ns, self.spun)
                    self.spun = 0
                    self.arm_all()
                elif not loop_works and loop_is_idle(self) and (
                        self.spin(min(now + SPIN, self.quiet_since + self.budget))):
                    self.sweep_all()
        finally:  # also when an interrupt leaves the loop: the program may run it again
            self.scheduled = len(self.hot) > 0
            if self.scheduled:
                self.left_at = fs_now()
                self.call_soon(self.turn_method, context=self.context)
            else:
                self.rest()

    cdef bint sweep_all(self) except -1:
        """Delivers what was seen before; then sweeps until nothing comes, or the loop has something to do, or the slice is
        over. Whether anything came."""
        try:
            return self.sweep_while_answered()
        finally:
            self.step_out()

    cdef int step_into(self, QueuedConnection transport) except -1:
        """The sweep goes on in this transport's context. (To enter and leave it for every message would cost as much as
        the ring does.)"""
        if self.inside is not transport:
            self.step_out()
            PyContext_Enter(transport.context)
            self.inside = transport
        return 0

    cdef int step_out(self) except -1:
        cdef QueuedConnection transport = self.inside
        if transport is not None:
            self.inside = None
            PyContext_Exit(transport.context)
        return 0

    cdef bint sweep_while_answered(self) except -1:
        cdef int64_t began = fs_now()
        cdef int64_t now = began
        cdef int sweeps = 0
        cdef bint any = False, unanswered = False, polls = False
        while self.seen or loop_is_idle(self):
            if not self.seen:
                self.look(now)
            if self.seen and self.deliver_seen(now, &unanswered):
                if not any:
                    any = True
                    polls = fs_spin_budget(&self.spin_stats, began, self.peer_processor()) > 0
                if unanswered:
                    break
            elif not polls or not self.answer_comes():
                break
            sweeps += 1
            if sweeps % SWEEPS_PER_LOOK == 0:
                now = fs_now()
                if now - began > SLICE:
                    break
        if any:
            if self.quiet_since and self.budget:
                fs_spin_stats_update(&self.spin_stats, &totals, self.quiet_since, True, True)
            self.quiet_since = 0
        return any

    cdef uint32_t peer_processor(self) noexcept:
        """1 + the processor that the peer of a hot connection last ran on, the one that `spin` goes by; 0: unknown."""
        self.drop_cooled()
        return processor_of_peer(<QueuedConnection>self.hot[0]) if self.hot else 0

    cdef bint answer_comes(self) noexcept:
        """A protocol has answered from its callback, so the peer's next message may be here before a turn of the loop would
        be over."""
        cdef QueuedConnection transport
        cdef int looks
        self.drop_cooled()
        if len(self.hot) != 1:
            return False
        transport = <QueuedConnection>self.hot[0]
        for looks in range(ANSWER_LOOKS):
            if transport.something():
                return True
            fs_cpu_relax()
        return False

    cdef int look(self, int64_t now) except -1:
        """One look at the hints and at each hot connection: who has something is `seen`."""
        cdef QueuedConnection transport
        cdef bint several
        if self.set != NULL and fs_has_hints(self.set):
            self.take_hints(None)
        several = len(self.hot) > 1
        self.drop_cooled()
        self.seen = []
        for member in self.hot:
            transport = <QueuedConnection>member  # unchecked, here and below: a look along its base classes is as long as this one
            if transport.hot:
                if transport.something():
                    self.seen.append(transport)
                elif several and now - transport.last_event > COOL:
                    self.leave_to_set(transport)
        return 0

    cdef bint deliver_seen(self, int64_t now, bint *unanswered) except -1:
        """Whether anything came of what was seen; `unanswered`: some protocol did not write at once, so what has to happen
        next is probably a task's."""
        cdef QueuedConnection transport
        cdef int64_t writes
        cdef bint any = False
        cdef list seen = self.seen
        self.seen = []
        for member in seen:
            transport = <QueuedConnection>member
            if transport.hot:
                writes = self.writes
                self.step_into(transport)
                if transport.progress():
                    any = True
                    transport.last_event = now
                    if self.writes == writes:
                        unanswered[0] = True
        return any

    cdef void drop_cooled(self) noexcept:
        cdef QueuedConnection transport
        if self.stale:
            self.stale = False
            self.hot = [transport for transport in self.hot if transport.hot]

    cdef bint spin(self, int64_t until) except -1:
        """Polls natively, with the GIL released, until something is there."""
        cdef PyObject *members[64]
        cdef Py_ssize_t i, n = 0
        cdef bint found = False, shares = True
        cdef int look
        cdef int64_t began = fs_now(), now = began
        self.drop_cooled()
        for transport in self.hot[:64]:
            members[n] = <PyObject *>transport  # borrowed: `hot` keeps them, and only this thread changes it
            n += 1
        if n == 0:
            return False
        with nogil:
            while not found:
                now = fs_now()
                if now >= until:
                    break
                if fs_has_hints(self.set):
                    found = True
                    break
                shares = fs_shares_cpu(processor_of_peer(<QueuedConnection>members[0]))
                for look in range(1 if shares else LOOKS):
                    for i in range(n):
                        if (<QueuedConnection>members[i]).something():
                            found = True
                            break
                    if found:
                        break
                    fs_cpu_relax()
                if shares and not found:
                    sched_yield()
        now = min(now, until)
        if now > began:
            fs_count(&totals.poll_ns, now - began)
            self.spun += now - began
        return found

    cdef int arm_all(self) except -1:
        cdef QueuedConnection transport
        cdef bint all_armed = True
        for transport in self.hot:
            if not transport.hot:
                continue
            if not self.leave_to_set(transport):
                all_armed = False
        if all_armed:
            self.hot = []
            self.stale = False
        return 0
