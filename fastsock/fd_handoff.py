"""Passing on: descriptors that somebody is about to use who knows nothing of the ring.

Another process (`SCM_RIGHTS`, `subprocess`, `exec`, `multiprocessing`, the shell of `os.system`), or C code in this one
(a file object on the number, pyOpenSSL, `os.splice`, what writes to a number from a signal handler). A moved connection
goes back to the kernel first (path_events.leave), and one that has not moved stays there. The socket object may go on
using it.
"""

from __future__ import annotations

import _posixsubprocess
import errno
import functools
import os
import socket as stdlib
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType

from fastsock import mp_connection, path_events
from fastsock._native import os_calls, registry
from fastsock.import_hooks import forget, when_imported

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "execv", "execve", "fork_exec", "leave_file", "leave_numbers", "leave_rights", "leave_streams", "posix_spawn",
    "posix_spawnp", "splice", "unwatch", "watch",
]  # fmt: skip

_tracked = registry.tracked()
_kernel_socket = stdlib.socket  # whatever is patched later


def leave_numbers(numbers: Iterable[int]) -> None:
    """Takes the connections of these descriptors back to the kernel. Raises OSError if one cannot go."""
    for fd in set(numbers) & _tracked.keys():
        endpoint = registry.find(fd)
        if endpoint is not None and not path_events.leave(endpoint):
            raise OSError(errno.EAGAIN, "no resources to take a connection off the ring")


def leave_rights(ancillary: Iterable[Any]) -> None:
    """Before a `sendmsg` with this ancillary data: SCM_RIGHTS passes descriptors on."""
    for message in ancillary:
        try:
            level, kind, data = message
            passes = (level, kind) == (stdlib.SOL_SOCKET, stdlib.SCM_RIGHTS)
            numbers = memoryview(memoryview(data).tobytes()).cast("i") if passes else ()
        except (TypeError, ValueError):
            continue  # sendmsg says what is wrong with it
        leave_numbers(numbers)


def _inheritable() -> list[int]:
    """Descriptors of connections that a program started by exec finds open."""
    found = []
    for fd in list(_tracked):
        try:
            if os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            pass  # closed behind our back
    return found


# ---- starting programs -------------------------------------------------------------------------------------

_fork_exec: Callable[..., int] = _posixsubprocess.fork_exec
_execv, _execve = os.execv, os.execve
_posix_spawn, _posix_spawnp = os.posix_spawn, os.posix_spawnp


def leave_streams(standard: Sequence[int], close_fds: bool, pass_fds: Iterable[int]) -> None:
    """Before a program is started that gets these standard streams (-1: ours) and `pass_fds`; and whatever may be
    inherited, where nothing closes the others."""
    given = {number if fd == -1 else fd for number, fd in enumerate(standard)}
    leave_numbers(given.union(pass_fds, () if close_fds else _inheritable()))


def fork_exec(args: Any, executables: Any, close_fds: bool, pass_fds: Iterable[int], /, *rest: Any) -> int:
    """As _posixsubprocess.fork_exec, which `subprocess` and `multiprocessing` start programs with."""
    if _tracked:
        # cwd, env, then stdin, stdout and stderr, of each pipe the end to read and the end to write; -1: inherited
        leave_streams((rest[2], rest[5], rest[7]), close_fds, pass_fds)
    try:
        return _fork_exec(args, executables, close_fds, pass_fds, *rest)
    finally:
        path_events.start_thread_again()  # with a preexec_fn this was a fork as any other


def execv(path: Any, argv: Any, /) -> Any:
    """As os.execv."""
    leave_numbers(_inheritable())
    _execv(path, argv)


def execve(path: Any, argv: Any, env: Any) -> Any:
    """As os.execve."""
    leave_numbers(_inheritable())
    _execve(path, argv, env)


def _leave_for_spawn(actions: Sequence[Any] | None) -> None:
    if _tracked:
        duplicated = [action[1] for action in actions or () if action[0] == os.POSIX_SPAWN_DUP2]
        leave_numbers([*duplicated, *_inheritable()])


def posix_spawn(path: Any, argv: Any, env: Any, /, **how: Any) -> int:
    """As os.posix_spawn."""
    _leave_for_spawn(how.get("file_actions"))
    return _posix_spawn(path, argv, env, **how)


def posix_spawnp(path: Any, argv: Any, env: Any, /, **how: Any) -> int:
    """As os.posix_spawnp."""
    _leave_for_spawn(how.get("file_actions"))
    return _posix_spawnp(path, argv, env, **how)


def _leave_system() -> None:
    """os.system is about to start a shell, which inherits descriptors."""
    leave_numbers(_inheritable())


# ---- C code in this process --------------------------------------------------------------------------------


def _leave_raw(fd: int) -> None:
    """A file object (open, os.fdopen, io.FileIO) is being made on a number, or what has one already will read and write
    this connection by it."""
    leave_numbers((fd,))


_splice: Callable[..., int] | None = getattr(os, "splice", None)


def splice(src: Any, dst: Any, *rest: Any, **how: Any) -> int:
    """As os.splice, where there is one."""
    assert _splice is not None
    if _tracked:
        leave_numbers(fd for fd in (src, dst) if isinstance(fd, int))
    return _splice(src, dst, *rest, **how)


def _number_of(file: Any) -> int | None:
    """The descriptor that a function takes which writes to files or numbers; None if it is neither."""
    try:
        number = file if isinstance(file, int) else file.fileno()
    except Exception:  # the function itself says what is wrong with it
        return None
    return number if isinstance(number, int) else None


def leave_file(file: Any) -> None:
    """Before C code reads and writes this file or number."""
    if _tracked:
        number = _number_of(file)
        leave_numbers(() if number is None else (number,))


def _writing_raw(original: Callable[..., Any], module: str, at: int, name: str) -> Callable[..., Any]:
    """A function of `module` that writes, now or from a signal handler, to the number of its argument `name`, in place
    `at`."""

    def function(*arguments: Any, **named: Any) -> Any:
        leave_file(arguments[at] if at < len(arguments) else named.get(name))
        return original(*arguments, **named)

    functools.update_wrapper(function, original)
    function.__module__ = module  # (a builtin of `signal` says that it is of `_signal`)
    function.fastsock_original = original  # type: ignore[attr-defined]
    return function


_WRITING: dict[str, dict[str, tuple[int, str]]] = {
    "signal": {"set_wakeup_fd": (0, "fd")},
    "faulthandler": {
        "enable": (0, "file"),
        "register": (1, "file"),
        "dump_traceback": (0, "file"),
        "dump_traceback_later": (2, "file"),
    },
}
"""Modules, functions of theirs that write to a descriptor without asking Python, and which argument it is."""


def _wrap_writing(module: ModuleType) -> None:
    for name, (at, argument) in _WRITING[module.__name__].items():
        original = getattr(module, name, None)
        if original is not None and not hasattr(original, "fastsock_original"):
            setattr(module, name, _writing_raw(original, module.__name__, at, argument))


def _unwrap_writing(module: ModuleType) -> None:
    for name in _WRITING[module.__name__]:
        original = getattr(getattr(module, name, None), "fastsock_original", None)
        if original is not None:
            setattr(module, name, original)


def _wrapped(init: Callable[..., None]) -> Callable[..., None]:
    """OpenSSL.SSL.Connection.__init__ that takes the connection off the ring: it gives the number to C code."""

    def __init__(self: Any, context: Any, socket: Any = None) -> None:
        endpoint = getattr(socket, "_endpoint", None)
        if endpoint is not None and not path_events.leave(endpoint):
            raise OSError(errno.EAGAIN, "no resources to take a connection off the ring")
        init(self, context, socket)

    __init__.fastsock_original = init  # type: ignore[attr-defined]
    return __init__


def _wrap_openssl(module: ModuleType) -> None:
    connection: Any = module.Connection
    if not hasattr(connection.__init__, "fastsock_original"):
        connection.__init__ = _wrapped(connection.__init__)


def _unwrap_openssl(module: ModuleType) -> None:
    connection: Any = module.Connection
    connection.__init__ = getattr(connection.__init__, "fastsock_original", connection.__init__)


def _teach_pickling(module: ModuleType) -> None:
    """multiprocessing.reduction knows how to pickle the class that was `socket.socket` when it was imported. (What it
    pickles is the descriptor, and it passes that on with SCM_RIGHTS or fork_exec.)"""
    for kind in (stdlib.socket, _kernel_socket):
        module.register(kind, module._reduce_socket)


_WATCHED: dict[str, tuple[Callable[[ModuleType], None], Callable[[ModuleType], None] | None]] = {
    "OpenSSL.SSL": (_wrap_openssl, _unwrap_openssl),
    "multiprocessing.reduction": (_teach_pickling, None),
    "multiprocessing.connection": (mp_connection.keep, mp_connection.let_be),
    **dict.fromkeys(_WRITING, (_wrap_writing, _unwrap_writing)),
}
"""Modules that take descriptors, with what is done when they are there and undone with unpatch()."""


def watch() -> None:
    """With patch(): from now on, modules and file objects that take a descriptor take it as it should be."""
    os_calls.watch_raw(_leave_raw, _leave_system)
    for name, (begin, _) in _WATCHED.items():
        when_imported(name, begin)


def unwatch() -> None:
    """With unpatch(): the end of it."""
    os_calls.watch_raw(None, None)
    for name, (_, end) in _WATCHED.items():
        forget(name)
        if name in sys.modules and end is not None:
            end(sys.modules[name])
