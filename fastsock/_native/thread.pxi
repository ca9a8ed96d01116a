# The connection thread. It runs without the GIL from birth to death and touches no Python object.

cdef extern from *:
    """
    typedef struct { int fd; short events, revents; } fs_unused_pollfd;

    /* What came with a hello: the message and up to three descriptors. Bytes received, or -1. */
    static int fs_receive_hello(int fd, struct fs_hello *hello, int descriptors[3], int *count) {
        char space[CMSG_SPACE(8 * sizeof(int))];
        struct iovec iov = {hello, sizeof *hello};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        int got = (int)recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        *count = 0;
        if (got < 0) return -1;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), *fds = (int *)CMSG_DATA(c);
            for (int i = 0; i < n; i++) {
                if (*count < 3) descriptors[(*count)++] = fds[i];
                else close(fds[i]);
            }
        }
        return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? (int)sizeof *hello + 1 : got;
    }
    static uint32_t fs_peer_uid(int fd) {
        struct ucred cred = {0, (uid_t)-1, (gid_t)-1};
        socklen_t size = sizeof cred;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
        return cred.uid;
    }
    static int fs_is_eventfd(int fd) {
        char path[32], target[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof target);
        return n == 20 && memcmp(target, "anon_inode:[eventfd]", 20) == 0;
    }
    /* A thread with a small stack that no signal is delivered to. */
    static int fs_start_thread(pthread_t *thread, void *(*body)(void *)) {
        sigset_t all, old;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 128 * 1024);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int failed = pthread_create(thread, &attributes, body, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attributes);
        return failed;
    }
    static int fs_watch(int epoll, int fd, uint64_t what) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = what}};
        return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
    static int fs_wait_events(int epoll, uint64_t what[16], int milliseconds) {
        struct epoll_event events[16];
        int n = epoll_wait(epoll, events, 16, milliseconds);
        for (int i = 0; i < n; i++) what[i] = events[i].data.u64;
        return n;
    }
    """
    ctypedef struct pthread_t:
        pass
    int pthread_join(pthread_t, void **) nogil
    int fs_start_thread(pthread_t *, void *(*)(void *) noexcept nogil) nogil
    int fs_receive_hello(int, fs_hello *, int *, int *) nogil
    uint32_t fs_peer_uid(int) nogil
    int fs_is_eventfd(int) nogil
    int fs_watch(int, int, uint64_t) nogil
    int fs_wait_events(int, uint64_t *, int) nogil
    int epoll_create1(int) nogil
    uint32_t geteuid() nogil
    int accept4(int, void *, void *, int) nogil
    enum: EPOLL_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC

cdef extern from "asking.h" nogil:
    enum: FS_ASK_SIZE
    int fs_ask(uint64_t token, const unsigned char *id, int side, int parcel)
    bint fs_take_request(int fd, unsigned char *request, int *parcel)

cdef enum:
    POKE = 0xffffffff   # event of the thread's own eventfd
    ASK = 0xfffffffe    # event of the socket for doorbell requests

cdef pthread_t thread
cdef bint thread_runs = False
cdef bint thread_stops = False
cdef int epoll = -1
cdef int poke_fd = -1
cdef int first_kept_away = 0
cdef int ask_fd = -1
cdef uint64_t ask_token = 0


cdef int start_thread() except -1:
    """Starts the connection thread if it does not run (at the first use, and again after a fork)."""
    global thread_runs, epoll, poke_fd, thread_stops, first_kept_away
    if thread_runs:
        return 0
    first_kept_away = upper_quarter()
    if epoll < 0:
        epoll = keep_away(epoll_create1(EPOLL_CLOEXEC))
        poke_fd = new_eventfd()
        fs_watch(epoll, poke_fd, POKE)
        if ask_fd >= 0:
            fs_watch(epoll, ask_fd, ASK)
    thread_stops = False
    if fs_start_thread(&thread, connection_thread):
        raise OSError(EAGAIN, "no connection thread could be started")
    thread_runs = True
    return 0


def ensure_thread():
    """Starts the connection thread unless it runs."""
    start_thread()


cdef void poke_thread() noexcept nogil:
    cdef uint64_t one = 1
    sys_write(poke_fd, &one, 8)


def stop_thread():
    """Before a fork: a thread does not survive it, and its locks must be free. Whether it ran."""
    global thread_runs, thread_stops
    if not thread_runs:
        return False
    thread_stops = True
    poke_thread()
    with nogil:
        pthread_join(thread, NULL)
    thread_runs = False
    return True


def after_fork_in_child():
    """What the parent published is the parent's, and so is its epoll. Bytes of parked regions that were unmapped."""
    global epoll, poke_fd, ask_fd, ask_token, queued, on_ring_count
    cdef int i
    for i in range(MEETINGS):
        close_meeting(&meetings[i])
        if meetings[i].state == ARRIVED:
            munmap(meetings[i].memory, meetings[i].size)
            sys_close(meetings[i].wake_fd)
            sys_close(meetings[i].peer_fd)
        meetings[i].state = FREE
    queued = 0
    freed = drop_parked()
    for fd in (epoll, poke_fd, ask_fd):
        if fd >= 0:
            sys_close(fd)
    epoll = poke_fd = ask_fd = -1
    ask_token = 0
    on_ring_count = 0
    return freed


cdef void watch_socket(int fd, int entry) noexcept nogil:
    fs_watch(epoll, fd, <uint64_t>meetings[entry].turn << 32 | <uint64_t>entry)


cdef void *connection_thread(void *nothing) noexcept nogil:
    cdef uint64_t what[16]
    cdef uint64_t drained
    cdef uint32_t entry
    cdef int n, i
    while True:
        n = fs_wait_events(epoll, what, next_deadline())
        for i in range(n):
            entry = <uint32_t>what[i]
            if entry == POKE:
                sys_read(poke_fd, &drained, 8)
            elif entry == ASK:
                answer_requests()
            elif entry < MEETINGS:
                pthread_mutex_lock(&table_lock)
                if meetings[entry].state == WAITING and meetings[entry].turn == <uint32_t>(what[i] >> 32):
                    meet(&meetings[entry], entry)
                pthread_mutex_unlock(&table_lock)
        if thread_stops:
            return NULL


cdef int next_deadline() noexcept nogil:
    """Withdraws names that nobody claimed. Milliseconds until the next one is due, -1: none."""
    cdef int64_t now = fs_now(), first = -1
    cdef int i
    pthread_mutex_lock(&table_lock)
    for i in range(MEETINGS):
        if meetings[i].state != WAITING:
            continue
        if meetings[i].expires <= now:
            close_meeting(&meetings[i])
            meetings[i].state = EXPIRED  # FREE when its endpoint has seen it, or has ended
        elif first < 0 or meetings[i].expires < first:
            first = meetings[i].expires
    pthread_mutex_unlock(&table_lock)
    return -1 if first < 0 else <int>((first - now) // 1000000 + 1)


cdef void meet(meeting *m, int entry) noexcept nogil:
    """Somebody came to a published name, or said something there. Under the table lock."""
    cdef fs_hello hello
    cdef int descriptors[3]
    cdef int count, got, i, away, errno_then
    cdef uint32_t uid
    cdef const char *why
    while m.state == WAITING:
        if m.control < 0:
            m.control = accept4(m.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if m.control < 0:
                return
            watch_socket(m.control, entry)
        uid = fs_peer_uid(m.control)
        got = fs_receive_hello(m.control, &hello, descriptors, &count)
        errno_then = errno
        for i in range(count):
            away = sys_fcntl(descriptors[i], F_DUPFD_CLOEXEC, first_kept_away)
            if away >= 0:
                sys_close(descriptors[i])
                descriptors[i] = away
        if not (trusts_any or uid == geteuid() or uid == 0):
            why = b"u"
        elif got < 0 and errno_then == EAGAIN:
            return
        elif got == 0 and count == 0:
            why = NULL  # left again without a word
        else:
            why = judge(m, &hello, got, descriptors, count)
            if why == NULL:
                return
            if why[0] != c'?':
                m.failure = why
                why = b"v"
        for i in range(count):
            sys_close(descriptors[i])
        refuse(m, why)
        if m.failure != NULL:
            close_meeting(m)
            m.state = FAILED


cdef void refuse(meeting *m, const char *why) noexcept nogil:
    """The one that came is sent away: u: untrusted, v: a violation, q: queue full, ?: unknown region."""
    if why != NULL:
        sys_send(m.control, why, 1, MSG_DONTWAIT | MSG_NOSIGNAL)
    sys_close(m.control)
    m.control = -1


cdef const char *judge(meeting *m, fs_hello *hello, int got, int *descriptors, int count) noexcept nogil:
    """Checks a hello and takes its region. NULL: taken (or politely refused), else what was wrong."""
    global queued
    cdef int i, seals
    cdef void *memory
    cdef const char *wrong
    cdef fs_vi probe
    if got != sizeof(fs_hello) or hello.magic != FS_MAGIC:
        return b"garbage instead of a hello"
    if hello.version != FS_VERSION:
        return b"hello of another version"
    if queued >= backlog:
        return b"?queue full"
    if hello.reuse:
        for i in range(PARKED):
            if parked[i].memory != NULL and memcmp(parked[i].id, hello.id, 16) == 0:
                m.memory = parked[i].memory
                m.size = parked[i].size
                m.wake_fd = parked[i].wake_fd
                m.peer_fd = parked[i].peer_fd
                parked[i].memory = NULL
                m.reused = True
                break
        else:
            return b"?unknown region"
        for i in range(count):
            sys_close(descriptors[i])
    else:
        m.reused = False
        if count != 3:
            return b"hello without its three descriptors"
        seals = sys_fcntl(descriptors[0], F_GET_SEALS)
        if seals < 0 or seals & SEALS != SEALS:
            return b"memfd not sealed"
        if hello.size == 0 or hello.size > fs_region_size(FS_WINDOW_MAX, FS_CHUNK_MAX) or fs_file_size(descriptors[0]) != <int64_t>hello.size:
            return b"memfd of the wrong size"
        if not fs_is_eventfd(descriptors[1]) or not fs_is_eventfd(descriptors[2]):
            return b"hello without eventfds"
        memory = map_region(descriptors[0], hello.size)
        if memory == NULL:
            return b"?no address space"
        wrong = fs_vi_attach(&probe, memory, hello.size, 1)
        if wrong != NULL:
            munmap(memory, hello.size)
            return wrong
        m.memory = memory
        m.size = hello.size
        sys_close(descriptors[0])
        m.peer_fd = descriptors[1]
        m.wake_fd = descriptors[2]
    memcpy(m.id, hello.id, 16)
    # SYNC: taken - pairs with wakeup_seen. Packet WAKEUP.
    fs_store_release(&(<fs_region *>m.memory).wakeup, FS_TAKEN)
    close_meeting(m)
    queued += 1
    # SYNC: arrived - by the table lock.
    m.state = ARRIVED
    return NULL


# ---- requests for a doorbell byte --------------------------------------------------------------------------

cdef struct asked:
    PyObject *endpoint       # borrowed: the endpoint leaves the list before it ends
    unsigned char id[FS_ASK_SIZE]  # of the region, and the side: both may be in this process

cdef asked *on_ring = NULL
cdef int on_ring_count = 0
cdef int on_ring_room = 0


def answer_asks(Endpoint endpoint not None, uintptr_t memory, int side, bytes id not None):
    """From now on the connection thread rings `endpoint`'s peer when asked: for a descriptor that was handed out
    when data already lay in the ring. The region says where to ask."""
    global ask_fd, ask_token, on_ring, on_ring_count, on_ring_room
    cdef bytes name
    cdef asked *larger
    cdef const unsigned char *key = id
    start_thread()
    if not ask_token:
        ask_token = int.from_bytes(_os.urandom(8), "little") | 1
        name = b"fastsock/1/ask/%016x" % ask_token  # as FS_ASK_NAME of asking.h
        ask_fd = fs_abstract_socket(SOCK_DGRAM, name, len(name))
        if ask_fd >= 0:
            ask_fd = keep_away(ask_fd)
            fs_watch(epoll, ask_fd, ASK)
    # SYNC: token - pairs with ask.
    fs_store_release64(&(<fs_region *>memory).asks[side], ask_token)
    pthread_mutex_lock(&table_lock)
    if on_ring_count == on_ring_room:
        larger = <asked *>realloc(on_ring, (on_ring_room * 2 + 16) * sizeof(asked))
        if larger != NULL:
            on_ring = larger
            on_ring_room = on_ring_room * 2 + 16
    if on_ring_count < on_ring_room:
        on_ring[on_ring_count].endpoint = <PyObject *>endpoint
        memcpy(on_ring[on_ring_count].id, key, 16)
        on_ring[on_ring_count].id[16] = <unsigned char>side
        on_ring_count += 1
    pthread_mutex_unlock(&table_lock)


def ignore_asks(Endpoint endpoint not None):
    """The endpoint ends."""
    global on_ring_count
    cdef int i
    pthread_mutex_lock(&table_lock)
    for i in range(on_ring_count):
        if on_ring[i].endpoint == <PyObject *>endpoint:
            on_ring_count -= 1
            on_ring[i] = on_ring[on_ring_count]
            break
    pthread_mutex_unlock(&table_lock)


cdef void answer_requests() noexcept nogil:
    cdef unsigned char request[FS_ASK_SIZE]
    cdef int i, parcel
    while fs_take_request(ask_fd, request, &parcel):
        pthread_mutex_lock(&table_lock)
        for i in range(on_ring_count):
            if memcmp(on_ring[i].id, request, FS_ASK_SIZE) == 0:
                if parcel >= 0:
                    put_back(<Endpoint>on_ring[i].endpoint, parcel)
                else:
                    (<Endpoint>on_ring[i].endpoint).ring_for_asker()
        pthread_mutex_unlock(&table_lock)
        if parcel >= 0:
            sys_close(parcel)


def ask(uintptr_t memory, int side, bytes id not None):
    """Asks the other side of a region for a doorbell byte."""
    # SYNC: token - pairs with answer_asks. (If the other process is gone, so is its connection.)
    fs_ask(fs_load_acquire64(&(<fs_region *>memory).asks[1 - side]), id, 1 - side, -1)
