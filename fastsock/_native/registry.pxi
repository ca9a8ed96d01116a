# Which endpoint a descriptor belongs to (the papers' descriptor tracking), and what a fork does to them.

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()
cdef extern from *:
    """
    #include <pthread.h>
    /* Of this thread: it is about to fork for Python; its fork has been counted; the pipe of that fork. */
    static __thread int fs_fork_announced, fs_fork_counted;
    static __thread int fs_fork_pipe[2];
    static void (*fs_count_child)(int);
    static void fs_announce_fork(int comes) { fs_fork_announced = comes; }
    /* Forks that Python knows nothing of (by C code, without the GIL) are not for us: exec or _exit follows them. */
    static void fs_in_fork(void) {
        if (!fs_fork_announced) return;
        fs_fork_announced = 0;
        fs_fork_counted = 1;
        fs_count_child(1);
        if (pipe2(fs_fork_pipe, O_CLOEXEC) < 0) fs_fork_pipe[0] = fs_fork_pipe[1] = -1;
        errno = 0;
    }
    static void fs_in_forked_child(void) {
        if (!fs_fork_counted) return;
        fs_fork_counted = 0;
        if (fs_fork_pipe[0] < 0) return;
        ssize_t told = write(fs_fork_pipe[1], "", 1);
        (void)told;
        close(fs_fork_pipe[0]);
        close(fs_fork_pipe[1]);
    }
    /* The handlers run whether or not there is a child, and are not told. A fork that fails sets errno, and so may whatever
     * else runs in a fork. So a child that there is says so in a pipe; without one nobody has the other end of it. If that
     * cannot be told (no descriptors; a stopped child; another process has got the end of the pipe) the child counts: a
     * connection that is not said goodbye to is better than one that is, and in use. */
    static void fs_after_fork(void) {
        int error = errno;
        struct pollfd end = {fs_fork_pipe[0], POLLIN, 0};
        if (!fs_fork_counted) return;
        fs_fork_counted = 0;
        if (end.fd >= 0) {
            close(fs_fork_pipe[1]);
            if (error) {
                while (poll(&end, 1, 1000) < 0 && errno == EINTR);
                if ((end.revents & (POLLIN | POLLHUP)) == POLLHUP) fs_count_child(-1);
            }
            close(end.fd);
        }
        errno = error;
    }
    static int fs_watch_forks(void (*count_child)(int)) {
        fs_count_child = count_child;
        return pthread_atfork(fs_in_fork, fs_after_fork, fs_in_forked_child);
    }
    """
    void fs_announce_fork(int)
    int fs_watch_forks(void (*)(int) noexcept)

cdef dict by_descriptor = {}
cdef dict by_inode = {}


cdef Endpoint endpoint_at(object fd):
    """The endpoint of a descriptor, or None. Asks the kernel whether the number still means that connection."""
    cdef Endpoint endpoint = by_descriptor.get(fd)
    if endpoint is None or inode_of(fd) == endpoint.inode:
        return endpoint
    # Closed behind our back (by C code): the number has been given away.
    endpoint.forget(fd)
    return None


def find(int fd):
    """The endpoint that `fd` belongs to in this process: by number, or as another descriptor of a connection
    known here (an unseen dup). None if there is none."""
    endpoint = endpoint_at(fd)
    return endpoint if endpoint is not None else by_inode.get(inode_of(fd))


def tracked():
    """The live descriptor table, for the patched functions of `os`: descriptor -> Endpoint. Read only."""
    return by_descriptor


def endpoints():
    """All live endpoints of this process, a list."""
    return list(by_inode.values())


cdef uint64_t inode_of(int fd) except? 0:
    cdef uint64_t inode = fs_inode(fd)
    if inode == 0:
        PyErr_SetFromErrno(OSError)
    return inode


cdef bint is_any_attaching():
    """In another thread. (What forks in a signal handler cannot wait for the thread that it interrupted.)"""
    cdef Endpoint endpoint
    cdef unsigned long here = PyThread_get_thread_ident()
    for endpoint in by_inode.values():
        if endpoint.attaching and endpoint.attaching != here:
            return True
    return False


def before_fork():
    """This thread is about to fork, and no endpoint begins to attach any more. Waits for those that are at it: the child would
    believe itself on kernel TCP, and its parent and the peer be on the ring. Other threads may still open and close connections
    before the fork, so the child is counted at the last moment (`count_child`)."""
    while is_any_attaching():
        with nogil:
            fs_nap()
    fs_announce_fork(True)


def after_fork_in_parent():
    fs_announce_fork(False)  # os.forkpty that finds no terminal does not fork


cdef void count_child(int by) noexcept with gil:
    """Counts the child in as a holder of every connection, before it exists, so that neither side can believe for a moment that
    it is the last; and out again, if the fork fails. Called by the fork itself, in the thread that announced it, which has
    the GIL all the time: nothing can come between."""
    cdef Endpoint endpoint
    for endpoint in by_inode.values():
        fs_add_sc(&endpoint.own.holders, <uint32_t>by)


if fs_watch_forks(count_child):
    raise MemoryError("forks cannot be watched")


def after_fork_in_child():
    global own_pid, own_pid_space
    own_pid = getpid()
    own_pid_space = fs_pid_space()
    forget_blocks_after_fork()
    forget_news()
    cdef Endpoint endpoint
    cdef fs_call *call = fs_innermost_call()
    for endpoint in by_inode.values():
        endpoint.own_inherited = endpoint.bridged_inherited = True
        endpoint.attaching = 0
        endpoint.active = endpoint.in_kernel = 0  # the threads that were inside are not in this process,
        fs_store_sc(&endpoint.recv_sleepers, 0)
        fs_store_sc(&endpoint.send_sleepers, 0)
        fs_store_sc(&endpoint.recv_watchers, 0)
        fs_store_sc(&endpoint.send_watchers, 0)
        note_child(endpoint.own)
    while call != NULL:  # but for this one, which may have forked in a signal handler
        (<Endpoint>call.endpoint).active += 1
        call = call.outer
    for endpoint in list(by_inode.values()):
        if endpoint.finished:
            let_go(endpoint)  # another thread was about to, and the child was counted
        elif endpoint.finishing and not endpoint.active:
            end_last_call(endpoint)  # the other thread would have


def before_exit():
    """Says goodbye on every connection, for os._exit, which runs no destructors. Nothing is given back: other threads may
    be inside calls, and loops look at regions without the GIL."""
    cdef Endpoint endpoint
    for endpoint in list(by_inode.values()):
        if not endpoint.finished:
            say_goodbye(endpoint)
