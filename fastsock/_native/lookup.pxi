# Looking up the name that the peer may have published: what a seeker's operations do, natively, as a connection to a
# peer without fastsock does nothing else before it is decided.

cdef extern from *:
    """
    static int fs_seeking_socket(void) {
        return fs_keep_number(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), 1);
    }

    /* Whether a seeker may keep its number between two look-ups: one in the first quarter of those for meetings. If seekers
     * had all of them, there would be none for the names that they look for. */
    static int fs_may_keep_seeking(int fd) {
        int size, first = fs_share(&size);
        return fd < first + size / 2 + size / 8;
    }

    /* Whether somebody listens at an abstract name: then the socket is connected. */
    static int fs_connect_abstract(int fd, const char *name, size_t length) {
        struct sockaddr_un address;
        socklen_t size = fs_abstract_address(&address, name, length);
        return size && connect(fd, (struct sockaddr *)&address, size) == 0;
    }
    """
    int fs_seeking_socket() nogil
    bint fs_may_keep_seeking(int fd) nogil
    bint fs_connect_abstract(int, const char *, size_t) nogil

cdef enum:
    LOOKUPS = 24            # before a peer counts as foreign, and so many seconds (`seconds`)
    LOOKUP_NS = 2000000     # between two of them, or as much as they have taken so far, if that is more; and
    LOOKUP_DOUBLINGS = 10   # and operations, at most: they double from one on, so many times


cdef class Lookup:
    """The step of a seeker until its peer is found: looks `name` up, ever less often.

    Whatever else there is to do is left to the step of the endpoint's search: at first, when the name was found, when it
    was looked for long enough (`over`), and while the connection is on kernel TCP for another reason than `reason`.
    """

    cdef bytes name
    cdef object reason
    cdef int64_t patience    # ns
    cdef int fd              # -1: not open
    cdef bint found
    cdef readonly bint over
    cdef int tries
    cdef int64_t began, last # monotonic ns
    cdef int64_t operations  # at the last look-up

    def __cinit__(self, bytes name not None, reason, double seconds):
        self.name = name
        self.reason = reason
        self.patience = <int64_t>(seconds * 1e9)
        self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            sys_close(self.fd)

    def __call__(self, Endpoint endpoint not None):
        if (self.fd < 0 or self.found or self.over or endpoint.reason is not self.reason or count_holders(endpoint.own) > 1
                or self.finds(endpoint) or self.over):
            if endpoint.search is not None:
                endpoint.search.step(endpoint)

    cpdef bint finds(self, Endpoint endpoint) except -1:
        """One look-up. If the name is not there, the endpoint's next step is the next one. OSError without a descriptor, as
        keep_away."""
        cdef int fd
        if self.fd < 0:
            fd = fs_seeking_socket()
            if fd < 0:
                raise OSError(-fd, _os.strerror(-fd))
            self.fd = fd
        # (It does not block, so it keeps the GIL: letting go of it costs as much.)
        if not self.found and fs_connect_abstract(self.fd, self.name, len(self.name)):
            self.found = True
        if not self.found:
            endpoint.next_step = endpoint.operations + self.pause(fs_now(), endpoint.operations)
            if not fs_may_keep_seeking(self.fd):
                sys_close(self.fd)
                self.fd = -1
        return self.found

    cpdef int64_t pause(self, int64_t now, int64_t operations) noexcept:
        """Operations until the next look-up, after one that was in vain `now` (monotonic ns). They are as many as the
        connection's pace makes of the time that looking has taken so far: the longer the peer has not been found, the
        less a server with many foreign clients shall pay for each."""
        cdef double stride  # (a product of whole numbers might not fit)
        if self.tries == 0:
            self.began = self.last = now
            self.operations = operations
        stride = <double>(operations - self.operations) * max(LOOKUP_NS, now - self.began) / max(now - self.last, 1000)
        self.last = now
        self.operations = operations
        self.tries += 1
        self.over = self.tries > LOOKUPS and now - self.began > self.patience
        return max(<int64_t>min(stride, 1 << min(self.tries // 2, LOOKUP_DOUBLINGS)), 1)

    def take(self):
        """The socket that is connected to the peer's connection thread: its descriptor, the caller's from now on."""
        fd, self.fd = self.fd, -1
        self.start_over()
        return fd

    def close(self):
        """Ends the look-up; the next one starts over."""
        if self.fd >= 0:
            sys_close(self.fd)
        self.fd = -1
        self.start_over()

    cdef void start_over(self) noexcept:
        self.found = self.over = False
        self.tries = 0
