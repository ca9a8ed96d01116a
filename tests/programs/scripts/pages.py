"""What every HTTP server of these tests serves, as a function and as a WSGI application."""

import random
import sys

LARGE = random.Random(1).randbytes(3_000_000)


def page(method, path, body):
    """Status and body for a request."""
    if path == "/small":
        return "200 OK", b"hello"
    if path == "/large":
        return "200 OK", LARGE
    if path == "/echo" and method == "POST":
        return "200 OK", body[::-1]
    return "404 Not Found", b"no such page"


def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    path = environ["PATH_INFO"]
    headers = [("Content-Type", "application/octet-stream")]
    if path == "/stream":
        start_response("200 OK", headers)
        return (LARGE[at : at + 10_000] for at in range(0, 200_000, 10_000))
    if path == "/paths":
        fastsock = sys.modules.get("fastsock")
        status, answer = "200 OK", repr(fastsock and fastsock.stats()).encode()
    else:
        status, answer = page(environ["REQUEST_METHOD"], path, body)
    start_response(status, [*headers, ("Content-Length", str(len(answer)))])
    return [answer] if environ["REQUEST_METHOD"] != "HEAD" else []
