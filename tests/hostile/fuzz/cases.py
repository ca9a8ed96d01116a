"""Cases for `wire.py`: what a peer says and does, and what the program calls meanwhile, as a list of actions.

A case is plain data, so that it can be kept as JSON, read by a person, and mutated. Random choices come from the
generator that is passed in alone: the same seed makes the same cases."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Action = list[Any]
Case = dict[str, Any]

WINDOWS = [2, 3, 4, 8, 32]
CHUNKS = [1024, 2048, 8192]
LONGEST = 40
"""Actions of a case."""

REGION_FIELDS = ["magic", "version", "window", "slots", "chunk", "arena", "wakeup", "done0", "done1", "asks0", "asks1",
                 "asks_else0", "asks_else1"]  # fmt: skip
HALF_FIELDS = ["fin", "switch_at", "credit_wait", "processor", "returned", "limited", "acked", "doorbell", "ready",
               "finack", "limit", "settled", "seen"]  # fmt: skip
FDS = ["memfd", "unsealed", "sealed", "big", "eventfd", "pipe", "file", "socket", "directory"]

NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 48, 49, 63, 64, 255, 1023, 1024, 1025, 4096, 65535, 65536, 1 << 20,
           0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32, 1 << 32 | 1, 2 << 32, 3 << 32, 3 << 32 | 1,
           4 << 32, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1]  # fmt: skip


def number(rng: random.Random) -> Any:
    """A number, or [base, distance] for one near where the connection stands when it is used."""
    if rng.random() < 0.4:
        base = rng.choice(["posted", "sent", "theirs", "fin", "reset", "back"])
        return [base, rng.choice([-2, -1, 0, 0, 0, 1, 1, 2, 40])]
    return rng.choice(NUMBERS) if rng.random() < 0.9 else rng.getrandbits(rng.choice([8, 32, 64]))


def size(rng: random.Random) -> int:
    return rng.choice([1, 1, 2, 10, 48, 49, 500, 1024, 5000, 60_000])


def fds(rng: random.Random) -> list[str]:
    return [rng.choice(FDS) for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 4, 9]))]


def hello(rng: random.Random) -> Action:
    """What is sent to a name that the program published: mostly one lie."""
    said: dict[str, Any] = {"fds": ["sealed"]}
    for _ in range(rng.choice([0, 1, 1, 2])):
        lie = rng.choice(["field", "raw", "fds", "header", "size"])
        if lie == "field":
            said[rng.choice(["magic", "version", "reuse", "size"])] = rng.choice(NUMBERS)
        elif lie == "raw":
            said["raw"] = rng.randbytes(rng.choice([0, 1, 39, 40, 41, 400])).hex()
        elif lie == "fds":
            said["fds"] = fds(rng)
        elif lie == "header":
            said["header"] = [rng.choice(REGION_FIELDS), rng.choice(NUMBERS)]
        else:
            said["memfd"] = rng.choice([8, 64, 4096, 8192, 1 << 20])
    return ["hello", said]


def request(rng: random.Random) -> Action:
    """A datagram for the connection thread."""
    side = rng.choice(["right", "right", "right", "other", "third"])
    return ["request", side, rng.choice([32, 32, 32, 0, 1, 17, 31, 33, 400]), fds(rng) if rng.random() < 0.6 else []]


def post(rng: random.Random) -> Action:
    lies: dict[str, Any] = {"ack": number(rng)}
    for name, values in (("seq", None), ("length", [0, 1, 48, 49, 1024, 1025, 65535]), ("type", [0, 1, 2, 3, 255]),
                         ("state", [0, 1, 2, 3, 4, 255]),
                         ("offset", [0, 64, 4032, 4096, 0x7FFFFFFF, 0xFFFFFFFC])):  # fmt: skip
        if rng.random() < 0.15:
            lies[name] = rng.choice(values) if values else number(rng)
    return ["post", size(rng), lies]


MAKERS: list[tuple[int, Callable[[random.Random], Action]]] = [
    (8, post),
    (8, lambda rng: ["set", rng.choice(["mine", "mine", "theirs"]), rng.choice(HALF_FIELDS), number(rng)]),
    (2, lambda rng: ["word", rng.randrange(16, 2048), number(rng)]),
    (1, lambda rng: ["header", rng.choice(REGION_FIELDS), number(rng)]),
    (4, lambda rng: ["wake"]),
    (5, request),
    (3, lambda rng: ["leave"]),
    (2, lambda rng: ["go_back", rng.choice([-1, 0, 0, 0, 1])]),
    (2, lambda rng: ["parcel", rng.choice([0, 1, 100, 5000, 100_000, (1 << 26) + 1]), rng.random() < 0.8]),
    (8, lambda rng: ["recv", size(rng), rng.choice([0, 0, 0, 2, 0x20, 1, 0x100])]),
    (8, lambda rng: ["send", size(rng), rng.choice([0, 0, 0, 1])]),
    (2, lambda rng: ["sendall", size(rng)]),
    (2, lambda rng: ["recv_in_thread", size(rng)]),
    (1, lambda rng: ["sendall_in_thread", size(rng)]),
    (2, lambda rng: ["fileno"]),
    (1, lambda rng: ["detach"]),
    (1, lambda rng: ["shutdown", rng.randrange(3)]),
    (1, lambda rng: ["timeout", rng.choice([0, 0.005, 0.02])]),
    (1, lambda rng: ["buffers", rng.choice([1, 4096, 1 << 20])]),
    (1, lambda rng: ["close"]),
    (3, lambda rng: ["tcp_send", size(rng), rng.choice([0, 0, 1])]),
    (3, lambda rng: ["tcp_recv"]),
    (1, lambda rng: ["tcp_end", rng.choice(["write", "both", "reset", "close"])]),
    (1, lambda rng: ["pause", rng.choice([0.0, 0.001, 0.01])]),
    (1, lambda rng: ["scribble", rng.getrandbits(32), rng.choice([1, 10, 100])]),
    (1, hello),
    (1, lambda rng: ["control", rng.randbytes(rng.choice([0, 1, 1, 40])).hex()]),
]


def action(rng: random.Random) -> Action:
    (maker,) = rng.choices([maker for _, maker in MAKERS], [weight for weight, _ in MAKERS])
    return maker(rng)


def fresh(rng: random.Random) -> Case:
    """A case from nothing: how the two meet, then anything."""
    publishes = rng.random() < 0.5
    if rng.random() < 0.25:
        begin: list[Action] = [["await_hello"]] if publishes else [["knock"], hello(rng)]
    else:
        begin = [["meet"]]
        if rng.random() < 0.9:
            begin += [["move"], ["consent"], ["sendall", 1], ["post", 1, {"ack": 1}], ["recv", 1, 0]]
    return {
        "publishes": publishes,
        "window": rng.choice(WINDOWS),
        "chunk": rng.choice(CHUNKS),
        "actions": begin + [action(rng) for _ in range(rng.randrange(1, 25))],
    }


def mutated(rng: random.Random, corpus: list[Case]) -> Case:
    """A case of the corpus with some changes."""
    case = rng.choice(corpus)
    actions = [list(action) for action in case["actions"]]
    for _ in range(rng.choice([1, 2, 4, 8])):
        at = rng.randrange(len(actions) + 1)
        change = rng.randrange(5)
        if change == 0 or at == len(actions):
            actions.insert(at, action(rng))
        elif change == 1 and len(actions) > 1:
            del actions[at]
        elif change == 2:
            actions.insert(at, list(actions[at]))
        elif change == 3:
            other = rng.choice(corpus)["actions"]
            begin = rng.randrange(len(other))
            actions[at:at] = [list(action) for action in other[begin : begin + rng.randrange(1, 6)]]
        else:
            actions[at] = action(rng)
    geometry = case if rng.random() < 0.8 else {"window": rng.choice(WINDOWS), "chunk": rng.choice(CHUNKS)}
    publishes = case["publishes"] if rng.random() < 0.8 else not case["publishes"]
    return {
        "publishes": publishes,
        "window": geometry["window"],
        "chunk": geometry["chunk"],
        "actions": actions[:LONGEST],
    }


def case_of(seed: int, number: int, corpus: list[Case]) -> Case:
    """Case number `number` of a run. Knows nothing of the ones before."""
    rng = random.Random(f"{seed}/{number}")
    return mutated(rng, corpus) if corpus and rng.random() < 0.6 else fresh(rng)
