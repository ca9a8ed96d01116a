# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The connection thread and its accept queue, parked regions, and our descriptors: what Python calls of core/channel and
core/meeting. There is no logic here, and each function lets go of the GIL only where those say so.
"""

from fastsock._native.channel cimport *
from fastsock._native.meeting cimport fs_count_parked_kits, fs_drop_kits, fs_memory_used
from fastsock._native.vi cimport error_of, totals

fs_counters_of_gone = &totals

VERSION = FS_VERSION  # of the protocol
# Of datagrams to and from a connection thread (core/channel/seen.h)
LOOK_MAGIC, SEEN_MAGIC, NO_MORE = FS_LOOK_MAGIC, FS_SEEN_MAGIC, FS_NO_MORE
LOOKS = FS_LOOK_PROCESS, FS_LOOK_ROLL, FS_LOOK_RING
FLAGS = FS_SEEN_SENDS, FS_SEEN_RECEIVES, FS_SEEN_EXPOSED, FS_SEEN_DRIVEN, FS_SEEN_ASLEEP, FS_SEEN_WAITS, FS_SEEN_LEFT


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
    fs_look look
    fs_seen seen
    fs_seen_process process
    fs_seen_end end

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
    return fs_count_parked_kits()


def drop_parked():
    """Gives back all parked regions. Whether there were any."""
    return fs_drop_kits()


# ---- descriptors out of the program's way


def new_eventfd():
    """An eventfd in our share of the descriptor numbers. OSError without one, as keep_away."""
    return check(fs_keep_number(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), False))


def keep_away(int fd, bint passing=False):
    """Moves a descriptor into our share of the numbers (share.h), its upper half if it serves a meeting only (`passing`).
    Raises BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""
    return check(fs_keep_number(fd, passing))


# ---- the accept queue


def set_backlog(int length):
    """The bound of the accept queue: the largest backlog any listener asked for."""
    fs_set_backlog(length)


# ---- the thread


def start_again():
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way."""
    check(fs_start_thread_again())


def wake_loops():
    """The loops of this process start the thread again, each with its next turn."""
    fs_wake_loops()
