# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=True
"""The data calls of the facade and of `os`, native so that no Python frame runs on the fast path.

Each call finds its socket's endpoint. Without one (UDP, unix sockets) it is the stdlib's call and nothing else;
with one it goes to the ring, or to the kernel with the wait made ours while the path is undecided.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, strcmp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, _PyBytes_Resize
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint
from fastsock._native.vi cimport begin_undecided, begin_when_connected, endpoint_at, may_begin, operate

import os
import _socket

from fastsock._native import vi as _vi

include "waiting.pxi"
include "sockets.pxi"
include "receiving.pxi"
include "sending.pxi"
include "descriptors.pxi"
