# The completion queue of an event loop: when it looks, in which order it delivers, and when it lets the loop sleep. Which connection has
# something is the poller's (core/include/fastsock_loop.h). Part of transport.pyx.

cdef extern from "Python.h":
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    Py_ssize_t PyObject_Size(object) except -1

cdef enum:
    SWEEPS_PER_LOOK = 4  # sweeps between two reads of the clock
    ANSWER_LOOKS = 100   # polls of a connection whose protocol has just answered: 1 to 2 us

cdef enum:  # nanoseconds
    SLICE = 200_000      # longest call of `poll` while protocols answer from their callbacks
    SPIN = 20_000        # longest spinning in a call of `poll`, before the loop checks its other descriptors
    LOOP_WORKS = 8_000   # a longer time between two calls of `poll` means that the loop had other work


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
    """Polls the connections of an event loop on the ring, delivers their data, and decides when they are left to the event set.

    The poller (core/include/fastsock_loop.h) has the connections, and a list of those that may be ready. While there are some in the
    list, the loop calls `poll` in every iteration. `poll` runs for at most SLICE and never sleeps. If nothing arrives within the
    polling budget, all are armed and the event set sleeps; the loop polls its descriptor.

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
        self.begun = set()

    def __dealloc__(self):
        if self.poller != NULL:
            fs_loop_end(self.poller)

    # ---- members -----------------------------------------------------------------------------------------

    @property
    def epoll(self):
        return fs_loop_fd(self.poller) if self.poller != NULL else -1

    cdef int make_poller(self) except -1:
        cdef int failed
        cdef fs_poller *made = fs_loop_new(&failed)
        if made == NULL:
            raise OSError(-failed, _os.strerror(-failed))
        try:
            self.loop.add_reader(fs_loop_fd(made), self.wake)
        except BaseException:
            fs_loop_end(made)
            raise
        self.poller = made
        return 0

    cdef int enter(self, Transport transport) except -1:
        """Adds a transport whose endpoint has attached."""
        fs_loop_enter(transport.endpoint.member)
        return self.activate(transport)

    cdef void forget(self, Transport transport) noexcept:
        """Removes a transport whose endpoint is about to end."""
        cdef int i
        for i in range(self.at, self.count):
            if self.seen[i].data.ptr == <void *>transport:
                self.seen[i].data.ptr = NULL
        self.begun.discard(transport)

    cdef int activate(self, Transport transport) except -1:
        """The transport may have something to do, or waits for something else than before: it is looked at from the loop's next
        iteration on."""
        if transport.endpoint is None or transport.endpoint.member == NULL:
            return 0
        want(transport)
        fs_loop_activate(transport.endpoint.member)
        return self.schedule_poll()

    cdef int schedule_poll(self) except -1:
        if not self.scheduled and not self.closed:
            self.scheduled = True
            fs_loop_awake(self.poller)
            self.call_soon(self.poll_method, context=self.context)
        return 0

    def close(self):
        """Ends the loop's connections. Called before the loop is closed."""
        cdef Transport transport
        cdef fs_poller *poller = self.poller
        for transport in list(self.begun):
            end_endpoint(transport)
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()
        if poller != NULL:
            self.loop.remove_reader(fs_loop_fd(poller))
            self.poller = NULL
            fs_loop_end(poller)

    # ---- polling -----------------------------------------------------------------------------------------

    def wake(self):
        """The loop's callback for the event set's descriptor: an armed connection has data or room."""
        cdef bint scheduled_before = self.scheduled
        fs_loop_wake(self.poller)
        if fs_loop_looks(self.poller):
            self.schedule_poll()
        if PyObject_Size(self.ready) <= self.scheduled:  # only our own callback is ready
            self.sweep_all()
        elif not scheduled_before:
            self.look(fs_now())  # delivers after the ready callbacks: `poll` is after them
        if not self.scheduled:
            self.sleep()

    def look_again(self):
        """The timer's callback: looks at connections of which no event may tell."""
        self.timer = None
        fs_loop_activate_late(self.poller)
        if self.scheduled:
            self.set_timer()
        elif fs_loop_arm(self.poller):
            self.schedule_poll()
        else:
            self.sleep()

    cdef int set_timer(self) except -1:
        """Has `look_again` called, if there are such connections."""
        cdef int64_t late = fs_loop_late(self.poller)
        if late >= 0 and self.timer is None:
            self.timer = self.loop.call_later(late / 1e9, self.look_again, context=self.context)
        return 0

    cdef int sleep(self) except -1:
        """Puts the event set to sleep, unless it has hints."""
        if self.closed or self.scheduled:
            return 0
        if fs_loop_sleep(self.poller):
            return self.schedule_poll()
        return self.set_timer()

    def poll(self):
        """The queue's callback in each iteration of the loop, while a connection may be ready."""
        cdef int64_t now = fs_now()
        cdef bint loop_works = now - self.left_at > LOOP_WORKS
        cdef bint any
        cdef int64_t left
        if self.closed:
            return
        try:  # `scheduled` is still true, so that activate() does not schedule a second call
            any = self.sweep_all()
            if self.closed:
                return
            if not loop_is_idle(self):
                self.look(fs_now())
            if not any and fs_loop_looks(self.poller) and self.at == self.count:
                now = fs_now()
                left = fs_loop_budget(self.poller, now)
                if not left:
                    fs_loop_arm(self.poller)
                elif not loop_works and loop_is_idle(self) and self.spin(now + min(left, SPIN)):
                    self.sweep_all()
        finally:  # also after KeyboardInterrupt: the program may run the loop again
            self.scheduled = not self.closed and fs_loop_looks(self.poller)
            if self.scheduled:
                self.left_at = fs_now()
                self.call_soon(self.poll_method, context=self.context)
                self.set_timer()
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
        while self.at < self.count or loop_is_idle(self):
            if self.at == self.count:
                self.look(now)
            if self.count and self.deliver_seen(&unanswered):
                if self.closed:
                    return True
                if not any:
                    any = True
                    polls = fs_loop_polls(self.poller, began)
                if unanswered:
                    break
            # (The peer's next message may take less time than an iteration of the loop.)
            elif not polls or not fs_loop_await(self.poller, ANSWER_LOOKS):
                break
            sweeps += 1
            if sweeps % SWEEPS_PER_LOOK == 0:
                now = fs_now()
                if now - began > SLICE:
                    break
        if any:
            fs_loop_found(self.poller)
        return any

    cdef int look(self, int64_t now) noexcept:
        """Looks which connections have data or room: `seen`."""
        self.at = 0
        self.count = fs_loop_look(self.poller, self.seen, TOLD, now)
        return 0

    cdef bint deliver_seen(self, bint *unanswered) except -1:
        """Delivers to the connections in `seen`. Returns true if anything was delivered. Sets `unanswered` if a protocol did
        not write from its callback: then probably a task must run next."""
        cdef Transport transport
        cdef int64_t writes
        cdef void *next
        cdef bint any = False
        while self.at < self.count:
            next = self.seen[self.at].data.ptr
            self.at += 1
            if next == NULL:
                continue
            transport = <Transport>next
            writes = self.writes
            self.step_into(transport)
            if progress(transport):
                any = True
                if self.writes == writes:
                    unanswered[0] = True
        return any

    cdef bint spin(self, int64_t until) noexcept:
        """Polls without the GIL until there may be something to do. Returns false when `until` has passed."""
        cdef bint found
        with nogil:
            found = fs_loop_spin(self.poller, until)
        return found
