"""A camera process passes frames to two others by a group of fastsock: it writes each once, and nobody copies it.

    python examples/camera.py --frames 300 --size 1920x1080

Needs numpy. The camera borrows memory of the group (`lend`), fills it in place, and sends it by leaving the block. Each
reader sees the same bytes as an array that it cannot write to. A reader that is too slow loses the oldest frames and is
told how many; the camera never waits for it. Prints a line of JSON for each reader: frames, lost ones, wrong ones, and
the median time from the end of writing a frame to its array, in microseconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import numpy

from fastsock import Group

HEAD = numpy.dtype([("number", "u8"), ("ns", "u8"), ("height", "u4"), ("width", "u4")])
READERS = 2


def film(group: Group, frames: int, width: int, height: int, rate: float) -> None:
    length = HEAD.itemsize + width * height * 3
    due = time.monotonic()
    for number in range(frames):
        with group.lend(length) as buffer:
            head = numpy.frombuffer(buffer, HEAD, 1)
            pixels = numpy.frombuffer(buffer, "u1", offset=HEAD.itemsize).reshape(height, width, 3)
            pixels[:] = number % 251  # what the sensor saw
            head[0] = number, time.monotonic_ns(), height, width
            del head, pixels
        due += 1 / rate
        time.sleep(max(0, due - time.monotonic()))
    group.send(b"end")


def watch(group: Group) -> dict[str, object]:
    seen = lost = wrong = 0
    late = []
    for message in group:
        with message:
            lost += message.lost
            if len(message) < HEAD.itemsize:
                break
            number, ns, height, width = numpy.frombuffer(message, HEAD, 1)[0]
            late.append((time.monotonic_ns() - int(ns)) / 1000)
            pixels = numpy.frombuffer(message, "u1", offset=HEAD.itemsize).reshape(height, width, 3)
            wrong += bool((pixels[:: max(1, int(height) // 8)] != number % 251).any())
            seen += 1
            del pixels  # the frame goes back to the group with the last array on it
    return {"frames": seen, "lost": lost, "wrong": wrong, "median_us": round(statistics.median(late or [0]), 1)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--size", default="1920x1080", help="WIDTHxHEIGHT")
    parser.add_argument("--rate", type=float, default=100, help="frames a second")
    parser.add_argument("--read", metavar="GROUP", help=argparse.SUPPRESS)  # a reader, started below
    arguments = parser.parse_args()
    if arguments.read:
        with Group(arguments.read) as group:
            print("joined", flush=True)
            print(json.dumps(watch(group)), flush=True)
        return 0
    width, height = map(int, arguments.size.split("x"))
    name = f"camera {os.getpid()}"
    with Group(name, reads=False, max_message=HEAD.itemsize + width * height * 3) as group:
        line = [sys.executable, __file__, "--read", name]
        readers = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
        for reader in readers:
            assert reader.stdout is not None
            reader.stdout.readline()  # it has joined
        film(group, arguments.frames, width, height, arguments.rate)
        for reader in readers:
            print(reader.communicate(timeout=60)[0].strip())
    return max(reader.returncode for reader in readers)


if __name__ == "__main__":
    sys.exit(main())
