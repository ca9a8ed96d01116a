# The kernel connection under an endpoint: what is asked of it, and the numbers that waiting goes by.

from posix.unistd cimport getpid
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno

cdef enum:
    # tcp_info fields by offset (include/uapi/linux/tcp.h; the layout only ever grows)
    TCPI_BYTES_RECEIVED = 128
    TCPI_NOTSENT_BYTES = 144
    TCPI_BYTES_SENT = 200
    TCPI_BYTES_RETRANS = 208
    TCPI_NEEDED = 216
    TCP_ESTABLISHED = 1
    TCP_TIME_WAIT = 6
    TCP_CLOSE = 7
    TCP_CLOSE_WAIT = 8
    TCP_LAST_ACK = 9
    TCP_CLOSING = 11
    # all in nanoseconds
    LOOK_INTERVAL = 1_000_000       # between looks at the lifeline while the peer acknowledges nothing
    PROBE_INTERVAL = 500_000_000    # between probes of a half-closed peer that does not read
    SHARED_INTERVAL = 100_000_000   # between looks of a sleeper whose side is several processes
    COLLECTING_INTERVAL = 2_000_000 # between looks of a receiver while another holder takes what lies unread
    DEAF_INTERVAL = 2_000_000       # between looks of a sleeper whose eventfd the program has closed
    AFFINITY_INTERVAL = 50_000_000  # that a count of usable processors is believed, and whether there is a crowd
    PLUG = 131072                   # bytes left unsent behind a full window that keep POLLOUT away
    PLUG_PIECE = 16384              # of it at most in one segment, which has to fit into a window that opens again
    PLUG_MOST = 1 << 26             # bytes of one plug, the peer's window and all
    WIDENED = 393216                # bytes of send buffer, at least, for a plug and doorbell bytes behind it
    HELD_BUFFER = 262144            # bytes of receive buffer for doorbell bytes, at most
    FREED_BUFFER = 1 << 20          # bytes of receive buffer, about, after the way out
    WAKE_COST = 60_000              # that a sleep adds to a wait, generously (docs/design.md)
    SWALLOW_MS = 10                 # that doorbell bytes may be late, in milliseconds
    BYTE_LOOKS = 100                # for a doorbell byte, before its reader gives up its turn,
    POST_LOOKS = 200                # or for the end of a post
    RINGING_NS = 5_000_000          # that a sender may be in a post that it rings for,
    LATE_NS = 100_000               # or one that was late before
    EXPOSE_NS = 20_000_000          # that the peer gets to ring for a descriptor that was handed out
    BYTE_NS = 100_000_000           # that doorbell bytes may find no room in the kernel
    # whether polling pays on a connection: starts in the middle, polls from SCORE_POLLS on
    SCORE_MAX = 16
    SCORE_POLLS = 4
    LOOKS = 64                      # at the ring between two looks at the clock
    PENALTY_MAX = 255               # waits without polling after polls that held the peer up

cdef enum:  # Endpoint.late
    LATE_BYTES = 1    # doorbell bytes that were counted and not sent yet
    LATE_REQUEST = 2  # a request for which the peer's connection thread had no room
    LATE_POST = 4     # the end of the peer's post, before which its doorbell bytes are not taken
    LATE_AGAIN = 8    # the same of a peer that was late before

cdef int64_t NOT_ASKED = -2  # what no wait has needed yet
cdef int64_t VIOLATED = -100_000
cdef int64_t MOVED = -100_001

cdef uint32_t own_pid = getpid()
cdef uint32_t own_pid_space = fs_pid_space()
cdef int64_t poll_ns = 50_000
cdef poll_habit kernel_habit  # of all connections on kernel TCP
take_up_polling(&kernel_habit)
# Relaxed: who sees the time and not yet the number goes without polling, or with the old number, once.
cdef fs_word32 processors        # that this process may use
cdef fs_word64 processors_known  # since when, monotonic ns
fs_store_relaxed(&processors, 0)
fs_store_sc64(&processors_known, 0)
cdef fs_word32 crowd             # whether more wants to run than there are processors
cdef fs_word64 crowd_known       # since when, monotonic ns
fs_store_relaxed(&crowd, 0)
fs_store_sc64(&crowd_known, 0)
cdef fs_counters totals  # of endpoints that are gone, and of kernel connections
memset(&totals, 0, sizeof(totals))
cdef fs_side nobody  # what an endpoint that has ended points to
memset(&nobody, 0, sizeof(nobody))

cdef char junk[65536]
memset(junk, 0, sizeof(junk))

cdef extern from *:
    """
    #include <arpa/inet.h>
    #include <errno.h>
    #include <netinet/in.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <sys/stat.h>
    /* The calls of this thread that are inside an endpoint, the innermost first: `struct fs_call` of vi.pxd. */
    static __thread void *fs_calls_of_thread;
    #define fs_innermost_call() fs_calls_of_thread
    #define fs_set_innermost_call(call) (fs_calls_of_thread = (call))
    /* Whether a process has ended, a zombie too: its descriptors are closed, whether somebody waits for it or not. */
    static inline int fs_is_dead(uint32_t process) {
        struct pollfd ended = {-1, POLLIN, 0};
        int dead;
        if (kill((pid_t)process, 0) < 0 && errno == ESRCH) return 1;
        ended.fd = (int)syscall(434 /* pidfd_open, Linux 5.3 */, (pid_t)process, 0);
        dead = ended.fd >= 0 && poll(&ended, 1, 0) > 0;
        if (ended.fd >= 0) close(ended.fd);
        return dead;
    }
    /* The PID namespace of this process, which never changes: the number by which nsfs knows it. 0: nobody tells. */
    static inline uint32_t fs_pid_space(void) {
        struct stat s;
        return stat("/proc/self/ns/pid", &s) == 0 ? (uint32_t)s.st_ino : 0;
    }
    static inline int fs_usable_processors(void) {
        cpu_set_t set;
        return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    /* Whether more threads of the host want to run than it has processors. Where nobody tells: no. */
    static inline int fs_crowded(void) {
        static fs_word32 processors; /* relaxed: two threads that ask get the same answer */
        char text[64];
        int64_t length;
        unsigned running, online = fs_load_relaxed(&processors);
        int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return 0;
        length = read(fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0) return 0;
        text[length] = 0;
        if (sscanf(text, "%*s %*s %*s %u/", &running) != 1) return 0;
        if (online == 0) fs_store_relaxed(&processors, online = (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
        return running > online;
    }
    static inline int fs_reset_connection(int fd) {
        struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
        return connect(fd, &nowhere, sizeof nowhere); /* tcp(7): dissolves the association, with a RST */
    }
    static inline int fs_linger_zero(int fd) {
        struct linger l = {1, 0};
        return setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    }
    static inline int fs_option(int fd, int level, int option) {
        int value = 0;
        socklen_t n = sizeof value;
        return getsockopt(fd, level, option, &value, &n) == 0 ? value : 0;
    }
    /* A timeout option, nanoseconds; -1: not set. */
    static inline int64_t fs_option_ns(int fd, int option) {
        struct timeval t = {0, 0};
        socklen_t n = sizeof t;
        if (getsockopt(fd, SOL_SOCKET, option, &t, &n) < 0 || (t.tv_sec == 0 && t.tv_usec == 0)) return -1;
        return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
    }
    /* Whether an option asks for what only the kernel's stream can do. */
    static inline int fs_needs_kernel(int fd) {
        #ifndef SO_ZEROCOPY
        #define SO_ZEROCOPY 60
        #endif
        return fs_option(fd, SOL_SOCKET, SO_RCVLOWAT) > 1 || fs_option(fd, IPPROTO_TCP, TCP_CORK) ||
               fs_option(fd, SOL_SOCKET, SO_ZEROCOPY);
    }
    static inline void fs_set_option(int fd, int level, int option, int value) {
        setsockopt(fd, level, option, &value, sizeof value);
    }
    /* Address bytes (4 or 16) and port of one end. The number of address bytes, or -1. */
    static inline int fs_end_of(int fd, int remote, unsigned char address[16], int *port) {
        struct sockaddr_storage s;
        socklen_t n = sizeof s;
        if ((remote ? getpeername : getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return -1;
        if (s.ss_family == AF_INET) {
            memcpy(address, &((struct sockaddr_in *)&s)->sin_addr, 4);
            *port = ntohs(((struct sockaddr_in *)&s)->sin_port);
            return 4;
        }
        memcpy(address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
        *port = ntohs(((struct sockaddr_in6 *)&s)->sin6_port);
        return 16;
    }
    static inline int fs_lingers_zero(int fd) {
        struct linger l = {0, 0};
        socklen_t n = sizeof l;
        return getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &n) == 0 && l.l_onoff && l.l_linger == 0;
    }
    """
    fs_call *fs_innermost_call() nogil
    void fs_set_innermost_call(fs_call *) nogil
    int fs_usable_processors() nogil
    bint fs_crowded() nogil
    bint fs_is_dead(uint32_t) nogil
    uint32_t fs_pid_space() nogil
    int fs_reset_connection(int) nogil
    int fs_linger_zero(int) nogil
    int fs_lingers_zero(int) nogil
    void fs_set_option(int, int, int, int) nogil
    enum: SO_OOBINLINE
    int64_t fs_option_ns(int, int) nogil
    int fs_needs_kernel(int) nogil
    enum: SO_RCVTIMEO, SO_SNDTIMEO
    int fs_option(int, int, int) nogil
    int fs_end_of(int, int, unsigned char *, int *) nogil
    int errno


def set_poll_budget(int microseconds):
    """How long a wait may poll before it sleeps, in microseconds; 0: never."""
    global poll_ns
    poll_ns = <int64_t>microseconds * 1000


cdef bint tcp_bytes(int fd, char *state, uint64_t *sent, uint64_t *received) noexcept nogil:
    """Payload bytes that entered and left the kernel's stream since the connection began, exactly; its TCP state."""
    cdef char info[512]
    cdef uint32_t length = sizeof(info)
    if sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &length) < 0 or length < TCPI_NEEDED:
        return False
    state[0] = info[0]
    sent[0] = ((<uint64_t *>(info + TCPI_BYTES_SENT))[0] - (<uint64_t *>(info + TCPI_BYTES_RETRANS))[0]
               + (<uint32_t *>(info + TCPI_NOTSENT_BYTES))[0])
    received[0] = (<uint64_t *>(info + TCPI_BYTES_RECEIVED))[0]
    return True


cdef bint kernel_position(Endpoint self, uint64_t *taken, int64_t *mark) noexcept nogil:
    """How far the kernel's stream was read, in bytes since the connection began, and as kernel_waiting. What recv returned
    does not tell: it passes over an urgent byte, and so does the kernel when another one comes."""
    cdef uint64_t sent, before, after, waiting
    cdef char state
    while True:
        if not tcp_bytes(self.fd, &state, &sent, &before) or not kernel_waiting(self.fd, &waiting, mark):
            return False
        if not tcp_bytes(self.fd, &state, &sent, &after):
            return False
        if before == after:  # nothing came between the two counts
            break
    if (state == TCP_CLOSE_WAIT or state == TCP_LAST_ACK or state == TCP_CLOSING or state == TCP_TIME_WAIT
            or state == TCP_CLOSE and fin_counted(self, after, waiting)):
        after -= 1  # the FIN
    taken[0] = after - waiting
    return True


cdef bint fin_counted(Endpoint self, uint64_t received, uint64_t waiting) noexcept nogil:
    """Whether the peer's FIN is among the bytes received by a connection that is over for the kernel, which no longer tells
    whether it ended with both ends' FIN or with a reset. It is if there was no reset, or if there is one more than the peer has
    counted. (Not only then: the peer may have counted a byte that it could not send any more. What a peer sends that has gone
    back to the kernel nobody counts.) A reset that was told already, to a send, is seen no more: but no FIN has come if what
    is not waiting is just what this side has taken."""
    cdef uint64_t switch_at = fs_load_sc64(&self.vi.rx.switch_at)
    if not fs_events_now(self.fd, 0) & POLLERR:
        return received - waiting > self.own.kernel_taken
    return (switch_at != 0 and fs_load_sc64(&self.vi.rx.fin) >> 32 != FS_BACK >> 32
            and <int32_t>(<uint32_t>(received + 1 - switch_at) - fs_load_acquire(&self.vi.rx.rung)) > 0)


cdef bint kernel_waiting(int fd, uint64_t *waiting, int64_t *mark) noexcept nogil:
    """Bytes in the kernel's queue, and where among them an urgent byte lies that is not read with the others (-1:
    nowhere): FIONREAD stops there, so it is asked with SO_OOBINLINE as well. False: the kernel does not tell."""
    cdef int before = 0, all = 0, after = 0
    while sys_ioctl(fd, FIONREAD, &before) == 0:
        waiting[0] = <uint64_t>before
        mark[0] = -1
        if fs_option(fd, SOL_SOCKET, SO_OOBINLINE):
            return True
        fs_set_option(fd, SOL_SOCKET, SO_OOBINLINE, 1)
        sys_ioctl(fd, FIONREAD, &all)
        fs_set_option(fd, SOL_SOCKET, SO_OOBINLINE, 0)
        sys_ioctl(fd, FIONREAD, &after)
        if before == after:  # nothing ordinary came between
            if all > before:
                waiting[0] = <uint64_t>all
                mark[0] = before
            return True
    return False
