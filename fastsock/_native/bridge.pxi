# The bridge: the way out when the peer cannot send again what lies unread here (it has closed, shut down, died or
# stopped, or its kernel takes no more). A forked process becomes the reader and writer of the connection, and copies
# between it and a TCP connection within this process, whose other end takes the place of the descriptor.
#
# The process has nothing but the connection: no Python runs in it, all other descriptors are closed, no signal of
# the terminal reaches it. It is a holder of the endpoint like any forked child, and drives it by try_receive and
# try_send as the program did. It ends with the connection.

cdef extern from *:
    """
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    /* Forks a process that its parent need not wait for: a grandchild, without a SIGCHLD. 0 in it, else its
     * process id, -errno without one. (No handlers of pthread_atfork run: they are Python's business.) */
    static int64_t fs_fork_away(void) {
        int told[2];
        int32_t pid = -1;
        if (pipe2(told, O_CLOEXEC) < 0) return -errno;
        long child = syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L); /* no exit signal: nobody's wait() finds it */
        if (child < 0) {
            int saved = errno;
            close(told[0]);
            close(told[1]);
            return -saved;
        }
        if (child == 0) {
            setsid();
            long grandchild = syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L);
            if (grandchild == 0) return 0;
            pid = grandchild > 0 ? (int32_t)grandchild : -errno;
            if (write(told[1], &pid, sizeof pid) < 0) _exit(1);
            _exit(0);
        }
        close(told[1]);
        while (read(told[0], &pid, sizeof pid) < 0 && errno == EINTR) {}
        close(told[0]);
        while (waitpid((pid_t)child, NULL, __WCLONE) < 0 && errno == EINTR) {}
        return pid;
    }
    /* Closes every descriptor but these four (-1: none). */
    static void fs_close_all_but(int a, int b, int c, int d, int e) {
        int kept[5] = {a, b, c, d, e};
        for (int i = 0; i < 5; i++)
            for (int j = i + 1; j < 5; j++)
                if (kept[j] < kept[i]) {
                    int swap = kept[i];
                    kept[i] = kept[j];
                    kept[j] = swap;
                }
        unsigned int from = 0;
        for (int i = 0; i <= 5; i++) {
            unsigned int until = i < 5 ? (unsigned int)kept[i] : ~0u;
            if (i < 5 && kept[i] < 0) continue;
            if (from < until) {
                unsigned int last = until == ~0u ? until : until - 1;
                if (syscall(436 /* close_range, Linux 5.9 */, from, last, 0) < 0) {
                    struct rlimit limit;
                    getrlimit(RLIMIT_NOFILE, &limit);
                    for (unsigned int fd = from; fd <= last && fd < limit.rlim_cur; fd++) close((int)fd);
                }
            }
            from = until + 1;
        }
    }
    /* Two ends of a TCP connection within this process, the first with the flags and options of `like`. 0 or -errno. */
    static int fs_tcp_pair(int like, int ends[2]) {
        static const int options[][2] = {{SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_NODELAY}};
        static const int blobs[] = {SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO};
        struct sockaddr_storage address, here, there;
        socklen_t size = sizeof address, listening = sizeof address, n, m;
        int listener = -1, one = 1;
        ends[0] = ends[1] = -1;
        if (getsockname(like, (struct sockaddr *)&address, &size) < 0) return -errno;
        if (address.ss_family == AF_INET) ((struct sockaddr_in *)&address)->sin_port = 0;
        else ((struct sockaddr_in6 *)&address)->sin6_port = 0;
        listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ends[0] = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listener < 0 || ends[0] < 0) goto failed;
        if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1) < 0) goto failed;
        if (getsockname(listener, (struct sockaddr *)&address, &listening) < 0) goto failed;
        if (connect(ends[0], (struct sockaddr *)&address, listening) < 0) goto failed;
        do { /* until it is our own end that has come, and not a stranger */
            if (ends[1] >= 0) close(ends[1]);
            m = n = sizeof here;
            ends[1] = accept4(listener, (struct sockaddr *)&there, &m, SOCK_CLOEXEC);
            if (ends[1] < 0 || getsockname(ends[0], (struct sockaddr *)&here, &n) < 0) goto failed;
        } while (n != m || memcmp(&here, &there, n) != 0);
        close(listener);
        setsockopt(ends[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            int value = fs_option(like, options[i][0], options[i][1]);
            setsockopt(ends[0], options[i][0], options[i][1], &value, sizeof value);
        }
        for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++) {
            char value[32];
            n = sizeof value;
            if (getsockopt(like, SOL_SOCKET, blobs[i], value, &n) == 0)
                setsockopt(ends[0], SOL_SOCKET, blobs[i], value, n);
        }
        fcntl(ends[0], F_SETFL, fcntl(like, F_GETFL));
        return 0;
    failed:;
        int saved = errno;
        if (listener >= 0) close(listener);
        if (ends[0] >= 0) close(ends[0]);
        if (ends[1] >= 0) close(ends[1]);
        ends[0] = ends[1] = -1;
        return -saved;
    }
    static void fs_settle_in(void) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        prctl(PR_SET_NAME, "fastsock-bridge");
        if (chdir("/") < 0) {} /* keeps no mount busy */
    }
    """
    int64_t fs_fork_away() nogil
    int fs_tcp_pair(int, int *) nogil
    void fs_close_all_but(int, int, int, int, int) nogil
    void fs_settle_in() nogil
    void _exit(int) nogil
    int sys_shutdown "shutdown"(int, int) nogil
    int64_t sys_lseek "lseek"(int, int64_t, int) nogil
    enum: SEEK_SET
    int sys_dup3 "dup3"(int, int, int) nogil
    int sys_poll "poll"(pollfd *, unsigned long, int) nogil
    enum: SHUT_WR, FD_CLOEXEC, O_CLOEXEC

cdef enum:
    BUFFER = 65536
    # milliseconds between looks:
    HELD_LOOK = 20        # whether a held direction may go on, or whether bytes came where no poll tells (deaf)
    STRANGERS_LOOK = 500  # whether anything came, where a wakeup may be lost

# What goes one way across the bridge.
cdef struct lane:
    char *bytes
    int64_t length, done
    bint ended


cdef int64_t next_of_unknown(Endpoint self, parcel_t *parcel, char *into) noexcept nogil:
    """The peer was killed or stopped while it sent the parcel again: the kernel's queue holds a part of it, the peer's
    word or the end of its stream tells how much. Bytes, -EAGAIN, or 0 when it is known."""
    cdef uint64_t rest = parcel.size - parcel.crossed
    cdef int64_t got = look_in_kernel(self, into, BUFFER if rest > BUFFER else rest, MSG_PEEK)
    # SYNC: returned - pairs with put_back. After the look: what the peer sends behind the parcel it sends behind this.
    cdef uint32_t told = fs_load_sc(&self.vi.rx.returned)
    if told:
        parcel.returned = <uint64_t>(told - 1) - parcel.crossed
        if told - 1 < parcel.crossed or told - 1 > parcel.size:
            return VIOLATED
        parcel.crossed = told - 1
    elif got > 0:
        parcel.crossed += <uint64_t>got
        return sys_recv(self.fd, into, <size_t>got, MSG_DONTWAIT)
    elif got == -EAGAIN:
        return -EAGAIN
    elif got:
        fs_store_relaxed(&self.pending_error, <uint32_t>-got)  # told, and for the reader to hear after the parcel
    parcel.unknown = False
    sys_lseek(parcel.fd, <int64_t>parcel.crossed, SEEK_SET)
    return 0


cdef int64_t next_inward(Endpoint self, parcel_t *parcel, char *into) noexcept nogil:
    """The next bytes for the reader: those that the peer's kernel took again, the rest of the parcel, and then
    whatever comes. As try_receive."""
    cdef int64_t got
    if parcel.unknown:
        got = next_of_unknown(self, parcel, into)
        if got:
            return got
    if parcel.returned:
        got = look_in_kernel(self, into, BUFFER if parcel.returned > BUFFER else parcel.returned, 0)
        if got > 0:
            parcel.returned -= <uint64_t>got
        return got if got else -ECONNRESET
    if parcel.fd >= 0:
        got = sys_read(parcel.fd, into, BUFFER)
        if got > 0:
            return got
        sys_close(parcel.fd)
        parcel.fd = -1
    got = self.try_receive(into, BUFFER, 0, True)
    if got == 0 and not fs_load_relaxed(&self.own.fin_taken):
        if lifeline(self) == ALIVE:
            return -EAGAIN  # as look_in_kernel
        got = self.try_receive(into, BUFFER, 0, True)
    return got


cdef bint deaf(Endpoint self) noexcept nogil:
    """Whether this side has shut receiving (SHUT_RD) and the peer's stream goes on: the kernel tells no poll then that more came."""
    return fs_events_now(self.fd, POLLRDHUP) & POLLRDHUP and lifeline(self) == ALIVE


cdef void dissolve(Endpoint self) noexcept nogil:
    """The reader is gone with bytes unread: the peer gets a RST, as it would have from the reader's kernel. So does another holder
    of the connection: what this process had taken is lost, and nobody is given what follows for the whole stream. (The mark
    without a leaver says so: beside_collector.)"""
    cdef fs_side *own = lock_receiving(self)
    fs_or_sc(&own.moved, FS_COLLECTING)
    end_turn_to_receive(self, own)
    fs_or_sc(&self.vi.rx.doorbell, FS_GONE)
    if shared(self):
        fs_reset_connection(self.fd)
        wake_own(self)
    else:
        fs_linger_zero(self.fd)
    tell_peer(self)


cdef void cross(Endpoint self, parcel_t *parcel, int far, char *buffers) noexcept nogil:
    """Copies both ways until both have ended. `buffers`: twice BUFFER bytes."""
    cdef lane inward, outward
    cdef pollfd fds[3]
    cdef int64_t part
    cdef uint64_t drained
    cdef bint progress, armed, wants, looks, ready
    cdef fs_side *own
    cdef int patience
    inward.bytes = buffers
    outward.bytes = buffers + BUFFER
    inward.length = inward.done = outward.length = outward.done = 0
    inward.ended = outward.ended = False
    while not (inward.ended and outward.ended and outward.done == outward.length):
        progress = False
        if inward.done == inward.length and not inward.ended:
            part = next_inward(self, parcel, inward.bytes)
            if part > 0:
                inward.length = part
                inward.done = 0
                progress = True
            elif part == 0:
                inward.ended = progress = True
                sys_shutdown(far, SHUT_WR)
            elif part != -EAGAIN:
                fs_linger_zero(far)
                if part == VIOLATED:
                    fs_reset_connection(self.fd)
                return
        if inward.done < inward.length:
            part = sys_send(far, inward.bytes + inward.done, <size_t>(inward.length - inward.done), MSG_DONTWAIT | MSG_NOSIGNAL)
            if part > 0:
                inward.done += part
                progress = True
            elif part < 0 and errno != EAGAIN:
                dissolve(self)
                return
        if outward.done == outward.length and not outward.ended:
            part = sys_recv(far, outward.bytes, BUFFER, MSG_DONTWAIT)
            if part > 0:
                outward.length = part
                outward.done = 0
                progress = True
            elif part == 0:
                outward.ended = progress = True
                sys_shutdown(self.fd, SHUT_WR)
            elif errno != EAGAIN:
                dissolve(self)
                return
        if outward.done < outward.length:
            part = self.try_send(outward.bytes + outward.done, <size_t>(outward.length - outward.done), MSG_NOSIGNAL)
            if part > 0:
                outward.done += part
                progress = True
            elif part < 0 and part != -EAGAIN:
                # The peer is gone. What it had sent is still worth reading; the writer will meet a reset.
                outward.done = outward.length
                outward.ended = progress = True
                if inward.ended:
                    fs_linger_zero(far)
        if progress:
            continue
        wants = inward.done == inward.length and not inward.ended and not collecting(self)
        looks = wants and deaf(self)
        if looks and outward.ended and not parcel.returned and not parcel.unknown:
            # Shut in both directions: what comes from now on the kernel answers with RST, as it would the reader's.
            inward.ended = True
            sys_shutdown(far, SHUT_WR)
            continue
        armed = is_attached(self) and wants and not fs_load_relaxed(&self.own.moved) & FS_RECEIVING_BACK
        fds[0].fd = self.wake_fd if is_attached(self) else -1
        fds[0].events = POLLIN
        fds[1].fd = self.fd if wants or outward.done < outward.length else -1
        fds[1].events = 0
        if wants and not looks:
            fds[1].events |= POLLRDHUP if armed and self.moved_receiving() and not parcel.returned and not parcel.unknown else POLLIN | POLLRDHUP
        # (Threads that slept on the connection in the old process may still take a wakeup that was meant for us.)
        patience = HELD_LOOK if looks or collecting(self) else -1 if self.active < 2 else STRANGERS_LOOK
        if outward.done < outward.length:
            if fs_load_relaxed(&self.own.moved) & FS_SENDING_HELD:
                patience = HELD_LOOK
            else:
                fds[1].events |= POLLOUT
        # (Also with nothing to wait for there: a reader that has closed answers what it was sent with a RST.)
        fds[2].fd = far if not inward.ended or not outward.ended else -1
        fds[2].events = (POLLOUT if inward.done < inward.length else 0) | (
            POLLIN if outward.done == outward.length and not outward.ended else 0)
        if armed:
            # In our turn: another holder may read, and an ACK that is older than its own would step back.
            own = lock_receiving(self)
            answer_credit_wait(self)
            ready = fs_arm_receiver(&self.vi) and self.moved_receiving()
            end_turn_to_receive(self, own)
            if ready:
                continue
            if not self.moved_receiving() and fs_load_sc64(&self.vi.rx.switch_at):
                patience = HELD_LOOK  # the kernel's part is still on its way
        fds[2].revents = 0
        sys_poll(fds, 3, patience)
        if outward.ended and not inward.ended and inward.done == inward.length and fds[2].revents & (POLLERR | POLLHUP):
            if armed:
                fs_disarm_receiver(&self.vi)
            dissolve(self)
            return
        if fds[0].fd >= 0 and fds[0].revents & POLLIN:
            sys_read(fds[0].fd, &drained, 8)
        if armed:
            fs_disarm_receiver(&self.vi)


cdef int64_t fork_bridge(Endpoint self, parcel_t *parcel, int far, char *buffers) noexcept nogil:
    """Starts the process. Its process id, or -errno. The process allocates nothing: another thread may have had the
    allocator's lock when it was made."""
    global own_pid, own_pid_space
    cdef int64_t pid
    fs_add_sc(&self.own.holders, 1)  # before it exists: see before_fork
    pid = fs_fork_away()
    if pid < 0:
        fs_add_sc(&self.own.holders, <uint32_t>-1)
    if pid != 0:
        return pid
    own_pid = getpid()
    own_pid_space = fs_pid_space()
    fs_settle_in()
    fs_close_all_but(self.fd, self.wake_fd, self.peer_fd, far, parcel.fd)
    note_child(self.own)
    if parcel.fd >= 0:
        sys_lseek(parcel.fd, <int64_t>parcel.returned, SEEK_SET)
    cross(self, parcel, far, buffers)
    count_out(self.own)
    _exit(0)
    return 0


cdef void change_over(Endpoint self, int near, fs_side *new) noexcept:
    """The endpoint's descriptors become `near`, a kernel TCP connection like any other, with `new` as its state."""
    cdef int flags, fd
    cdef fs_side *old
    cdef tuple numbers
    # Under both locks, so that no call is under way on the connection; and with the GIL, which nobody may wait for who
    # holds one. (A new object may run the garbage collector, and so anything: none is made under the locks.)
    while True:
        numbers = tuple(self.descriptors)
        old = try_both(self)
        if old != NULL:
            break
        await_both(self)
    for fd in numbers:
        flags = sys_fcntl(fd, F_GETFD)
        sys_dup3(near, fd, O_CLOEXEC if flags & FD_CLOEXEC else 0)
    # (Shut in both directions it would answer what lay unread with RST: the bridge ends its stream behind that.)
    if fs_load_relaxed(&self.shut_receiving) and not fs_load_relaxed(&self.shut_sending):
        sys_shutdown(near, SHUT_RD)
    if fs_load_relaxed(&self.shut_sending):
        sys_shutdown(near, SHUT_WR)
    # The region and the old state stay mapped to the endpoint's end: a thread may be looking at them without a lock.
    fs_store_relaxed(&self.attached_word, 0)
    self.bridged = True
    self.bridged_inherited = self.own_inherited
    self.own = new
    self.own_inherited = False
    unlock_both(old)
    count_out(old)  # (a forked child is struck out no more: it would be counted out twice)
    wake_own(self)
    tell_of_number()  # (the bridge may be the one that hears the eventfd)
    self.wake_fd = self.peer_fd = -1  # the bridge's by now
    if by_inode.get(self.inode) is self:
        del by_inode[self.inode]
    self.inode = inode_of(self.fd)
    by_inode[self.inode] = self


cdef int64_t bridge(Endpoint self, parcel_t *parcel) except? -1:
    """Puts a bridge under the endpoint's descriptors. Its process id, or -errno if there are no resources for one."""
    cdef int ends[2]
    cdef int64_t pid
    cdef char *buffers
    cdef fs_side *new = <fs_side *>new_block(sizeof(fs_side))
    fs_store_sc(&new.holders, 1)
    new.pid_space = own_pid_space
    buffers = <char *>malloc(2 * BUFFER)
    pid = -ENOMEM if buffers == NULL else fs_tcp_pair(self.fd, ends)
    if pid == 0:
        with nogil:
            pid = fork_bridge(self, parcel, ends[1], buffers)
        if pid > 0:
            change_over(self, ends[0], new)
        sys_close(ends[0])
        sys_close(ends[1])
    free(buffers)
    if pid < 0:
        free_block(new, sizeof(fs_side))
    return pid
