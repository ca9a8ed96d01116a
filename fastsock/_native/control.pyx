# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""What processes ask each other's control threads (core/control/introspection.h), regions, what an observer sees, and reserved descriptor numbers."""

from fastsock._native.core cimport *

import os as _os

VERSION = FS_VERSION  # of the protocol
# Constants of queries to connection threads (core/control/introspection.h)
LOOK_MAGIC, SEEN_MAGIC, NO_MORE = FS_QUERY_MAGIC, FS_REPLY_MAGIC, FS_QUERY_END
LOOKS = FS_QUERY_PROCESS, FS_QUERY_TABLE, FS_QUERY_RING, FS_QUERY_LINKS
FLAGS = FS_INFO_SENDS, FS_INFO_RECEIVES, FS_INFO_LOOP_DRIVEN, FS_INFO_ASLEEP, FS_INFO_WAITS, FS_INFO_FELL_BACK


cdef str shape(void *record, size_t size, tuple fields):
    """Returns the `struct` format of a `record` of `size` bytes. `fields` are (address, length) of each field, in order; counters are
    64-bit words."""
    cdef str text = "="
    cdef size_t at = 0
    for start, length in fields:
        assert start == <size_t>record + at, "the record has a gap, or its fields have another order"
        text += "I" if length == 4 else f"{length // 8}Q"
        at += length
    assert at == size, "a field of the record is missing here"
    return text


cdef:
    fs_query look
    fs_query_reply seen
    fs_process_info process
    fs_connection_info end
    fs_link_info link

LOOK_SHAPE = shape(&look, sizeof(look), (
    (<size_t>&look.magic, sizeof(look.magic)), (<size_t>&look.tag, sizeof(look.tag)),
    (<size_t>&look.kind, sizeof(look.kind)), (<size_t>&look.from_, sizeof(look.from_))))
SEEN_SHAPE = shape(&seen, sizeof(seen), (
    (<size_t>&seen.magic, sizeof(seen.magic)), (<size_t>&seen.tag, sizeof(seen.tag)),
    (<size_t>&seen.kind, sizeof(seen.kind)), (<size_t>&seen.next, sizeof(seen.next)),
    (<size_t>&seen.count, sizeof(seen.count)), (<size_t>&seen.protocol, sizeof(seen.protocol))))
PROCESS_SHAPE = shape(&process, sizeof(process), (
    (<size_t>&process.gone, sizeof(process.gone)), (<size_t>&process.on_ring, sizeof(process.on_ring)),
    (<size_t>&process.names, sizeof(process.names)), (<size_t>&process.queued, sizeof(process.queued)),
    (<size_t>&process.window, sizeof(process.window))))
END_SHAPE = shape(&end, sizeof(end), (
    (<size_t>&end.inode, sizeof(end.inode)), (<size_t>&end.flags, sizeof(end.flags)),
    (<size_t>&end.window, sizeof(end.window)), (<size_t>&end.unconsumed, sizeof(end.unconsumed)),
    (<size_t>&end.credits, sizeof(end.credits)), (<size_t>&end.unread, sizeof(end.unread)),
    (<size_t>&end.count, sizeof(end.count))))
LINK_SHAPE = shape(&link, sizeof(link), (
    (<size_t>&link.counted, sizeof(link.counted)), (<size_t>&link.connections, sizeof(link.connections)),
    (<size_t>&link.peer, sizeof(link.peer)), (<size_t>&link.user, sizeof(link.user)),
    (<size_t>&link.in_use, sizeof(link.in_use)), (<size_t>&link.parked, sizeof(link.parked))))


cdef int check(int result) except -1:
    """Returns the result of a function of the core. Raises OSError for an error."""
    if result < 0:
        raise OSError(-result, _os.strerror(-result))
    return result


# ---- regions


def memory_used():
    """Returns the bytes of regions that count against memory_cap."""
    return fs_memory_used()


def drop_parked():
    """Frees all kept regions. Returns true if there were any."""
    return fs_links_clear()


# ---- what an observer sees (core/wire/tap_page.h)

TAP_MAGIC, TAP_SIZE = FS_TAP_MAGIC, FS_TAP_SIZE
TAP_KINDS = (
    FS_TAP_START, FS_TAP_SENT, FS_TAP_RECEIVED, FS_TAP_FIN_SENT, FS_TAP_FIN_RECEIVED, FS_TAP_CLOSED, FS_TAP_RESET, FS_TAP_LEFT)
TAP_ANSWERS = FS_TAP_UNANSWERED, FS_TAP_SHOWS, FS_TAP_BUSY, FS_TAP_REFUSED


cdef class Tap:
    cdef:
        object memory
        unsigned char[::1] view
        fs_tap *page
        uint64_t taken

    def __init__(self, memory, uint32_t snaplen, uint32_t port):
        self.memory, self.view = memory, memory
        if self.view.shape[0] != FS_TAP_SIZE:
            raise ValueError("not as large as a page")
        self.page = <fs_tap *>&self.view[0]
        fs_tap_ask(self.page, snaplen, port)
        fs_tap_look(self.page, fs_now())

    @property
    def answer(self):
        return fs_tap_answered(self.page)

    @property
    def dropped(self):
        return fs_tap_dropped(self.page)

    def close(self):
        if self.page is not NULL:
            fs_tap_look(self.page, 0)
        self.page, self.view, self.memory = NULL, None, None

    def read(self, int most):
        cdef fs_tap_record *record
        cdef uint32_t size, kind, kept
        fs_tap_look(self.page, fs_now())
        found = []
        while len(found) < most:
            record = fs_tap_next(self.page, self.taken, &size)
            if record is NULL:
                break
            kind = record.kind if size >= sizeof(fs_tap_record) else FS_TAP_PAD
            if kind != FS_TAP_PAD:
                kept = record.kept
                if kept > size - sizeof(fs_tap_record):
                    kept = 0
                found.append((
                    kind, record.when, record.inode, record.position, record.length,
                    (<const char *>(record + 1))[:kept]))
            fs_tap_done(self.page, record, size, &self.taken)
        return found


# ---- reserved descriptor numbers


def new_eventfd():
    """Returns a new eventfd in the reserved range. Raises OSError like keep_away."""
    return check(fs_reserve_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), False))


def close_reserved(int fd):
    """Closes such a descriptor. (To the program it is not open.)"""
    fs_close_reserved(fd)


def keep_away(int fd, bint passing=False):
    """Moves a descriptor into the reserved range of numbers (fd_reserve.h), its upper half if it is only needed for a handshake
    (`passing`). Raises BlockingIOError if the range is full, and OSError (EMFILE) if the program is near its limit or `fd` is
    negative."""
    return check(fs_reserve_fd(fd, passing))
