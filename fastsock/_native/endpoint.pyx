# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoint: one end of one connection in this process, as Python has it.

It is shared by all descriptors of the connection in this process. The connection itself is the core's (`Endpoint.c`,
core/conn/connection.h): who drives it calls the core, which lets go of the GIL where a turn is somebody else's.
Here is what is Python's: the descriptors, who looks for the peer, who is told that it ends, what the way out needs.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from fastsock._native.core_control cimport fs_request_doorbell_byte
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.core_rendezvous cimport *
from fastsock._native.connection_info cimport ConnectionInfo
from fastsock._native.session_stats cimport SessionStats

import os as _os

# Without it the core would not let go of the GIL, nor know its process.
from fastsock._native import gil as _gil

cdef dict by_descriptor = {}
cdef dict by_inode = {}
cdef set nameless = set()  # endpoints whose inode nobody has asked for: one-shots, mostly
cdef fs_counters totals  # of endpoints that are gone, and of kernel connections
memset(&totals, 0, sizeof(totals))


cdef inline int look_for_signals(int done) except -1:
    """After a call of the core that had no turn, and did nothing: a stopped process has it."""
    if done == -EINTR:
        PyErr_CheckSignals()
    return 0


cdef uint64_t inode_of(int fd) except? 0:
    cdef uint64_t inode = fs_inode(fd)
    if inode == 0:
        PyErr_SetFromErrno(OSError)
    return inode


cdef class Endpoint(ConnectionInfo):
    """One end of one TCP connection in this process.

    `fd` is a descriptor of the kernel connection, `descriptors` all that this process knows of.
    """

    def __cinit__(self, int fd, bint later=False):
        # `later`: the kernel is asked which socket it is once that matters (`identify`).
        cdef uint64_t inode = 0 if later else inode_of(fd)
        cdef int failed
        self.descriptors = set()
        failed = fs_conn_open(&self.c, fd, inode)
        if failed == -ENOMEM:
            raise MemoryError("no address space for connection state")
        if failed:
            raise OSError(-failed, _os.strerror(-failed))
        if inode:
            by_inode[inode] = self
        else:
            nameless.add(self)

    def __dealloc__(self):
        fs_conn_discard(&self.c, &totals)

    # ---- descriptors -------------------------------------------------------------------------------------

    @property
    def inode(self):
        identify(self)
        return self.c.inode

    cpdef adopt(self, int fd):
        """Adds a descriptor of this connection. One that had the number before was closed behind our back."""
        before = by_descriptor.get(fd)
        if before is not None and before is not self:
            before.forget(fd)
        if self.descriptors:
            identify(self)
        self.descriptors.add(fd)
        by_descriptor[fd] = self

    cpdef forget(self, int fd):
        """`fd` is about to be closed, or no longer means this connection. With the last one the endpoint ends."""
        if by_descriptor.get(fd) is self:
            del by_descriptor[fd]
        elif fd not in self.descriptors:
            return
        if fs_calls_inside(&self.c):
            identify(self)
        self.descriptors.discard(fd)
        if self.descriptors:
            if fd == fs_fd(&self.c):
                self.point_to(next(iter(self.descriptors)))
        elif (fs_calls_inside(&self.c) or fs_is_attached(&self.c)) and fs_inode(fd) != self.c.inode:
            # Closed behind our back: the number may be somebody else's, and the kernel has ended the connection.
            self.point_to(-1)
            end_here(self)
        else:
            close_here(self, fd)

    cdef int point_to(self, int fd) except -1:
        """The descriptor is `fd` from now on, unless the endpoint has ended, or another thread decides otherwise."""
        cdef fs_call call
        if not fs_call_enter(&self.c, &call):
            return 0
        fs_set_fd(&self.c, fd)
        return self.end(&call)

    cdef int end(self, fs_call *call) except -1:
        """A call is over that fs_call_enter has let in."""
        cdef int after = fs_call_exit(&self.c, call)
        cdef int fd
        if after == FS_EXIT_RELEASE:
            release(self)
        elif after == FS_EXIT_CLOSE:  # `fd` is the spare one, which close_here has made
            fd = fs_fd(&self.c)
            conclude(self, call)
            sys_close(fd)
        return 0

    # ---- options -----------------------------------------------------------------------------------------

    @property
    def nodelay(self):
        return fs_is_nodelay(&self.c)

    @nodelay.setter
    def nodelay(self, bint on):
        fs_store_relaxed(&self.c.nodelay, on)

    def forget_timeouts(self):
        """SO_RCVTIMEO or SO_SNDTIMEO was set: the next wait asks the kernel for both (fs_timeout_option)."""
        self.c.receive_timeout = self.c.send_timeout = FS_NOT_ASKED

    def limit_buffers(self, uint32_t receive, uint32_t send):
        """SO_RCVBUF and SO_SNDBUF, bytes as the kernel reports them; 0: not set."""
        cdef fs_call call
        cdef int done = -EINTR
        if not fs_call_enter(&self.c, &call):
            return
        try:
            while done == -EINTR:
                with nogil:
                    done = fs_set_buffer_limits(&self.c, receive, send)
                look_for_signals(done)
        finally:
            self.end(&call)

    @property
    def shown_send_buffer(self):
        """SO_SNDBUF as the program knows it; None if that is the kernel's."""
        cdef fs_call call
        if not fs_call_enter(&self.c, &call):
            return None
        try:
            return fs_load_relaxed(&fs_own(&self.c).send_buffer_before) or None
        finally:
            self.end(&call)

    def set_oob_inline(self, bint inline):
        """False if the endpoint has ended: then the option is the kernel's alone."""
        cdef fs_call call
        cdef int done = -EINTR
        if not fs_call_enter(&self.c, &call):
            return False
        try:
            while done == -EINTR:
                with nogil:
                    done = fs_set_oob_inline(&self.c, inline)
                look_for_signals(done)
        finally:
            self.end(&call)
        return True

    def serve_listener(self):
        """This endpoint is a listener's: it only polls for connections."""
        self.c.listens = True

    # ---- the region --------------------------------------------------------------------------------------

    cpdef expose(self):
        """The descriptor's number was handed out: from now on it must be readable exactly while something waits."""
        cdef fs_call call
        cdef int lacks = -EINTR
        if fs_is_loop_driven(&self.c) or fs_is_told_exposed(&self.c) or not fs_call_enter(&self.c, &call):
            return
        try:
            while lacks == -EINTR:
                lacks = fs_expose(&self.c)
                look_for_signals(lacks)
            if lacks and self.path.region_ref != NULL:
                fs_request_doorbell_byte(self.path.region_ref.memory, self.path.region_ref.side, self.path.region_ref.id)
                with nogil:
                    fs_wait_for_doorbell_byte(&self.c)
        finally:
            self.end(&call)

    def leave(self):
        """Takes the connection back to the kernel, because somebody else is about to read and write the descriptor.
        False if that is not possible; it stays where it was then. If the peer cannot help, the near end of a bridge
        takes the place of the kernel connection."""
        return not self.attached or self.finished or self.broken or self.left or leave_ring(self)

    # ---- ending ------------------------------------------------------------------------------------------

    def shutdown(self, bint receiving, bint sending):
        """Before the kernel's shutdown. Packet FIN for a half-close; and a peer that sends to a socket shut in both
        directions must find nobody there, as in TCP. Whether an ENOTCONN of the kernel's is to be passed over."""
        cdef fs_call call
        cdef int stood = -EINTR
        if not fs_call_enter(&self.c, &call):
            return False
        try:
            while stood == -EINTR:
                with nogil:
                    stood = fs_conn_shutdown(&self.c, receiving, sending)
                look_for_signals(stood)
        finally:
            self.end(&call)
        return stood != 0

    def wake_own(self):
        """After a shutdown: threads that sleep in a call on this connection look again."""
        fs_wake_local(&self.c)

    def reset(self):
        """The ring is broken: dissolves the connection (the peer gets a RST) and returns what was wrong; `own_fault` says at which
        side."""
        fs_conn_reset(&self.c)
        return self.wrong

    # ---- forks -------------------------------------------------------------------------------------------


cdef bint identify(Endpoint self) except? True:
    """Whether it is known which socket this is, from now on if not before. An endpoint whose number has been closed behind
    our back and means another connection of ours ends."""
    if self.c.inode or fs_has_ended(&self.c) or not fs_conn_identify(&self.c):
        return self.c.inode != 0
    if self.c.inode in by_inode:
        if by_descriptor.get(fs_fd(&self.c)) is self:
            del by_descriptor[fs_fd(&self.c)]
        self.descriptors.clear()
        self.c.inode = 0
        self.point_to(-1)
        end_here(self)
        return False
    nameless.discard(self)
    by_inode[self.c.inode] = self
    fs_table_update(self.c.place, self.c.inode, fs_fd(&self.c), self.path.reason)
    return True


# ---- how an endpoint ends in this process --------------------------------------------------------------------


cdef int end_here(Endpoint self) except -1:
    """The connection ends in this process, whoever is inside."""
    cdef fs_call call
    if not fs_call_enter(&self.c, &call):
        return 0
    return conclude(self, &call) if fs_note_ended(&self.c) else self.end(&call)


cdef int close_here(Endpoint self, int fd) except -1:
    """The program closes `fd`, the connection's last descriptor. Like the kernel, which keeps a connection open while
    somebody is inside a call on it."""
    cdef fs_call call
    if not fs_call_enter(&self.c, &call):
        return 0
    return conclude(self, &call) if fs_close_last_fd(&self.c, fd) else self.end(&call)


cdef int conclude(Endpoint self, fs_call *call) except -1:
    """The connection has ended by `call`, which is inside: says goodbye at once. The memory is given back as soon as no call
    and no loop's transport has it any more."""
    try:
        say_goodbye(self)
    finally:
        if fs_has_other_users(&self.c):
            fs_forget_fd(&self.c)  # its owner closes it now
        self.end(call)
    return 0


cdef int say_goodbye(Endpoint self) except -1:
    """The connection has ended in this process, and ends on the ring if this is the last holder. For who was told so."""
    cdef SessionStats session = self.session
    if session is not None:
        self.session = None
        note_session(self, session)
    forget_it(self)
    fs_conn_finish(&self.path, &self.c, &totals)
    return 0


cdef int note_session(Endpoint self, SessionStats session) except -1:
    """The service learns from the session that has ended."""
    cdef uint64_t messages = (
        fs_load_relaxed64(&self.c.ring.count.messages_sent) + fs_load_relaxed64(&self.c.ring.count.messages_received))
    # Who sends a message to a peer that sleeps makes a system call, and so does the sleeper. Of the two directions this end
    # knows what it sends.
    cdef uint64_t calls = 4 * fs_load_relaxed64(&self.c.ring.count.doorbells_rung)
    # (A loop's transport on the ring counts no operations, but each is a message at least now and then.)
    session.note(self.path.operations + <int64_t>(messages if fs_is_loop_driven(&self.c) else 0), fs_search_result_of(&self.path),
                 calls, messages)
    return 0


cdef int forget_it(Endpoint self) except -1:
    """Nobody finds the endpoint any more."""
    nameless.discard(self)
    if self.c.inode and by_inode.get(self.c.inode) is self:
        del by_inode[self.c.inode]
    return 0


cdef int let_go(Endpoint self) except -1:
    """The last that is said, of an endpoint whose goodbye another thread was about to say."""
    forget_it(self)
    fs_conn_close(&self.c, &totals)
    return 0


cdef int release(Endpoint self) except -1:
    """Gives back the memory of an endpoint that has ended. For who was told FS_EXIT_RELEASE."""
    fs_conn_release(&self.path, &self.c)
    return 0


cdef int let_loose(Endpoint self) except -1:
    """The loop's transport, which kept the endpoint's memory, is done with it."""
    return release(self) if fs_unpin(&self.c) == FS_EXIT_RELEASE else 0


# ---- the way out (core/conn/fallback.h) -------------------------------------------------------------------


cdef int list_numbers(void *whose, int *numbers, int room) noexcept:
    # (A new object may run the garbage collector, and so anything: none is made behind this one.)
    cdef tuple present = tuple((<Endpoint>whose).descriptors)
    cdef int at
    for at in range(min(<int>len(present), room)):
        numbers[at] = present[at]
    return <int>len(present)


cdef int keep_unread(void *whose, const fs_unread_data *unread_data) noexcept:
    """Gives the loop's transport what the peer cannot put into our kernel queue again."""
    self = <Endpoint>whose
    try:
        self.queue.keep_late(fs_slot_of(&self.c), _os.pread(unread_data.fd, <size_t>unread_data.size, 0))
    except BaseException:  # what was taken is lost: nobody is given what follows for the whole stream
        return 0
    return 1


cdef bint leave_ring(Endpoint self) except -1:
    """Endpoint.leave of a connection that has a region."""
    cdef fs_fallback_hooks asks
    cdef int left = -EINTR
    cdef int64_t bridge = 0
    cdef uint64_t before = self.c.inode
    cdef fs_call call
    asks.list, asks.keep, asks.whose = list_numbers, keep_unread, <void *>self
    if not fs_call_enter(&self.c, &call):
        return True
    try:
        while left == -EINTR:
            left = fs_path_fall_back(&self.path, &self.c, &asks, &bridge)
            look_for_signals(left)
        if bridge:
            if by_inode.get(before) is self:
                del by_inode[before]
            by_inode[self.c.inode] = self
            self.bridge_process = <int>bridge
    finally:
        self.end(&call)
    return left != FS_CANNOT_FALL_BACK
