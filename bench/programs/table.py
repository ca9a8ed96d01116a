"""The declared table: the programs, row by row, and what fastsock has to reach with them.

A row without goals is a neighbour of one that has some: nothing may be slower than on plain TCP, and rows like it tell
whether a rule was found or a case.
"""

from __future__ import annotations

from typing import Any

from bench.programs.rows import FREE, NULL, End, Goal, Row, python

UVICORN = "-m uvicorn {app} --port {{port}} --loop {loop} --http {http} --no-access-log --log-level warning"
GUNICORN = "-m gunicorn --bind 127.0.0.1:{port} --log-level error --worker-class gthread --threads 4 wsgi_app:app"
REDIS_WORDS = ("redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--dir", "{scratch}")
REDIS = End(REDIS_WORDS, foreign=True, native=True)
WSGI = {
    **{name: python(f"wsgi_server.py {name} {{port}}") for name in ("waitress", "cheroot", "werkzeug", "http.server")},
    "gunicorn": python(GUNICORN),
}


def row(name: str, program: str, server: End | str, client: End | str, *goals: Goal, **how: Any) -> Row:
    """A row with one server; `goals` are what is to be reached free, and with a CPU for each end."""
    free, apart = goals or (None, None)
    servers = (server if isinstance(server, End) else python(server),)
    return Row(name, program, servers, client if isinstance(client, End) else python(client), free, apart, **how)


def uvicorn(app: str = "asgi_app:app", loop: str = "uvloop", http: str = "httptools", **how: bool) -> End:
    return python(UVICORN.format(app=app, loop=loop, http=http), **how)


def echoes() -> list[Row]:
    selectors, trio, anyio = (
        "selectors_echo.py {role} {{port}}",
        "trio_echo.py {role} {{port}} trio",
        "trio_echo.py {role} {{port}} asyncio",
    )

    def both(name: str, program: str, line: str, connections: int, *goals: Goal) -> Row:
        client = f"{line.format(role='client')} {connections}"
        return row(f"{name}-{connections}", program, line.format(role="server"), client, *goals)

    return [
        both("selectors", "selectors echo 64 B, 1 connection", selectors, 1, 2, 5),
        both("selectors", "selectors echo 64 B, 10 connections", selectors, 10, 2, 3),
        both("trio", "trio echo, 1", trio, 1, 1.15, 1.5),
        both("trio", "trio echo, 20", trio, 20, 1.1, 1.3),
        both("anyio", "anyio on asyncio, echo, 1", anyio, 1),
        both("anyio", "anyio on asyncio, echo, 20", anyio, 20),
    ]


def calls() -> list[Row]:
    def rpc(name: str, program: str, kind: str, word: str, *goals: Goal) -> Row:
        return row(name, program, f"rpc_server.py {kind} {{port}}", f"rpc_client.py {kind} {{port}} {word}", *goals)

    return [
        rpc("rpyc-call", "rpyc, call", "rpyc", "call", 1.1, 1.5),
        rpc("rpyc-attribute", "rpyc, attribute", "rpyc", "attribute", 1.2, 1.5),
        rpc("mp-small", "multiprocessing.connection, small", "connection", "", 1.6, 4),
        rpc("mp-64k", "multiprocessing.connection, 64 KiB", "connection", "65536", 1.3, 2),
        rpc("mp-manager", "multiprocessing, manager calls", "manager", "", 1.2, 2),
        rpc("xmlrpc", "xmlrpc, HTTP/1.1", "xmlrpc", ""),
    ]


def streams() -> list[Row]:
    def iostream(connections: int, *goals: Goal) -> Row:
        client = f"tornado_client.py {{port}} echo {connections}"
        title = f"tornado IOStream, {connections}"
        return row(f"tornado-iostream-{connections}", title, "tornado_server.py {port} echo", client, *goals)

    def websockets(kind: str, size: int, *goals: Goal, connections: int = 1) -> Row:
        client = f"websockets_client.py {{port}} {kind} {size} {connections}"
        shown = f"{size} B" if size < 1024 else f"{size >> 10} KiB"
        many, title = (f"-x{connections}", f", {connections} connections") if connections > 1 else ("", "")
        name = f"websockets-{kind}-{size}{many}"
        return row(name, f"websockets, {kind}, {shown}{title}", f"websockets_server.py {{port}} {kind}", client, *goals)

    return [
        iostream(1, 1.1, 1.4),
        iostream(20, 1.1, 1.3),
        row("tornado-http", "tornado, HTTP", "tornado_server.py {port} http", "tornado_client.py {port} http"),
        websockets("threads", 64, 1.15, 1.5),
        websockets("threads", 16384, 1.05, 1.2),
        websockets("asyncio", 64, 1.4, 2),
        websockets("uvloop", 64, 2, 4),
        websockets("asyncio", 16384),
        websockets("uvloop", 16384),
        websockets("asyncio", 64, connections=20),
    ]


def http() -> list[Row]:
    rows = [
        row(
            f"aiohttp-{connections}" + ("-uvloop" if loop == "uvloop" else ""),
            f"aiohttp both ends, {connections}" + (", uvloop" if loop == "uvloop" else ""),
            f"aiohttp_server.py {{port}} {loop}",
            f"aiohttp_client.py {{port}} {connections} {loop}",
            *goals,
        )
        for loop, goals in (("asyncio", (1.2, 1.4)), ("uvloop", ()))
        for connections in (1, 50)
    ]
    for server in ("waitress", "cheroot", "gunicorn", "werkzeug", "http.server"):
        for client in ("requests", "urllib3"):
            wanted: tuple[Goal, ...] = (1.03, 1.15) if server in ("waitress", "cheroot", "gunicorn") else ()
            word = "requests-session" if client == "requests" else client
            title = f"{client} against {server}" + (" threads" if server == "gunicorn" else "")
            rows.append(row(f"{client}-{server}", title, WSGI[server], f"http_client.py {word} {{port}}", *wanted))
    items = uvicorn("fastapi_app:app")
    rows += [
        row("httpx-sync", "httpx sync against uvicorn", items, "http_client.py httpx {port}", 1.03, 1.15),
        row("httpx-async", "httpx async against uvicorn", items, "httpx_async.py {port} 1 asyncio", 1.05, 1.15),
        row("httpx-async-20", "httpx async against uvicorn, 20", items, "httpx_async.py {port} 20 asyncio"),
        row("httpx-async-uvloop", "httpx async, uvloop, against uvicorn", items, "httpx_async.py {port} 1 uvloop"),
    ]
    for server, end in (("uvicorn", uvicorn()), ("http.server", WSGI["http.server"])):
        for requests in (1, 2, 4, 8, 16, 50, 1000):
            goals: tuple[Goal, ...] = ()
            if server == "uvicorn":
                goals = (NULL, NULL) if requests <= 16 else (1.05, 1.15)
            title = f"http.client against {server}, sessions of {requests:,}"
            client = f"http_client.py http.client {{port}} {requests}"
            rows.append(row(f"sessions-{server}-{requests}", title, end, client, *goals))
    return rows


def mail_and_files() -> list[Row]:
    def smtp(word: str, title: str, *goals: Goal) -> Row:
        return row(f"smtp-{word}", title, "smtp_server.py {port}", f"smtp_client.py {{port}} {word}", *goals)

    def ftp(word: str, title: str, *goals: Goal) -> Row:
        client = f"ftp_client.py {{port}} {word} {{mib}}"
        return row(f"ftp-{word}", title, "ftp_server.py {port} {scratch}/ftp {mib}", client, *goals)

    return [
        smtp("kept", "SMTP, one session", 1.03, 1.1),
        smtp("fresh", "SMTP, a session each", NULL, NULL),
        ftp("small", "FTP, 1 KiB files", NULL, NULL),
        ftp("down", "FTP, 64 KiB reads", 1.3, 1.5),
        ftp("up", "FTP, upload", 1.3, 1.5),
        ftp("down8k", "FTP, 8 KiB reads"),
    ]


def dask() -> list[Row]:
    """A scheduler, two workers and a client. Apart, the client and the second worker have the other CPU."""
    servers = (
        python("dask_end.py scheduler {port}"),
        python("dask_end.py worker {port} one {scratch}/one"),
        python("dask_end.py worker {port} two {scratch}/two", second=True),
    )
    works: tuple[tuple[str, str, Goal, Goal], ...] = (
        ("submit", "submit", NULL, NULL),
        ("scatter", "scatter", 1.1, 1.2),
        ("between-workers", "between workers", 1.1, 1.2),
        ("scatter-direct", "scatter, direct", None, None),
        ("map", "map", None, None),
    )
    return [
        Row(
            f"dask-{word}-{comm}",
            f"Dask {title}, {comm} comm",
            servers,
            python(f"dask_client.py {{port}} {word} {{array_mib}}"),
            free,
            apart,
            environment=(("DASK_DISTRIBUTED__COMM__TCP__BACKEND", comm),),
            ready_seconds=60,
            slice_seconds=40,
        )
        for comm in ("tornado", "asyncio")
        for word, title, free, apart in works
    ]


def kernel_path() -> list[Row]:
    """One-shot connections and foreign peers, which stay on kernel TCP."""
    once, null = "http_client.py requests {port}", (NULL, NULL)

    def redis(name: str, title: str, words: str) -> Row:
        return row(
            f"redis-{name}",
            f"foreign: {title}",
            REDIS,
            f"redis_client.py {{port}} {words}",
            *null,
            needs=("redis-server",),
        )

    def foreign_curl(loop: str) -> Row:
        client = python("http_client.py curl {port} 50", foreign=True)
        return row(f"curl-{loop}", f"foreign: curl, {loop}", uvicorn(loop=loop), client, *null, needs=("curl",))

    cheroot = "wsgi_server.py cheroot {port}"
    kept = "http_client.py requests-session {port}"
    return [
        row("once-uvicorn-uvloop", "one-shots: uvicorn, uvloop", uvicorn(), once, *null),
        row("once-uvicorn-asyncio", "one-shots: uvicorn, asyncio", uvicorn(loop="asyncio"), once, *null),
        row(
            "once-aiohttp-asyncio",
            "one-shots: aiohttp both ends, asyncio",
            "aiohttp_server.py {port} asyncio",
            "aiohttp_client.py {port} 10 asyncio once",
            *null,
        ),
        row(
            "once-aiohttp-uvloop",
            "one-shots: aiohttp both ends, uvloop",
            "aiohttp_server.py {port} uvloop",
            "aiohttp_client.py {port} 10 uvloop once",
            *null,
        ),
        *(row(f"once-{name}", f"one-shots: {name}", end, once, *null) for name, end in WSGI.items()),
        row("once-tornado", "one-shots: tornado", "tornado_server.py {port} http", once, *null),
        redis("sync", "redis-py", "1"),
        redis("sync-16k", "redis-py, 16 KiB", "16384"),
        redis("asyncio-1", "redis.asyncio, 1", "1 1"),
        redis("asyncio-20", "redis.asyncio, 20", "1 20"),
        foreign_curl("uvloop"),
        foreign_curl("asyncio"),
        row("foreign-server", "foreign: requests, plain server", python(cheroot, foreign=True), kept, *null),
        row("foreign-client", "foreign: requests, plain client", cheroot, python(kept, foreign=True), *null),
    ]


def crowds() -> list[Row]:
    today = {1: 2.6, 2: 2.5, 4: 2.0, 8: 1.9, 16: 1.3}
    rows = [
        row(
            f"crowd-{pairs}",
            f"{pairs} pairs of busy processes" if pairs > 1 else "1 pair of busy processes",
            f"crowd.py server {{port}} {pairs}",
            f"crowd.py client {{port}} {pairs}",
            goal,
            None,
            placements=(FREE,),
        )
        for pairs, goal in today.items()
    ]
    many: dict[str, Any] = {"ready_seconds": 60, "placements": (FREE,)}
    for loop, goals in (("asyncio", (1.2, None)), ("uvloop", (1.2, None))):
        server, client = f"many_server.py {{port}} {loop}", f"many_client.py {{port}} {loop} 100 {{idle}}"
        rows.append(row(f"idle-{loop}", f"10,000 idle and 100 busy, {loop}", server, client, *goals, **many))
    threads = "many_client.py {port} threads {threads}"
    rows.append(
        row("threads-500", "500 threads, 500 connections", "many_server.py {port} threads", threads, 1.2, None, **many)
    )
    return rows


ROWS = (*echoes(), *calls(), *streams(), *http(), *mail_and_files(), *dask(), *kernel_path(), *crowds())

LINES: dict[str, str] = {
    "selectors echo 64 B, 1 / 10 connections": "selectors-1 selectors-10",
    "rpyc call / attribute": "rpyc-call rpyc-attribute",
    "trio echo 1 / 20": "trio-1 trio-20",
    "tornado IOStream 1 / 20": "tornado-iostream-1 tornado-iostream-20",
    "websockets, threads, 64 B / 16 KiB": "websockets-threads-64 websockets-threads-16384",
    "websockets, asyncio / uvloop 64 B": "websockets-asyncio-64 websockets-uvloop-64",
    "aiohttp both ends, 1 / 50": "aiohttp-1 aiohttp-50",
    "requests against waitress / cheroot / gunicorn threads": "requests-waitress requests-cheroot requests-gunicorn",
    "urllib3 against waitress / cheroot / gunicorn threads": "urllib3-waitress urllib3-cheroot urllib3-gunicorn",
    "httpx, sync / async, against uvicorn": "httpx-sync httpx-async",
    "http.client against uvicorn, sessions of 1 / 2 / 4 / 8 / 16 requests": "sessions-uvicorn-1 sessions-uvicorn-2 "
    "sessions-uvicorn-4 sessions-uvicorn-8 sessions-uvicorn-16",
    "the same, 50 / 1,000 requests": "sessions-uvicorn-50 sessions-uvicorn-1000",
    "SMTP kept / a session each": "smtp-kept smtp-fresh",
    "Dask submit / scatter / between workers, tornado comm": "dask-submit-tornado dask-scatter-tornado "
    "dask-between-workers-tornado",
    "the same, asyncio comm": "dask-submit-asyncio dask-scatter-asyncio dask-between-workers-asyncio",
    "FTP 1 KiB files / 64 KiB reads / up": "ftp-small ftp-down ftp-up",
    "multiprocessing.connection, small / 64 KiB; manager calls": "mp-small mp-64k mp-manager",
    "one-shots, requests against uvicorn on uvloop / asyncio": "once-uvicorn-uvloop once-uvicorn-asyncio",
    "one-shots, aiohttp both ends, uvloop / asyncio": "once-aiohttp-uvloop once-aiohttp-asyncio",
    "one-shots, requests against waitress / cheroot / gunicorn": "once-waitress once-cheroot once-gunicorn",
    "the same, werkzeug / http.server / tornado": "once-werkzeug once-http.server once-tornado",
    "redis-py 1 B / 16 KiB; redis.asyncio 1 / 20": "redis-sync redis-sync-16k redis-asyncio-1 redis-asyncio-20",
    "curl against uvicorn on uvloop / asyncio": "curl-uvloop curl-asyncio",
    "requests, cheroot: plain server / plain client": "foreign-server foreign-client",
    "1 / 2 / 4 / 8 / 16 pairs of busy processes": "crowd-1 crowd-2 crowd-4 crowd-8 crowd-16",
    "10,000 idle and 100 busy connections, asyncio / uvloop": "idle-asyncio idle-uvloop",
    "500 threads on 500 connections": "threads-500",
}
"""The lines of the documents' table: every row that has a goal, those of a kind side by side."""
