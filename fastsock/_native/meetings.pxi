# Published names and what came of them: the table that the program and its connection thread share.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <pthread.h>
    #include <signal.h>
    #include <stddef.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <unistd.h>

    /* The address of an abstract unix socket. Its size; 0: the name is too long. */
    static socklen_t fs_abstract_address(struct sockaddr_un *address, const char *name, size_t length) {
        if (length > sizeof address->sun_path - 1) return 0;
        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(address->sun_path + 1, name, length);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    }
    /* A bound abstract unix socket, listening if it is one of connections. -errno on failure. */
    static int fs_abstract_socket(int type, const char *name, size_t length) {
        struct sockaddr_un address;
        socklen_t size = fs_abstract_address(&address, name, length);
        if (!size) return -ENAMETOOLONG;
        int fd = fs_keep_number(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), type == SOCK_SEQPACKET);
        if (fd < 0) return fd;
        if (bind(fd, (struct sockaddr *)&address, size) < 0 || (type == SOCK_SEQPACKET && listen(fd, 4) < 0)) {
            int saved = errno;
            close(fd);
            return -saved;
        }
        return fd;
    }
    """
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *) nogil
    int pthread_mutex_lock(pthread_mutex_t *) nogil
    int pthread_mutex_trylock(pthread_mutex_t *) nogil
    int pthread_mutex_unlock(pthread_mutex_t *) nogil
    int fs_abstract_socket(int, const char *, size_t) nogil
    enum: SOCK_SEQPACKET, SOCK_DGRAM

cdef extern from "identity.h" nogil:
    struct fs_tcp_identity:
        pass
    bint fs_identify(int fd, fs_tcp_identity *identity)
    bint fs_is_other_end(const fs_tcp_identity *own, int fd)

cdef enum:
    MEETINGS = 1024         # names published at a time; more connections wait their turn
    VISIBLE_MS = 2000      # how long a name stays published: a fastsock peer looks for it within some operations
    PARKED = 16             # regions kept mapped for their next connection

cdef enum:  # states of a meeting; vi.pxd's MEETING_WAITING is one of them
    FREE = 0
    WAITING = MEETING_WAITING
    ARRIVED = 2
    FAILED = 3
    EXPIRED = 4
    SHORT = 5               # somebody came, and there were no descriptors to be had for it

cdef struct meeting:
    # Written under the table lock, and so read by all who go on to use the entry. An endpoint's operations read it without, as a
    # hint that there is something to look for: relaxed.
    fs_word32 state
    uint32_t turn            # counts uses of this entry, so that a late event is not taken for a new one's
    int listener, control    # sockets, -1: none
    fs_tcp_identity tcp      # the connection, as its other end has to prove it
    int64_t expires          # monotonic ns
    const char *failure      # FAILED: what was wrong
    void *memory             # ARRIVED: the region
    size_t size
    int wake_fd, peer_fd
    bint reused
    unsigned char id[16]

cdef struct parked_region:
    void *memory             # NULL: an empty place
    size_t size
    int wake_fd, peer_fd
    uint32_t turn            # of thread_turn
    unsigned char id[16]

# Which connection thread it is. One whose descriptors the program has closed is given up, ends if it ever wakes, and all other
# descriptors of its turn are taken for lost as well. Relaxed: who reads it has nothing else to see.
cdef fs_word32 thread_turn
fs_store_relaxed(&thread_turn, 0)
cdef pthread_mutex_t table_lock
cdef meeting meetings[MEETINGS]
cdef parked_region parked[PARKED]
cdef int parked_next = 0
cdef size_t freed_quietly = 0        # bytes that the connection thread unmapped; the cap hears of them with the next ones
cdef int queued = 0                  # ARRIVED entries: the accept queue
cdef int backlog = 128               # its bound, from listen()
cdef bint trusts_any = False

pthread_mutex_init(&table_lock, NULL)
memset(meetings, 0, sizeof(meetings))
memset(parked, 0, sizeof(parked))
cdef int each_meeting
for each_meeting in range(MEETINGS):
    meetings[each_meeting].listener = meetings[each_meeting].control = -1


cdef void take_table() noexcept:
    """Takes the table lock, for a thread that has the GIL. It is not waited for with the GIL. And it is held only by those who
    have the GIL, and by the connection thread, so that at a fork, which happens under the GIL and without that thread,
    the table is whole. Nothing that may let go of the GIL, or make an object, is done under it."""
    while pthread_mutex_trylock(&table_lock):
        with nogil:
            pthread_mutex_lock(&table_lock)
            pthread_mutex_unlock(&table_lock)


def set_trust(bint any_user):
    """Whom the connection thread answers: processes of this user and root, or those of any user."""
    global trusts_any
    trusts_any = any_user


def set_backlog(int length):
    """The bound of the accept queue: the largest backlog any listener asked for."""
    global backlog
    backlog = max(backlog, length)


def publish(bytes name not None, Endpoint endpoint not None, bint steps):
    """Publishes an abstract unix name and returns a handle for it; when something has come of it, the endpoint's
    operations take their next step (`steps`: and before, as they did). OSError if it cannot be published (EADDRINUSE:
    somebody holds it), BlockingIOError if too many are published already."""
    cdef int fd, i, size, found = -1, published = 0
    cdef fs_tcp_identity tcp
    start_thread()
    if not fs_identify(endpoint.fd, &tcp):
        raise OSError(ENOTCONN, _os.strerror(ENOTCONN))
    fd = fs_abstract_socket(SOCK_SEQPACKET, name, len(name))
    if fd < 0:
        raise OSError(-fd, _os.strerror(-fd))
    take_table()
    fs_share(&size)
    for i in range(MEETINGS):
        published += fs_load_relaxed(&meetings[i].state) == WAITING
    for i in range(MEETINGS):
        # (A quarter of the share: the seekers of this process, and who comes to its names, need numbers too.)
        if fs_load_relaxed(&meetings[i].state) == FREE and published < size // 4:
            found = i
            fs_store_relaxed(&meetings[i].state, WAITING)
            meetings[i].turn += 1
            meetings[i].failure = NULL
            meetings[i].listener = fd
            meetings[i].tcp = tcp
            meetings[i].expires = fs_now() + <int64_t>VISIBLE_MS * 1000000
            watch_socket(fd, i)
            if not steps:
                endpoint.arrival = &meetings[i].state
            break
    pthread_mutex_unlock(&table_lock)
    if found < 0:
        sys_close(fd)
        raise BlockingIOError("too many names published")
    fs_ring_eventfd(poke_fd)  # to look at the new deadline
    return <uint64_t>meetings[found].turn << 32 | <uint64_t>found


cdef meeting *meeting_of(uint64_t handle) noexcept:
    """The entry of a handle, or NULL if it has been given to somebody else since."""
    cdef meeting *m = &meetings[handle & 0xffffffff]
    return m if m.turn == <uint32_t>(handle >> 32) else NULL


def arrived(uint64_t handle, Endpoint endpoint not None):
    """What came through a published name. None: nothing yet. A str: a violation of whoever came. False: the name
    was withdrawn unclaimed. Else (memory, size, wake_fd, peer_fd, id, reused): the VI, taken from the accept queue;
    `reused`: its region was parked here. Raises OSError (EMFILE) if one came and there were no descriptors for it."""
    global queued
    cdef meeting *m
    cdef meeting came  # a copy, as no object is made under the lock
    cdef uint32_t state
    take_table()
    m = meeting_of(handle)
    if m != NULL and fs_load_relaxed(&m.state) == WAITING:
        pthread_mutex_unlock(&table_lock)
        return None
    endpoint.arrival = NULL
    fs_store_relaxed(&came.state, EXPIRED)
    # SYNC: arrived - by the table lock, under which judge wrote it.
    if m != NULL:
        came = m[0]
        queued -= fs_load_relaxed(&m.state) == ARRIVED
        fs_store_relaxed(&m.state, FREE)
    pthread_mutex_unlock(&table_lock)
    state = fs_load_relaxed(&came.state)
    if state == ARRIVED:
        return <uintptr_t>came.memory, came.size, came.wake_fd, came.peer_fd, (<char *>came.id)[:16], came.reused
    if state == FAILED:
        return (<bytes>came.failure).decode()
    if state == SHORT:
        raise OSError(EMFILE, _os.strerror(EMFILE))
    return False


def withdraw(uint64_t handle, Endpoint endpoint not None):
    """Takes a name back, and refuses a VI that was not yet taken. Bytes unmapped of a region that had been parked."""
    global queued
    cdef meeting *m
    cdef size_t freed = 0
    take_table()
    endpoint.arrival = NULL
    m = meeting_of(handle)
    if m != NULL:
        close_meeting(m)
        if fs_load_relaxed(&m.state) == ARRIVED:
            queued -= 1
            munmap(m.memory, m.size)
            fs_close_eventfd(m.wake_fd)
            fs_close_eventfd(m.peer_fd)
            freed = m.size if m.reused else 0
        fs_store_relaxed(&m.state, FREE)
    freed += take_freed_quietly()
    pthread_mutex_unlock(&table_lock)
    return freed


cdef void close_meeting(meeting *m) noexcept nogil:
    if m.listener >= 0:
        sys_close(m.listener)
    if m.control >= 0:
        sys_close(m.control)
    m.listener = m.control = -1


def park(uintptr_t memory, size_t size, int wake_fd, int peer_fd, uint32_t turn, bytes id not None):
    """The publisher's side of the region cache: keeps a finished connection's mapping for the next one. What it
    displaces is unmapped: its size, 0 if nothing."""
    global parked_next
    cdef parked_region old
    cdef const unsigned char *name = id
    cdef size_t freed
    take_table()
    old = parked[parked_next]
    parked[parked_next].memory = <void *>memory
    parked[parked_next].size = size
    parked[parked_next].wake_fd = wake_fd
    parked[parked_next].peer_fd = peer_fd
    parked[parked_next].turn = turn
    memcpy(parked[parked_next].id, name, 16)
    parked_next = (parked_next + 1) % PARKED
    freed = take_freed_quietly()
    pthread_mutex_unlock(&table_lock)
    if old.memory != NULL:
        freed += old.size
    release_parked(&old)
    return freed


cdef void release_parked(parked_region *region) noexcept nogil:
    if region.memory != NULL:
        munmap(region.memory, region.size)
        if region.turn == fs_load_relaxed(&thread_turn):
            fs_close_eventfd(region.wake_fd)
            fs_close_eventfd(region.peer_fd)
    region.memory = NULL


cdef size_t take_freed_quietly() noexcept nogil:
    """Under the table lock."""
    global freed_quietly
    cdef size_t freed = freed_quietly
    freed_quietly = 0
    return freed


cdef bint release_all_parked() noexcept nogil:
    """Unmaps what the cache holds, under the table lock. Whether there was anything."""
    global freed_quietly
    cdef int i
    cdef bint any_parked = False
    for i in range(PARKED):
        if parked[i].memory != NULL:
            any_parked = True
            freed_quietly += parked[i].size
            release_parked(&parked[i])
    return any_parked


def drop_parked():
    """Unmaps what the cache holds. The bytes given back."""
    cdef size_t freed
    take_table()
    release_all_parked()
    freed = take_freed_quietly()
    pthread_mutex_unlock(&table_lock)
    return freed
