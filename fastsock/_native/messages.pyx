# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Memberships of groups, and what they lend (core/include/fastsock_messages.h). The GIL is released around what may wait, and long copies."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EBADF, EMSGSIZE, EPERM, EPROTO, EINVAL, EEXIST, ENOENT, EUSERS, ETIMEDOUT, EACCES, EPROTONOSUPPORT
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

import os as _os

cdef extern from "fastsock_messages.h" nogil:
    struct fs_group:
        pass
    struct fs_group_options:
        const char *name
        size_t length
        uint32_t owner, how, reads, blocking, slots
        uint64_t size, largest
        uint32_t far
    struct fs_lent:
        void *at
        uint32_t block
    struct fs_message:
        const void *data
        uint64_t length, sequence, lost
        uint32_t block, kind, sender, keeps
    struct fs_group_info:
        uint64_t sent, received, lost, head, unread, bytes, size, largest
        uint32_t members, slots, blocking, place
    enum: FS_GROUP_NAME_MAX, FS_RECEIVE, FS_SEND
    int fs_group_join(const fs_group_options *, fs_group **)
    void fs_group_leave(fs_group *)
    void fs_group_free(fs_group *)
    int fs_group_reserve(fs_group *, uint64_t length, fs_lent *)
    int fs_group_publish(fs_group *, const fs_lent *, uint64_t length, uint32_t kind)
    void fs_group_abandon(fs_group *, const fs_lent *)
    int fs_group_send(fs_group *, const void *data, uint64_t length, uint32_t kind)
    int fs_group_take(fs_group *, fs_message *)
    void fs_group_release(fs_group *, const fs_message *)
    int fs_group_wait(fs_group *, int what, int64_t deadline)
    int fs_group_fd(fs_group *)
    void fs_group_fd_unused(fs_group *)
    bint fs_group_pending(fs_group *)
    void fs_group_get_info(fs_group *, fs_group_info *)
    int fs_group_inspect(const char *socket_name, fs_group_info *, char *name)

cdef extern from "fastsock.h" nogil:
    int64_t fs_now()

ANY, NEW, EXISTING = range(3)
"""How a group is joined."""

cdef int64_t PATIENCE = 12000000000  # ns with members that do not answer
cdef enum:
    SMALL = 1024       # bytes up to which a copy is cheaper than to hold a block
    LONG_COPY = 65536  # bytes from which a copy releases the GIL

cdef dict WORDS = {
    EPROTO: "a member has written what no member writes: the group is broken",
    EINVAL: "the group exists, and is of the other kind of slow=",
    EUSERS: "the group has as many members as it can have",
    EACCES: "the name is held by a process of a user who is not trusted",
    EPROTONOSUPPORT: "the group's members have another version of fastsock",
    ETIMEDOUT: "no member answers, or none of them trusts this user",
    EEXIST: "the group exists",
    ENOENT: "there is no such group",
    EPERM: "this buffer was lent to the parent of this process",
}


cdef object failure(int code):
    """The exception for a negative result."""
    if code == -EMSGSIZE:
        return ValueError("the message is longer than max_message")
    if code == -EBADF:
        return ValueError("the membership is closed")
    kind = ConnectionAbortedError if code == -EPROTO else ValueError if code == -EINVAL else None
    words = WORDS.get(-code) or _os.strerror(-code)
    return OSError(-code, words) if kind is None else kind(words)


cdef int64_t deadline_of(object timeout) except? -2:
    """Monotonic ns; -1: none."""
    if timeout is None:
        return -1
    seconds = float(timeout)
    if not seconds >= 0:
        raise ValueError("a timeout cannot be negative")
    return fs_now() + <int64_t>(min(seconds, 1e9) * 1e9)


cdef dict info_of(fs_group_info *info):
    return {
        "sent": info.sent, "received": info.received, "lost": info.lost, "messages": info.head, "unread": info.unread,
        "bytes": info.bytes, "limit": info.size, "max_message": info.largest, "members": info.members,
        "slots": info.slots, "slow": "block" if info.blocking else "drop",
    }


def inspect(bytes socket_name):
    """Returns (name, state) of the group that the socket of a member belongs to, without joining. Raises OSError."""
    cdef fs_group_info info
    cdef char name[201]
    cdef const char *given = socket_name
    cdef int failed
    with nogil:
        failed = fs_group_inspect(given, &info, name)
    if failed:
        raise failure(failed)
    return (<bytes>name).decode(errors="replace"), info_of(&info)


@cython.freelist(16)
@cython.final
cdef class Message:
    """A message that was received: a read-only buffer. What is long lies in the group's memory, and is given back by `release`, by leaving
    `with` once no view is left, or by being dropped."""

    cdef Member member
    cdef fs_message m
    cdef object copied
    cdef const void *data
    cdef Py_ssize_t views
    cdef bint held, over

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.over:
            raise ValueError("the message has been released")
        PyBuffer_FillInfo(view, self, <void *>self.data, <Py_ssize_t>self.m.length, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.views -= 1
        if self.over and not self.views:
            self.give_back()

    def __len__(self):
        return <Py_ssize_t>self.m.length

    def __repr__(self):
        state = "released" if self.over else "lent" if self.held else "copied"
        return f"<fastsock.Message of {self.m.length} bytes, {state}>"

    def __enter__(self):
        return self

    def __exit__(self, *failed):
        self.over = True
        if not self.views:
            self.give_back()

    def __dealloc__(self):
        self.give_back()

    cdef void give_back(self) noexcept:
        if self.held:
            self.held = False
            fs_group_release(self.member.group, &self.m)

    def release(self):
        """Gives the memory back. Raises BufferError while there are views of it."""
        if self.views:
            raise BufferError("the message has views: an array or a memoryview")
        self.over = True
        self.give_back()

    @property
    def sequence(self):
        return self.m.sequence

    @property
    def lost(self):
        return self.m.lost

    @property
    def sender(self):
        return self.m.sender

    @property
    def kind(self):
        return self.m.kind

    @property
    def own(self):
        return self.member is not None and self.m.sender == self.member.place


def message_of(bytearray data, uint64_t sequence):
    """A message that came another way."""
    cdef Message made = Message.__new__(Message)
    made.m.length, made.m.sequence, made.m.sender = len(data), sequence, 1
    made.copied, made.data = data, PyByteArray_AS_STRING(data)
    return made


@cython.freelist(8)
@cython.final
cdef class Lent:
    """Memory of the group that is filled in place: a writable buffer. Leaving `with` sends it; an exception gives it back."""

    cdef Member member
    cdef fs_lent lent
    cdef Py_ssize_t length
    cdef object timeout
    cdef bint held

    def __getbuffer__(self, Py_buffer *view, int flags):
        if not self.held:
            raise ValueError("the buffer has been sent, or given back")
        PyBuffer_FillInfo(view, self, self.lent.at, self.length, 0, flags)

    def __len__(self):
        return self.length

    def __enter__(self):
        return self

    def __exit__(self, kind, *failed):
        if kind is not None:
            self.give_back()
        elif self.held:
            if not self.member.publish(self, deadline_of(self.timeout)):
                self.give_back()
                raise TimeoutError("the readers of the group have not read")

    def __dealloc__(self):
        self.give_back()

    def cancel(self):
        """Gives the memory back, and sends nothing."""
        self.give_back()

    def publish(self, timeout=None):
        """Sends it, as leaving `with` does. Returns false if there was no room for `timeout` seconds: then it is still lent."""
        return not self.held or self.member.publish(self, deadline_of(timeout))

    def shorten(self, Py_ssize_t length):
        """Sends only the first `length` bytes."""
        if not 0 <= length <= self.length:
            raise ValueError(f"the buffer has {self.length} bytes")
        self.length = length

    cdef void give_back(self) noexcept:
        if self.held:
            self.held = False
            fs_group_abandon(self.member.group, &self.lent)


cdef class Member:
    """A membership."""

    cdef fs_group *group
    cdef uint32_t place
    cdef readonly bint copies, closed

    def __cinit__(self, *args, **kwargs):
        self.closed = True

    def _join(self, bytes name, uint32_t owner, int how, bint reads, bint blocking, uint32_t slots, uint64_t size, uint64_t largest, bint copies,
              bint far):
        cdef fs_group_options options
        cdef fs_group_info info
        cdef int failed
        if not 0 < len(name) <= FS_GROUP_NAME_MAX:
            raise ValueError(f"a group's name has 1 to {FS_GROUP_NAME_MAX} bytes")
        options.name, options.length = name, len(name)
        options.owner, options.how, options.reads, options.blocking = owner, how, reads, blocking
        options.slots, options.size, options.largest, options.far = slots, size, largest, far
        cdef int64_t until = fs_now() + PATIENCE
        while True:
            with nogil:
                failed = fs_group_join(&options, &self.group)
            if failed != -EAGAIN or fs_now() > until:
                break
            PyErr_CheckSignals()
        if failed == -EAGAIN:
            failed = -ETIMEDOUT
        if failed:
            raise failure(failed)
        fs_group_get_info(self.group, &info)
        self.place, self.copies, self.closed = info.place, copies, False

    def __dealloc__(self):
        if self.group != NULL:
            if not self.closed:
                fs_group_leave(self.group)
            fs_group_free(self.group)

    def close(self):
        """Leaves the group. Messages that are still lent stay valid until they are released."""
        if not self.closed:
            self.closed = True
            with nogil:
                fs_group_leave(self.group)

    cdef int check(self) except -1:
        if self.closed:
            raise ValueError("the membership is closed")
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *failed):
        self.close()

    def fileno(self):
        """A descriptor that is readable while there is a message: for select and event loops."""
        self.check()
        return fs_group_fd(self.group)

    def unwatched(self):
        """Nobody looks at the descriptor any more, until `fileno` is called again."""
        if not self.closed:
            fs_group_fd_unused(self.group)

    def members(self):
        """How many members the group has, as far as is known: one that was killed counts until somebody needs room."""
        cdef fs_group_info info
        self.check()
        fs_group_get_info(self.group, &info)
        return info.members

    @property
    def lost(self):
        """Messages that this member has lost."""
        return self.info()["lost"]

    def info(self):
        """The state of the group, and the counts of this member."""
        cdef fs_group_info info
        if self.group == NULL:
            raise ValueError("the membership is closed")
        fs_group_get_info(self.group, &info)
        return info_of(&info)

    # ---- writing

    cdef bint await_room(self, int64_t deadline) except -1:
        """Returns false if the time is up."""
        if deadline >= 0 and fs_now() >= deadline:
            return False
        with nogil:
            fs_group_wait(self.group, FS_SEND, deadline)
        PyErr_CheckSignals()
        self.check()
        return True

    cpdef send(self, data, timeout=None, uint32_t kind=0):
        """Copies `data`, any buffer, into the group. Waits only in a group that blocks; raises TimeoutError after `timeout` seconds."""
        cdef Py_buffer view
        cdef int failed
        cdef int64_t deadline = -2
        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while True:
                if view.len < LONG_COPY:
                    failed = fs_group_send(self.group, view.buf, <uint64_t>view.len, kind)
                else:
                    with nogil:
                        failed = fs_group_send(self.group, view.buf, <uint64_t>view.len, kind)
                if not failed:
                    return
                if failed != -EAGAIN:
                    raise failure(failed)
                if deadline == -2:
                    deadline = deadline_of(timeout)
                if not self.await_room(deadline):
                    raise TimeoutError("the readers of the group have not read")
        finally:
            PyBuffer_Release(&view)

    cpdef Lent lend(self, Py_ssize_t length, timeout=None):
        """Lends memory for a message of `length` bytes, to be filled in a `with` statement, which sends it."""
        cdef Lent lent
        cdef int failed
        cdef int64_t deadline = -2
        self.check()
        if length < 0:
            raise ValueError("a length cannot be negative")
        lent = Lent.__new__(Lent)
        lent.member, lent.length, lent.timeout = self, length, timeout
        while True:
            failed = fs_group_reserve(self.group, <uint64_t>length, &lent.lent)
            if not failed:
                lent.held = True
                return lent
            if failed != -EAGAIN:
                raise failure(failed)
            if deadline == -2:
                deadline = deadline_of(timeout)
            if not self.await_room(deadline):
                raise TimeoutError("the readers of the group have not read")

    cdef bint publish(self, Lent lent, int64_t deadline) except -1:
        cdef int failed
        while True:
            failed = fs_group_publish(self.group, &lent.lent, <uint64_t>lent.length, 0)
            if not failed:
                lent.held = False
                return True
            if failed != -EAGAIN:
                lent.give_back()
                raise failure(failed)
            if not self.await_room(deadline):
                return False

    # ---- reading

    def pending(self):
        """Returns true if there is a message."""
        self.check()
        return fs_group_pending(self.group)

    cdef Message message(self, fs_message *m):
        cdef Message made = Message.__new__(Message)
        made.member, made.m = self, m[0]
        if m.length > SMALL and m.keeps and not self.copies:
            made.data, made.held = m.data, True
            return made
        try:
            copied = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>m.length)
            made.copied, made.data = copied, PyBytes_AS_STRING(copied)
            if m.length < LONG_COPY:
                memcpy(<void *>made.data, m.data, m.length)
            else:
                with nogil:
                    memcpy(<void *>made.data, m.data, m.length)
        finally:
            fs_group_release(self.group, m)
        return made

    cpdef take(self, timeout=0):
        """Returns the next message, or None if none comes for `timeout` seconds (None: for ever)."""
        cdef fs_message m
        cdef int got
        cdef int64_t deadline = -2
        while True:
            self.check()
            got = fs_group_take(self.group, &m)
            if got == -EAGAIN: # another takes one
                with nogil:
                    fs_group_wait(self.group, FS_RECEIVE, fs_now())
                self.check()
                got = fs_group_take(self.group, &m)
            if got > 0:
                return self.message(&m)
            if got < 0 and got != -EAGAIN:
                raise failure(got)
            if deadline == -2:
                if timeout == 0:
                    return None
                deadline = deadline_of(timeout)
            if deadline >= 0 and fs_now() >= deadline:
                return None
            with nogil:
                fs_group_wait(self.group, FS_RECEIVE, deadline)
            PyErr_CheckSignals() # (a handler may have run before the sleep began)

    cpdef receive(self, timeout=None):
        """Waits for the next message and returns it. Raises TimeoutError after `timeout` seconds."""
        message = self.take(timeout)
        if message is None:
            raise TimeoutError("no message has come")
        return message

    def __iter__(self):
        return self

    def __next__(self):
        return self.receive()
