# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The connection thread and its accept queue, parked regions, and our descriptors: what Python calls of core/control and
core/rendezvous. There is no logic here, and each function lets go of the GIL only where those say so.
"""

from fastsock._native.core_control cimport *
from fastsock._native.core_rendezvous cimport fs_cached_region_count, fs_region_cache_clear, fs_memory_used
from fastsock._native.registry cimport error_of, totals

fs_ended_counters = &totals

VERSION = FS_VERSION  # of the protocol
# Of datagrams to and from a connection thread (core/control/introspection.h)
LOOK_MAGIC, SEEN_MAGIC, NO_MORE = FS_QUERY_MAGIC, FS_REPLY_MAGIC, FS_QUERY_END
LOOKS = FS_QUERY_PROCESS, FS_QUERY_TABLE, FS_QUERY_RING
FLAGS = FS_INFO_SENDS, FS_INFO_RECEIVES, FS_INFO_EXPOSED, FS_INFO_LOOP_DRIVEN, FS_INFO_ASLEEP, FS_INFO_WAITS, FS_INFO_FELL_BACK


cdef str shape(void *record, size_t size, tuple fields):
    """The `struct` format of a `record` of `size` bytes whose fields stand and are as long as `fields` say: those of counters one by
    one. In the order in which a program reads them."""
    cdef str text = "="
    cdef size_t at = 0
    for start, length in fields:
        assert start == <size_t>record + at, "a record has a gap, or its fields another order"
        text += "I" if length == 4 else f"{length // 8}Q"
        at += length
    assert at == size, "a record has fields that are not named here"
    return text


cdef:
    fs_query look
    fs_query_reply seen
    fs_process_info process
    fs_connection_info end

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


cdef int check(int result) except -1:
    """What a function of the core returned, if it is no failure. OSError for one."""
    if result < 0:
        raise error_of(result)
    return result


# ---- regions


def memory_used():
    """Bytes of regions that this process has mapped, as they count against the cap."""
    return fs_memory_used()


def parked():
    """How many regions the seekers of this process keep for their next connection."""
    return fs_cached_region_count()


def drop_parked():
    """Gives back all parked regions. Whether there were any."""
    return fs_region_cache_clear()


# ---- descriptors out of the program's way


def new_eventfd():
    """An eventfd in our share of the descriptor numbers. OSError without one, as keep_away."""
    return check(fs_reserve_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), False))


def keep_away(int fd, bint passing=False):
    """Moves a descriptor into our share of the numbers (fd_reserve.h), its upper half if it serves a meeting only (`passing`).
    Raises BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""
    return check(fs_reserve_fd(fd, passing))


# ---- the accept queue


def set_backlog(int length):
    """The bound of the accept queue: the largest backlog any listener asked for."""
    fs_set_backlog(length)


# ---- the thread


def start_again():
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way."""
    check(fs_control_thread_restart())


def wake_loops():
    """The loops of this process start the thread again, each with its next turn."""
    fs_wake_loops()
