"""Kills members of a group at any moment, and checks that nobody else notices.

`python -m tests.messages.kills --kills 10000`

Writers send and lend messages of all sizes, each with one pattern. Readers check each byte, each writer's order and the
group's, and keep some messages for a while, whose bytes must stay. All of them are killed or stopped at random, and
replaced. This process is a member too: it sees that messages keep coming, that every other reader that it asks has seen
the same order, and in the end that every block can be lent again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable

from fastsock.messages import Group, Message

HEAD = struct.Struct("=QQ")
WRONG, STALLED = 3, 4
SIZES = (16, 100, 1000, 1025, 5000, 40_000, 300_000)
OPTIONS = {"size": 1 << 22, "max_message": 1 << 19, "kept": 64}


def pattern(writer: int, number: int, length: int) -> bytes:
    return HEAD.pack(writer, number) + bytes([(writer + number) % 251]) * (length - HEAD.size)


def check(message: Message) -> tuple[int, int]:
    """The writer of a message and its number there. Exits if a byte is wrong."""
    data = bytes(message)
    writer, number = HEAD.unpack_from(data)
    if data != pattern(writer, number, len(data)):
        print("wrong bytes", writer, number, len(data), message, file=sys.stderr)
        os._exit(WRONG)
    return writer, number


class Order:
    """What a reader has seen so far."""

    def __init__(self) -> None:
        self.sequence, self.numbers = -1, dict[int, int]()

    def add(self, message: Message, blocking: bool) -> None:
        writer, number = check(message)
        last = self.numbers.get(writer, -1)
        gap = message.sequence - self.sequence - 1
        wrong = number <= last or gap < 0 or (self.sequence >= 0 and gap != message.lost) or (blocking and message.lost)
        if wrong or (blocking and last >= 0 and number != last + 1):
            print("wrong order", writer, number, last, message.sequence, self.sequence, message.lost, file=sys.stderr)
            os._exit(WRONG)
        self.sequence, self.numbers[writer] = message.sequence, number


def write(name: str, slow: str, seed: int) -> None:
    dice = random.Random(seed)
    with Group(name, slow=slow, reads=False, **OPTIONS) as group:  # type: ignore[arg-type]
        number = 0
        while True:
            length = dice.choice(SIZES)
            data = pattern(seed, number, length)
            if dice.random() < 0.5:
                group.send(data)
            else:
                with group.lend(length) as lent, memoryview(lent) as view:
                    view[: length // 2] = data[: length // 2]
                    view[length // 2 :] = data[length // 2 :]
            number += 1
            if dice.random() < 0.02:
                time.sleep(0.001)


def read(name: str, slow: str, seed: int) -> None:
    dice = random.Random(seed)
    order, kept = Order(), list[tuple[Message, tuple[int, int]]]()
    with Group(name, slow=slow, **OPTIONS) as group:  # type: ignore[arg-type]
        while True:
            message = group.receive(10)
            order.add(message, slow == "block")
            if dice.random() < 0.2:
                kept.append((message, check(message)))
            if len(kept) > dice.randrange(6):
                old, was = kept.pop(dice.randrange(len(kept)))
                if check(old) != was:
                    os._exit(WRONG)


def started(body: Callable[..., None], *arguments: object) -> int:
    child = os.fork()
    if child:
        return child
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        body(*arguments)
    except BaseException as error:
        print(f"{body.__name__}: {error!r}", file=sys.stderr)
        os._exit(STALLED)
    os._exit(0)


def run(kills: int, slow: str, seed: int, members: int = 6) -> int:
    """Returns the number of messages that this process has seen. RuntimeError if a member was wrong."""
    dice, name = random.Random(seed), f"kills {os.getpid()} {seed} {slow}"
    roles, seen, order, stopped = (write, read, write, read, read, write), 0, Order(), dict[int, float]()
    watch = Group(name, slow=slow, **OPTIONS)  # type: ignore[arg-type]

    def begin(role: Callable[..., None], number: int) -> int:
        def body() -> None:
            watch.close()  # the child has a membership of its own
            role(name, slow, number)

        return started(body)

    running = {begin(roles[i % 6], seed * 1_000_000 + i): roles[i % 6] for i in range(members)}
    number, last = members, time.monotonic()
    try:
        for kill in range(kills):
            until = time.monotonic() + dice.random() * 0.004
            while time.monotonic() < until or kill % 50 == 0:
                message = watch.take()
                if message is None:
                    if time.monotonic() - last > 20:
                        raise RuntimeError(f"no message has come: {watch.info()}")
                    time.sleep(0.0002)
                    continue
                seen, last = seen + 1, time.monotonic()
                order.add(message, slow == "block")
                if kill % 50 == 0 and time.monotonic() >= until:
                    break
            for process in [process for process, end in stopped.items() if end < time.monotonic()]:
                os.kill(process, signal.SIGCONT)
                del stopped[process]
            victim = dice.choice(list(running))
            # A stopped reader holds the writers of a group that blocks, by its meaning.
            if dice.random() < 0.1 and (slow == "drop" or running[victim] is write):
                os.kill(victim, signal.SIGSTOP)
                stopped[victim] = time.monotonic() + 0.05
                continue
            ended(victim)
            stopped.pop(victim, None)
            role = running.pop(victim)
            running[begin(role, seed * 1_000_000 + number)] = role
            number += 1
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    while (message := watch.take()) is not None:
        order.add(message, slow == "block")
    message = None
    whole(watch)
    watch.close()
    return seen


def ended(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise RuntimeError(f"a member has ended by itself: {os.waitstatus_to_exitcode(status)}")


def whole(group: Group) -> None:
    """Every block can be lent: none was lost with a member."""
    time.sleep(0.03)  # (it looks for dead members that often)
    for length, count in ((256, 64), (1024, 64), (65536, 64), (1 << 19, 8)):
        lent = [group.lend(length, 1) for _ in range(count)]
        del lent


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--kills", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    for slow in ("drop", "block"):
        began = time.monotonic()
        seen = run(given.kills, slow, given.seed)
        print(f"{slow}: {given.kills} kills, {seen} messages seen, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
