# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Connects the core to CPython: the GIL is the host lock, and the process id is known to the core.

With this module the core releases the GIL while it waits for a lock of a connection (core/os/host.h). Where the front end at the C
library's calls serves this process (interpose/), its lock is the host lock, and Python makes no endpoints.
"""

from libc.stdint cimport uint32_t
from libc.string cimport strcmp
from posix.unistd cimport getpid

from fastsock._native.core cimport fs_pid_ns
from fastsock._native.core_ring cimport fs_build, fs_host, fs_libc_serves, fs_own_pid, fs_own_pid_ns

cdef extern from *:
    """
    /* Releases the GIL if this thread has it. Returns the argument for fs_take_gil. */
    static void *fs_give_gil(void) {
    #if PY_VERSION_HEX >= 0x030d0000
        PyThreadState *running = PyThreadState_GetUnchecked();
    #else
        PyThreadState *running = _PyThreadState_UncheckedGet();
    #endif
        return running && running == PyGILState_GetThisThreadState() ? PyEval_SaveThread() : NULL;
    }
    static void fs_take_gil(void *given) { PyEval_RestoreThread(given); }
    /* 1 if the GIL serializes the functions that open and end connections: their callers hold it. */
    #ifdef Py_GIL_DISABLED
    enum { FS_GIL_KEEPS_APART = 0 };
    #else
    enum { FS_GIL_KEEPS_APART = 1 };
    #endif
    """
    enum: FS_GIL_KEEPS_APART
    const char *FS_BUILD
    void *fs_give_gil() noexcept nogil
    void fs_take_gil(void *) noexcept nogil


cdef void note_process() noexcept:
    """Tells the core the process id: at the start, and in a forked child."""
    global fs_own_pid, fs_own_pid_ns
    fs_own_pid = <uint32_t>getpid()
    fs_own_pid_ns = fs_pid_ns()


# LD_PRELOAD may name the library of another installation: the loader takes that for ours.
if strcmp(fs_build, FS_BUILD) != 0:
    raise ImportError("another build of libfastsock.so is loaded in this process: use the fastsock that LD_PRELOAD names")
if not fs_libc_serves():
    fs_host.unlock = fs_give_gil
    fs_host.lock = fs_take_gil
    fs_host.keeps_apart = FS_GIL_KEEPS_APART
    note_process()
