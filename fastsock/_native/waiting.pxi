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
    """
    Py_ssize_t fs_slot_offset(object, const char *) except? -1
    int errno

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    bint PyObject_TypeCheck(object, PyTypeObject *)

cdef enum:
    KERNEL_STRIDE = 262144  # bytes of a large send between two looks at whether the connection may move

cdef PyTypeObject *facade = NULL
cdef object facade_type = None
cdef Py_ssize_t endpoint_slot = 0
cdef Py_ssize_t timeout_slot = 0
cdef object on_violation = None
cdef object on_rights = None
cdef object kernel_accept = _socket.socket._accept


def install(type, violation, rights):
    """Tells this module the facade's class, with slots `_endpoint` and `_timeout_ns`, whom to tell of violations
    (called with the endpoint and what was wrong), and whom of ancillary data about to be sent (a list)."""
    global facade, facade_type, endpoint_slot, timeout_slot, on_violation, on_rights
    facade_type = type
    facade = <PyTypeObject *>type
    endpoint_slot = fs_slot_offset(type, b"_endpoint")
    timeout_slot = fs_slot_offset(type, b"_timeout_ns")
    on_violation = violation
    on_rights = rights
    if endpoint_slot < 0 or timeout_slot < 0:
        raise TypeError("the facade's class has no slots _endpoint and _timeout_ns")


cdef inline Endpoint endpoint_of(object self):
    """The socket's endpoint if this call is ours to drive, else None. Counts the operation, and lets an undecided
    connection take its next step."""
    if not PyObject_TypeCheck(self, facade):
        raise TypeError(f"descriptor requires a 'fastsock.socket' object but received {type(self).__name__!r}")
    cdef PyObject *slot = (<PyObject **>((<char *><PyObject *>self) + endpoint_slot))[0]
    if slot == NULL or slot == <PyObject *>None:
        return None
    cdef Endpoint endpoint = <Endpoint>slot
    operate(endpoint)
    return endpoint


cdef inline void operate(Endpoint endpoint):
    endpoint.operations += 1
    if endpoint.step is not None and (
            endpoint.operations >= endpoint.next_step if endpoint.arrival == NULL
            else endpoint.arrival[0] != MEETING_WAITING):
        endpoint.step(endpoint)


cdef inline int64_t timeout_of(object self) except -2:
    """Nanoseconds; -1: blocking, 0: non-blocking."""
    cdef PyObject *slot = (<PyObject **>((<char *><PyObject *>self) + timeout_slot))[0]
    return -1 if slot == NULL else <int64_t><object>slot


cdef inline bint undecided(Endpoint endpoint):
    return endpoint.attached or endpoint.step is not None


cdef fail(Endpoint endpoint, int64_t result):
    """Raises what a negative result of try_receive or try_send means."""
    global errno
    if result == VIOLATED:
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
    if 0 <= deadline <= fs_now():
        return 0  # the caller has just tried
    with nogil:
        ready = endpoint.spin(what)
    if ready:
        return 1
    PyErr_CheckSignals()  # a signal that came while we polled would not wake the sleep
    with nogil:
        event = endpoint.sleep(what, deadline)
    if event == -EINTR:
        PyErr_CheckSignals()
        return 1
    return event


cdef int64_t patience(Endpoint endpoint, int64_t timeout, int64_t option, bint *quiet) except -2:
    """The timeout of this call: the socket object's, unless O_NONBLOCK or SO_RCVTIMEO / SO_SNDTIMEO say less.
    `quiet`: running out gives EAGAIN, as in the kernel, and not TimeoutError."""
    quiet[0] = False
    if timeout < 0:
        if endpoint.nonblocking_by_flag():
            timeout = 0
        elif option >= 0:
            quiet[0] = True
            timeout = option
    return timeout


cdef run_out(bint quiet):
    global errno
    if quiet:
        errno = EAGAIN
        PyErr_SetFromErrno(OSError)
    raise TimeoutError("timed out")


def accept(self):
    """As socket._accept, polling before it sleeps. The endpoint of a listener serves this alone."""
    cdef Endpoint endpoint = endpoint_of(self)
    cdef int64_t began
    cdef bint ready = False
    if endpoint is None or timeout_of(self) == 0:
        return kernel_accept(self)
    began = fs_now()
    if endpoint.budget(began) == 0:
        result = kernel_accept(self)
        endpoint.settle(began, False, False)
        return result
    endpoint.begin()
    try:
        with nogil:
            ready = endpoint.spin(RECEIVE)
    finally:
        endpoint.end()
    result = kernel_accept(self)
    if not ready:
        endpoint.settle(began, True, False)
    return result
