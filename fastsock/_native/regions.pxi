# Making, mapping and giving back the shared memory of a connection.

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy, memset
from cpython.object cimport PyObject

from fastsock._native.headers cimport *
from fastsock._native.vi cimport MEETING_WAITING, Endpoint, count_holders, is_attached, is_exposed, on_roll, put_back, totals

import fcntl as _fcntl
import os as _os
import _socket

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <sys/eventfd.h>
    #ifndef MADV_REMOVE
    #define MADV_REMOVE 9
    #endif
    static inline int64_t fs_file_size(int fd) {
        struct stat st;
        return fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
    }
    """
    int64_t fs_file_size(int) nogil
    int errno
    enum: F_GET_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
    enum: EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int, int) nogil

cdef extern from "share.h" nogil:
    int fs_keep_number(int fd, int passing)
    int fs_share(int *size)
    bint fs_room()
    bint fs_is_our_eventfd(int)
    uint64_t fs_inode(int)
    int fs_ring_eventfd(int)
    void fs_close_eventfd(int)

cdef enum:
    SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
    KEPT_WARM = 16384  # bytes at the start of the arenas that a parked region keeps


def region_size(int window, int chunk):
    """Bytes of a region."""
    return fs_region_size(window, chunk)


def create_region(int window, int chunk, bytes id not None):
    """A new sealed region: (memfd, address, size). OSError or MemoryError if there is none to be had."""
    cdef size_t size = fs_region_size(window, chunk)
    cdef void *memory
    memfd = _os.memfd_create("fastsock", _os.MFD_CLOEXEC | _os.MFD_ALLOW_SEALING)
    try:
        _os.ftruncate(memfd, size)
        _fcntl.fcntl(memfd, _fcntl.F_ADD_SEALS, SEALS)
        memory = map_region(memfd, size)
        if memory == NULL:
            raise MemoryError("no address space for a region")
    except BaseException:
        _os.close(memfd)
        raise
    fs_region_format(memory, window, chunk, id)
    return memfd, <uintptr_t>memory, size


cdef void *map_region(int memfd, size_t size) noexcept nogil:
    cdef void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0)
    return NULL if memory == MAP_FAILED else memory


def unmap_region(uintptr_t memory, size_t size):
    munmap(<void *>memory, size)


def mark_done(uintptr_t memory, size_t size, int side, int window):
    """This side will not touch the region any more. The second to say so gives the arenas' pages back to the system,
    but for the first few."""
    cdef fs_region *region = <fs_region *>memory
    cdef size_t start = (fs_arena_offset(fs_slots(window), 0, 0) + KEPT_WARM + 4095) & ~<size_t>4095
    # SYNC: region free - pairs with recycle_region.
    fs_store_sc(&region.done[side], 1)
    if fs_load_sc(&region.done[1 - side]) and start < size:
        madvise(<void *>(memory + start), size - start, MADV_REMOVE)


def recycle_region(uintptr_t memory, int window):
    """Readies a region for the next connection if both sides are done with it: true if they are."""
    cdef fs_region *region = <fs_region *>memory
    # SYNC: region free - pairs with mark_done.
    if not (fs_load_acquire(&region.done[0]) and fs_load_acquire(&region.done[1])):
        return False
    fs_region_recycle(region, window)
    return True


def wakeup_seen(uintptr_t memory):
    """Packet WAKEUP: whether the publisher has taken the region."""
    # SYNC: taken - pairs with judge.
    return fs_load_acquire(&(<fs_region *>memory).wakeup) == FS_TAKEN


def close_eventfd(int fd):
    """Closes one, unless the number means another file by now."""
    fs_close_eventfd(fd)


def new_eventfd():
    """An eventfd in our share of the descriptor numbers. OSError without one, as keep_away."""
    return keep_away(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))


def keep_away(int fd, bint passing=False):
    """Moves a descriptor into our share of the numbers (share.h), its upper half if it serves a meeting only (`passing`).
    Raises BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""
    cdef int kept = fs_keep_number(fd, passing)
    if kept < 0:
        raise OSError(-kept, _os.strerror(-kept))
    return kept
