# CPython as the core's front end.

cdef void note_process() noexcept
