"""Clients on trio and on anyio, several at once, for echo servers: NAME=PORT ..."""

import random
import sys

import anyio
import trio
from report import digest, exercise, print_report

LARGE = random.Random(5).randbytes(2_000_000)


async def use_trio(port, seed, answers):
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        for number in range(200):
            sent = bytes([number]) * (seed + 1)
            await stream.send_all(sent)
            got = b""
            while len(got) < len(sent):
                got += await stream.receive_some()
            answers[seed].append(digest(got))

        async def send():
            await stream.send_all(LARGE)
            await stream.send_eof()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            answers[seed].append(digest(b"".join([data async for data in stream])))
        with trio.move_on_after(0) as scope:
            await stream.receive_some()
        answers[seed].append(scope.cancelled_caught)


async def use_anyio(port, seed, answers):
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for number in range(200):
            sent = bytes([number]) * (seed + 1)
            await stream.send(sent)
            got = b""
            while len(got) < len(sent):
                got += await stream.receive()
            answers[seed].append(digest(got))

        async def send():
            await stream.send(LARGE)
            await stream.send_eof()

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            answers[seed].append(digest(b"".join([data async for data in stream])))


async def main():
    for word in sys.argv[1:]:
        name, port = word.split("=")
        for use in (use_trio, use_anyio):
            with exercise(f"{name} {use.__name__}") as answers:
                answers += [[] for _ in range(4)]
                async with trio.open_nursery() as nursery:
                    for seed in range(4):
                        nursery.start_soon(use, int(port), seed, answers)


trio.run(main)
print_report()
