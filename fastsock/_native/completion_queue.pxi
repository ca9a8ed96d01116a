# The completion queue of an event loop: polls active connections in native code, delivers data in batches, and arms idle
# connections, which then wait in its event set. Part of transport.pyx.

cdef extern from "Python.h":
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    Py_ssize_t PyObject_Size(object) except -1

cdef enum:
    SWEEPS_PER_LOOK = 4  # sweeps between two reads of the clock
    LOOKS = 16           # polls between two checks of the clock and the hints
    HINTS = 256          # hints taken at a time
    TAKES = 64           # batches of hints before the loop goes on, as a hostile peer may send hints without end
    ANSWER_LOOKS = 100   # polls of a connection whose protocol has just answered: 1 to 2 us

cdef enum:  # nanoseconds
    SLICE = 200_000      # longest call of `poll` while protocols answer from their callbacks
    SPIN = 20_000        # longest spinning in a call of `poll`, before the loop checks its other descriptors
    LOOP_WORKS = 8_000   # a longer time between two calls of `poll` means that the loop had other work
    IDLE = 1_000_000     # idle time after which a connection among busy ones is armed


cdef double PROBE = 0.5  # seconds between checks of a half-closed peer, whose death causes no event


cdef object ready_callbacks(loop):
    """Returns the deque of ready callbacks of an asyncio or uvloop loop. uvloop's is only visible to the garbage
    collector."""
    cdef object ready = getattr(loop, "_ready", None)
    if ready is not None:
        return ready
    for ready in _gc.get_referents(loop):
        if type(ready) is _deque:
            return ready
    # Unknown loop: this value is never empty, so the loop never counts as idle and delivery waits for the next iteration.
    return (None, None)


cdef inline bint loop_is_idle(CompletionQueue self) except -1:
    """Returns true if no callback of the loop is ready, so that delivery now overtakes none."""
    return PyObject_Size(self.ready) == 0


@cython.final
cdef class CompletionQueue:
    """Polls the active connections of an event loop, delivers their data, and arms idle connections.

    While a connection is active, the loop calls `poll` in every iteration. `poll` runs for at most SLICE and never
    sleeps. If nothing arrives within the polling budget, all connections are armed and the event set sleeps; the loop polls
    its descriptor. Before that the set is awake: a peer that sends to an armed connection leaves a hint, without a system
    call, and the queue takes the hints at each look.

    Delivery keeps the order of a selector: after the callbacks that were ready when the queue looked. If none is ready, the
    queue delivers at once. Otherwise it notes the connections (`seen`) and delivers at the next call of `poll`, when the callbacks
    that were ready before have run, as a loop runs ready callbacks in order.
    """

    def __cinit__(self, loop):
        self.loop = loop
        self.kind = kind_of(loop)
        self.call_soon = loop.call_soon
        self.poll_method = self.poll
        self.context = _contextvars.Context()
        self.ready = ready_callbacks(loop)
        self.active = []
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

    cdef int enter(self, Transport transport) except -1:
        """Adds a transport whose endpoint has attached, and has a slot in the set."""
        fs_slot_put_member(self.set, fs_slot_of(transport.endpoint.c), <void *>transport)  # `begun` holds a reference until `forget`
        fs_set_register(self.set, transport.endpoint.c)
        self.activate(transport)
        return 0

    cdef void forget(self, Transport transport) noexcept:
        """Removes a transport whose endpoint is about to end."""
        self.watched.discard(transport)
        self.deactivate(transport)
        if transport.endpoint is not None and self.set != NULL:
            fs_slot_free(transport.endpoint.c, self.set)
        self.begun.discard(transport)

    cdef int activate(self, Transport transport) except -1:
        """Makes the transport active: it is polled from the loop's next iteration on."""
        transport.last_event = fs_now()
        if not transport.active:
            transport.active = True
            self.active.append(transport)
        return self.schedule_poll()

    cdef int schedule_poll(self) except -1:
        if not self.scheduled and not self.closed:
            self.scheduled = True
            self.quiet_since = 0
            if self.set != NULL:
                fs_set_awake(self.set)
            self.call_soon(self.poll_method, context=self.context)
        return 0

    cdef void deactivate(self, Transport transport) noexcept:
        if transport.active:
            transport.active = False
            self.stale = True

    def close(self):
        """Ends the loop's connections. Called before the loop is closed."""
        cdef Transport transport
        for transport in list(self.begun):
            end_endpoint(transport)
        self.closed = True
        if self.probe_timer is not None:
            self.probe_timer.cancel()
        if self.set != NULL:
            self.loop.remove_reader(self.set.epoll)
            fs_event_set_end(self.set)
            self.set = NULL

    cdef bint leave_to_set(self, Transport transport) except -1:
        """Arms the transport. Returns true if it now waits in the event set, false if it has something to do."""
        if arm(transport):
            return False
        self.deactivate(transport)
        return True

    # ---- half-closed peers -------------------------------------------------------------------------------

    cdef int watch(self, Transport transport) except -1:
        """Checks the peer regularly: the transport has a backlog, and the kernel's stream from the peer has ended."""
        if transport.endpoint is None or transport in self.watched or self.closed:
            return 0
        if fs_probe_loop_peer(transport.endpoint.c):
            self.activate(transport)
            return 0
        self.watched.add(transport)
        if self.probe_timer is None:
            self.probe_timer = self.loop.call_later(PROBE, self.probe, context=self.context)
        return 0

    def probe(self):
        """The timer callback: checks the peers of half-closed connections with a backlog."""
        cdef Transport transport
        watched = self.watched
        self.watched = set()
        self.probe_timer = None
        for transport in watched:
            if transport.backlog_size:
                self.watch(transport)

    # ---- polling -----------------------------------------------------------------------------------------

    def wake(self):
        """The loop's callback for the event set's descriptor: an armed connection has data or room."""
        cdef bint scheduled_before = self.scheduled
        cdef list woken = []
        fs_set_awake(self.set)
        fs_event_set_drain(self.set)
        if not self.active and self.quiet_since and fs_has_hints(self.set):  # before activate() starts a new wait
            fs_spin_stats_update(&self.spin_stats, &fs_poller_totals, self.quiet_since, self.budget > 0, False)
        self.take_hints(woken)
        self.quiet_since = 0
        if PyObject_Size(self.ready) <= self.scheduled:  # only our own callback is ready
            self.sweep_all()
        elif not scheduled_before:
            self.seen = woken  # after the ready callbacks: activate() has put `poll` there
        if not self.scheduled:
            self.sleep()

    cdef int take_hints(self, list woken) except -1:
        """Activates the armed connections that the event set has hints for, and adds them to `woken`, unless it is None."""
        cdef uint32_t places[HINTS]
        cdef int n, i, takes
        cdef Transport transport
        fs_reoffer_pages(self.set)
        for takes in range(TAKES):
            n = fs_take_hints(self.set, places, HINTS)
            if n == 0:
                return 0
            for i in range(n):
                member = fs_slot_member(self.set, places[i])
                if member == NULL:
                    continue
                transport = <Transport>member
                if not transport.active:
                    fs_disarm_receiver(&transport.endpoint.c.ring, FS_SET_ASLEEP)
                    self.activate(transport)
                    if woken is not None:
                        woken.append(transport)

    cdef int sleep(self) except -1:
        """Puts the event set to sleep, unless it has hints. No connection is active."""
        cdef int takes
        for takes in range(2):
            if self.set == NULL or self.scheduled or not fs_prepare_sleep(self.set):
                return 0
            self.take_hints(None)
        self.schedule_poll()  # hints keep coming: let the loop do its other work in between
        return 0

    def poll(self):
        """The queue's callback in each iteration of the loop, while a connection is active."""
        cdef int64_t now = fs_now()
        cdef bint loop_works = now - self.left_at > LOOP_WORKS
        cdef bint any
        if self.closed:
            return
        try:  # `scheduled` is still true, so that activate() does not schedule a second call
            any = self.sweep_all()
            if not loop_is_idle(self):
                self.look(fs_now())
            if not any and self.active and not self.seen:
                now = fs_now()
                if not self.quiet_since:
                    self.quiet_since = now
                    self.spun = 0
                    self.budget = fs_spin_budget(&self.spin_stats, now, fs_cpu_of_last_peer())
                if now - self.quiet_since >= self.budget:
                    fs_count(&fs_poller_totals.poll_unpaid_ns, self.spun)
                    self.spun = 0
                    self.arm_all()
                elif not loop_works and loop_is_idle(self) and (
                        self.spin(min(now + SPIN, self.quiet_since + self.budget))):
                    self.sweep_all()
        finally:  # also after KeyboardInterrupt: the program may run the loop again
            self.scheduled = len(self.active) > 0
            if self.scheduled:
                self.left_at = fs_now()
                self.call_soon(self.poll_method, context=self.context)
            else:
                self.sleep()

    cdef bint sweep_all(self) except -1:
        """Delivers to the connections in `seen`. Then sweeps until nothing arrives, the loop has other work, or the slice
        is over. Returns true if anything was delivered."""
        try:
            return self.sweep_while_answered()
        finally:
            self.step_out()

    cdef int step_into(self, Transport transport) except -1:
        """Enters the transport's context. The sweep stays in it until another transport is next, as entering and leaving
        for every message would cost as much as the ring."""
        if self.inside is not transport:
            self.step_out()
            PyContext_Enter(transport.context)
            self.inside = transport
        return 0

    cdef int step_out(self) except -1:
        cdef Transport transport = self.inside
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
                    polls = fs_spin_budget(&self.spin_stats, began, fs_cpu_of_last_peer()) > 0
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
                fs_spin_stats_update(&self.spin_stats, &fs_poller_totals, self.quiet_since, True, True)
            self.quiet_since = 0
        return any

    cdef bint answer_comes(self) noexcept:
        """Polls shortly for the peer's next message, after a protocol has answered from its callback. Returns true if there
        is one. This takes less time than an iteration of the loop."""
        cdef Transport transport
        cdef int looks
        self.drop_inactive()
        if len(self.active) != 1:
            return False
        transport = <Transport>self.active[0]
        for looks in range(ANSWER_LOOKS):
            if something(transport):
                return True
            fs_cpu_relax()
        return False

    cdef int look(self, int64_t now) except -1:
        """Takes the hints and checks each active connection. Those with data or credits go to `seen`."""
        cdef Transport transport
        cdef bint several
        if self.set != NULL and fs_has_hints(self.set):
            self.take_hints(None)
        several = len(self.active) > 1
        self.drop_inactive()
        self.seen = []
        for member in self.active:
            transport = <Transport>member  # unchecked cast, here and below: a type check would cost as much as the poll
            if transport.active:
                if something(transport):
                    self.seen.append(transport)
                elif several and now - transport.last_event > IDLE:
                    self.leave_to_set(transport)
        return 0

    cdef bint deliver_seen(self, int64_t now, bint *unanswered) except -1:
        """Delivers to the connections in `seen`. Returns true if anything was delivered. Sets `unanswered` if a protocol did
        not write from its callback: then probably a task must run next."""
        cdef Transport transport
        cdef int64_t writes
        cdef bint any = False
        cdef list seen = self.seen
        self.seen = []
        for member in seen:
            transport = <Transport>member
            if transport.active:
                writes = self.writes
                self.step_into(transport)
                if progress(transport):
                    any = True
                    transport.last_event = now
                    if self.writes == writes:
                        unanswered[0] = True
        return any

    cdef void drop_inactive(self) noexcept:
        cdef Transport transport
        if self.stale:
            self.stale = False
            self.active = [transport for transport in self.active if transport.active]

    cdef bint spin(self, int64_t until) except -1:
        """Polls without the GIL until there is something to do. Returns false when `until` has passed."""
        cdef PyObject *members[64]
        cdef Py_ssize_t i, n = 0
        cdef bint found = False, shares = True
        cdef int look
        cdef int64_t began = fs_now(), now = began
        self.drop_inactive()
        for transport in self.active[:64]:
            members[n] = <PyObject *>transport  # borrowed: `active` holds references, and only this thread changes it
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
                shares = fs_shares_cpu(fs_cpu_of_last_peer())
                for look in range(1 if shares else LOOKS):
                    for i in range(n):
                        if something(<Transport>members[i]):
                            found = True
                            break
                    if found:
                        break
                    fs_cpu_relax()
                if shares and not found:
                    sched_yield()
        now = min(now, until)
        if now > began:
            fs_count(&fs_poller_totals.poll_ns, now - began)
            self.spun += now - began
        return found

    cdef int arm_all(self) except -1:
        cdef Transport transport
        cdef bint all_armed = True
        for transport in self.active:
            if not transport.active:
                continue
            if not self.leave_to_set(transport):
                all_armed = False
        if all_armed:
            self.active = []
            self.stale = False
        return 0
