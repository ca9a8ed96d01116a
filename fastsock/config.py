"""Settings: a frozen record, made from keyword arguments and FASTSOCK_* variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

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
FOREIGN = f"{PREFIX}RUN_FOREIGN"
"""The settings for interpreters that cannot import the package: the library serves them alone (fastsock/_startup)."""
SETTINGS, LIBRARY_STATS = f"{PREFIX}RUN_SETTINGS", f"{PREFIX}RUN_LIBRARY_STATS"
"""Set by `fastsock run` for programs that are not Python: see `fastsock.launch`."""
IGNORED = f"{PREFIX}RUN_IGNORED"
"""Set by `bin/fastsock` for the command line: which signals its parent has left ignored. See `fastsock.launch`."""
OTHERS = {RUN, STATS, REPORT, TOLD, SETTINGS, LIBRARY_STATS, IGNORED, FOREIGN, f"{PREFIX}DEBUG"}
"""FASTSOCK_* variables that are not settings. DEBUG is read when fastsock is built."""

SEEK_SECONDS = 2.0
"""Seconds to look for the peer's name, and then to wait for its answer, before the connection stays on kernel TCP."""

PortRange = tuple[int, int]
MAPPED = bytes(10) + b"\xff\xff"
"""The prefix of an IPv4-mapped IPv6 address."""


def _number(text: Any, name: str) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        raise SettingError(name, text, "a whole number") from None


def _flag(value: Any, name: str) -> bool:
    flags = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    try:
        return flags[str(value).strip().lower()]
    except KeyError:
        raise SettingError(name, value, "0 or 1") from None


def _ports(value: Any, name: str) -> tuple[PortRange, ...]:
    ranges = []
    for item in value.split(",") if isinstance(value, str) else value:
        text = f"{item[0]}-{item[1]}" if isinstance(item, tuple) else str(item).strip()
        if text == "":
            continue
        first, dash, last = text.partition("-")
        low, high = _number(first, name), _number(last if dash else first, name)
        if not 0 <= low <= high <= 65535:
            raise SettingError(name, item, "ports 0 to 65535, such as 80,8000-8100")
        ranges.append((low, high))
    return tuple(ranges)


def _networks(value: Any, name: str) -> tuple[Network, ...]:
    networks = []
    for item in value.split(",") if isinstance(value, str) else value:
        text = str(item).strip()
        if text:
            from ipaddress import ip_network  # rarely needed

            try:
                networks.append(ip_network(text, strict=False))
            except ValueError:
                raise SettingError(name, item, "addresses or networks, such as 127.0.0.0/8,::1") from None
    return tuple(networks)


MOST_USERS = 64
"""Users that `trust` may name (core/include/fastsock_types.h)."""


class Trust(str):
    """The value of the setting `trust`, as text, with the numbers of the users that it names. They are looked up once:
    later the program may have another root directory, or other limits."""

    named: tuple[int, ...] = ()

    def parts(self) -> tuple[bool, bool, bytes]:
        """Returns true for every user, true for this process's user and root, and an array of the named users."""
        from struct import pack

        return self == "any", "user" in self.split(","), pack(f"={len(self.named)}I", *self.named)


def _trust(value: Any, name: str) -> Trust:
    if isinstance(value, Trust):
        return value
    listed = str(value).split(",") if isinstance(value, str | int | None) else value
    words = [str(word).strip() for word in listed]
    trust = Trust(",".join(words))
    if trust == "any":
        return trust
    trust.named = tuple(dict.fromkeys(_user(word, name) for word in words if word != "user"))
    if not words or len(trust.named) > MOST_USERS:
        raise SettingError(name, value, f"{TRUST}; at most {MOST_USERS} users")
    return trust


TRUST = "user, any, or users by name or number, such as user,redis,999"


def _user(word: str, name: str) -> int:
    """Returns the number of a user. Raises SettingError if there is no such user."""
    if word.isascii() and word.isdecimal():
        if int(word) < (1 << 32) - 1:
            return int(word)
    elif word not in ("", "any"):
        import pwd  # rarely needed

        try:
            return pwd.getpwnam(word).pw_uid
        except (KeyError, ValueError):
            raise SettingError(name, word, f"{TRUST}; this host has no user {word!r}") from None
    raise SettingError(name, word, TRUST)


class _Setting:
    """A setting's default, converter and range. As a non-data descriptor it gives the default; the record's dictionary
    holds the values and takes precedence."""

    def __init__(self, default: Any, convert: Callable[[Any, str], Any], low: int | None, high: int) -> None:
        self.default, self.convert, self.low, self.high = default, convert, low, high

    def __get__(self, record: object, owner: type | None = None) -> Any:
        return self.default

    def read(self, name: str, value: Any) -> Any:
        """Returns the converted value. Raises SettingError if it is out of range."""
        value = self.convert(value, name)
        if self.low is not None and not self.low <= value <= self.high:
            raise SettingError(name, value, f"{self.low} to {self.high}")
        return value


def _setting(default: Any, convert: Callable[[Any, str], Any], low: int | None = None, high: int = 0) -> Any:
    return _Setting(default, convert, low, high)


class Settings:
    """All settings. Each is a keyword argument of `patch` and `configure`, and a variable `FASTSOCK_<NAME>`.

    A value out of range raises `SettingError`, which names the setting, the value and the range. Names that begin with
    an underscore are for measurements and tests, not for programs.
    """

    enabled: bool = _setting(True, _flag)
    """False: `patch()` replaces nothing, and no connection moves."""

    poll_us: int = _setting(50, _number, 0, 1_000_000)
    """Longest time in microseconds that a blocking wait polls before it sleeps; 0: never poll. The time adapts to how
    often polling succeeds. There is no polling if both ends can use only one CPU and it is the same. The default is
    about the cost of a sleep and a wakeup (docs/waiting.md)."""

    move_after: int = _setting(8, _number, 0, 1_000_000)
    """Number of socket operations at each end before a connection may move to the ring; 0: move at the first byte.
    A single request and its answer take fewer than the default."""

    _meeting_ms: int = _setting(0, _number, 0, 10_000)
    """For tests. Total time in milliseconds that the operations of a connection wait for the other end to move;
    0: never wait. Together with `move_after` 0, even short connections move at their first byte."""

    window: int = _setting(32, _number, 1, 1024)
    """Number of descriptors, and so of credits, in each direction of a connection (w in SOVIA, section 3.2)."""

    ack_threshold: int = _setting(16, _number, 1, 1023)
    """Number of consumed descriptors after which the receiver sends an acknowledgement: less than `window`, or 1 (t in
    SOVIA, section 3.2)."""

    _delayed_ack: bool = _setting(True, _flag)
    """False: the receiver acknowledges every descriptor at once."""

    chunk_size: int = _setting(32768, _number, 1024, 32768)
    """Largest payload of a descriptor in bytes, a multiple of 64 (the message chunk of SOVIA)."""

    combine: bool = _setting(True, _flag)
    """True: small sends share a descriptor while earlier data is unread. TCP_NODELAY turns this off too."""

    combine_limit: int = _setting(2048, _number, 1, 32768)
    """Largest send in bytes that may share a descriptor (SOVIA, section 3.2)."""

    _combine_when_full: bool = _setting(True, _flag)
    """True: small sends share descriptors when three quarters of the window are in use, also without `combine` and with
    TCP_NODELAY. False, for measurements: the two decide there too, the overflow buffer is not used, and a burst of
    `window` sends blocks until the peer reads."""

    trust: Trust = _setting(Trust("user"), _trust)
    """The users to share memory with: "user" means the same user and root, "any" means every user of the host. Users
    can be named, too: "user,redis,postgres". Both ends must trust each other."""

    ports_allowed: tuple[PortRange, ...] = _setting((), _ports)
    """If set, a connection moves only if one of its two ports is listed. Example: "80,8000-8100"."""

    ports_excluded: tuple[PortRange, ...] = _setting((), _ports)
    """A connection with one of these ports stays on kernel TCP."""

    addresses_allowed: tuple[Network, ...] = _setting((), _networks)
    """If set, a connection moves only if one of its two addresses is listed. Example: "127.0.0.0/8,::1"."""

    addresses_excluded: tuple[Network, ...] = _setting((), _networks)
    """A connection with one of these addresses stays on kernel TCP."""

    memory_cap: int = _setting(1 << 32, _number, 0, 1 << 46)
    """Limit in bytes on the shared memory in use by connections of this process. A connection stays on kernel TCP if
    its region would exceed the limit (2 MiB with the other defaults; the overflow buffer does not count). An idle
    connection uses two pages. Connections that have moved are not limited."""

    def __init__(self, **values: Any) -> None:
        for name in values.keys() - _SETTINGS.keys():
            raise TypeError(f"no setting {name!r}; the settings are {', '.join(_public())}")
        self.__dict__.update({name: it.read(name, values.get(name, it.default)) for name, it in _SETTINGS.items()})
        if self.ack_threshold >= max(self.window, 2):
            allowed = f"1 to {self.window - 1} (less than window)" if self.window > 1 else "1 (with a window of 1)"
            raise SettingError("ack_threshold", self.ack_threshold, allowed)
        if self.chunk_size % 64:
            raise SettingError("chunk_size", self.chunk_size, "a multiple of 64 from 1024 to 32768")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("settings are read-only: use fastsock.configure() or fastsock.patch() to change them")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def limits(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Returns ports_allowed, ports_excluded, addresses_allowed and addresses_excluded as arrays of C structures
        (core/include/fastsock_types.h). IPv4 networks are mapped into ::ffff:0:0/96."""
        import struct

        def ports(ranges: tuple[PortRange, ...]) -> bytes:
            return b"".join(struct.pack("=HH", low, high) for low, high in ranges)

        def networks(found: tuple[Network, ...]) -> bytes:
            return b"".join(
                struct.pack(
                    "=16si",
                    (b"" if network.version == 6 else MAPPED) + network.network_address.packed,
                    network.prefixlen + (96 if network.version == 4 else 0),
                )
                for network in found
            )

        return (
            ports(self.ports_allowed),
            ports(self.ports_excluded),
            networks(self.addresses_allowed),
            networks(self.addresses_excluded),
        )


_SETTINGS: dict[str, _Setting] = {name: it for name, it in vars(Settings).items() if isinstance(it, _Setting)}


def user_namespace() -> int:
    """Returns the number of this process's user namespace, in which users have their numbers; 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/user").st_ino
    except OSError:
        return 0


def text_of(settings: Settings) -> str:
    """Returns all settings in the format that interpose/settings.c reads: "name=number ...", lists with commas."""
    import struct

    any_user, own_user, named = settings.trust.parts()
    ports_allowed, ports_excluded, addresses_allowed, addresses_excluded = settings.limits()

    def ports(array: bytes) -> str:
        return ",".join(f"{low}-{high}" for low, high in struct.iter_unpack("=HH", array))

    def networks(array: bytes) -> str:
        return ",".join(f"{packed.hex()}/{bits}" for packed, bits in struct.iter_unpack("=16si", array))

    values = {
        **{name: int(getattr(settings, name)) for name in ("enabled", "poll_us", "move_after", "window")},
        **{name: int(getattr(settings, name)) for name in ("chunk_size", "memory_cap")},
        **{name: int(getattr(settings, f"_{name}")) for name in ("meeting_ms", "combine_when_full")},
        "ack_threshold": settings.ack_threshold if settings._delayed_ack else 1,
        "combine_limit": settings.combine_limit if settings.combine else 0,
        "patience_ms": int(SEEK_SECONDS * 1000),
        "trusts_any": int(any_user),
        "trusts_self": int(own_user),
        "trusted": ",".join(str(user) for (user,) in struct.iter_unpack("=I", named)),
        "user_namespace": user_namespace(),
        "ports_allowed": ports(ports_allowed),
        "ports_excluded": ports(ports_excluded),
        "addresses_allowed": networks(addresses_allowed),
        "addresses_excluded": networks(addresses_excluded),
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def _public() -> list[str]:
    return [name for name in _SETTINGS if not name.startswith("_")]


def from_environment(overrides: Mapping[str, Any] = {}, environ: Mapping[str, str] | None = None) -> Settings:
    """Returns settings from FASTSOCK_* variables; `overrides` take precedence. An empty variable counts as not set.

    Raises SettingError for a value out of range, and TypeError for an override that is not a setting."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {it: environ[_variable(it)] for it in _SETTINGS if _is_set(_variable(it), environ)}
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
    known = set(map(_variable, _SETTINGS))
    names = sorted(
        name for name in environ if name.startswith(PREFIX) and name not in known | OTHERS and _is_set(name, environ)
    )
    return {name: _nearest(name, set(map(_variable, _public()))) for name in names}


def _nearest(name: str, known: Collection[str]) -> str:
    import difflib  # rarely needed

    ends = [variable.removeprefix(PREFIX) for variable in known]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), sorted(ends), 1)
    return PREFIX + near[0] if near else ""


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
