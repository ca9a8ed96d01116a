# Whether polling pays: what every wait of this process goes by, of a thread or of a loop.

cdef void take_up_polling(poll_habit *habit) noexcept nogil:
    """A habit that has yet to be learned: in the middle."""
    fs_store_relaxed(&habit.score, SCORE_MAX // 2)
    fs_store_relaxed(&habit.skip, 0)
    fs_store_relaxed(&habit.penalty, 0)


cdef int64_t may_poll(poll_habit *habit, int64_t now, uint32_t peer_processor) noexcept nogil:
    """Nanoseconds that a wait may poll: nothing when it has not been paying, or where the peer needs the processor that
    polls. With a choice of processors the scheduler moves one of the two (`shares_processor`). With one, nobody moves us:
    then only a peer that is known to be elsewhere is polled for."""
    cdef uint32_t skip = fs_load_relaxed(&habit.skip)
    if poll_ns == 0 or fs_load_relaxed(&habit.score) < SCORE_POLLS:
        return 0
    if skip > 0:
        fs_store_relaxed(&habit.skip, skip - 1)
        return 0
    if now - <int64_t>fs_load_relaxed64(&processors_known) > AFFINITY_INTERVAL:
        fs_store_relaxed(&processors, <uint32_t>fs_usable_processors())
        fs_store_relaxed64(&processors_known, <uint64_t>now)
    if fs_load_relaxed(&processors) > 1 or (peer_processor and not shares_processor(peer_processor)):
        return poll_ns
    return 0


cdef bint crowded(int64_t now) noexcept nogil:
    """Whether others wait for a processor. A look at the kernel's stream is a system call, and a yield after it runs whoever
    waits, who need not be the peer: such a wait then costs many times what the sleep costs, and wins nothing."""
    if now - <int64_t>fs_load_relaxed64(&crowd_known) > AFFINITY_INTERVAL:
        fs_store_relaxed64(&crowd_known, <uint64_t>now)
        fs_store_relaxed(&crowd, fs_crowded())
    return fs_load_relaxed(&crowd)


cdef bint shares_processor(uint32_t peer_processor) noexcept nogil:
    """Whether the peer last ran on the processor that we are on (`peer_processor`: its number + 1, 0: unknown). Then a look
    must be followed by a yield: the peer gets the processor at once, and as both stay runnable, the scheduler moves one of
    them to an idle processor within a tick. Two that sleep and wake each other would stay together for ever."""
    return peer_processor == <uint32_t>sched_getcpu() + 1


cdef inline void back_off(poll_habit *habit) noexcept nogil:
    """Waits for longer each time before it polls again."""
    cdef uint32_t penalty = min(2 * fs_load_relaxed(&habit.penalty) + 1, <uint32_t>PENALTY_MAX)
    fs_store_relaxed(&habit.penalty, penalty)
    fs_store_relaxed(&habit.skip, penalty)


cdef void learn(poll_habit *habit, fs_counters *count, int64_t began, bint polled, bint paid) noexcept nogil:
    """Learns from a finished wait that began at `began` (monotonic ns) whether polling pays."""
    cdef bint soon
    cdef uint32_t score = fs_load_relaxed(&habit.score)
    if paid:
        fs_count(&count.polls_paid, 1)
        fs_store_relaxed(&habit.penalty, fs_load_relaxed(&habit.penalty) // 2)
        if score < SCORE_MAX:
            fs_store_relaxed(&habit.score, score + 1)
        return
    soon = fs_now() - began <= WAKE_COST
    if polled:
        fs_count(&count.polls_unpaid, 1)
        if soon:
            back_off(habit)  # it came as soon as we slept: the peer needed our processor
        elif score > 0:
            fs_store_relaxed(&habit.score, score - 1)
    elif soon and score < SCORE_MAX:
        fs_store_relaxed(&habit.score, score + 1)  # polling would have caught it
