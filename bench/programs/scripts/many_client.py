"""usage: many_client.py PORT asyncio|uvloop BUSY IDLE | many_client.py PORT threads BUSY

64 bytes there and back on every busy connection: on a loop that has idle ones besides, or in a thread for each."""

import asyncio
import resource
import socket
import sys
import threading
from time import perf_counter

import clock

port, kind, busy = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
MESSAGE = b"x" * 64


class Caller(asyncio.Protocol):
    answer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert data == MESSAGE
        assert self.answer is not None
        self.answer.set_result(None)

    async def call(self) -> None:
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(MESSAGE)
        await self.answer


async def main(idle: int) -> None:
    loop = asyncio.get_running_loop()
    callers = [(await loop.create_connection(Caller, "127.0.0.1", port))[1] for _ in range(idle + busy)]
    await clock.repeat_tasks([caller.call for caller in callers[idle:]])


def drive_threads() -> None:
    begin = threading.Barrier(busy + 1)
    done = threading.Barrier(busy + 1)
    counts = [0] * busy
    end = 0.0

    def work(number: int, sock: socket.socket) -> None:
        while True:
            begin.wait()
            counts[number] = 0
            while perf_counter() < end:
                sock.sendall(MESSAGE)
                assert len(sock.recv(64)) == len(MESSAGE)
                counts[number] += 1
            done.wait()

    for number in range(busy):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=work, args=(number, sock), daemon=True).start()

    def burst(seconds: float) -> tuple[int, float]:
        nonlocal end
        start = perf_counter()
        end = start + seconds
        begin.wait()
        done.wait()
        return sum(counts), perf_counter() - start

    burst(clock.WARM_SECONDS)
    for seconds in clock.slices():
        operations, took = burst(seconds)
        clock.say(operations=operations, seconds=took)


if kind == "threads":
    drive_threads()
else:
    clock.run(main(int(sys.argv[4])), kind)
