"""`patch()`: puts the facade under a program.

What is replaced is declared in one table; originals are kept and put back by `unpatch()`.
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
from fastsock._native import os_calls, registry
from fastsock.import_hooks import forget, when_imported
from fastsock.observability import INFO, WARNING, event

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LOOPS", "TABLE", "is_patched", "patch", "unpatch"]


# What is replaced: module, name, replacement. The module functions of `socket` (create_connection, create_server,
# socketpair, fromfd, ...) look the class up by its name and so need no entry.
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
    (os, "_exit", registry._exit),
    (os, "fork", registry.fork),
    (os, "forkpty", registry.forkpty),
    (os, "execv", fd_handoff.execv),
    (os, "execve", fd_handoff.execve),
    (os, "posix_spawn", fd_handoff.posix_spawn),
    (os, "posix_spawnp", fd_handoff.posix_spawnp),
    *(((os, "splice", fd_handoff.splice),) if hasattr(os, "splice") else ()),
    (_posixsubprocess, "fork_exec", fd_handoff.fork_exec),
    *(((subprocess, "_fork_exec", fd_handoff.fork_exec),) if hasattr(subprocess, "_fork_exec") else ()),  # from 3.11 on
)

# Where methods of loop classes are replaced (`fastsock.aio.loops.methods_for`), once the module has been imported.
LOOPS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("asyncio", lambda asyncio: asyncio.selector_events.BaseSelectorEventLoop),
    ("uvloop", lambda uvloop: uvloop.Loop),
)

_originals: dict[tuple[Any, str], Any] = {}


def is_patched() -> bool:
    """Whether the facade is in place."""
    return bool(_originals)


def _is_served_by_library() -> bool:
    if config.SETTINGS not in os.environ:
        return False
    from fastsock import launch  # what few programs need

    return launch.is_served_by_library()


def patch(**settings: Any) -> None:
    """Puts the facade under the program, with settings from keyword arguments and FASTSOCK_* variables.

    May be called early or late, and again (the settings then replace the old ones). With `enabled` false it puts
    everything back instead. Names that were imported from `socket` before cannot be reached; the event
    "fastsock.out_of_reach" lists them. Raises SettingError for a setting out of range, TypeError for one that
    does not exist.
    """
    if not config.use(config.from_environment(settings)).enabled:
        unpatch()
        return
    if is_patched():
        return
    if _is_served_by_library():
        event(INFO, "fastsock.declined", because="libfastsock.so serves this process")
        return
    other = monkeypatch_conflicts.who_has_patched()
    if other is not None:
        event(WARNING, "fastsock.declined", because=f"{other} has replaced the socket module")
        return
    # (Ours go on calling them after unpatch(): somebody may have wrapped one of ours, as gevent does with os.fork.)
    registry.keep_beneath(os.fork, os.forkpty, os._exit)
    for module, name, replacement in TABLE:
        _originals[module, name] = getattr(module, name)
        setattr(module, name, replacement)
    socket_class.show_as_stdlib(True)
    for name, loop_class in LOOPS:
        when_imported(name, functools.partial(_patch_loop, loop_class))
    fd_handoff.watch()
    monkeypatch_conflicts.watch(_give_way)
    out_of_reach = _imported_before()
    event(INFO, "fastsock.patched", settings=config.active(), out_of_reach=out_of_reach)
    if out_of_reach:
        event(INFO, "fastsock.out_of_reach", names=out_of_reach)


def unpatch() -> None:
    """Puts the originals back, except where somebody else has put something since. Sockets that exist go on as they
    are."""
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


_INHERITED = object()


def _put_back(holder: Any, name: str, original: Any) -> None:
    if original is _INHERITED:
        delattr(holder, name)
    else:
        setattr(holder, name, original)


def _patch_loop(loop_class: Callable[[Any], Any], module: Any) -> None:
    """Puts the wrapped methods into a loop class: its loops, also those that exist, give out our transports."""
    from fastsock.aio import loops

    holder = loop_class(module)
    for name, method in loops.methods_for(holder).items():
        _originals[holder, name] = holder.__dict__.get(name, _INHERITED)
        setattr(holder, name, method)


def _give_way(other: str) -> None:
    unpatch()
    event(WARNING, "fastsock.declined", because=f"{other} replaces the socket module")


def _imported_before() -> list[str]:
    """Names in loaded modules that still mean an original: `from socket import socket` before the patch."""
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


# Independent of patch(): explicit fastsock.socket objects are inherited just the same.
os.register_at_fork(
    before=registry.before_fork,
    after_in_child=registry.after_fork_in_child,
    after_in_parent=registry.after_fork_in_parent,
)
