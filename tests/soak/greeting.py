"""The first bytes of a connection, from which the server computes its plan."""

from __future__ import annotations

import struct

from tests.soak.plan import KINDS, Features, Plan
from tests.soak.stream import Talk, Wrong

HELLO = struct.Struct("!8sQQBB")
MAGIC = b"chaos/1\n"
_KINDS = list(KINDS)


def hello(talk: Talk) -> bytes:
    plan = talk.plan
    return HELLO.pack(MAGIC, plan.key, talk.serial, *(_KINDS.index(plan.kinds[side]) for side in plan.kinds))


def talk_of(data: bytes, features: Features) -> Talk:
    """The server's end of the connection that begins with these bytes."""
    magic, key, serial, client, server = HELLO.unpack(data)
    if magic != MAGIC:
        raise Wrong(f"a connection begins with {data!r}")
    return Talk(Plan(key, (_KINDS[client], _KINDS[server]), features), "server", {"serial": serial})
