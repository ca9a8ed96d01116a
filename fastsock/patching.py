"""`patch()`: replaces the socket class and related functions in a running program.

TABLE lists the replacements. `unpatch()` restores the originals.
"""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import socket as stdlib
import subprocess
import sys
from collections.abc import Callable

from fastsock import config, fd_handoff, monkeypatch_conflicts, socket_class
from fastsock._native import forking, os_calls, registry
from fastsock.import_hooks import forget, when_imported
from fastsock.observability import INFO, WARNING, event

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOOPS", "TABLE", "is_patched", "patch", "unpatch"]


# Module, name, replacement. The functions of `socket` (create_connection, create_server, socketpair, fromfd, ...) look
# up the class by name, so they need no entry.
TABLE: tuple[tuple[Any, str, Any], ...] = (
    (stdlib, "socket", socket_class.socket),
    (os, "read", os_calls.read),
    (os, "write", os_calls.write),
    (os, "readv", os_calls.readv),
    *(((os, "readinto", os_calls.readinto),) if hasattr(os, "readinto") else ()),  # from 3.14 on
    (os, "writev", os_calls.writev),
    (os, "sendfile", os_calls.sendfile),
    (stdlib, "close", os_calls.close_socket),
    (os, "close", os_calls.close),
    (os, "closerange", os_calls.closerange),
    (os, "dup", os_calls.dup),
    (os, "dup2", os_calls.dup2),
    (os, "_exit", forking._exit),
    (os, "fork", forking.fork),
    (os, "forkpty", forking.forkpty),
    (os, "execv", fd_handoff.execv),
    (os, "execve", fd_handoff.execve),
    (os, "posix_spawn", fd_handoff.posix_spawn),
    (os, "posix_spawnp", fd_handoff.posix_spawnp),
    *(((os, "splice", fd_handoff.splice),) if hasattr(os, "splice") else ()),
    (_posixsubprocess, "fork_exec", fd_handoff.fork_exec),
    *(((subprocess, "_fork_exec", fd_handoff.fork_exec),) if hasattr(subprocess, "_fork_exec") else ()),  # from 3.11 on
)

# Loop classes whose methods are replaced when their module has been imported (`fastsock.aio.loops.methods_for`).
LOOPS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("asyncio", lambda asyncio: asyncio.selector_events.BaseSelectorEventLoop),
    ("uvloop", lambda uvloop: uvloop.Loop),
)

_originals: dict[tuple[Any, str], Any] = {}


_serves_below = False  # `patch()` has put the functions of libfastsock.so in place


def is_patched() -> bool:
    """Returns true if `patch()` is in effect."""
    return bool(_originals) or _serves_below


def patch(**settings: Any) -> None:
    """Replaces `socket.socket` by `fastsock.socket`, with settings from keyword arguments and FASTSOCK_* variables.

    May be called at any time, and again to change the settings. With `enabled` false it restores the originals. Names
    that were imported from `socket` before still mean the originals: the event "fastsock.out_of_reach" lists them.
    Raises SettingError for a setting out of range, and TypeError for an unknown setting.
    """
    used = config.use(config.from_environment(settings))
    if not used.enabled:
        unpatch()
        return
    if is_patched() and used.libc != _serves_below:
        unpatch()
    if used.libc and (_serves_below or not registry.is_served_below()):
        _serve_below(used)
        return
    if is_patched():
        return
    if registry.is_served_below():
        event(INFO, "fastsock.declined", because="libfastsock.so serves this process")
        return
    other = monkeypatch_conflicts.who_has_patched()
    if other is not None:
        event(WARNING, "fastsock.declined", because=f"{other} has replaced the socket module")
        return
    # Our functions call these even after unpatch(): other code may have wrapped ours, as gevent wraps os.fork.
    forking.keep_beneath(os.fork, os.forkpty, os._exit)
    for module, name, replacement in TABLE:
        _originals[module, name] = getattr(module, name)
        setattr(module, name, replacement)
    socket_class.show_as_stdlib(True)
    for name, loop_class in LOOPS:
        when_imported(name, functools.partial(_patch_loop, loop_class))
    fd_handoff.watch()
    monkeypatch_conflicts.watch(_decline)
    out_of_reach = _imported_before()
    event(INFO, "fastsock.patched", settings=config.active(), out_of_reach=out_of_reach)
    if out_of_reach:
        event(INFO, "fastsock.out_of_reach", names=out_of_reach)


def _serve_below(settings: config.Settings) -> None:
    """Puts the functions of libfastsock.so in place of the C library's in this process."""
    global _serves_below
    why = registry.serve_below(config.text_of(settings).encode())
    if why is not None:
        event(WARNING, "fastsock.declined", because=why)
    elif not _serves_below:
        _serves_below = True
        event(INFO, "fastsock.patched", settings=settings, out_of_reach=[])


def unpatch() -> None:
    """Restores the originals, except where other code has replaced ours since. Existing sockets do not change."""
    global _serves_below
    if _serves_below:
        _serves_below = False
        registry.end_below()
    monkeypatch_conflicts.unwatch()
    for loop_module, _ in LOOPS:
        forget(loop_module)
    if _originals:
        fd_handoff.unwatch()
        socket_class.show_as_stdlib(False)
    ours = {(module, name): replacement for module, name, replacement in TABLE}
    while _originals:
        (holder, name), original = _originals.popitem()
        if (holder, name) in ours and getattr(holder, name) is not ours[holder, name]:
            continue
        _put_back(holder, name, original)


_INHERITED = object()  # the class inherited the attribute


def _put_back(holder: Any, name: str, original: Any) -> None:
    if original is _INHERITED:
        delattr(holder, name)
    else:
        setattr(holder, name, original)


def _patch_loop(loop_class: Callable[[Any], Any], module: Any) -> None:
    """Replaces methods of a loop class. All its loops, also existing ones, then create fastsock's transports."""
    from fastsock.aio import loops

    holder = loop_class(module)
    for name, method in loops.methods_for(holder).items():
        _originals[holder, name] = holder.__dict__.get(name, _INHERITED)
        setattr(holder, name, method)


def _decline(other: str) -> None:
    unpatch()
    event(WARNING, "fastsock.declined", because=f"{other} replaces the socket module")


def _imported_before() -> list[str]:
    """Returns names in loaded modules that still mean an original, such as after `from socket import socket`."""
    originals = {id(original) for original in _originals.values()}
    own = {stdlib.__name__, "_socket", os.__name__, "posix", _posixsubprocess.__name__, subprocess.__name__}
    found = []
    for module_name, module in list(sys.modules.items()):
        if module_name in own or module_name.partition(".")[0] == "fastsock":
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in originals:
                found.append(f"{module_name}.{name}")
    return sorted(found)


# Independent of patch(), as forked processes inherit explicit fastsock.socket objects too.
os.register_at_fork(
    before=forking.before_fork,
    after_in_child=forking.after_fork_in_child,
    after_in_parent=forking.after_fork_in_parent,
)
