# The roll: which connections this process has, and why each is where it is, for whoever looks from outside (seen.pxi).
#
# The connection thread reads it without the GIL, so it has numbers and no objects: a word per endpoint, written with the
# GIL, each in one store, and never given back. A reader gets an entry of now or of just before.

cdef extern from "stdlib.h" nogil:
    void *calloc(size_t, size_t)

cdef enum:
    ROLL_PAGE = 512      # words of a page
    ROLL_PAGES = 2048    # a connection beyond these is not seen from outside
    ROLL_FREE = 255      # in the place of the reason: a free entry; the rest is the next free one

cdef fs_word64 *roll[ROLL_PAGES]
cdef fs_word32 roll_length   # entries that were ever used
cdef int roll_first_free = -1
cdef dict reason_numbers = {None: 0}

memset(roll, 0, sizeof(roll))
fs_store_sc(&roll_length, 0)


cdef inline fs_word64 *roll_entry(int place) noexcept nogil:
    return &roll[place // ROLL_PAGE][place % ROLL_PAGE]


cdef int enroll(uint64_t inode) noexcept:
    """A place for a new endpoint. -1: there is none."""
    global roll_first_free
    cdef int place = roll_first_free
    if place >= 0:
        roll_first_free = <int>(fs_load_relaxed64(roll_entry(place)) & 0xffffffff)
        if roll_first_free == ROLL_PAGE * ROLL_PAGES:
            roll_first_free = -1
    else:
        place = <int>fs_load_relaxed(&roll_length)
        if place == ROLL_PAGE * ROLL_PAGES:
            return -1
        if place % ROLL_PAGE == 0:
            roll[place // ROLL_PAGE] = <fs_word64 *>calloc(ROLL_PAGE, sizeof(fs_word64))
            if roll[place // ROLL_PAGE] == NULL:
                return -1
        fs_store_sc64(roll_entry(place), 0)
        # SYNC: roll - pairs with on_roll: the page is there before its first entry counts.
        fs_store_release(&roll_length, <uint32_t>place + 1)
    fs_store_sc64(roll_entry(place), roll_word(inode, 0))
    return place


cdef inline uint64_t roll_word(uint64_t inode, uint64_t what) noexcept:
    """The kernel numbers its sockets with 32 bits; 56 are kept."""
    return inode & ((<uint64_t>1 << 56) - 1) | what << 56


cdef void strike(Endpoint self) noexcept:
    """The endpoint has ended in this process."""
    global roll_first_free
    if self.place < 0:
        return
    fs_store_sc64(roll_entry(self.place),
                  roll_word(<uint64_t>(ROLL_PAGE * ROLL_PAGES if roll_first_free < 0 else roll_first_free), ROLL_FREE))
    roll_first_free = self.place
    self.place = -1


def name_reasons(texts):
    """Numbers the reasons that `note_reason` is told, in this order."""
    for number, text in enumerate(texts):
        reason_numbers[text] = number


cpdef note_reason(Endpoint endpoint, reason):
    """Why the connection is on kernel TCP, from now on; "": it is not."""
    endpoint.reason = reason
    if endpoint.place >= 0:
        fs_store_sc64(roll_entry(endpoint.place), roll_word(endpoint.inode, reason_numbers.get(reason, 0)))


cdef bint on_roll(uint32_t place, uint64_t *word) noexcept nogil:
    """The entry at a place: whether it is within the roll. (A free one has ROLL_FREE in its uppermost byte.)"""
    # SYNC: roll - pairs with enroll.
    if place >= fs_load_acquire(&roll_length):
        return False
    word[0] = fs_load_sc64(roll_entry(<int>place))
    return True
