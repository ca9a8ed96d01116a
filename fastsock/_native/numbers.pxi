# What a thread that sleeps on a descriptor's number is told when the number means something else from now on.
#
# ppoll waits on the file that it found behind the number, and takes the events of whatever is behind the number when it
# is woken. If the number is closed and taken again meanwhile (dup2), ppoll is deaf: bytes of the old file wake it, it
# finds none in the new one, and sleeps on. So where there are other threads, a sleeper polls a third descriptor too, the
# *news* of the process. Who has changed what a number means shuts it down (`shutdown`). That wakes all who sleep on it,
# and it stays readable, so nobody has to count who has heard, and nobody takes another one's wakeup. The next sleeper
# makes another one. The old number is closed behind the last sleeper: ppoll would be deaf on that number too.
#
# It is a socket, and not an eventfd, since the program may close our descriptors with all others (os.closerange) and take
# the numbers for its own. A socket is known by its inode, so nothing is done to a file of the program.
#
# All of this happens with the GIL, but for `over`. No sleeper is left out. A sleeper joins first and looks at the number
# then; who changes a number does that first and tells then. So the sleeper finds the new number, or it is told.

cdef extern from "share.h" nogil:
    int fs_keep_number(int fd, int passing)
    short fs_other_file()
    bint fs_is_ours(short)
    uint64_t fs_inode(int)
    bint fs_is_our_eventfd(int)
    int fs_ring_eventfd(int)

cdef extern from "<sys/socket.h>" nogil:
    enum: SHUT_RD, AF_UNIX, SOCK_DGRAM, SOCK_CLOEXEC
    int sys_socket "socket"(int, int, int)

cdef enum:
    NEWS_INTERVAL = 1_000_000_000  # ns between two attempts to make one near the descriptor limit

cdef news_t *all_news = NULL  # that one, and those that somebody still sleeps on
cdef news_t *present = NULL   # the one that sleepers join
cdef int64_t no_news_until = 0


cdef news_t *join_news() noexcept:
    """This thread is about to sleep, beside other threads. NULL: there is no descriptor for that, and it may be deaf."""
    global present
    if present == NULL:
        present = make_news()
    if present != NULL:
        present.sleepers += 1
    return present


cdef void leave_news(news_t *joined) noexcept:
    """The sleeper is awake, and looks at the number if it goes on."""
    joined.sleepers -= 1
    if fs_load_relaxed(&joined.over):
        end_news(joined)


cdef void tell_of_number() noexcept:
    """A connection's number is another one, or means something else, and calls are inside that may sleep on it."""
    if present != NULL and present.sleepers:
        if fs_inode(present.fd) == present.inode:
            sys_shutdown(present.fd, SHUT_RD)  # readable from now on: datagrams could still come, and never will
        fs_store_relaxed(&present.over, 1)
        end_news(present)


cdef news_t *make_news() noexcept:
    global all_news, no_news_until
    cdef int64_t now = fs_now()
    cdef news_t *made
    cdef int fd
    if now < no_news_until:
        return NULL
    made = <news_t *>malloc(sizeof(news_t))
    fd = -1
    if made != NULL:
        fd = fs_keep_number(sys_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), False)
    if fd < 0:
        free(made)
        no_news_until = now + NEWS_INTERVAL
        return NULL
    made.fd = fd
    made.inode = fs_inode(fd)
    made.sleepers = 0
    fs_store_relaxed(&made.over, 0)
    made.next = all_news
    all_news = made
    return made


cdef void end_news(news_t *ended) noexcept:
    """Nobody joins it any more. With its last sleeper it goes."""
    global present, all_news
    cdef news_t **at = &all_news
    if present == ended:
        present = NULL
    if ended.sleepers:
        return
    while at[0] != ended:
        at = &at[0].next
    at[0] = ended.next
    if fs_inode(ended.fd) == ended.inode:
        sys_close(ended.fd)
    free(ended)


cdef void forget_news() noexcept:
    """This process is a forked child: what its parent tells is nothing to it, and the threads that slept are not here."""
    while all_news != NULL:
        all_news.sleepers = 0
        end_news(all_news)
