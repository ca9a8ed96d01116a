# Whether the peer is still there: the one place that decides it, and what its end means for a receive and for a send.
#
# The kernel connection is the lifeline. Its stream from the peer ends when the peer dies, and also when the peer ends
# its stream. Which of the two it was the ring tells: a peer that ends its stream posts FIN in the ring before its kernel
# says FIN. So everybody looks at the kernel first and at the ring's FIN second. (The other way round, a peer that ends
# its stream between the two looks would be taken for dead.) Nobody reads what we send if
#
#   1. the peer said so (FS_GONE), or
#   2. the kernel connection is over in both directions: reset, or closed by both ends, or
#   3. the kernel's stream from the peer has ended and the ring holds no FIN.
#
# `lost` remembers 2 and 3. Bytes that the peer posted before it went are read all the same.

cdef extern from *:
    """
    #include <linux/inet_diag.h>
    #include <linux/netlink.h>
    #include <linux/sock_diag.h>
    enum fs_peer { FS_PEER_UNKNOWN = 0, FS_PEER_OPEN = 1, FS_PEER_CLOSED = 2 };

    static int fs_fill_end(int fd, int remote, __be32 address[4], __be16 *port) {
        struct sockaddr_storage s;
        socklen_t n = sizeof s;
        if ((remote ? getpeername : getsockname)(fd, (struct sockaddr *)&s, &n) < 0) return 0;
        if (s.ss_family == AF_INET) {
            memcpy(address, &((struct sockaddr_in *)&s)->sin_addr, 4);
            *port = ((struct sockaddr_in *)&s)->sin_port;
        } else {
            memcpy(address, &((struct sockaddr_in6 *)&s)->sin6_addr, 16);
            *port = ((struct sockaddr_in6 *)&s)->sin6_port;
        }
        return s.ss_family;
    }

    /* Whether a process still has the other end of this connection open: sock_diag(7) tells of a socket with its
     * inode, and of one that nobody holds any more without. Never blocks. */
    static int fs_peer_socket(int fd) {
        struct {
            struct nlmsghdr header;
            struct inet_diag_req_v2 body;
        } request;
        union {
            struct nlmsghdr header;
            char space[1024];
        } answer;
        memset(&request, 0, sizeof request);
        /* The peer's local end is our remote one. (Port and address 0 would match any.) */
        int family = fs_fill_end(fd, 1, request.body.id.idiag_src, &request.body.id.idiag_sport);
        if (!family || fs_fill_end(fd, 0, request.body.id.idiag_dst, &request.body.id.idiag_dport) != family)
            return FS_PEER_UNKNOWN;
        request.header.nlmsg_len = sizeof request;
        request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
        request.header.nlmsg_flags = NLM_F_REQUEST;
        request.body.sdiag_family = (uint8_t)family;
        request.body.sdiag_protocol = IPPROTO_TCP;
        request.body.idiag_states = ~0u;
        request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
        int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
        if (diag < 0) return FS_PEER_UNKNOWN;
        int told = FS_PEER_UNKNOWN;
        ssize_t got = send(diag, &request, sizeof request, 0) < 0 ? -1 : recv(diag, &answer, sizeof answer, 0);
        if (got >= (ssize_t)NLMSG_LENGTH(sizeof(int)) && answer.header.nlmsg_type == NLMSG_ERROR) {
            int error;
            memcpy(&error, NLMSG_DATA(&answer.header), sizeof error);
            if (error == -ENOENT) {
                /* Nobody, or no such module: our own end must be there. */
                struct inet_diag_sockid swapped = request.body.id;
                memcpy(request.body.id.idiag_src, swapped.idiag_dst, sizeof swapped.idiag_src);
                memcpy(request.body.id.idiag_dst, swapped.idiag_src, sizeof swapped.idiag_src);
                request.body.id.idiag_sport = swapped.idiag_dport;
                request.body.id.idiag_dport = swapped.idiag_sport;
                got = send(diag, &request, sizeof request, 0) < 0 ? -1 : recv(diag, &answer, sizeof answer, 0);
                if (got > 0 && answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) told = FS_PEER_CLOSED;
            }
        } else if (got >= (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)) &&
                   answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
            struct inet_diag_msg message;
            memcpy(&message, NLMSG_DATA(&answer.header), sizeof message);
            told = message.idiag_inode ? FS_PEER_OPEN : FS_PEER_CLOSED;
        }
        close(diag);
        return told;
    }
    """
    enum: FS_PEER_UNKNOWN, FS_PEER_OPEN, FS_PEER_CLOSED
    int fs_peer_socket(int) nogil

cdef enum:  # how the lifeline stands
    ALIVE = 0
    STREAM_ENDED = 1  # the kernel's stream from the peer has ended
    OVER = 2          # so has the connection


cdef int lifeline(Endpoint self) noexcept nogil:
    """How the kernel connection stands. (POLLRDHUP would also tell of our own SHUT_RD.) One system call."""
    cdef uint64_t sent, received
    cdef char state
    if not tcp_bytes(self.fd, &state, &sent, &received) or state == TCP_CLOSE:
        return OVER
    if (state == TCP_CLOSE_WAIT or state == TCP_LAST_ACK or state == TCP_CLOSING or state == TCP_TIME_WAIT):
        return STREAM_ENDED
    return ALIVE


cdef int64_t look_in_kernel(Endpoint self, void *into, size_t room, int flags) noexcept nogil:
    """What the kernel's queue holds: bytes, 0 at the end of the peer's stream, or -errno. After a SHUT_RD of this side the kernel
    says 0 wherever it holds nothing, and more may come all the same: that is -EAGAIN here."""
    cdef int64_t got = sys_recv(self.fd, into, room, flags | MSG_DONTWAIT)
    if got == 0:
        if lifeline(self) == ALIVE:
            return -EAGAIN
        got = sys_recv(self.fd, into, room, flags | MSG_DONTWAIT)  # what came before the end came before this look
    return got if got >= 0 else -errno


cdef bint peer_ended(Endpoint self) noexcept nogil:
    """Whether the peer's FIN or RST has come."""
    return lifeline(self) != ALIVE


cdef bint peer_lost(Endpoint self) noexcept nogil:
    """Whether nobody reads any more what we send into the ring: asks the kernel, and remembers the answer. Everybody who
    wants to know of the peer's end asks here."""
    cdef int stands
    if not self.gone():
        stands = lifeline(self)
        # The ring's FIN after the kernel's, see above.
        if stands == OVER or stands == STREAM_ENDED and not fs_load_sc64(&self.vi.rx.fin):
            fs_store_relaxed(&self.lost, 1)
    return self.gone()


cdef bint probe_peer(Endpoint self) noexcept nogil:
    """As peer_lost, of a peer whose end of stream was seen: its death ends nothing that the kernel would tell of by itself.
    Under the send lock."""
    cdef int told
    if peer_lost(self):
        return True
    told = fs_peer_socket(self.fd)
    if told == FS_PEER_CLOSED:
        fs_store_relaxed(&self.lost, 1)
    elif told == FS_PEER_UNKNOWN:
        leave_byte(self)
    return self.gone()


cdef bint end_is_hidden(Endpoint self) noexcept nogil:
    """Whether the kernel would not tell of the peer's death by the end of the peer's stream: the stream has ended, or we do not
    read it, or the end may wait behind bytes that the kernel holds."""
    cdef int unread = 0
    if fs_load_sc64(&self.vi.rx.fin) or fs_load_relaxed(&self.shut_receiving):
        return True
    return not self.moved_receiving() and sys_ioctl(self.fd, FIONREAD, &unread) == 0 and unread > 0


cdef void leave_byte(Endpoint self) noexcept nogil:
    """We are about to wait for credit of a peer whose end may be hidden. A doorbell byte in its kernel's queue makes the
    kernel tell of its death at once: a process that dies with bytes unread resets the connection, as it would with our
    bytes unread on TCP; and one that is dead already answers with RST. Not if the peer has shut both directions: its
    kernel would answer a byte with RST, where TCP lets the sender wait. Under the send lock."""
    if (self.moved_sending() and end_is_hidden(self) and not fs_peer_doorbell(&self.vi) & (FS_SHUT | FS_GONE)
            and fs_all_heard(&self.vi)):
        ring(self, FS_EXPOSED)


cdef void watch_lifeline(Endpoint self) noexcept nogil:
    """Nothing was acknowledged for a while: see now and then whether the peer still lives."""
    cdef int64_t now
    self.unacknowledged_sends += 1
    if self.unacknowledged_sends % 4:
        return
    now = fs_now()
    if now - self.last_look >= LOOK_INTERVAL:
        self.last_look = now
        peer_lost(self)


cdef int64_t death(Endpoint self) noexcept nogil:
    """The kernel connection has ended. TCP resets it when a process dies with bytes unread; here they lay in the
    ring, where the kernel did not see them: -ECONNRESET once, then 0."""
    if fs_load_relaxed(&self.death_told) or fs_waiting(&self.vi) or not fs_left_unread(&self.vi):
        return 0
    fs_store_relaxed(&self.death_told, 1)
    return -ECONNRESET


cdef int64_t refusal(Endpoint self) noexcept nogil:
    """What a send gets that nobody will read: -errno, or 0 if the kernel connection answers. It does not know of bytes of ours
    that were left in the ring, and while a peer closes it even takes some more. On TCP the reset that they draw is told
    once: -ECONNRESET, or -EPIPE if the peer had ended its stream before."""
    cdef int stands
    if is_broken(self) or fs_load_relaxed(&self.death_told):
        return -EPIPE
    if (not self.gone() or self.own.fin_sent or fs_load_relaxed(&self.vi.tx.seen) == self.own.posted
            or fs_load_relaxed(&self.own.moved) & FS_SENDING_BACK):
        return 0
    if fs_load_sc(&self.vi.tx.doorbell) & (FS_SHUT | FS_GONE) == FS_SHUT:
        return 0  # it has shut both its directions, and may live: its kernel answers
    fs_store_relaxed(&self.death_told, 1)
    stands = lifeline(self)
    # The kernel's word for it, if it has come: told with this, and POLLERR no longer. If it has come and is not there, the
    # program has asked for it by SO_ERROR, and was told then.
    if fs_option(self.fd, SOL_SOCKET, SO_ERROR) == 0 and stands == OVER:
        return -EPIPE
    return -EPIPE if fs_load_sc64(&self.vi.rx.fin) & KIND == FS_FIN else -ECONNRESET


cdef int64_t stream_ended(Endpoint self) noexcept nogil:
    """What a receive gets at the end of the kernel's stream from the peer: 0, or -ECONNRESET."""
    if lifeline(self) == ALIVE:
        return 0  # after our own SHUT_RD
    peer_lost(self)
    return death(self)


cdef int64_t kernel_failed(Endpoint self, int error) noexcept nogil:
    """What a receive gets when the kernel says `error`: a reset is told once, and by the next one the stream has ended."""
    if error == ECONNRESET and fs_load_relaxed(&self.death_told):
        return 0
    return tell_of_kernel(self, -error)


cdef int64_t tell_of_kernel(Endpoint self, int64_t result) noexcept nogil:
    """What the kernel answered after the peer's end. A reset that it tells is told, and not told again."""
    if result == -ECONNRESET or result == -EPIPE:
        fs_store_relaxed(&self.death_told, 1)
    return result


cdef int64_t look_at_lifeline(Endpoint self) noexcept nogil:
    """Nothing lies in the ring: 0 if the kernel connection has ended, -errno if it failed, -EAGAIN if it lives. Under the
    receive lock."""
    cdef char byte
    cdef int64_t got
    cdef int looks
    for looks in range(3):
        got = sys_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
        if got == 0:
            return stream_ended(self)
        if got < 0:
            return kernel_failed(self, errno)
        self.quiet()
        if fs_load_relaxed(&self.pending_error):
            return take_error(self)
        if fs_readable(&self.vi):
            break
        if (lifeline(self) != ALIVE and not fs_readable(&self.vi)
                and fs_load_acquire(&self.vi.rx.rung) == fs_load_relaxed(&self.vi.rx.heard)):
            # Bytes that the peer never counted: of a peer that took us for gone, or of a stranger who has the number. In
            # front of the end of the connection they would hide it for ever. (The receive behind the last one takes the
            # error that the next look would have found.)
            while got > 0:
                got = sys_recv(self.fd, junk, sizeof(junk), MSG_TRUNC | MSG_DONTWAIT)
            if got < 0 and errno != EAGAIN:
                return kernel_failed(self, errno)
    return -EAGAIN
