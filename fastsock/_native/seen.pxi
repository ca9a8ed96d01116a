# What the connection thread tells to who looks at this process from outside: seen.h. Without the GIL, and without a lock that a
# byte of data waits for: the table lock is for connections that begin and end.

cdef struct answer_t:
    fs_seen head
    unsigned char records[FS_SEEN_ROOM]

cdef answer_t answer  # the connection thread's alone


cdef void answer_look(fs_asker *asker) noexcept nogil:
    cdef size_t size
    answer.head.magic = FS_SEEN_MAGIC
    answer.head.tag = asker.look.tag
    answer.head.kind = asker.look.kind
    answer.head.protocol = FS_VERSION
    answer.head.next = FS_NO_MORE
    answer.head.count = 0
    if asker.look.kind == FS_LOOK_PROCESS:
        size = see_process()
    elif asker.look.kind == FS_LOOK_ROLL:
        size = see_roll(asker.look.first)
    elif asker.look.kind == FS_LOOK_RING:
        size = see_ring(asker.look.first)
    else:
        return
    fs_answer(ask_fd, asker, &answer, sizeof(fs_seen) + size)


cdef size_t see_process() noexcept nogil:
    cdef fs_seen_process *seen = <fs_seen_process *>answer.records
    cdef int i
    memset(seen, 0, sizeof(fs_seen_process))
    fs_add_counters(&seen.gone, &totals, False)
    pthread_mutex_lock(&table_lock)
    seen.on_ring = <uint32_t>on_ring_count
    seen.queued = <uint32_t>queued
    for i in range(MEETINGS):
        seen.names += fs_load_relaxed(&meetings[i].state) == WAITING
    pthread_mutex_unlock(&table_lock)
    answer.head.count = 1
    return sizeof(fs_seen_process)


cdef size_t see_roll(uint32_t first) noexcept nogil:
    """Words of the roll from an entry on, as many as fit; free entries are left out."""
    cdef uint64_t *words = <uint64_t *>answer.records
    cdef uint64_t word
    cdef uint32_t place = first
    # (`looked`: a roll of free entries only must not keep the thread.)
    cdef int looked = 0
    while on_roll(place, &word):
        if answer.head.count == FS_SEEN_ROOM // sizeof(uint64_t) or looked == 8192:
            answer.head.next = place
            break
        if word >> 56 != 255:
            words[answer.head.count] = word
            answer.head.count += 1
        place += 1
        looked += 1
    return answer.head.count * sizeof(uint64_t)


cdef size_t see_ring(uint32_t first) noexcept nogil:
    """Ends that have a region, from the n-th of the list on. One that ends meanwhile may move another to its place, which is then
    told twice or not at all."""
    cdef fs_seen_end *ends = <fs_seen_end *>answer.records
    cdef Py_ssize_t i = first
    cdef uint32_t flags
    cdef PyObject *one
    pthread_mutex_lock(&table_lock)
    while i < on_ring_count:
        if answer.head.count == FS_SEEN_ENDS:
            answer.head.next = <uint32_t>i
            break
        one = on_ring[i].endpoint
        # An endpoint on the list has not ended, so its region is mapped and its side's memory is there.
        if is_attached(<Endpoint>one):
            flags = FS_SEEN_EXPOSED if is_exposed(<Endpoint>one) else 0
            if (<Endpoint>one).driven:
                flags |= FS_SEEN_DRIVEN
            fs_see_end(&(<Endpoint>one).vi, (<Endpoint>one).own, (<Endpoint>one).inode, flags, &ends[answer.head.count])
            answer.head.count += 1
        i += 1
    pthread_mutex_unlock(&table_lock)
    return answer.head.count * sizeof(fs_seen_end)
