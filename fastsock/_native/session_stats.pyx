# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""What the sessions of a service were like (core/rendezvous/upgrade_policy.c), as an object that its connections share.

The connections that a listener accepts share one, and those that this process makes to a port.
"""

from libc.stdint cimport int64_t, uint64_t

from fastsock._native.core_rendezvous cimport fs_note_session, fs_session_stats

cdef enum:
    PORTS = 1024  # that this process connects to, remembered at a time

cdef dict ports = {}


cdef class SessionStats:
    """What the sessions of one service were like."""

    cpdef int note(self, int64_t operations, int sought=0, uint64_t calls=0, uint64_t messages=0) except -1:
        """A session has ended (fs_note_session)."""
        if sought >= 0:
            fs_note_session(&self.sessions, operations, sought, calls, messages)
        return 0

    @property
    def later(self):
        """Operations before which no session looks for its peer; 0: as the settings say."""
        return self.sessions.later


cdef SessionStats stats_of_port(int port):
    """Those of the service at a port that this process connects to."""
    found = ports.get(port)
    if found is None:
        if len(ports) >= PORTS:
            del ports[next(iter(ports))]  # the oldest
        found = ports[port] = SessionStats()
    return found
