"""HTTP and WebSocket client libraries, each as one session with a server: URL LOOP LIBRARY..."""

import asyncio
import contextlib
import functools
import http.client
import importlib
import subprocess
import sys
import urllib.error
import urllib.request

from report import digest, exercise, print_report

KEPT = ("Content-Type", "Content-Length", "Transfer-Encoding", "Connection")
BODY = bytes(range(256)) * 1200
REQUESTS = [
    *[("GET", "/small")] * 30, ("GET", "/large"), ("POST", "/echo", BODY), ("GET", "/stream"), ("GET", "/missing"),
    ("HEAD", "/large"), ("GET", "/small"), ("POST", "/echo", BODY[:10]),
]  # fmt: skip
MESSAGES = [*map(str, range(100)), *(BODY[: 300 * number] for number in range(40)), BODY * 2]


async def ask(fetch, answers):
    """Requests in turn, then several at once, if the library does not block."""
    for request in REQUESTS:
        status, headers, body = await fetch(*request)
        answers.append([*request[:2], status, {name: headers.get(name) for name in KEPT}, digest(body)])
    for _, _, body in await asyncio.gather(*(fetch("POST", "/echo", BODY[: 500 * number]) for number in range(4))):
        answers.append(digest(body))


async def talk(send, receive, answers):
    """Messages of a WebSocket, answered one by one, and then many under way."""
    for message in MESSAGES:
        await send(message)
        assert await receive() == message

    async def send_all():
        for message in MESSAGES:
            await send(message)

    sending = asyncio.ensure_future(send_all())
    answers.append([await receive() for _ in MESSAGES] == MESSAGES)
    await sending


async def use_pool(library, base, answers):
    """Of a library that blocks."""
    make, given, status, content = {
        "requests": ("Session", "data", "status_code", "content"),
        "urllib3": ("PoolManager", "body", "status", "data"),
        "httpx": ("Client", "content", "status_code", "content"),
    }[library]
    with getattr(importlib.import_module(library), make)() as pool:

        async def fetch(method, path, body=None):
            answer = pool.request(method, base + path, timeout=20, **{given: body})
            return getattr(answer, status), answer.headers, getattr(answer, content)

        await ask(fetch, answers)


async def use_http_client(base, answers):
    with contextlib.closing(http.client.HTTPConnection(base.removeprefix("http://"), timeout=20)) as connection:

        async def fetch(method, path, body=None):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

        await ask(fetch, answers)


async def use_urllib(base, answers):
    async def fetch(method, path, body=None):
        request = urllib.request.Request(base + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.headers, answer.read()

    await ask(fetch, answers)


async def use_curl(base, answers):
    """No Python at all: one curl makes many requests, on one connection where the server keeps it."""
    for words in ([base + "/small"] * 30 + [base + "/large"] * 3, ["-d", "body", base + "/echo"]):
        command = ["curl", "-sS", "-m", "20", "--noproxy", "*", "-w", "%{http_code} %{num_connects}\n", *words]
        answers.append(digest(subprocess.run(command, check=True, capture_output=True, timeout=30).stdout))


async def use_aiohttp(base, answers):
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:

        async def fetch(method, path, body=None):
            async with session.request(method, base + path, data=body) as answer:
                return answer.status, answer.headers, await answer.read()

        await ask(fetch, answers)


async def use_async_httpx(base, answers):
    import httpx

    async with httpx.AsyncClient(timeout=20) as client:

        async def fetch(method, path, body=None):
            answer = await client.request(method, base + path, content=body)
            return answer.status_code, answer.headers, answer.content

        await ask(fetch, answers)


async def use_tornado(base, answers):
    """A connection for each request."""
    from tornado.httpclient import AsyncHTTPClient

    client = AsyncHTTPClient()
    for _ in range(3):
        answers.append(digest((await client.fetch(base + "/stream")).body))
    client.close()


async def use_websockets(base, answers):
    import websockets.asyncio.client as websockets

    async with websockets.connect(base.replace("http", "ws") + "/talk", max_size=None, compression=None) as socket:
        await talk(socket.send, socket.recv, answers)


async def use_aiohttp_ws(base, answers):
    import aiohttp

    async with aiohttp.ClientSession() as session, session.ws_connect(base + "/talk", max_msg_size=0) as socket:

        async def send(message):
            await (socket.send_bytes(message) if isinstance(message, bytes) else socket.send_str(message))

        async def receive():
            return (await socket.receive()).data

        await talk(send, receive, answers)


async def main(base, libraries):
    for library in libraries:
        with exercise(library) as answers:
            use = globals().get(f"use_{library}", functools.partial(use_pool, library))
            await asyncio.wait_for(use(base, answers), 40)


if __name__ == "__main__":
    if sys.argv[2] == "uvloop":
        import uvloop

        uvloop.run(main(sys.argv[1], sys.argv[3:]))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[3:]))
    print_report()
