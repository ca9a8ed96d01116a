"""Asks for pages (PATH, PATH*TIMES, or +PATH for a POST of 3 MB) over a connection that is kept, as long as it is."""

import hashlib
import http.client
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=40)
BODY = b"0123456789" * 300_000


def ask(path: str) -> bytes:
    method, body = ("POST", BODY) if path.startswith("+") else ("GET", None)
    connection.request(method, path.removeprefix("+"), body)
    answer = connection.getresponse()
    return b"%d " % answer.status + answer.read()


for word in sys.argv[2:]:
    path, _, times = word.partition("*")
    found = {ask(path) for _ in range(int(times or 1))}
    short = [hashlib.sha256(one).hexdigest()[:16] if len(one) > 300 else one for one in sorted(found)]
    print(path.partition("?")[0], *short)
print("idle", flush=True)
sys.stdin.readline()
print(ask(sys.argv[2].partition("*")[0])[:4], "done")
