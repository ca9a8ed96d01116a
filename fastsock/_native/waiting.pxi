# From a socket object to its endpoint, and waiting in a blocking call.

cdef extern from *:
    """
    #include <structmember.h>
    /* Where a class keeps the slot `name`, as its member descriptor says. -1 if it is no slot. */
    static Py_ssize_t fs_slot_offset(PyObject *type, const char *name) {
        PyObject *d = PyObject_GetAttrString(type, name);
        if (!d) return -1;
        Py_ssize_t offset = Py_TYPE(d) == &PyMemberDescr_Type ? ((PyMemberDescrObject *)d)->d_member->offset : -1;
        Py_DECREF(d);
        return offset;
    }
    static int fs_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }
    /* Whether no other thread of this interpreter can run Python code. */
    static int fs_only_thread(void) {
        PyThreadState *own = PyThreadState_Get();
        return PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(own)) == own && !PyThreadState_Next(own);
    }
    """
    Py_ssize_t fs_slot_offset(object, const char *) except? -1
    bint fs_only_thread()
    bint fs_open(int)
    int errno

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    bint PyObject_TypeCheck(object, PyTypeObject *)
    const char *PyUnicode_AsUTF8(object) except NULL

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6, SOCK_STREAM

cdef enum:
    KERNEL_STRIDE = 262144  # bytes of a large send between two looks at whether the connection may move

cdef object kernel_number = _socket.socket.fileno
cdef PyTypeObject *facade = NULL
cdef object facade_type = None
cdef Py_ssize_t endpoint_slot = 0
cdef Py_ssize_t timeout_slot = 0
cdef Py_ssize_t limits_slot = 0
cdef Py_ssize_t handed_out_slot = 0
cdef Py_ssize_t family_member = fs_slot_offset(_socket.socket, b"family")
cdef Py_ssize_t type_member = fs_slot_offset(_socket.socket, b"type")
cdef Py_ssize_t protocol_member = fs_slot_offset(_socket.socket, b"proto")
cdef object on_violation = None
cdef object on_rights = None
cdef object is_tls = None
cdef object noted = None
cdef object give_back = None


def install(type, violation, rights, tls, options, descriptors):
    """Tells this module the facade's class, whose slots it reads and sets itself, whom to tell of violations
    (called with the endpoint and what was wrong), whom of ancillary data about to be sent (a list), what knows
    whether a socket of a derived class is TLS's, which options (level, number) its `_note_option` hears of, and what gives back our descriptors when
    the program is out of them, and returns whether there were any."""
    global facade, facade_type, endpoint_slot, timeout_slot, limits_slot, handed_out_slot
    global on_violation, on_rights, is_tls, noted, give_back
    facade_type = type
    facade = <PyTypeObject *>type
    endpoint_slot = fs_slot_offset(type, b"_endpoint")
    timeout_slot = fs_slot_offset(type, b"_timeout_ns")
    limits_slot = fs_slot_offset(type, b"_buffer_limits")
    handed_out_slot = fs_slot_offset(type, b"_handed_out")
    on_violation = violation
    on_rights = rights
    is_tls = tls
    noted = options
    give_back = descriptors
    if min(endpoint_slot, timeout_slot, limits_slot, handed_out_slot) < 0:
        raise TypeError("the facade's class has not the slots that this module sets")


cdef inline int member(object sock, Py_ssize_t offset):
    return (<int *>((<char *><PyObject *>sock) + offset))[0]


cdef inline int check(object sock) except -1:
    """TypeError unless it is a facade's socket: what calls a method by the class may pass anything, and the slots of any other
    object are somewhere else."""
    if not PyObject_TypeCheck(sock, facade):
        raise TypeError(f"descriptor requires a 'fastsock.socket' object but received {type(sock).__name__!r}")
    return 0


cdef inline object slot(object sock, Py_ssize_t offset):
    """What a slot of a socket that was checked holds; None too if it was never set."""
    cdef PyObject *value = (<PyObject **>((<char *><PyObject *>sock) + offset))[0]
    return None if value == NULL else <object>value


cdef inline void set_slot(object sock, Py_ssize_t offset, object value):
    cdef PyObject **at = <PyObject **>((<char *><PyObject *>sock) + offset)
    cdef PyObject *before = at[0]
    Py_INCREF(value)
    at[0] = <PyObject *>value
    Py_XDECREF(before)


cdef inline Endpoint endpoint_in(object self):
    """The socket's endpoint or None."""
    cdef Endpoint endpoint
    check(self)
    endpoint = <Endpoint>slot(self, endpoint_slot)
    return endpoint if endpoint is None or not fs_is_closed(&endpoint.c) else find_again(self)


cdef Endpoint find_again(object self):
    """The endpoint of a socket whose own one has ended while the object lived, but for calls that are still inside: its number
    was closed, and means nothing or another connection now. As on TCP, the object is what its number means."""
    cdef int fd = kernel_number(self)
    cdef Endpoint endpoint = _vi.find(fd) if fd >= 0 and fs_open(fd) else None
    if endpoint is not None and (fs_is_driven(&endpoint.c) or fs_is_closed(&endpoint.c)):
        endpoint = None
    set_slot(self, endpoint_slot, endpoint)
    if endpoint is not None:
        endpoint.adopt(fd)
        endpoint.expose()
    return endpoint


cdef inline Endpoint endpoint_of(object self):
    """The socket's endpoint if this call is ours to drive, else None. Counts the operation, and lets an undecided
    connection take its next step."""
    cdef Endpoint endpoint = endpoint_in(self)
    if endpoint is not None:
        operate(endpoint)
    return endpoint


cdef inline int64_t timeout_of(object self) except -2:
    """Nanoseconds; -1: blocking, 0: non-blocking."""
    timeout = slot(self, timeout_slot)
    return -1 if timeout is None else <int64_t>timeout


cdef inline bint undecided(Endpoint endpoint):
    return fs_is_attached(&endpoint.c) or endpoint.step is not None


cdef fail(Endpoint endpoint, int64_t result):
    """Raises what a negative result of fs_try_receive or fs_try_send means."""
    global errno
    if result == FS_VIOLATED:
        on_violation(endpoint, endpoint.reset())
        result = -ECONNRESET
    errno = <int>-result
    PyErr_SetFromErrno(OSError)


cdef inline int64_t deadline_after(int64_t timeout) noexcept:
    return -1 if timeout < 0 else fs_now() + timeout


cdef int wait(Endpoint endpoint, int what, int64_t deadline) except -1:
    """Polls, then sleeps. 1: look again, 0: the deadline has passed. Raises what a signal handler raises."""
    cdef bint ready
    cdef int event
    cdef fs_news *news
    if 0 <= deadline <= fs_now():
        return 0  # the caller has just tried
    with nogil:
        ready = fs_spin(&endpoint.c, what)
    if ready:
        return 1
    PyErr_CheckSignals()  # a signal that came while we polled would not wake the sleep
    news = NULL if fs_only_thread() else fs_join_news()
    with nogil:
        event = fs_sleep(&endpoint.c, what, deadline, news)
    if news != NULL:
        fs_leave_news(news)
    if event == -EINTR:
        PyErr_CheckSignals()
        return 1
    return event


cdef inline bint sleeps_in_kernel(Endpoint endpoint, int64_t timeout) noexcept:
    """Whether a wait may be the kernel's own blocking call, which saves a poll, and two turns with the GIL that other threads
    want. Not where another thread could move the connection meanwhile: the call would not find the bytes in the ring. (While
    somebody is in such a call nobody takes a step: `operate`. So among other threads it is for the time before the first
    step. Later, one that only receives would keep one that only sends from moving.)"""
    return (timeout < 0 and not fs_is_attached(&endpoint.c) and not fs_load_relaxed(&endpoint.c.stands.pending_error)
            and (endpoint.step is None or endpoint.search is None and endpoint.operations < endpoint.next_step
                 or fs_only_thread()))


cdef int64_t patience(Endpoint endpoint, int64_t timeout, int what, bint *quiet) except -2:
    """The timeout of this call: the socket object's, unless O_NONBLOCK or SO_RCVTIMEO / SO_SNDTIMEO say less.
    `quiet`: running out gives EAGAIN, as in the kernel, and not TimeoutError."""
    quiet[0] = False
    if timeout < 0:
        if fs_nonblocking_by_flag(&endpoint.c):
            timeout = 0
        elif fs_timeout_option(&endpoint.c, what) >= 0:
            quiet[0] = True
            timeout = fs_timeout_option(&endpoint.c, what)
    return timeout


cdef run_out(bint quiet):
    global errno
    if quiet:
        errno = EAGAIN
        PyErr_SetFromErrno(OSError)
    raise TimeoutError("timed out")
