"""Calls from afar with rpyc: server KIND, or PORT. Two clients in turn: by the second, a forking server has closed its
copy of the first."""

import logging
import signal
import sys

import rpyc
import rpyc.utils.server
from report import digest, exercise, print_report

BLOB = bytes(range(256)) * 8000


class Service(rpyc.Service):
    def exposed_turn(self, blob):
        return blob[::-1]

    def exposed_apply(self, function, values):
        return [function(value) for value in values]


def serve(kind):
    server = getattr(rpyc.utils.server, kind)(Service, hostname="127.0.0.1", port=0, logger=logging.getLogger())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("port", server.port, flush=True)
    server.start()


def use(port, answers):
    with rpyc.connect("127.0.0.1", port, config={"sync_request_timeout": 20}) as connection:
        root = connection.root
        answers.append([digest(root.turn(BLOB[:length])) for length in (0, 1, 100, 70_000, len(BLOB))])
        answers.append(list(root.apply(lambda value: value * 2, range(30))))
        later = [rpyc.async_(root.turn)(bytes([number])) for number in range(20)]
        answers.append([digest(result.value) for result in later])


if sys.argv[1] == "server":
    serve(sys.argv[2])
else:
    for name in ("first", "second"):
        with exercise(name) as answers:
            use(int(sys.argv[1]), answers)
    print_report()
