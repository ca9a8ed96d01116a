"""One copy of a filter, in a process of its own: `worker.py JSON`. Started by `pipeline.py`.

    copy         its number among the copies of its filter
    filter       its name in `filters.FILTERS`
    nanoseconds  of computing for each byte
    waits        whether computing is waited for (the processor is elsewhere)
    producers    connections that will come in
    consumers    ports of the copies of the next filter
    schedule     "round-robin" or "demand", of this copy's outputs
    acknowledges whether the producers schedule by demand
    block        bytes of a buffer

Prints its port, and ends when its producers have closed.
"""

from __future__ import annotations

import json
import sys
import threading

from filters import FILTERS
from streams import BUFFER, END, QUERY, Ended, Outputs, Stream, connect, listen


class Copy:
    """What the threads of a copy, one for each producer, share. The filter runs in one of them at a time."""

    def __init__(self, order: dict) -> None:
        self.order = order
        self.filter = FILTERS[order["filter"]](order["nanoseconds"], order["waits"])
        self.outputs = Outputs([connect(port, order["block"]) for port in order["consumers"]], order["schedule"])
        self.turn = threading.Lock()
        self.unit = 0
        self.ended = 0

    def serve(self, stream: Stream) -> None:
        try:
            while True:
                kind, unit, number, data = stream.receive()
                with self.turn:
                    self.take(stream, kind, unit, number, data)
        except Ended:
            stream.sock.close()

    def take(self, stream: Stream, kind: int, unit: int, number: int, data: memoryview) -> None:
        if unit != self.unit:
            self.unit, self.ended = unit, 0
            self.filter.busy = 0.0
            self.filter.init(unit)
        if kind in (BUFFER, QUERY):
            if self.order["acknowledges"]:
                stream.acknowledge()
            self.filter.process(number, data, lambda n, piece: self.outputs.write(unit, n, piece))
        elif kind == END:
            self.ended += 1
            if self.ended == self.order["producers"]:
                self.filter.finalize()
                self.outputs.end(unit, int(self.filter.busy * 1e6), self.order["copy"])


def main() -> None:
    order = json.loads(sys.argv[1])
    with listen() as listener:
        print(listener.getsockname()[1], flush=True)
        copy = Copy(order)
        streams = [Stream(listener.accept()[0], order["block"]) for _ in range(order["producers"])]
    threads = [threading.Thread(target=copy.serve, args=(stream,)) for stream in streams[1:]]
    for thread in threads:
        thread.start()
    copy.serve(streams[0])
    for thread in threads:
        thread.join()
    copy.outputs.close()


if __name__ == "__main__":
    main()
