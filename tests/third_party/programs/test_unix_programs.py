"""Programs that live on unix sockets and pass descriptors over them: they say the same whichever end is under fastsock,
and stream sockets of AF_UNIX may move, at once or after some calls."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from harness.pairs import SECONDS
from harness.processes import FASTSOCK, PLAIN, WAYS, Server, command, ended

from fastsock.path_events import Reason

from .native import client, needs, under
from .test_caches_and_databases import DATABASE, POSTGRES

ON = {"FASTSOCK_UNIX_STREAMS": "1"}
SETTINGS = {"default": ON, "at once": {**ON, "FASTSOCK_MOVE_AFTER": "0"}}

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, and write to."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


# ---- two users -------------------------------------------------------------------------------------------------------

AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@contextlib.contextmanager
def postgres_of_its_own(folder: Path, **variables: str) -> Iterator[Path]:
    """A server of the user `postgres`, who may be known to it by SO_PEERCRED alone."""
    assert POSTGRES
    data = folder / "data"
    if not data.exists():
        words = ["initdb", "-D", data, "--auth-local=peer", "--no-sync"]
        ended([*AS_POSTGRES, POSTGRES / words[0], *words[1:]])
        with open(data / "pg_ident.conf", "a") as users, open(data / "pg_hba.conf", "w") as rules:
            users.write("all root postgres\n")
            rules.write("local all all peer map=all\n")
    words = [POSTGRES / "postgres", "-D", data, "--listen_addresses=", f"--unix_socket_directories={folder}"]
    with Server(under(FASTSOCK, [*AS_POSTGRES, *words, "--fsync=off"]), cwd=folder, **ON, **variables) as server:
        server.said("ready to accept connections")
        yield folder
        server.end(signal.SIGINT)


@ROOT_ONLY
@DATABASE
@needs("setpriv")
def test_the_socket_of_postgresql_which_is_another_user(open_folder: Path, tmp_path: Path) -> None:
    """It lets root in by what the kernel says of the socket, and moves where each end trusts the other."""
    session = "".join(f"select {n}, current_user;\n" for n in range(300))
    words = ("psql", "-X", "-h", open_folder, "-U", "postgres", "postgres")
    plain = None
    for trust, others_trust, moves in (
        ("user,postgres", "user", True),  # everybody trusts root
        ("user,postgres", "user,root", True),
        ("user", "user", False),
        ("user,postgres", "postgres", False),
    ):
        with postgres_of_its_own(open_folder, FASTSOCK_TRUST=others_trust):
            plain = plain or client(PLAIN, tmp_path, words, session).seen()
            got = client(FASTSOCK, tmp_path, words, session, **ON, FASTSOCK_TRUST=trust)
            assert got.seen() == plain
            assert got.ring == moves
            if trust == "user":
                watched = [*under(FASTSOCK, [])[:-1], "doctor", "--json", "--", "sh", "-c", '"$@" >&2', "sh", *words]
                told = json.loads(ended(watched, given=session, **ON, FASTSOCK_MOVE_AFTER="0").stdout)
                assert told["stayed"] == {Reason.UNTRUSTED: 1}
                (end,) = told["examples"][Reason.UNTRUSTED]
                assert "FASTSOCK_TRUST=user,postgres here" in end["advice"]
    assert plain
    assert plain[::2] == (plain[0], 0)


# ---- whoever uses it -------------------------------------------------------------------------------------------------


def said_by(folder: Path, way: str, words: Sequence[object], given: str = "", **variables: str) -> str:
    """What a client prints, which has nothing to complain about."""
    got = client(way, folder, words, given, **variables)
    assert (got.errors, got.status) == ("", 0), (way, words)
    return got.output


@contextlib.contextmanager
def serving(way: str, path: Path, *words: object, **variables: str) -> Iterator[Server]:
    """A server that listens at a path by now."""
    path.unlink(missing_ok=True)
    with Server(under(way, words), **variables) as server:
        server.until(path.exists, f"it listens at {path}")
        yield server


def each_way(exercise: Callable[[str, str, dict[str, str]], str]) -> None:
    """Plain, and with the setting, whichever end is under fastsock."""
    expected = exercise(PLAIN, PLAIN, {})
    assert expected
    for variables in SETTINGS.values():
        for server_way, client_way in WAYS[1:]:
            assert exercise(server_way, client_way, variables) == expected, (server_way, client_way, variables)


@needs("dbus-daemon", "dbus-send", "dbus-monitor")
def test_dbus(tmp_path: Path) -> None:
    """Both ends leave room for descriptors in each of their messages, so they stay in the kernel."""
    path = tmp_path / "bus"
    bus = "org.freedesktop.DBus"
    call = ("dbus-send", f"--bus=unix:path={path}", "--print-reply=literal", f"--dest={bus}", "/")

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        daemon = ("dbus-daemon", "--session", "--nofork", "--nopidfile", "--nosyslog", f"--address=unix:path={path}")
        watch = under(client_way, ["dbus-monitor", "--address", f"unix:path={path}"])
        with serving(server_way, path, *daemon, **variables), Server(watch, **variables) as monitor:
            monitor.said("NameAcquired")
            asked = (f"GetNameOwner string:{bus}", "ListActivatableNames", "Introspectable.Introspect")
            words = [(*call, *f"{bus}.{method}".split()) for method in asked]
            said = [said_by(tmp_path, client_way, one, **variables) for one in words]
            monitor.said("member=ListActivatableNames")
        return "".join(said)

    each_way(exercise)


@needs("Xvfb", "xdpyinfo", "xwininfo", "xprop")
def test_x11(tmp_path: Path) -> None:
    """A server with clients, which may pass descriptors too (MIT-SHM, DRI3)."""
    number = 60 + os.getpid() % 1000

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        words = ("Xvfb", f":{number}", "-screen", "0", "640x480x24", "-nolisten", "tcp", "-ac", "-noreset")
        with serving(server_way, Path(f"/tmp/.X11-unix/X{number}"), *words, **variables) as server:
            told = {**variables, "DISPLAY": f":{number}"}
            said = said_by(tmp_path, client_way, ("xdpyinfo",), **told)
            said += said_by(tmp_path, client_way, ("xwininfo", "-root", "-tree", "-all"), **told)
            for name in range(5):
                said_by(
                    tmp_path,
                    client_way,
                    ("xprop", "-root", "-f", f"P{name}", "8s", "-set", f"P{name}", "x" * 2000),
                    **told,
                )
            said += said_by(tmp_path, client_way, ("xprop", "-root"), **told)
            server.end()
        return said

    each_way(exercise)


@needs("ssh-agent", "ssh-add", "ssh-keygen")
def test_ssh_agent(tmp_path: Path) -> None:
    key, path = tmp_path / "key", tmp_path / "agent"
    ended(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a key", "-f", key])
    (tmp_path / "text").write_text("signed\n")

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        with serving(server_way, path, "ssh-agent", "-D", "-a", path, **variables):
            told = {**variables, "SSH_AUTH_SOCK": str(path)}
            client(client_way, tmp_path, ("ssh-add", "-q", key), **told)
            said = said_by(tmp_path, client_way, ("ssh-add", "-l"), **told)
            (tmp_path / "text.sig").unlink(missing_ok=True)
            sign = ("ssh-keygen", "-Y", "sign", "-q", "-n", "file", "-f", f"{key}.pub", tmp_path / "text")
            client(client_way, tmp_path, sign, **told)
        return said + (tmp_path / "text.sig").read_text()

    each_way(exercise)


@needs("gpg", "gpg-agent", "gpgconf")
def test_gpg_agent(tmp_path: Path) -> None:
    """gpg starts its agent, which serves it over a unix socket with descriptors."""

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        home = Path(tempfile.mkdtemp(dir=tmp_path))
        told = {**variables, "GNUPGHOME": str(home)}
        try:
            with serving(server_way, home / "S.gpg-agent", "gpg-agent", "--daemon", "sleep", "1000", **told):
                quick = ("gpg", "-q", "--batch", "--passphrase", "", "--quick-generate-key", "someone", "ed25519")
                assert client(client_way, tmp_path, quick, **told).status == 0
                clear = client(client_way, tmp_path, ("gpg", "--batch", "--clear-sign"), "text\n", **told)
                back = client(client_way, tmp_path, ("gpg", "-q", "--batch", "--decrypt"), clear.output, **told)
                return f"{clear.status} {back.status} {back.output}"
        finally:
            ended(["gpgconf", "--kill", "all"], None, **told)

    each_way(exercise)


@needs("tmux")
def test_tmux(tmp_path: Path) -> None:
    """The client passes its terminal's descriptors to the server."""

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        path = tmp_path / "tmux"
        path.unlink(missing_ok=True)
        told = {**variables, "TERM": "xterm", "SHELL": "/bin/sh"}

        def tmux(way: str, *words: object) -> str:
            return said_by(tmp_path, way, ("tmux", "-f", "/dev/null", "-S", path, *words), **told)

        tmux(server_way, "new-session", "-d", "-s", "one", "-x", "80", "-y", "24", "cat")
        try:
            for n in range(8):
                tmux(client_way, "send-keys", "-t", "one", *(f"line {n}{c}\n" for c in "abcd"))
            limit = time.monotonic() + SECONDS
            while (said := tmux(client_way, "capture-pane", "-p", "-S", "-", "-t", "one")).count("line 7d") < 2:
                assert time.monotonic() < limit, said
                time.sleep(0.02)
            said = "\n".join(sorted(said.splitlines()))  # (the terminal's echo comes between)
            return said + tmux(client_way, "list-sessions", "-F", "#{session_name} #{session_windows}")
        finally:
            tmux(client_way, "kill-server")

    each_way(exercise)


@needs("memcached", "memccp", "memccat", "memcslap")
def test_memcached(tmp_path: Path) -> None:
    (tmp_path / "things").write_bytes(os.urandom(300_000).hex().encode())
    path = tmp_path / "memcached"

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        words = ["memcached", "-s", path, "-t", "2", *(["-u", "root"] if os.geteuid() == 0 else [])]
        with serving(server_way, path, *words, **variables):
            said_by(tmp_path, client_way, ("memccp", f"--servers={path}", tmp_path / "things"), **variables)
            many = ("memcslap", f"--servers={path}", "--concurrency=10", "--execute-number=300", "--test=get")
            got = client(client_way, tmp_path, many, **variables)
            assert got.status == 0
            assert got.ring >= 10 if server_way == client_way == FASTSOCK else got.ring == 0
            return said_by(tmp_path, client_way, ("memccat", f"--servers={path}", "things"), **variables)

    each_way(exercise)


@needs("mariadbd", "mariadb", "mariadb-install-db")
def test_mariadb(tmp_path: Path) -> None:
    data, path = tmp_path / "data", tmp_path / "socket"
    install = ("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=socket")
    ended([*install, f"--auth-root-socket-user={pwd.getpwuid(os.geteuid()).pw_name}"])
    session = "create table t (id int primary key, what text);\n"
    session += "".join(f"insert into t values ({n}, repeat('x', {n * 20}));\n" for n in range(200))
    session += "select id, md5(what) from t order by id;\nselect current_user();\ndrop table t;\n"

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        words = ("mariadbd", "--no-defaults", f"--datadir={data}", "--skip-networking", f"--socket={path}")
        with serving(server_way, path, *words, f"--pid-file={data}/pid", "--user=root", **variables) as server:
            server.said("ready for connections")
            ask = ("mariadb", "--no-defaults", f"--socket={path}", "--user=root", "--batch", "test")
            got = client(client_way, tmp_path, ask, session, **variables)
            assert (got.errors, got.status) == ("", 0)
            assert got.ring == (server_way == client_way == FASTSOCK)
            server.end()
        return got.output

    each_way(exercise)


ZMQ = """
import hashlib, sys, threading, zmq
at, role = sys.argv[1:]
context = zmq.Context()
if role == "server":
    answers, takes = context.socket(zmq.REP), context.socket(zmq.PULL)
    answers.bind(at + "-answers"), takes.bind(at + "-takes")
    print("listens", flush=True)
    digest, count = hashlib.sha256(), 0
    while (asked := answers.recv()) != b"end":
        answers.send(asked.upper())
    while (part := takes.recv()) != b"end":
        digest.update(part)
        count += 1
    print(count, digest.hexdigest(), flush=True)
    context.destroy(1000)
else:
    asks, gives = context.socket(zmq.REQ), context.socket(zmq.PUSH)
    asks.connect(at + "-answers"), gives.connect(at + "-takes")
    for n in range(300):
        asks.send(b"question %d" % n)
        assert asks.recv() == b"QUESTION %d" % n
    asks.send(b"end")
    for n in range(300):
        gives.send(b"x" * (n * n))
    gives.send(b"end")
    context.destroy(10000)
"""


def test_zeromq(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    script = tmp_path / "zeromq.py"
    script.write_text(ZMQ)

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        at = f"ipc://{tmp_path}/zmq"
        with Server(command(server_way, script, at, "server"), **variables) as server:
            server.said("listens")
            ended(command(client_way, script, at, "client"), **variables)
            assert server.wait() == 0
            return server.text()

    each_way(exercise)


PAGES = """
def wsgi(environ, start_response):
    size = int(environ["QUERY_STRING"] or 10)
    start_response("200 OK", [("Content-Length", str(size)), ("Content-Type", "text/plain")])
    return [b"p" * size]
"""
NGINX = """
{user} daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log info;
events {{ }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream behind {{ server unix:{folder}/pages; keepalive 4; }}
    server {{
        listen unix:{folder}/front;
        location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


@needs("nginx", "curl")
def test_nginx_before_gunicorn(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "pages_at_a_socket.py").write_text(PAGES)
    user = "user root;" if os.geteuid() == 0 else ""
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, user=user))
    front, pages = tmp_path / "front", tmp_path / "pages"

    def exercise(server_way: str, client_way: str, variables: dict[str, str]) -> str:
        words = f"-m gunicorn --bind unix:{pages} --worker-class gthread --threads 4 --chdir {tmp_path}"
        pages.unlink(missing_ok=True)
        with Server(command(server_way, *words.split(), "pages_at_a_socket:wsgi"), **variables) as behind:
            behind.until(pages.exists, "it listens")
            nginx = ("nginx", "-p", tmp_path, "-c", tmp_path / "nginx.conf")
            with serving(client_way, front, *nginx, **variables) as server:
                urls = [f"http://localhost/?{size}" for size in (*range(1, 60), 100_000, 3_000_000)]
                curl = ("curl", "-sS", "--unix-socket", front, *urls)
                said = said_by(tmp_path, client_way, curl, **variables)
                server.end(signal.SIGQUIT)
            behind.end()
        return str(len(said)) + said[:2000]

    each_way(exercise)
