# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""Statistics of a service's past sessions (core/rendezvous/upgrade_delay.c), shared by its connections.

A service is what a listener accepts, or a port that this process connects to.
"""

from libc.stdint cimport int64_t, uint64_t

from fastsock._native.core_rendezvous cimport fs_note_session, fs_session_stats

cdef enum:
    PORTS = 1024  # maximum number of remembered ports

cdef dict ports = {}


cdef class SessionStats:
    """Statistics of a service's past sessions."""

    cpdef int note(self, int64_t operations, int sought=0, uint64_t calls=0, uint64_t messages=0) except -1:
        """Adds a session that has ended (fs_note_session)."""
        if sought >= 0:
            fs_note_session(&self.sessions, operations, sought, calls, messages)
        return 0

    @property
    def later(self):
        """Number of operations before a session looks for its peer; 0: use the setting move_after."""
        return self.sessions.later


cdef SessionStats stats_of_port(int port):
    """Returns the statistics of the service at a port that this process connects to."""
    found = ports.get(port)
    if found is None:
        if len(ports) >= PORTS:
            del ports[next(iter(ports))]  # the oldest
        found = ports[port] = SessionStats()
    return found
