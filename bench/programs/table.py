"""The declared table: the programs, row by row, and what fastsock has to reach with them.

A row without goals is a neighbour of one that has some: nothing may be slower than on plain TCP, and rows like it tell
whether a rule was found or a case.
"""

from __future__ import annotations

from typing import Any

from bench.programs.rows import FREE, NULL, End, Goal, Row, python

UVICORN = "-m uvicorn {app} --port {{{port}}} --loop {loop} --http httptools --no-access-log --log-level warning"
GUNICORN = "-m gunicorn --bind 127.0.0.1:{port} --log-level error --worker-class gthread --threads 4 wsgi_app:app"
CELERY = (
    "-m celery -A tasks --broker redis://127.0.0.1:{port}/0 --result-backend redis://127.0.0.1:{port}/0 worker "
    "--concurrency 1 --loglevel error --without-gossip --without-mingle --without-heartbeat"
)
REDIS_WORDS = ("redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--dir", "{scratch}")
REDIS = End(REDIS_WORDS, native=True)
MEMCACHED = End(("memcached", "-l", "127.0.0.1", "-p", "{port}", "-U", "0", "-u", "root"), native=True)
POSTGRES = End(("sh", "{scripts}/postgres.sh", "{port}", "{scratch}"), native=True)
NGINX = ("sh", "{scripts}/nginx.sh", "{port}", "127.0.0.1:{inner}", "{scratch}")
PATH = "{scratch}/socket"
NGINX_TO_PATH = ("sh", "{scripts}/nginx.sh", "{port}", f"unix:{PATH}", "{scratch}")
UVICORN_AT_PATH = (
    f"-m uvicorn asgi_app:app --uds {PATH} --loop uvloop --http httptools --no-access-log --log-level warning"
)
NAGLE = "wsgi_server.py http.server-nagle {port}"
GUNICORN_UVICORN = (
    "-m gunicorn --bind 127.0.0.1:{inner} --log-level error --worker-class uvicorn_worker.UvicornWorker asgi_app:app"
)
WSGI = {
    **{name: python(f"wsgi_server.py {name} {{port}}") for name in ("waitress", "cheroot", "werkzeug", "http.server")},
    "gunicorn": python(GUNICORN),
    "flask": python("-m waitress --host 127.0.0.1 --port {port} --threads 4 flask_app:app"),
}


def row(name: str, program: str, server: End | str, client: End | str, *goals: Goal, **how: Any) -> Row:
    """A row with one server; `goals` are what is to be reached free, and with a CPU for each end."""
    free, apart = (*goals, None, None)[:2]
    servers = (server if isinstance(server, End) else python(server),)
    return Row(name, program, servers, client if isinstance(client, End) else python(client), free, apart, **how)


def uvicorn(app: str = "asgi_app:app", loop: str = "uvloop", port: str = "port", **how: Any) -> End:
    return python(UVICORN.format(app=app, loop=loop, port=port), **how)


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
        rpc("thrift", "thriftpy2, call", "thrift", ""),
        rpc("grpc", "gRPC, unary call", "grpc", ""),
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
        row("fastapi-aiohttp", "aiohttp against FastAPI", items, "aiohttp_client.py {port} 1 asyncio /item/7"),
        row("flask", "requests against Flask under waitress", WSGI["flask"], "http_client.py requests-session {port}"),
        row(
            "computing",
            "http.client against uvicorn, 2 ms of computing",
            uvicorn("computing_app:app"),
            "http_client.py http.client-kept {port}",
            reason="the application computes for 2 ms a request: the connection is not what takes the time",
        ),
        *(
            Row(
                f"nginx-{name}",
                f"http.client against nginx before {name}",
                (end, End(NGINX, native=True, listens="port", second=True)),
                python("http_client.py http.client-kept {port}"),
                needs=("nginx",),
            )
            for name, end in (
                ("uvicorn", uvicorn(port="inner", listens="inner")),
                ("gunicorn", python(GUNICORN_UVICORN, listens="inner")),
            )
        ),
        row("pytest-live", "pytest with requests, a live http.server", NAGLE, "pytest_client.py {port}"),
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


def unix_sockets() -> list[Row]:
    """The same programs by a path, and what people start without an address."""

    def by_path(name: str, program: str, server: End | str, client: str, *goals: Goal, **how: Any) -> Row:
        end = server if isinstance(server, End) else python(server, listens=PATH)
        return row(f"unix-{name}", f"{program}, unix socket", end, client, *goals, **how)

    def alone(kind: str, program: str, goal: Goal) -> Row:
        return Row(f"unix-{kind}", program, (), python(f"own_child.py {kind}"), goal, None, placements=(FREE,))

    redis = ("redis-server", "--port", "0", "--unixsocket", PATH, "--save", "", "--dir", "{scratch}")
    postgres = End(POSTGRES.words, native=True, listens="{scratch}/.s.PGSQL.{port}")
    uvicorn_end = python(UVICORN_AT_PATH, listens=PATH)
    front = End(NGINX_TO_PATH, native=True, listens="port", second=True)
    get = "http_client.py http.client-kept"
    return [
        by_path(
            "mp",
            "multiprocessing.connection, small",
            f"rpc_server.py connection {PATH}",
            f"rpc_client.py connection {PATH}",
            3,
        ),
        alone("manager", "multiprocessing.Manager(), a call", 2),
        alone("pipe", "multiprocessing.Pipe() with a forked child", 3),
        by_path(
            "redis",
            "redis-py, GET 1 B",
            End(redis, native=True, listens=PATH),
            f"redis_client.py {PATH} 1",
            2,
            None,
            needs=("redis-server",),
        ),
        by_path(
            "psycopg2",
            "psycopg2, a row of PostgreSQL",
            postgres,
            "database_client.py psycopg2 {port} {scratch}",
            2,
            None,
            needs=("psql", "psycopg2"),
            ready_seconds=60,
        ),
        by_path(
            "zmq",
            "pyzmq, a request",
            f"zmq_echo.py server {PATH}",
            f"zmq_echo.py client {PATH}",
            NULL,
            None,
            needs=("zmq",),
        ),
        by_path("uvicorn", "http.client against uvicorn", UVICORN_AT_PATH, f"{get} {PATH}", 1.1),
        Row(
            "unix-nginx",
            "http.client against nginx before uvicorn, unix socket",
            (uvicorn_end, front),
            python(f"{get} {{port}}"),
            1.2,
            None,
            needs=("nginx",),
        ),
    ]


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
        row("feed", "a stream of 4 KiB records", "feed.py server {port} 4096", "feed.py client {port} 4096"),
    ]


def caches_and_databases() -> list[Row]:
    def redis(name: str, title: str, words: str) -> Row:
        client = f"redis_client.py {{port}} {words}"
        return row(f"redis-{name}", title, REDIS, client, needs=("redis-server",))

    def database(kind: str, title: str) -> Row:
        line = f"database_client.py {kind} {{port}}"
        return row(kind, f"{title}, a row of PostgreSQL", POSTGRES, line, needs=("psql", kind), ready_seconds=60)

    def tasks(kind: str, title: str, worker: str) -> Row:
        servers = (REDIS, python(worker, second=True))
        client = python(f"tasks_client.py {kind} {{port}}")
        return Row(kind, title, servers, client, needs=("redis-server", kind), ready_seconds=60)

    return [
        redis("1", "redis-py, GET 1 B", "1"),
        redis("16k", "redis-py, GET 16 KiB", "16384"),
        redis("asyncio", "redis.asyncio, GET, 20 tasks", "1 20"),
        row("memcached", "pymemcache, get", MEMCACHED, "memcached_client.py {port}", needs=("memcached", "pymemcache")),
        database("psycopg", "psycopg 3"),
        database("psycopg2", "psycopg2"),
        database("asyncpg", "asyncpg"),
        database("sqlalchemy", "SQLAlchemy with psycopg"),
        database("django", "Django's ORM with psycopg"),
        tasks("celery", "Celery with redis, a task and its result", CELERY),
        tasks("rq", "RQ with redis, a job and its result", "-m rq.cli worker --quiet --url redis://127.0.0.1:{port}/0"),
    ]


def ray() -> Row:
    return row(
        "ray",
        "Ray, call of an actor",
        "ray_end.py head {port}",
        "ray_end.py client {port}",
        needs=("ray",),
        ready_seconds=90,
    )


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
    once, null, plain = "http_client.py requests {port}", (NULL, NULL), End(REDIS_WORDS, foreign=True, native=True)

    def redis(name: str, title: str, words: str) -> Row:
        client = f"redis_client.py {{port}} {words}"
        return row(f"foreign-redis-{name}", f"foreign: {title}", plain, client, *null, needs=("redis-server",))

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


ROWS = (
    *echoes(),
    *calls(),
    *streams(),
    *http(),
    *caches_and_databases(),
    *unix_sockets(),
    *mail_and_files(),
    *dask(),
    ray(),
    *kernel_path(),
    *crowds(),
)
