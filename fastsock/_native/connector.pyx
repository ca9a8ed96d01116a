# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The connection thread and its accept queue, the look-up of the other end, and the mapping of regions.

A process that waits to be found publishes a name for each connection (`publish`); its connection thread answers
while the program computes: it checks who asks, receives the region, validates and maps it, says WAKEUP and leaves
the VI in the queue, from where the connection takes it at its next operation (`arrived`). The thread is a native
one: it needs no GIL, so neither does it disturb the program nor does a computing program keep a peer waiting. It
stops before a fork and starts again with the next use.
"""

include "regions.pxi"
include "meetings.pxi"
include "lookup.pxi"
include "thread.pxi"
include "requests.pxi"
include "seen.pxi"
