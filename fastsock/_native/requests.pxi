# Requests of the peers: for a doorbell byte, to go back to the kernel, to send a parcel again. The connection thread answers.

cdef struct asked:
    PyObject *endpoint       # borrowed: the endpoint leaves the list before it ends
    unsigned char id[FS_ASK_SIZE]  # of the region, and the side: both may be in this process

# All of it under the table lock.
cdef asked *on_ring = NULL
cdef int on_ring_count = 0
cdef int on_ring_room = 0
cdef PyObject *answering = NULL  # the endpoint for which a request is being answered, without the lock


def expect_asks(Endpoint endpoint not None, int side, bytes id not None):
    """Makes the connection thread ready to answer the requests of `endpoint`'s peer. Everything that can fail is done here,
    before the endpoint attaches: OSError or MemoryError, and nothing has changed."""
    global on_ring, on_ring_count, on_ring_room
    cdef asked *larger
    cdef const unsigned char *key = id
    cdef bint room
    start_thread()
    take_table()
    if on_ring_count == on_ring_room:
        larger = <asked *>realloc(on_ring, (on_ring_room * 2 + 16) * sizeof(asked))
        if larger != NULL:
            on_ring = larger
            on_ring_room = on_ring_room * 2 + 16
    room = on_ring_count < on_ring_room
    if room:
        on_ring[on_ring_count].endpoint = <PyObject *>endpoint
        memcpy(on_ring[on_ring_count].id, key, 16)
        on_ring[on_ring_count].id[16] = <unsigned char>side
        on_ring_count += 1
    pthread_mutex_unlock(&table_lock)
    if not room:
        raise MemoryError("no memory for one more connection that answers requests")


def answer_asks(uintptr_t memory, int side):
    """The endpoint of this region, which `expect_asks` knows, has attached: the region says where to ask. Cannot fail."""
    # SYNC: token - pairs with ask.
    fs_store_release64(&(<fs_region *>memory).asks[side], ask_token)


def ignore_asks(Endpoint endpoint not None):
    """The endpoint ends, or has not attached. If it is being asked for something at this moment, this waits for the answer."""
    global on_ring_count
    cdef int i
    cdef bint busy
    take_table()
    for i in range(on_ring_count):
        if on_ring[i].endpoint == <PyObject *>endpoint:
            on_ring_count -= 1
            on_ring[i] = on_ring[on_ring_count]
            break
    busy = answering == <PyObject *>endpoint
    pthread_mutex_unlock(&table_lock)
    while busy:
        with nogil:
            fs_nap()
        take_table()
        busy = answering == <PyObject *>endpoint
        pthread_mutex_unlock(&table_lock)


cdef void answer_requests() noexcept nogil:
    """Answers what has come. Not under the table lock: an answer may be as long as a parcel, and takes the endpoint's own lock.
    `answering` keeps the endpoint from ending meanwhile."""
    global answering
    cdef unsigned char request[FS_ASK_SIZE]
    cdef fs_asker asker
    cdef int i, parcel, took
    cdef uint32_t user
    cdef PyObject *endpoint
    while True:
        took = fs_take_request(ask_fd, request, &user, &parcel, &asker)
        if took == FS_NO_REQUEST:
            return
        if took == FS_LOOK and trusted(user) and fs_may_answer(fs_now()):
            answer_look(&asker)
        if took != FS_REQUEST:
            continue
        endpoint = NULL
        if trusts_any or trusted(user):
            pthread_mutex_lock(&table_lock)
            for i in range(on_ring_count):
                # (One that has not attached yet has nothing to answer with, and told nobody where to ask.)
                if memcmp(on_ring[i].id, request, FS_ASK_SIZE) == 0 and is_attached(<Endpoint>on_ring[i].endpoint):
                    endpoint = answering = on_ring[i].endpoint
                    break
            pthread_mutex_unlock(&table_lock)
        if endpoint != NULL:
            if parcel >= 0:
                put_back(<Endpoint>endpoint, parcel)
            else:
                (<Endpoint>endpoint).ring_for_asker()
            pthread_mutex_lock(&table_lock)
            answering = NULL
            pthread_mutex_unlock(&table_lock)
        if parcel >= 0:
            sys_close(parcel)


def ask(uintptr_t memory, int side, bytes id not None):
    """Asks the other side of a region for a doorbell byte."""
    # SYNC: token - pairs with answer_asks. (If the other process is gone, so is its connection.)
    fs_ask(fs_load_acquire64(&(<fs_region *>memory).asks[1 - side]), id, 1 - side, -1)
