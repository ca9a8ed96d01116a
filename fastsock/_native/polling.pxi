# Whether polling pays: what every wait of this process goes by, of a thread or of a loop.

cdef void take_up_polling(poll_habit *habit) noexcept nogil:
    """A habit that has yet to be learned: in the middle."""
    habit.score = SCORE_MAX // 2
    habit.skip = habit.penalty = 0


cdef int64_t may_poll(poll_habit *habit, int64_t now) noexcept nogil:
    """Nanoseconds that a wait may poll: nothing when it has not been paying, or on one processor."""
    global processors, processors_known
    if poll_ns == 0 or habit.score < SCORE_POLLS:
        return 0
    if habit.skip > 0:
        habit.skip -= 1
        return 0
    if now - processors_known > AFFINITY_INTERVAL:
        processors = fs_usable_processors()
        processors_known = now
    return poll_ns if processors > 1 else 0


cdef bint shares_processor(uint32_t peer_processor) noexcept nogil:
    """Whether the peer last ran on the processor that we are on (`peer_processor`: its number + 1, 0: unknown). Then a look
    must be followed by a yield: the peer gets the processor at once, and as both stay runnable, the scheduler moves one of
    them to an idle processor within a tick. Two that sleep and wake each other would stay together for ever."""
    return peer_processor == <uint32_t>sched_getcpu() + 1


cdef inline void back_off(poll_habit *habit) noexcept nogil:
    """Waits for longer each time before it polls again."""
    habit.penalty = min(2 * habit.penalty + 1, PENALTY_MAX)
    habit.skip = habit.penalty


cdef void learn(poll_habit *habit, fs_counters *count, int64_t began, bint polled, bint paid) noexcept nogil:
    """Learns from a finished wait that began at `began` (monotonic ns) whether polling pays."""
    cdef bint soon
    if paid:
        count.polls_paid += 1
        habit.penalty //= 2
        if habit.score < SCORE_MAX:
            habit.score += 1
        return
    soon = fs_now() - began <= WAKE_COST
    if polled:
        count.polls_unpaid += 1
        if soon:
            back_off(habit)  # it came as soon as we slept: the peer needed our processor
        elif habit.score > 0:
            habit.score -= 1
    elif soon and habit.score < SCORE_MAX:
        habit.score += 1  # polling would have caught it
