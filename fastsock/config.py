"""Settings: a frozen record, made from keyword arguments and FASTSOCK_* variables.

Names, defaults, ranges and messages are those of the library (interpose/settings.h), which reads the values too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from fastsock._native import libc_front
from fastsock.errors import SettingError

TYPE_CHECKING = False  # type checkers take this for typing's; importing typing would slow the start
if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network
    from typing import Any, TypeAlias

    Network: TypeAlias = IPv4Network | IPv6Network

__all__ = ["Settings", "active", "configure", "from_environment", "on_change", "origins", "unknown", "use"]

PREFIX = "FASTSOCK_"
RUN, STATS, REPORT = f"{PREFIX}RUN", f"{PREFIX}RUN_STATS", f"{PREFIX}RUN_REPORT"
"""Set by `fastsock run` and `fastsock doctor` for the programs that they start: see `fastsock._startup`."""
TOLD = f"{PREFIX}RUN_TOLD"
"""Set when the command line has warned of unknown FASTSOCK_* variables. Child processes do not warn again."""
LIBRARY_STATS = f"{PREFIX}RUN_LIBRARY_STATS"
"""Set by `fastsock run` for programs that are not Python: "process id:file" for the statistics of that process."""
IGNORED = f"{PREFIX}RUN_IGNORED"
"""Set by `bin/fastsock` for the command line: which signals its parent has left ignored. See `fastsock.launch`."""

PortRange = tuple[int, int]
MAPPED = bytes(10) + b"\xff\xff"
"""The prefix of an IPv4-mapped IPv6 address."""


class Trust(str):
    """The value of the setting `trust`, as text, with the numbers of the users that it names. They are looked up once:
    later the program may have another root directory, or other limits."""

    numbers: str = "user"
    """The same users by number, and with the user namespace in which they have those."""


def _text(value: Any) -> str:
    """A value as the text of a variable."""
    if isinstance(value, Trust):
        return value.numbers
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__iter__") or hasattr(value, "prefixlen"):
        return str(int(value) if isinstance(value, bool) else value)
    return ",".join(f"{item[0]}-{item[1]}" if isinstance(item, tuple) else str(item) for item in value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")  # as a path has it, whatever its bytes are
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _network(packed: bytes, bits: int) -> Network:
    from ipaddress import IPv4Network, IPv6Network  # rarely needed

    mapped = packed.startswith(MAPPED) and bits >= 96
    return IPv4Network((packed[12:], bits - 96)) if mapped else IPv6Network((packed, bits))


class Settings:
    """All settings. Each is a keyword argument of `patch` and `configure`, and a variable `FASTSOCK_<NAME>`.

    A value out of range raises `SettingError`, which names the setting, the value and the range. Names that begin with
    an underscore are for measurements and tests, not for programs.
    """

    __slots__ = ("__dict__", "given")

    enabled: bool
    """False: `patch()` replaces nothing, and no connection moves."""

    poll_us: int
    """Longest time in microseconds that a blocking wait polls before it sleeps; 0: never poll. The time adapts to how
    often polling succeeds. There is no polling if both ends can use only one CPU and it is the same. The default is
    about the cost of a sleep and a wakeup (docs/waiting.md)."""

    move_after: int
    """Number of socket operations at each end before a connection may move to the ring; 0: move at the first byte.
    A single request and its answer take fewer than the default."""

    _meeting_ms: int
    """For tests. Total time in milliseconds that the operations of a connection wait for the other end to move;
    0: never wait. Together with `move_after` 0, even short connections move at their first byte."""

    _patience_ms: int
    """For tests. Time in milliseconds to look for the peer's name, and then to wait for its answer, before the
    connection stays in the kernel."""

    window: int
    """Number of descriptors, and so of credits, in each direction of a connection (w in SOVIA, section 3.2)."""

    ack_threshold: int
    """Number of consumed descriptors after which the receiver sends an acknowledgement: less than `window`, or 1, for
    each descriptor at once (t in SOVIA, section 3.2)."""

    chunk_size: int
    """Largest payload of a descriptor in bytes, a multiple of 64 (the message chunk of SOVIA)."""

    combine: bool
    """True: small sends share a descriptor while earlier data is unread. TCP_NODELAY turns this off too."""

    combine_limit: int
    """Largest send in bytes that may share a descriptor (SOVIA, section 3.2)."""

    _combine_when_full: bool
    """True: small sends share descriptors when three quarters of the window are in use, also without `combine` and with
    TCP_NODELAY. False, for measurements: the two decide there too, the overflow buffer is not used, and a burst of
    `window` sends blocks until the peer reads."""

    unix_streams: bool
    """True: connected stream sockets of AF_UNIX move, too."""

    trust: Trust
    """The users to share memory with: "user" means the same user and root, "any" means every user of the host. Users
    can be named, too: "user,redis,postgres". Both ends must trust each other."""

    tcpdump: bool
    """False: `fastsock tcpdump` gets nothing of this process."""

    rendezvous_dir: str
    """A folder that processes in several network namespaces see, such as a volume of containers: with it at both ends,
    connections between them move too. Its owner must be trusted, and every user must not be able to write there. Empty:
    connections to other network namespaces stay on kernel TCP."""

    ports_allowed: tuple[PortRange, ...]
    """If set, a connection moves only if one of its two ports is listed. Example: "80,8000-8100"."""

    ports_excluded: tuple[PortRange, ...]
    """A connection with one of these ports stays on kernel TCP."""

    addresses_allowed: tuple[Network, ...]
    """If set, a connection moves only if one of its two addresses is listed. Example: "127.0.0.0/8,::1"."""

    addresses_excluded: tuple[Network, ...]
    """A connection with one of these addresses stays on kernel TCP."""

    paths_allowed: tuple[str, ...]
    """If set, a stream socket of AF_UNIX moves only if one of its two ends has one of these paths, or lies in one of
    these folders. "@name" is an abstract name, "@" every one. Example: "/run/postgresql,@name"."""

    paths_excluded: tuple[str, ...]
    """A stream socket of AF_UNIX with one of these paths, folders or abstract names stays in the kernel."""

    memory_cap: int
    """Limit in bytes on the shared memory in use by connections of this process. A connection stays in the kernel if
    its region would exceed the limit (2 MiB with the other defaults; the overflow buffer does not count). An idle
    connection uses two pages. Connections that have moved are not limited."""

    given: libc_front.Given
    """All of them, as the library takes them."""

    def __init__(self, **values: Any) -> None:
        for name in values.keys() - set(libc_front.NAMES):
            raise TypeError(f"no setting {name!r}; the settings are {', '.join(_public())}")
        texts = {name: _text(value).replace("\0", "\\0") for name, value in values.items()}
        try:
            given, read = libc_front.read_settings({it: _encoded(text) for it, text in texts.items()})
        except ValueError as error:
            raise SettingError(*error.args) from None
        for name in ("addresses_allowed", "addresses_excluded"):
            read[name] = tuple(_network(*network) for network in read[name])
        trust = values.get("trust")
        if not isinstance(trust, Trust):
            text = texts.get("trust", "user")
            trust = Trust(",".join(word.strip() for word in text.split(",")))
            trust.numbers = read["trust"] or text
        self.__dict__.update(read, trust=trust)
        object.__setattr__(self, "given", given)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("settings are read-only: use fastsock.configure() or fastsock.patch() to change them")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def _public() -> list[str]:
    return [name for name in libc_front.NAMES if not name.startswith("_")]


def from_environment(overrides: Mapping[str, Any] = {}, environ: Mapping[str, str] | None = None) -> Settings:
    """Returns settings from FASTSOCK_* variables; `overrides` take precedence. An empty variable counts as not set.

    Raises SettingError for a value out of range, and TypeError for an override that is not a setting."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {it: environ[_variable(it)] for it in libc_front.NAMES if _is_set(_variable(it), environ)}
    return Settings(**{**values, **overrides})


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _is_set(variable: str, environ: Mapping[str, str]) -> bool:
    return bool(environ.get(variable, "").strip())


def origins(overrides: Collection[str] = (), environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the source of each setting: "argument", the name of its variable, or "default"."""
    environ = os.environ if environ is None else environ
    found = {}
    for name in _public():
        variable = _variable(name)
        found[name] = "argument" if name in overrides else variable if _is_set(variable, environ) else "default"
    return found


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the FASTSOCK_* variables that are not settings, each with the most similar setting's variable, or ""."""
    environ = os.environ if environ is None else environ
    found = {name: libc_front.unknown(os.fsencode(name)) for name in sorted(environ) if _is_set(name, environ)}
    return {name: _variable(near) if near else "" for name, near in found.items() if near is not None}


_active: Settings | None = None
_listeners: list[Callable[[Settings], None]] = []


def active() -> Settings:
    """Returns the current settings. The first call reads them from the environment."""
    return _active if _active is not None else use(from_environment())


def use(settings: Settings) -> Settings:
    """Sets the settings of this process. They apply to new connections and to those whose path is not decided yet."""
    global _active
    _active = settings
    for listener in _listeners:
        listener(settings)
    return settings


def on_change(listener: Callable[[Settings], None]) -> None:
    """Calls `listener` with the new settings at every change."""
    _listeners.append(listener)


@contextmanager
def configure(**changes: Any) -> Iterator[Settings]:
    """Changes settings for a `with` block, without patching the `socket` module."""
    before = active()
    try:
        yield use(Settings(**{**vars(before), **changes}))
    finally:
        use(before)
