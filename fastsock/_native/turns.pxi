# Whose turn it is on one side of a connection: the two locks of `fs_side` (turns.h), as endpoints take them.
#
# Each of these returns the side whose lock it took, and that side's lock is the one to give back: a bridge may put
# another side in its place meanwhile. Callers may hold the GIL; it is released while somebody else has the turn,
# and no turn is held while the GIL is waited for. They are inside (`begin`) or kept, so that the endpoint stays.

cdef extern from *:
    """
    /* Gives the GIL away if this thread has it. What fs_take_gil takes again. */
    static PyThreadState *fs_give_gil(void) {
    #if PY_VERSION_HEX >= 0x030d0000
        PyThreadState *running = PyThreadState_GetUnchecked();
    #else
        PyThreadState *running = _PyThreadState_UncheckedGet();
    #endif
        return running && running == PyGILState_GetThisThreadState() ? PyEval_SaveThread() : NULL;
    }
    static void fs_take_gil(PyThreadState *given) {
        if (given) PyEval_RestoreThread(given);
    }
    /* Waits for a turn, without the GIL. */
    static void fs_give_way(const struct fs_lock *lock) {
        PyThreadState *given = fs_give_gil();
        fs_await_turn(lock);
        fs_take_gil(given);
    }
    /* Waits for a millisecond or for a byte, without the GIL. */
    static void fs_await_byte(int fd) {
        PyThreadState *given = fs_give_gil();
        fs_events_within(fd, POLLIN, 1);
        fs_take_gil(given);
    }
    /* Lets others run for as long as the peer's `ringing` stands, without the GIL; until `deadline` (monotonic ns) at most. */
    static void fs_await_post(struct fs_vi *vi, int64_t deadline) {
        PyThreadState *given = fs_give_gil();
        while (fs_ringing(vi) && fs_now() < deadline) sched_yield();
        fs_take_gil(given);
    }
    /* A nap without the GIL. */
    static void fs_nap_aside(void) {
        PyThreadState *given = fs_give_gil();
        fs_nap();
        fs_take_gil(given);
    }
    """
    void fs_give_way(fs_lock_t *) nogil
    void fs_await_byte(int) nogil
    void fs_await_post(fs_vi *, int64_t) nogil
    void fs_nap_aside() nogil


cdef enum:
    PATIENCE = 2  # times some 10 ms that a call of the program waits for its turn before it looks for signals and its timeout


cdef inline void give_up(fs_lock_t *lock, int turn) noexcept nogil:
    """Ends a turn that was taken in vain."""
    if turn == FS_INHERITED:
        fs_disclaim(lock)
    else:
        fs_unlock(lock)


cdef inline fs_side *take_turn(Endpoint self, bint sends, int patience) noexcept nogil:
    """NULL if somebody else has had the turn for `patience` times some 10 ms (negative: for ever)."""
    cdef fs_side *own
    cdef fs_lock_t *lock
    cdef int turn
    while True:
        own = self.own
        lock = &own.send_lock if sends else &own.recv_lock
        turn = fs_try_lock(lock, own_pid)
        if turn == FS_BUSY:
            if patience == 0:
                return NULL
            patience -= 1
            fs_give_way(lock)
        elif own != self.own:
            give_up(lock, turn)
        else:
            if turn == FS_INHERITED:
                if sends:
                    mend_sending(self, own)
                else:
                    mend_receiving(self, own)
            return own


cdef fs_side *lock_receiving(Endpoint self) noexcept nogil:
    return take_turn(self, False, -1)


cdef fs_side *lock_sending(Endpoint self) noexcept nogil:
    return take_turn(self, True, -1)


cdef fs_side *try_both(Endpoint self) noexcept nogil:
    """Until unlock_both. NULL if one of the turns is somebody else's; never waits."""
    cdef fs_side *own = self.own
    cdef int receiving = fs_try_lock(&own.recv_lock, own_pid), sending
    if receiving == FS_BUSY:
        return NULL
    fs_keep(&own.recv_lock)
    sending = fs_try_lock(&own.send_lock, own_pid)
    if sending != FS_BUSY:
        if own == self.own:
            if receiving == FS_INHERITED:
                mend_receiving(self, own)
            if sending == FS_INHERITED:
                mend_sending(self, own)
            return own
        give_up(&own.send_lock, sending)
    fs_unkeep(&own.recv_lock)
    give_up(&own.recv_lock, receiving)
    return NULL


cdef void await_both(Endpoint self) noexcept nogil:
    """After an attempt that failed."""
    fs_give_way(&self.own.recv_lock)
    fs_give_way(&self.own.send_lock)


cdef fs_side *lock_both(Endpoint self) noexcept nogil:
    """Until unlock_both. While one turn is held the other is not waited for."""
    cdef fs_side *own = try_both(self)
    while own == NULL:
        await_both(self)
        own = try_both(self)
    return own


cdef void unlock_both(fs_side *own) noexcept nogil:
    fs_unlock(&own.send_lock)
    fs_unkeep(&own.recv_lock)
    fs_unlock(&own.recv_lock)
