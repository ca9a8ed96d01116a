# Connects the core to CPython.

cdef void note_process() noexcept
