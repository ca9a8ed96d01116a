"""Settings: one frozen record, from keyword arguments and FASTSOCK_* variables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from fastsock.errors import SettingError

TYPE_CHECKING = False  # typing's, which no program has to load for this
if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network
    from typing import Any, TypeAlias

    Network: TypeAlias = IPv4Network | IPv6Network

__all__ = ["Settings", "active", "configure", "from_environment", "on_change", "origins", "unknown", "use"]

PREFIX = "FASTSOCK_"
RUN, STATS, REPORT = f"{PREFIX}RUN", f"{PREFIX}RUN_STATS", f"{PREFIX}RUN_REPORT"
"""Set by `fastsock run` and `fastsock doctor` for the programs that they start: see `fastsock._startup`."""
TOLD = f"{PREFIX}RUN_TOLD"
"""Set where the command line has warned of variables that are no settings, so that no process below it does again."""
SETTINGS, LIBRARY_STATS = f"{PREFIX}RUN_SETTINGS", f"{PREFIX}RUN_LIBRARY_STATS"
"""Set by `fastsock run` for programs that are not Python: see `fastsock.launch`."""
OTHERS = {RUN, STATS, REPORT, TOLD, SETTINGS, LIBRARY_STATS, f"{PREFIX}DEBUG"}
"""Variables that are known and are no settings. DEBUG is for who builds fastsock."""

SEEK_SECONDS = 2.0
"""How long a name is looked up for before the peer counts as foreign, and an answer is waited for."""

PortRange = tuple[int, int]
MAPPED = bytes(10) + b"\xff\xff"
"""Before the four bytes of an IPv4 address, as IPv6 has it."""


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
            from ipaddress import ip_network  # nearly every program does without

            try:
                networks.append(ip_network(text, strict=False))
            except ValueError:
                raise SettingError(name, item, "addresses or networks, such as 127.0.0.0/8,::1") from None
    return tuple(networks)


def _trust(value: Any, name: str) -> str:
    if value not in ("user", "any"):
        raise SettingError(name, value, "user or any")
    return str(value)


class _Setting:
    """A setting's default, and how its value is read. The record's dictionary has the values, and is asked first."""

    def __init__(self, default: Any, convert: Callable[[Any, str], Any], low: int | None, high: int) -> None:
        self.default, self.convert, self.low, self.high = default, convert, low, high

    def __get__(self, record: object, owner: type | None = None) -> Any:
        return self.default

    def read(self, name: str, value: Any) -> Any:
        """The value as it is used. Raises SettingError for one out of range."""
        value = self.convert(value, name)
        if self.low is not None and not self.low <= value <= self.high:
            raise SettingError(name, value, f"{self.low} to {self.high}")
        return value


def _setting(default: Any, convert: Callable[[Any, str], Any], low: int | None = None, high: int = 0) -> Any:
    return _Setting(default, convert, low, high)


class Settings:
    """All settings. Each is a keyword argument of `patch` and `configure`, and a variable `FASTSOCK_<NAME>`.

    A value out of range raises `SettingError`, which names the setting, the value and the range. Names that begin with
    an underscore are not for programs: papers measure with them what a mechanism is worth, and tests move at once.
    """

    enabled: bool = _setting(True, _flag)
    """False: nothing is replaced and no connection ever moves."""

    poll_us: int = _setting(50, _number, 0, 1_000_000)
    """Microseconds that a blocking wait may poll before it sleeps; 0: never poll. Adapts to whether it pays, and is
    0 where both ends have the same only processor. 50: about what a sleep and its wakeup cost (docs/waiting.md)."""

    move_after: int = _setting(8, _number, 0, 1_000_000)
    """Operations through the facade, at each end, before a connection may move to the ring; 0: at its first byte.
    8: a one-shot request does fewer."""

    move_polled: bool = _setting(False, _flag)
    """Whether a connection may move whose descriptor was handed out (`fileno()`), so that `select`, `poll` and `epoll`
    may wait for it. Each burst of data then costs the same system calls as on kernel TCP, so nothing is gained. With
    `move_after` 0 such connections move too."""

    _meeting_ms: int = _setting(0, _number, 0, 10_000)
    """For tests. Milliseconds that the operations of one connection may wait, all together, for the other end to join
    it on the ring; 0: never wait. With `move_after` 0, short connections then move too, at their first byte."""

    window: int = _setting(32, _number, 1, 1024)
    """w: descriptors, and so credits, in each direction of a connection (SOVIA, section 3.2)."""

    ack_threshold: int = _setting(16, _number, 1, 1023)
    """t: consumed descriptors after which the receiver acknowledges, less than `window` or 1 (SOVIA, section 3.2)."""

    _delayed_ack: bool = _setting(True, _flag)
    """False: every consumed descriptor is acknowledged at once."""

    chunk_size: int = _setting(32768, _number, 1024, 32768)
    """Largest payload of one descriptor, bytes, a multiple of 64 (SOVIA's message chunk)."""

    combine: bool = _setting(True, _flag)
    """Whether small sends are combined into one descriptor while earlier ones wait. TCP_NODELAY turns it off too."""

    combine_limit: int = _setting(2048, _number, 1, 32768)
    """Largest send that is combined, bytes (SOVIA, section 3.2)."""

    _combine_when_full: bool = _setting(True, _flag)
    """Whether the last quarter of the window combines small sends in any case. False, for measurements: `combine` and
    TCP_NODELAY decide there too, no spare part is used, and a burst of `window` sends blocks until the peer reads."""

    trust: str = _setting("user", _trust)
    """Whose processes are believed: "user", the same user and root; "any", every user of the host."""

    ports_allowed: tuple[PortRange, ...] = _setting((), _ports)
    """If given, a connection may move only if one of its two ports is among them. "80,8000-8100"."""

    ports_excluded: tuple[PortRange, ...] = _setting((), _ports)
    """A connection with one of these ports never moves."""

    addresses_allowed: tuple[Network, ...] = _setting((), _networks)
    """If given, a connection may move only if one of its two addresses is among them. "127.0.0.0/8,::1"."""

    addresses_excluded: tuple[Network, ...] = _setting((), _networks)
    """A connection with one of these addresses never moves."""

    memory_cap: int = _setting(1 << 32, _number, 0, 1 << 46)
    """Bytes of shared memory that the connections of this process may have touched; where a whole region more (2 MiB
    with the other defaults, without spare parts) would exceed it, a connection stays on kernel TCP. An idle one touches
    two pages."""

    def __init__(self, **values: Any) -> None:
        for name in values.keys() - _SETTINGS.keys():
            raise TypeError(f"no setting {name!r}; there are {', '.join(_public())}")
        self.__dict__.update({name: it.read(name, values.get(name, it.default)) for name, it in _SETTINGS.items()})
        if self.ack_threshold >= max(self.window, 2):
            allowed = f"1 to {self.window - 1} (less than window)" if self.window > 1 else "1 (with a window of 1)"
            raise SettingError("ack_threshold", self.ack_threshold, allowed)
        if self.chunk_size % 64:
            raise SettingError("chunk_size", self.chunk_size, "a multiple of 64 from 1024 to 32768")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("settings are frozen: put others in force with fastsock.configure or fastsock.patch")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def limits(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The settings of ports and addresses as the core has them (core/rendezvous/policy.h): arrays of port ranges
        and of networks. A network of IPv4 stands in ::ffff:0:0/96."""
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


def _public() -> list[str]:
    return [name for name in _SETTINGS if not name.startswith("_")]


def from_environment(overrides: Mapping[str, Any] = {}, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from FASTSOCK_* variables, with `overrides` on top. A variable that is empty counts as not set.

    Raises SettingError for a value out of range and TypeError for an override that is no setting."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {it: environ[_variable(it)] for it in _SETTINGS if _is_set(_variable(it), environ)}
    return Settings(**{**values, **overrides})


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _is_set(variable: str, environ: Mapping[str, str]) -> bool:
    return bool(environ.get(variable, "").strip())


def origins(overrides: Collection[str] = (), environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where each setting that `from_environment` makes comes from: "argument", its variable's name, or "default"."""
    environ = os.environ if environ is None else environ
    found = {}
    for name in _public():
        variable = _variable(name)
        found[name] = "argument" if name in overrides else variable if _is_set(variable, environ) else "default"
    return found


def unknown(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that begin like a setting's and are none -> the setting's that is spelled most like it, or ""."""
    environ = os.environ if environ is None else environ
    known = set(map(_variable, _SETTINGS))
    names = sorted(
        name for name in environ if name.startswith(PREFIX) and name not in known | OTHERS and _is_set(name, environ)
    )
    return {name: _nearest(name, set(map(_variable, _public()))) for name in names}


def _nearest(name: str, known: Collection[str]) -> str:
    import difflib  # nearly every program does without

    ends = [variable.removeprefix(PREFIX) for variable in known]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), sorted(ends), 1)
    return PREFIX + near[0] if near else ""


_active: Settings | None = None
_listeners: list[Callable[[Settings], None]] = []


def active() -> Settings:
    """The settings in force; read from the environment at first use."""
    return _active if _active is not None else use(from_environment())


def use(settings: Settings) -> Settings:
    """Puts settings in force for this process, for connections that are still undecided and those to come."""
    global _active
    _active = settings
    for listener in _listeners:
        listener(settings)
    return settings


def on_change(listener: Callable[[Settings], None]) -> None:
    """Calls `listener` with every settings put in force from now on."""
    _listeners.append(listener)


@contextmanager
def configure(**changes: Any) -> Iterator[Settings]:
    """Settings for the duration of a `with` block: those in force, with changes. Replaces nothing in `socket`."""
    before = active()
    try:
        yield use(Settings(**{**vars(before), **changes}))
    finally:
        use(before)
