"""The plug: bytes that a sender puts into its kernel's buffer, so that POLLOUT is false while the ring is full."""

import os
import shlex
import subprocess
from pathlib import Path

from processes import running

GREEDY = r"""
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
/* A peer that takes the bytes of a plug as fast as they come. (Nothing else is sent with MSG_EOR.) */
ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    return flags & MSG_EOR ? (ssize_t)count : syscall(SYS_sendto, fd, bytes, count, flags, NULL, 0);
}
int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *what = va_arg(arguments, void *);
    va_end(arguments);
    if (request != SIOCOUTQNSD && request != SIOCOUTQ) return syscall(SYS_ioctl, fd, request, what);
    *(int *)what = 0;
    return 0;
}
"""
PROGRAM = """
    from hostile import on_ring
    with on_ring(sys.argv[1] == "True") as peer:
        peer.victim.fileno()  # somebody may poll it
        peer.victim.setblocking(False)
        try:
            while True:
                before = peer.region.get(1 - peer.side, "rung")
                peer.victim.send(bytes(8192))
        except BlockingIOError:
            say(peer.region.get(1 - peer.side, "rung") - before)
"""
MOST = 1 << 26
"""Bytes of one plug."""


def test_a_peer_that_takes_a_plug_out_as_fast_as_it_is_put_in_keeps_no_sender(tmp_path: Path, publishes: bool) -> None:
    source, greedy = tmp_path / "greedy.c", tmp_path / "greedy.so"
    source.write_text(GREEDY)
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    subprocess.run([*compiler, "-shared", "-fPIC", "-O1", source, "-o", greedy], check=True)
    with running(PROGRAM, publishes, LD_PRELOAD=str(greedy)) as program:
        assert int(program.line()) in (MOST, 2 * MOST)  # (a send that finds the plug taken out tries once more)
