# The connection thread. It runs without the GIL from birth to death and touches no Python object.

cdef extern from *:
    """
    typedef struct { int fd; short events, revents; } fs_unused_pollfd;

    /* What came with a hello: the message and up to four descriptors. Bytes received, or -1. `*cut`: descriptors were sent
     * that could not be received, for want of numbers. */
    static int fs_receive_hello(int fd, struct fs_hello *hello, int descriptors[4], int *count, int *cut) {
        union {
            char space[CMSG_SPACE(4 * sizeof(int))];
            struct cmsghdr aligned;
        } control;
        struct iovec iov = {hello, sizeof *hello};
        struct msghdr message = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
        int got = (int)recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        *count = *cut = 0;
        if (got < 0) return -1;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), *fds = (int *)CMSG_DATA(c);
            for (int i = 0; i < n; i++) {
                if (*count < 4) descriptors[(*count)++] = fds[i];
                else close(fds[i]);
            }
        }
        /* With all four here it was cut because there were more, and no hello has more. */
        *cut = message.msg_flags & MSG_CTRUNC && *count < 4;
        return message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? (int)sizeof *hello + 1 : got;
    }
    static uint32_t fs_peer_uid(int fd) {
        struct ucred cred = {0, (uid_t)-1, (gid_t)-1};
        socklen_t size = sizeof cred;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size);
        return cred.uid;
    }
    /* Whether `fd` is an eventfd, as `ours` is one. (Not asked of /proc, which need not be there.) All of the kernel's
     * anonymous files are one inode, and an eventfd is the one that takes a number, here 0, which changes nothing. */
    static int fs_is_eventfd(int fd, int ours) {
        struct stat it, known;
        uint64_t nothing = 0;
        return fstat(fd, &it) == 0 && fstat(ours, &known) == 0 && it.st_dev == known.st_dev && it.st_ino == known.st_ino &&
               write(fd, &nothing, sizeof nothing) == sizeof nothing;
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
    int pthread_detach(pthread_t) nogil
    int fs_start_thread(pthread_t *, void *(*)(void *) noexcept nogil) nogil
    int fs_receive_hello(int, fs_hello *, int *, int *, bint *) nogil
    uint32_t fs_peer_uid(int) nogil
    int fs_is_eventfd(int, int) nogil
    int fs_watch(int, int, uint64_t) nogil
    int fs_wait_events(int, uint64_t *, int) nogil
    int epoll_create1(int) nogil
    uint32_t geteuid() nogil
    int accept4(int, void *, void *, int) nogil
    enum: EPOLL_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC
    enum: ENOBUFS

cdef extern from "asking.h" nogil:
    struct fs_look:
        uint64_t tag
        uint32_t kind
        uint32_t first "from"
    enum: FS_ASK_SIZE
    int fs_ask(uint64_t token, const unsigned char *id, int side, int parcel)
    int fs_name_senders(int fd)
    enum: FS_NO_REQUEST, FS_REQUEST, FS_LOOK
    struct fs_asker:
        fs_look look
    int fs_take_request(int fd, unsigned char *request, uint32_t *user, int *parcel, fs_asker *asker)

cdef extern from "seen.h" nogil:
    const uint64_t FS_SEEN_MAGIC
    enum: FS_LOOK_PROCESS, FS_LOOK_ROLL, FS_LOOK_RING, FS_NO_MORE
    enum: FS_SEEN_ROOM, FS_SEEN_ENDS, FS_SEEN_EXPOSED, FS_SEEN_DRIVEN
    struct fs_seen:
        uint64_t magic
        uint64_t tag
        uint32_t kind
        uint32_t next
        uint32_t count
        uint32_t protocol
    struct fs_seen_process:
        fs_counters gone
        uint32_t on_ring
        uint32_t names
        uint32_t queued
    struct fs_seen_end:
        pass
    int fs_may_answer(int64_t now)
    void fs_answer(int fd, const fs_asker *asker, const void *answer, size_t size)
    void fs_see_end(fs_vi *vi, fs_side *own, uint64_t inode, uint32_t flags, fs_seen_end *seen)

cdef enum:
    POKE = 0xffffffff   # event of the thread's own eventfd
    ASK = 0xfffffffe    # event of the socket for requests

cdef enum:  # of the thread; changed under the GIL
    NO_THREAD = 0
    RUNS = 1
    ENDS = 2            # for a fork: somebody waits for its end

cdef pthread_t thread
cdef int thread_state = NO_THREAD
# It shall end. Relaxed: the thread looks whenever it wakes, and is poked after it was set; what else it must see, it sees
# under the table lock.
cdef fs_word32 thread_stops
fs_store_relaxed(&thread_stops, 0)
cdef fs_word32 thread_lost  # the last thread that found its epoll gone, plus one
fs_store_relaxed(&thread_lost, 0)
cdef bint thread_wanted = False  # it shall run once no fork is under way
cdef int forks = 0               # of this process, that are under way: from before_fork to fork_is_over
# Its descriptors: all are there, or none is.
cdef int epoll = -1
cdef int poke_fd = -1
cdef int ask_fd = -1
cdef uint64_t ask_inode = 0
cdef uint64_t ask_token = 0
cdef uint64_t told_token = 0  # the one that the regions of this process' connections name


cdef int make_descriptors() except -1:
    """What the connection thread waits on, and where this process is asked."""
    global epoll, poke_fd, ask_fd, ask_token, ask_inode
    cdef int made[3]
    cdef int i, fd
    if epoll >= 0:
        return 0
    token = int.from_bytes(_os.urandom(8), "little") | 1
    name = b"fastsock/2/ask/%016x" % token  # as FS_ASK_NAME of asking.h
    if epoll >= 0:
        return 0  # another thread's work, while that call went without the GIL
    made[0] = fs_keep_number(epoll_create1(EPOLL_CLOEXEC), False)
    made[1] = fs_keep_number(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), False)
    made[2] = fs_abstract_socket(SOCK_DGRAM, name, len(name))
    fd = min(made[0], made[1], made[2])
    if fd < 0:
        for i in range(3):
            if made[i] >= 0:
                sys_close(made[i])
        raise OSError(-fd, _os.strerror(-fd))
    fs_name_senders(made[2])
    fs_watch(made[0], made[1], POKE)
    fs_watch(made[0], made[2], ASK)
    epoll, poke_fd, ask_fd, ask_token = made[0], made[1], made[2], token
    ask_inode = fs_inode(ask_fd)
    return 0


cdef int start_thread() except -1:
    """Starts the connection thread if it does not run: at the first use, and again after a fork. While a fork is under way
    it is only noted: the thread starts when that is over, as the child must find its locks free."""
    global thread_state, thread_wanted
    give_up_lost_thread()
    make_descriptors()
    if forks:
        thread_wanted = True
    elif thread_state == NO_THREAD:
        fs_store_relaxed(&thread_stops, 0)
        if fs_start_thread(&thread, connection_thread):
            raise OSError(EAGAIN, "no connection thread could be started")
        thread_state = RUNS
        tell_where_to_ask()
    return 0


cdef void give_up_lost_thread() noexcept:
    """If the program has closed its descriptors, nobody can wake it, and it wakes for nothing: it sleeps on an epoll that has no
    number. It is the socket that shows it: our own next eventfds are the first to take the other numbers."""
    if thread_state != ENDS and epoll >= 0 and (
            fs_inode(ask_fd) != ask_inode or fs_load_relaxed(&thread_lost) == fs_load_relaxed(&thread_turn) + 1):
        give_up_thread()


cdef void give_up_thread() noexcept:
    """(What is left of its descriptors stays open: the numbers may be the program's.)"""
    global thread_state, thread_wanted, epoll, poke_fd, ask_fd
    fs_store_relaxed(&thread_turn, fs_load_relaxed(&thread_turn) + 1)
    if thread_state != NO_THREAD:
        pthread_detach(thread)
    thread_state = NO_THREAD
    thread_wanted = True
    epoll = poke_fd = ask_fd = -1


cdef void tell_where_to_ask() noexcept:
    """If the thread has another socket, the connections that were on the ring before say so in their regions; but not those of
    which a forked child has taken over the requests."""
    global told_token
    cdef int i
    cdef fs_vi *vi
    if told_token == ask_token:
        return
    take_table()
    for i in range(on_ring_count):
        if is_attached(<Endpoint>on_ring[i].endpoint):
            vi = &(<Endpoint>on_ring[i].endpoint).vi
            # SYNC: token - pairs with ask.
            fs_swap_if64(&vi.region.asks[vi.side], told_token, ask_token)
    pthread_mutex_unlock(&table_lock)
    told_token = ask_token


def descriptor_turn():
    """A number that changes when the program has closed our descriptors: those of an earlier turn are somebody else's now."""
    cdef uint32_t before = fs_load_relaxed(&thread_turn)
    give_up_lost_thread()
    if before != fs_load_relaxed(&thread_turn):
        try:
            start_again()  # the connections that there are want their requests answered
        except OSError:
            pass  # the next name starts it
    return fs_load_relaxed(&thread_turn)


def ensure_thread():
    """Starts the connection thread unless it runs."""
    start_thread()


def stop_thread():
    """Before a fork: a thread does not survive it, and its locks must be free. No thread is started before `fork_is_over`.
    Several threads may fork at once: one of them joins the thread, and the others wait for that."""
    global thread_state, thread_wanted, forks
    forks += 1
    give_up_lost_thread()
    if thread_state == RUNS:
        thread_state = ENDS
        thread_wanted = True
        fs_store_relaxed(&thread_stops, 1)
        if fs_ring_eventfd(poke_fd):
            with nogil:
                pthread_join(thread, NULL)
            thread_state = NO_THREAD
        else:
            give_up_thread()  # it cannot be woken
    while thread_state == ENDS:
        with nogil:
            fs_nap()  # another thread joins it, which takes less than this


def fork_is_over():
    """In the parent, whether or not there is a child."""
    global forks
    forks = max(forks - 1, 0)


def forks_under_way():
    """How many forks of this process are under way."""
    return forks


def start_again():
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way."""
    global thread_wanted
    if thread_wanted and not forks:
        thread_wanted = False
        try:
            start_thread()
        except BaseException:
            thread_wanted = True  # somebody tries again
            raise


def after_fork_in_child():
    """What the parent published is the parent's, and so is its epoll. Bytes of parked regions that were unmapped."""
    global epoll, poke_fd, ask_fd, ask_token, queued, on_ring_count, thread_state, thread_wanted, forks
    cdef int i
    # Another thread of the parent may have waited for the lock. The table under it is whole: see take_table.
    pthread_mutex_init(&table_lock, NULL)
    thread_state = NO_THREAD
    thread_wanted = False
    forks = 0
    for i in range(MEETINGS):
        close_meeting(&meetings[i])
        if fs_load_relaxed(&meetings[i].state) == ARRIVED:
            munmap(meetings[i].memory, meetings[i].size)
            fs_close_eventfd(meetings[i].wake_fd)
            fs_close_eventfd(meetings[i].peer_fd)
        fs_store_relaxed(&meetings[i].state, FREE)
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
    cdef uint32_t entry, turn = fs_load_relaxed(&thread_turn)
    cdef int n, i
    while True:
        n = fs_wait_events(epoll, what, next_deadline())
        if n < 0 and errno != EINTR or turn != fs_load_relaxed(&thread_turn):
            fs_store_relaxed(&thread_lost, turn + 1)
            return NULL
        for i in range(n):
            entry = <uint32_t>what[i]
            # (POKE: each write is an event, and nobody has to read it.)
            if entry == ASK:
                answer_requests()
            elif entry < MEETINGS:
                pthread_mutex_lock(&table_lock)
                if fs_load_relaxed(&meetings[entry].state) == WAITING and meetings[entry].turn == <uint32_t>(what[i] >> 32):
                    meet(&meetings[entry], entry)
                pthread_mutex_unlock(&table_lock)
        if fs_load_relaxed(&thread_stops):
            return NULL


cdef int next_deadline() noexcept nogil:
    """Withdraws names that nobody claimed. Milliseconds until the next one is due, -1: none."""
    cdef int64_t now = fs_now(), first = -1
    cdef int i
    pthread_mutex_lock(&table_lock)
    for i in range(MEETINGS):
        if fs_load_relaxed(&meetings[i].state) != WAITING:
            continue
        if meetings[i].expires <= now:
            close_meeting(&meetings[i])
            fs_store_relaxed(&meetings[i].state, EXPIRED)  # FREE when its endpoint has seen it, or has ended
        elif first < 0 or meetings[i].expires < first:
            first = meetings[i].expires
    pthread_mutex_unlock(&table_lock)
    return -1 if first < 0 else <int>((first - now) // 1000000 + 1)


cdef bint trusted(uint32_t user) noexcept nogil:
    """Whether a user is one whom this process believes, whatever the setting `trust`: its own, or root."""
    return user == geteuid() or user == 0


cdef void meet(meeting *m, int entry) noexcept nogil:
    """Somebody came to a published name, or said something there. Under the table lock."""
    cdef fs_hello hello
    cdef int descriptors[4]
    cdef int count, got, i, errno_then
    cdef bint cut
    cdef uint32_t uid
    cdef const char *why
    while fs_load_relaxed(&m.state) == WAITING:
        if m.control < 0:
            got = accept4(m.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
            if got < 0 and errno not in (EMFILE, ENFILE, ENOMEM, ENOBUFS):
                return
            m.control = fs_keep_number(got, True) if got >= 0 else -1
            if m.control < 0:
                give_up_short(m)
                return
            watch_socket(m.control, entry)
        uid = fs_peer_uid(m.control)
        if not (trusts_any or trusted(uid)):
            refuse(m, b"u")
            continue
        if not fs_room():
            give_up_short(m)  # the descriptors that come with a hello might be the program's last
            return
        got = fs_receive_hello(m.control, &hello, descriptors, &count, &cut)
        errno_then = errno
        if got < 0 and errno_then == EAGAIN:
            return
        if got == 0 and count == 0 and not cut:
            refuse(m, NULL)  # left again without a word
            continue
        if cut:
            why = b"!"
        else:
            why = judge(m, &hello, got, descriptors, count, uid)
        for i in range(count):
            sys_close(descriptors[i])
        if why == NULL:
            return
        if why[0] == c'!':
            give_up_short(m)
        elif why[0] == c'?' or why[0] == c'u' and why[1] == 0:
            refuse(m, why)
        else:
            m.failure = why
            refuse(m, b"v")
            close_meeting(m)
            fs_store_relaxed(&m.state, FAILED)


cdef void give_up_short(meeting *m) noexcept nogil:
    """There are no descriptors for whoever came. The connection stays on kernel TCP, and both ends know why."""
    if m.control >= 0:
        refuse(m, b"!")
    close_meeting(m)
    fs_store_relaxed(&m.state, SHORT)


cdef void refuse(meeting *m, const char *why) noexcept nogil:
    """The one that came is sent away: u: untrusted, v: a violation, !: no descriptors, ?: queue full or unknown region."""
    cdef char unread
    if why != NULL:
        # A hello that lies unread would turn the refusal into a reset. (So received, it brings no descriptors.)
        sys_recv(m.control, &unread, 1, MSG_DONTWAIT)
        sys_send(m.control, why, 1, MSG_DONTWAIT | MSG_NOSIGNAL)
    sys_close(m.control)
    m.control = -1


cdef const char *judge(meeting *m, fs_hello *hello, int got, int *descriptors, int count, uint32_t uid) noexcept nogil:
    """Checks a hello and takes its region; the descriptors stay the caller's. NULL: taken. Else what was wrong:
    "u", "!..." and "?..." are refusals, and anything else is a violation."""
    global queued
    cdef int i, seals
    cdef int eventfds[2]
    cdef void *memory
    cdef const char *wrong
    cdef fs_vi probe
    # The last descriptor is the seeker's end of the TCP connection. Without it, whoever came is not the peer: its hello is no
    # violation of the peer's, unless it is of a user who could harm the peer anyway.
    cdef bint proven = count > 0 and fs_is_other_end(&m.tcp, descriptors[count - 1])
    if not proven and not trusted(uid):
        return b"u"
    if got != sizeof(fs_hello) or hello.magic != FS_MAGIC:
        return b"garbage instead of a hello"
    if hello.version != FS_VERSION:
        return b"hello of another version"
    if not proven:
        return b"u"
    if queued >= backlog:
        return b"?queue full"
    if hello.reuse:
        for i in range(PARKED):
            if (parked[i].memory != NULL and memcmp(parked[i].id, hello.id, 16) == 0
                    and parked[i].turn == fs_load_relaxed(&thread_turn)):
                m.memory = parked[i].memory
                m.size = parked[i].size
                m.wake_fd = parked[i].wake_fd
                m.peer_fd = parked[i].peer_fd
                parked[i].memory = NULL
                m.reused = True
                break
        else:
            return b"?unknown region"
    else:
        m.reused = False
        if count != 4:
            return b"hello without its four descriptors"
        seals = sys_fcntl(descriptors[0], F_GET_SEALS)
        if seals < 0 or seals & SEALS != SEALS:
            return b"memfd not sealed"
        if hello.size == 0 or hello.size > fs_region_size(FS_WINDOW_MAX, FS_CHUNK_MAX) or fs_file_size(descriptors[0]) != <int64_t>hello.size:
            return b"memfd of the wrong size"
        if not fs_is_eventfd(descriptors[1], poke_fd) or not fs_is_eventfd(descriptors[2], poke_fd):
            return b"hello without eventfds"
        if not keep_eventfds(descriptors + 1, eventfds):
            return b"!the share of descriptors is full"
        memory = map_region(descriptors[0], hello.size)
        wrong = b"?no address space"
        if memory != NULL:
            wrong = fs_vi_attach(&probe, memory, hello.size, 1)
        if wrong != NULL:
            if memory != NULL:
                munmap(memory, hello.size)
            sys_close(eventfds[0])
            sys_close(eventfds[1])
            return wrong
        m.memory = memory
        m.size = hello.size
        m.peer_fd = eventfds[0]
        m.wake_fd = eventfds[1]
    memcpy(m.id, hello.id, 16)
    # SYNC: taken - pairs with wakeup_seen. Packet WAKEUP.
    fs_store_release(&(<fs_region *>m.memory).wakeup, FS_TAKEN)
    close_meeting(m)
    queued += 1
    # SYNC: arrived - by the table lock.
    fs_store_relaxed(&m.state, ARRIVED)
    return NULL


cdef bint keep_eventfds(int *came, int *kept) noexcept nogil:
    """Copies both into our share of the numbers. Parked regions give way to them."""
    cdef int size, i
    cdef int first = fs_share(&size)
    for i in range(2):
        kept[i] = sys_fcntl(came[i], F_DUPFD_CLOEXEC, first)
        if kept[i] < 0 and release_all_parked():
            kept[i] = sys_fcntl(came[i], F_DUPFD_CLOEXEC, first)
        if kept[i] < 0:
            if i:
                sys_close(kept[0])
            return False
    return True
