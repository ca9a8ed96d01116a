"""What a client program tells: for each exercise its answers, how often it connected, and the paths that took."""

import contextlib
import hashlib
import json
import sys
from collections import Counter

_connects = 0
_report = {}


def _count(event, arguments):
    global _connects
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        _connects += 1


sys.addaudithook(_count)


def paths():
    """Connections so far by path, counted by fastsock if this program was started under it."""
    fastsock = sys.modules.get("fastsock")
    if fastsock is None:
        return Counter(), 0
    stats = fastsock.stats()
    return Counter(stats.fallback_reasons), stats.connections_ring


@contextlib.contextmanager
def exercise(name):
    """A list to put the answers of an exercise in, anything JSON can express."""
    answers = []
    connects, (tcp, ring) = _connects, paths()
    yield answers
    tcp, ring = paths()[0] - tcp, paths()[1] - ring
    _report[name] = {"answers": answers, "connections": _connects - connects, "tcp": tcp, "ring": ring}


def digest(data):
    """Of bytes: how many, and which."""
    return f"{len(data)}:{hashlib.sha256(data).hexdigest()[:16]}"


def print_report():
    print(json.dumps(_report))
