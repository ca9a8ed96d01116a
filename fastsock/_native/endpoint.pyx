# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoint: one end of a connection in this process.

All descriptors of the connection in this process share one endpoint. The connection itself belongs to the core (`Endpoint.c`,
core/conn/connection.h), which releases the GIL while it waits for a lock. This file has the Python side: the descriptors, the
end of the connection, and the fallback to kernel TCP.
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

# Imported for its effect: the core needs it to release the GIL and to know its process id.
from fastsock._native import gil as _gil

cdef dict by_descriptor = {}
cdef dict by_inode = {}
cdef set nameless = set()  # endpoints whose inode is not known, mostly of short connections
cdef fs_counters totals  # counters of ended endpoints and of kernel connections
memset(&totals, 0, sizeof(totals))


cdef inline int look_for_signals(int done) except -1:
    """Runs signal handlers after a call of the core that was interrupted while it waited for a lock."""
    if done == -EINTR:
        PyErr_CheckSignals()
    return 0


cdef uint64_t inode_of(int fd) except? 0:
    cdef uint64_t inode = fs_inode(fd)
    if inode == 0:
        PyErr_SetFromErrno(OSError)
    return inode


cdef class Endpoint(ConnectionInfo):
    """One end of a TCP connection in this process.

    `fd` is a descriptor of the kernel connection, `descriptors` are all known ones in this process.
    """

    def __cinit__(self, int fd, bint later=False):
        # `later`: read the inode when it is first needed (`identify`).
        cdef uint64_t inode = 0 if later else inode_of(fd)
        cdef int failed
        self.descriptors = set()
        failed = fs_conn_open(&self.c, fd, inode)
        if failed == -ENOMEM:
            raise MemoryError("out of memory for connection state")
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
        """Adds a descriptor of this connection. An endpoint that had the number before was closed without our knowledge."""
        before = by_descriptor.get(fd)
        if before is not None and before is not self:
            before.forget(fd)
        if self.descriptors:
            identify(self)
        self.descriptors.add(fd)
        by_descriptor[fd] = self

    cpdef forget(self, int fd):
        """Removes `fd`, which is about to be closed or means another connection now. The endpoint ends with the last one."""
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
            # Closed without our knowledge: the number may mean another file, and the kernel has ended the connection.
            self.point_to(-1)
            end_here(self)
        else:
            close_here(self, fd)

    cdef int point_to(self, int fd) except -1:
        """Makes `fd` the descriptor to use, unless the endpoint has ended."""
        cdef fs_call call
        if not fs_call_enter(&self.c, &call):
            return 0
        fs_set_fd(&self.c, fd)
        return self.end(&call)

    cdef int end(self, fs_call *call) except -1:
        """Ends a call that fs_call_enter has admitted."""
        cdef int after = fs_call_exit(&self.c, call)
        cdef int fd
        if after == FS_EXIT_RELEASE:
            release(self)
        elif after == FS_EXIT_CLOSE:  # `fd` is the duplicate that close_here has made
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
        """Called when SO_RCVTIMEO or SO_SNDTIMEO was set: the next wait reads both from the kernel (fs_timeout_option)."""
        self.c.receive_timeout = self.c.send_timeout = FS_NOT_ASKED

    def limit_buffers(self, uint32_t receive, uint32_t send):
        """Sets limits from SO_RCVBUF and SO_SNDBUF, in bytes as the kernel reports them; 0: not set."""
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
        """SO_SNDBUF in bytes as the program knows it; None if the kernel's value is right."""
        cdef fs_call call
        if not fs_call_enter(&self.c, &call):
            return None
        try:
            return fs_load_relaxed(&fs_own(&self.c).send_buffer_before) or None
        finally:
            self.end(&call)

    def set_oob_inline(self, bint inline):
        """Sets SO_OOBINLINE on the ring. Returns false if the endpoint has ended; then only the kernel has the option."""
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
        """Marks the endpoint of a listener, which only polls for connections."""
        self.c.listens = True

    # ---- the region --------------------------------------------------------------------------------------

    cpdef expose(self):
        """Called when the descriptor was handed out: from now on it is readable exactly while there is data."""
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
        """Takes the connection back to kernel TCP, as other code is about to read and write the descriptor. If the peer does
        not cooperate, a bridge process forwards the data. Returns false if the connection must stay on the ring."""
        return not self.attached or self.finished or self.broken or self.left or leave_ring(self)

    # ---- ending ------------------------------------------------------------------------------------------

    def shutdown(self, bint receiving, bint sending):
        """Called before the kernel's shutdown: sends packet FIN for a half-close. After a shutdown of both directions a peer
        that sends gets a reset, as in TCP. Returns true if the caller must ignore ENOTCONN of the kernel's call."""
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
        """Wakes threads that sleep in calls on this connection, after a shutdown."""
        fs_wake_local(&self.c)

    def reset(self):
        """Resets the connection, whose ring is broken: the peer gets a RST. Returns the cause; `own_fault` says which side."""
        fs_conn_reset(&self.c)
        return self.wrong

    # ---- forks -------------------------------------------------------------------------------------------


cdef bint identify(Endpoint self) except? True:
    """Reads the inode if it is not known yet. Returns true if the inode is known. If the number now means another connection of
    ours, it was closed without our knowledge, and the endpoint ends."""
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
    """Ends the connection in this process, even if calls are inside."""
    cdef fs_call call
    if not fs_call_enter(&self.c, &call):
        return 0
    return conclude(self, &call) if fs_note_ended(&self.c) else self.end(&call)


cdef int close_here(Endpoint self, int fd) except -1:
    """Called when the program closes `fd`, the connection's last descriptor. Like in the kernel, the connection stays open while
    calls are inside."""
    cdef fs_call call
    if not fs_call_enter(&self.c, &call):
        return 0
    return conclude(self, &call) if fs_close_last_fd(&self.c, fd) else self.end(&call)


cdef int conclude(Endpoint self, fs_call *call) except -1:
    """Finishes a connection that ended in `call`: sends FIN at once. The memory is freed when no call and no transport uses it
    any more."""
    try:
        finish(self)
    finally:
        if fs_has_other_users(&self.c):
            fs_forget_fd(&self.c)  # its owner closes the descriptor now
        self.end(call)
    return 0


cdef int finish(Endpoint self) except -1:
    """Finishes a connection that has ended in this process: sends FIN on the ring if this is the last holder. Called once, by
    the caller that ended it."""
    cdef SessionStats session = self.session
    if session is not None:
        self.session = None
        fs_note_session_of(&session.sessions, &self.path, &self.c)
    forget_it(self)
    fs_conn_finish(&self.path, &self.c, &totals)
    return 0


cdef int forget_it(Endpoint self) except -1:
    """Removes the endpoint from the tables."""
    nameless.discard(self)
    if self.c.inode and by_inode.get(self.c.inode) is self:
        del by_inode[self.c.inode]
    return 0


cdef int close_inherited(Endpoint self) except -1:
    """Closes an inherited endpoint that another thread of the parent was about to finish."""
    forget_it(self)
    fs_conn_close(&self.c, &totals)
    return 0


cdef int release(Endpoint self) except -1:
    """Frees the memory of an ended endpoint, after FS_EXIT_RELEASE."""
    fs_conn_release(&self.path, &self.c)
    return 0


cdef int unpin(Endpoint self) except -1:
    """Releases the memory of an endpoint that a transport has pinned."""
    return release(self) if fs_unpin(&self.c) == FS_EXIT_RELEASE else 0


# ---- fallback to kernel TCP (core/conn/fallback.h) --------------------------------------------------------


cdef int list_numbers(void *whose, int *numbers, int room) noexcept:
    # Making an object may run the garbage collector, which may run anything: no object is made after this one.
    cdef tuple present = tuple((<Endpoint>whose).descriptors)
    cdef int at
    for at in range(min(<int>len(present), room)):
        numbers[at] = present[at]
    return <int>len(present)


cdef int keep_unread(void *whose, const fs_unread_data *unread_data) noexcept:
    """Gives unread data that the peer cannot put into our kernel queue again to the loop's transport."""
    self = <Endpoint>whose
    try:
        self.queue.keep_late(fs_slot_of(&self.c), _os.pread(unread_data.fd, <size_t>unread_data.size, 0))
    except BaseException:  # the data is lost, and the stream would have a gap
        return 0
    return 1


cdef bint leave_ring(Endpoint self) except -1:
    """Endpoint.leave for a connection with a region."""
    cdef fs_fallback_hooks hooks
    cdef int left = -EINTR
    cdef int64_t bridge = 0
    cdef uint64_t before = self.c.inode
    cdef fs_call call
    hooks.list, hooks.keep, hooks.whose = list_numbers, keep_unread, <void *>self
    if not fs_call_enter(&self.c, &call):
        return True
    try:
        while left == -EINTR:
            left = fs_path_fall_back(&self.path, &self.c, &hooks, &bridge)
            look_for_signals(left)
        if bridge:
            if by_inode.get(before) is self:
                del by_inode[before]
            by_inode[self.c.inode] = self
            self.bridge_process = <int>bridge
    finally:
        self.end(&call)
    return left != FS_CANNOT_FALL_BACK
