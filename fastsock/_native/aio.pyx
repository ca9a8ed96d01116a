# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The asyncio layer: a transport on the virtual interface, whatever the loop.

The loop's own TCP transport carries a connection natively until both ends are fastsock and it proves busy. A *shim*
stands below as that transport's protocol, and our transport above as the program's. When the connection moves, the
program's bytes go through the ring and the loop's transport stays as the lifeline. Each loop has a *completion
queue*: it polls hot connections natively and delivers what came in batches; quiet ones are armed and left to epoll.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyObject_TypeCheck, PyTypeObject
from cpython.ref cimport Py_DECREF

from fastsock._native.channel cimport FS_MEETING_WAITING
from fastsock._native.core cimport *
from fastsock._native.core_ring cimport *
from fastsock._native.endpoint cimport Endpoint, let_loose, standing_of, totals
from fastsock._native.vi cimport acts_again_at, count_beginning, endpoint_at, may_begin, note_connected, operate

import contextvars as _contextvars
import gc as _gc
import os as _os
import _socket
from asyncio import Protocol as _Protocol, Transport as _AsyncioTransport
from collections import deque as _deque

cdef extern from "<netinet/in.h>":
    enum: AF_INET, AF_INET6

cdef extern from "Python.h":
    int PyContext_Enter(object) except -1
    int PyContext_Exit(object) except -1
    object PyContext_CopyCurrent()
    PyObject *PyObject_CallOneArg(object, object)
    Py_ssize_t PyObject_Size(object) except -1

include "queue.pxi"
include "transport.pxi"
include "transport_reading.pxi"
include "transport_protocol.pxi"
include "transport_writing.pxi"
include "shim.pxi"
include "making.pxi"
