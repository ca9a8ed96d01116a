# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The endpoint: one end of one connection, whichever path its bytes take.

An endpoint is shared by all descriptors of the connection in this process, and its `own` state by all processes
that inherited it. It starts on kernel TCP. `attach` gives it a region; from then on each direction moves when
its sender finds the peer's consent (`ready`) and has recorded the offset in the kernel's stream. Functions
called try_* return bytes, 0 at the end of the stream, or a negative errno, and never block.
"""

import os as _os

include "memory.pxi"
include "kernel.pxi"
include "polling.pxi"
include "turns.pxi"
include "roll.pxi"
include "endpoint.pxi"
include "endpoint_receiving.pxi"
include "endpoint_sending.pxi"
include "endpoint_lifeline.pxi"
include "numbers.pxi"
include "endpoint_waiting.pxi"
include "endpoint_ending.pxi"
include "endpoint_reports.pxi"
include "way_out.pxi"
include "leavers_peer.pxi"
include "bridge.pxi"
include "mending.pxi"
include "registry.pxi"
include "beginning.pxi"
