# Memory shared with forked children and with nobody else: two blocks for each connection
# (struct fs_side and its `ends`).
#
# Blocks come from slabs and return to them when the last process that holds the connection has let go. A child
# never hands out or takes back what it inherited: the parent does, when the holder count says so.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

from fastsock._native.headers cimport *

cdef enum:
    SLAB = 65536
    BLOCK = 256

cdef list free_blocks = []   # by size, in BLOCKs: lists of addresses
cdef list held_elsewhere = []  # (address, size of ends): let go here, still held by a forked process


cdef size_t rounded_to_block(size_t size):
    return (size + BLOCK - 1) // BLOCK * BLOCK


cdef list free_of_size(size_t block):
    cdef Py_ssize_t blocks = block // BLOCK
    while len(free_blocks) <= blocks:
        free_blocks.append([])
    return <list>free_blocks[blocks]


cdef void *new_block(size_t size) except NULL:
    """Zeroed memory that forked children share. MemoryError without address space."""
    cdef size_t block = rounded_to_block(size)
    cdef list addresses = free_of_size(block)
    cdef void *slab
    cdef size_t length
    cdef uintptr_t address
    if not addresses and held_elsewhere:
        reclaim()
    if not addresses:
        length = SLAB if block <= SLAB else (block + 4095) // 4096 * 4096
        slab = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
        if slab == MAP_FAILED:
            raise MemoryError("no address space for connection state")
        addresses.extend(<uintptr_t>slab + i * block for i in reversed(range(length // block)))
    address = addresses.pop()
    memset(<void *>address, 0, block)
    return <void *>address


cdef void free_block(void *memory, size_t size):
    free_of_size(rounded_to_block(size)).append(<uintptr_t>memory)


cdef void free_side(fs_side *side, size_t ends_size):
    """Takes back a connection's blocks, once no process holds it any more. (Nobody but us strikes out a child that is killed
    after we have let go.)"""
    if count_holders(side):
        held_elsewhere.append((<uintptr_t>side, ends_size))
        return
    if side.ends != NULL:
        free_block(side.ends, ends_size)
    free_block(side, sizeof(fs_side))


cdef void reclaim():
    cdef list waiting = held_elsewhere[:]
    held_elsewhere.clear()
    for address, ends_size in waiting:
        free_side(<fs_side *><uintptr_t>address, ends_size)


cdef void forget_blocks_after_fork():
    free_blocks.clear()
    held_elsewhere.clear()
