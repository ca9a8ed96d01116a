# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""CPython as the core's front end: the GIL, and which process this is.

Whoever imports this has a core that lets go of the GIL where a turn is somebody else's (core/os/host.h). It knows
of no endpoint.
"""

from libc.stdint cimport uint32_t
from posix.unistd cimport getpid

from fastsock._native.core cimport fs_pid_ns
from fastsock._native.core_ring cimport fs_host, fs_own_pid, fs_own_pid_ns

cdef extern from *:
    """
    /* Gives the GIL away if this thread has it. What fs_take_gil takes again. */
    static void *fs_give_gil(void) {
    #if PY_VERSION_HEX >= 0x030d0000
        PyThreadState *running = PyThreadState_GetUnchecked();
    #else
        PyThreadState *running = _PyThreadState_UncheckedGet();
    #endif
        return running && running == PyGILState_GetThisThreadState() ? PyEval_SaveThread() : NULL;
    }
    static void fs_take_gil(void *given) { PyEval_RestoreThread(given); }
    /* Whether the GIL keeps threads apart where a connection's life changes: whoever calls those functions has it. */
    #ifdef Py_GIL_DISABLED
    enum { FS_GIL_KEEPS_APART = 0 };
    #else
    enum { FS_GIL_KEEPS_APART = 1 };
    #endif
    """
    enum: FS_GIL_KEEPS_APART
    void *fs_give_gil() noexcept nogil
    void fs_take_gil(void *) noexcept nogil


cdef void note_process() noexcept:
    """Which process this is, for the core: at the start, and in a forked child."""
    global fs_own_pid, fs_own_pid_ns
    fs_own_pid = <uint32_t>getpid()
    fs_own_pid_ns = fs_pid_ns()


fs_host.unlock = fs_give_gil
fs_host.lock = fs_take_gil
fs_host.keeps_apart = FS_GIL_KEEPS_APART
note_process()
