"""BPF sockmap: what a socket is given to send, the kernel puts into the other socket's queue, past TCP.

Each end's socket is in a map of its own. A program of five instructions at each map redirects to the socket in the
other map (bpf(2), BPF_PROG_TYPE_SK_MSG). Loading it needs CAP_BPF and CAP_NET_ADMIN.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct

from bench import data
from bench.warmup import Address, Order, connect, receive_exactly
from bench.worker import Report, Role

NUMBER = {"x86_64": 321, "aarch64": 280}.get(platform.machine(), 0)  # bpf(2)
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD, PROG_ATTACH, MAP_FD_BY_ID, INFO_BY_FD = 0, 1, 2, 5, 8, 14, 15
SOCKMAP, SK_MSG, VERDICT = 15, 16, 7
REDIRECT_MAP, INGRESS = 60, 1

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    text = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(NUMBER, command, text, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf(2): {os.strerror(ctypes.get_errno())}")
    return int(result)


def new_map() -> int:
    return bpf(MAP_CREATE, struct.pack("IIII", SOCKMAP, 4, 8, 1))


def of_map(command: int, fd: int, number: int = 0) -> None:
    """Reads or writes the only value of a map."""
    key, value = ctypes.c_uint32(0), ctypes.c_uint64(number)
    bpf(command, struct.pack("IxxxxQQQ", fd, ctypes.addressof(key), ctypes.addressof(value), 0))


def await_socket(fd: int) -> None:
    """Waits until there is a socket in the map."""
    while True:
        try:
            return of_map(MAP_LOOKUP, fd)
        except FileNotFoundError:
            continue


def redirect(source: int, target: int) -> None:
    """What a socket of a map sends goes to the socket of the other map."""

    def instruction(code: int, registers: int, immediate: int) -> bytes:
        return struct.pack("BBhi", code, registers, 0, immediate)

    program = b"".join(
        (
            instruction(0x18, 0x12, target) + instruction(0, 0, 0),  # r2 = the map
            instruction(0xB7, 3, 0),  # r3 = the key
            instruction(0xB7, 4, INGRESS),
            instruction(0x85, 0, REDIRECT_MAP),
            instruction(0x95, 0, 0),  # return what that said
        )
    )
    text, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"GPL")
    words = struct.pack("IIQQ", SK_MSG, len(program) // 8, ctypes.addressof(text), ctypes.addressof(licence))
    bpf(PROG_ATTACH, struct.pack("IIII", source, bpf(PROG_LOAD, words), VERDICT, 0))


def identity(fd: int) -> int:
    info = ctypes.create_string_buffer(8)
    bpf(INFO_BY_FD, struct.pack("IIQ", fd, 8, ctypes.addressof(info)))
    return int(struct.unpack("II", info.raw)[1])


def drive_sockmap(address: Address, order: Order, role: Role) -> Report:
    with connect(address) as sock:
        ours, theirs = new_map(), new_map()
        redirect(ours, theirs)
        redirect(theirs, ours)
        sock.sendall(struct.pack("I", identity(theirs)))
        receive_exactly(sock, 1)
        await_socket(theirs)  # what is sent before would be lost
        of_map(MAP_UPDATE, ours, sock.fileno())
        loop = data.drive_pingpong if order["what"] == "pingpong" else data.drive_stream
        report = loop(sock, order, role)
    os.close(ours)
    os.close(theirs)
    return report


def serve_sockmap(listener: socket.socket, order: Order, role: Role) -> Report:
    sock, _ = listener.accept()
    with sock:
        fd = bpf(MAP_FD_BY_ID, struct.pack("I", struct.unpack("I", receive_exactly(sock, 4))[0]))
        sock.sendall(b"!")
        of_map(MAP_UPDATE, fd, sock.fileno())
        os.close(fd)
        (data.serve_pingpong if order["what"] == "pingpong" else data.serve_stream)(sock, order)
    return {"path": "kernel", "reason": "sockmap"}
