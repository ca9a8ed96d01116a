"""memcached and PostgreSQL with their own clients: the same answers whichever end is under fastsock, and on the ring
where both are."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, PLAIN, ROOT, WAYS, Process, Server, ended, environment, port_for_later

from .native import Answer, client, needs, ordinary_user, under

SCRIPTS = Path(__file__).parent / "scripts"

# ---- memcached ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def memcached(way: str, threads: int, user: str = "", **variables: str) -> Iterator[int]:
    port = port_for_later()
    words = ["memcached", "-l", "127.0.0.1", "-p", port, "-t", threads, "-U", "0", "-I", "8m", "-m", "256"]
    if os.geteuid() == 0:
        words += ["-u", user or "root"]
    with Server(under(way, words), **variables) as server:
        server.listens(port)
        yield port
        server.end()


def slap(way: str, folder: Path, port: int, connections: int, *more: str, **variables: str) -> Answer:
    words = ("memcslap", f"--servers=127.0.0.1:{port}", f"--concurrency={connections}", *more)
    got = client(way, folder, words, **variables)
    assert (got.status, got.errors) == (0, "")
    return got


@needs("memcached", "memccapable", "memccp", "memccat", "memcslap")
@pytest.mark.parametrize("threads", [1, 4])
def test_memcached(threads: int, tmp_path: Path) -> None:
    """Both protocols, a value of 4 MiB, and many connections."""
    big = tmp_path / "big"
    big.write_bytes(os.urandom(3 << 20).hex().encode()[: 4 << 20])
    expected = None
    for server_way, client_way in WAYS:
        both = server_way == client_way == FASTSOCK
        with memcached(server_way, threads) as port:
            at = f"--servers=127.0.0.1:{port}"
            got = [client(client_way, tmp_path, ("memccapable", "-h", "127.0.0.1", "-p", port, "-a"))]
            got += [client(client_way, tmp_path, ("memccapable", "-h", "127.0.0.1", "-p", port, "-b"))]
            got += [
                client(client_way, tmp_path, ("memccp", at, big)),
                client(client_way, tmp_path, ("memccat", at, "big")),
            ]
            told = [(hashlib.sha256(one.output.encode()).hexdigest(), *one.seen()[1:]) for one in got]
            expected = expected or told
            assert told == expected, (server_way, client_way)
            assert got[-1].output.rstrip("\n") == big.read_text()
            for more in ((), ("--binary",)):
                ring = slap(client_way, tmp_path, port, 60, "--execute-number=300", "--test=get", *more).ring
                assert ring >= 60 if both else ring == 0


@needs("memcached", "memcslap")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("trust", ["user", "any"])
def test_memcached_that_becomes_another_user(trust: str, tmp_path: Path) -> None:
    """It is judged by the user that it is by then."""
    with memcached(FASTSOCK, 4, "nobody", FASTSOCK_TRUST=trust) as port:
        ring = slap(FASTSOCK, tmp_path, port, 4, "--execute-number=2000", "--test=get", FASTSOCK_TRUST=trust).ring
        assert ring >= 4 if trust == "any" else ring == 0


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------


def binaries() -> Path | None:
    """Where the server's programs lie."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda path: float(path.parent.name))


POSTGRES = binaries()
DATABASE = pytest.mark.skipif(not POSTGRES or not shutil.which("psql"), reason="not installed: postgresql")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cluster, with a certificate."""
    assert POSTGRES
    folder = tmp_path_factory.mktemp("postgres") / "data"
    ended([*ordinary_user(), POSTGRES / "initdb", "-D", folder, "-A", "trust", "-U", "postgres", "--no-sync"])
    for name in ("server.crt", "server.key"):
        shutil.copy(ROOT / "bench/localhost.pem", folder / name)
        (folder / name).chmod(0o600)
    return folder


class Postgres:
    """A running server."""

    def __init__(self, server: Server, port: int, data: Path, folder: Path) -> None:
        self.server, self.port, self.data, self.folder = server, port, data, folder

    def words(self, program: str, *more: object, ssl: str = "disable") -> list[object]:
        if program == "psql":
            more = (
                "-X",
                "-v",
                "VERBOSITY=terse",
                *more,
                f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres sslmode={ssl}",
            )
        else:
            more = ("-h", "127.0.0.1", "-p", self.port, "-U", "postgres", *more, "postgres")
        return [program, *more]

    def client(self, way: str, program: str, *more: object, given: str = "", **kw: str) -> Answer:
        return client(way, self.folder, self.words(program, *more, **kw), given)

    def waits_for(self, query: str) -> None:
        """Waits until a client is in this query."""
        look = f"select count(*) from pg_stat_activity where state = 'active' and query = '{query}'"
        self.server.until(lambda: self.client(PLAIN, "psql", "-Atc", look).output == "1\n", query)

    def stop(self, how: str) -> None:
        """As an administrator stops it; it ends well, with all its processes."""
        assert POSTGRES
        ended([*ordinary_user(), POSTGRES / "pg_ctl", "-D", self.data, "stop", "-m", how])
        assert self.server.wait() == 0, self.server.text()
        with pytest.raises(ProcessLookupError):
            os.killpg(self.server.pid, 0)


@contextlib.contextmanager
def postgres(way: str, data: Path, folder: Path, sockets: str = "", **variables: str) -> Iterator[Postgres]:
    assert POSTGRES
    port = port_for_later()
    options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": sockets, "fsync": "off", "ssl": "on"}
    words = [POSTGRES / "postgres", "-D", data, "-p", port, *(f"--{name}={value}" for name, value in options.items())]
    with Server([*ordinary_user(), *under(way, words)], cwd=folder, **variables) as server:
        server.said("ready to accept connections")
        yield Postgres(server, port, data, folder)
        if server.process.poll() is None:
            server.end(signal.SIGINT)


MANY = "\n".join(f"select {n}, repeat('x', {n * 50});" for n in range(300))
SESSION = f"""
create table things (id int primary key, what text);
insert into things select n, md5(n::text) from generate_series(1, 20000) n;
select count(*), min(what), max(what) from things;
insert into things values (1, 'twice');
begin; update things set what = 'x' where id < 100; rollback;
listen news; notify news, 'told';
select 1;
set statement_timeout = 100; select pg_sleep(60); reset statement_timeout;
\\copy (select * from things where id < 5 order by id) to stdout
nonsense;
{MANY}
drop table things;
"""
ROWS = "select n, md5(n::text), repeat('y', 60) from generate_series(1, 500000) n"  # about 50 MB


@DATABASE
def test_a_session_of_psql_by_a_unix_socket(data: Path, tmp_path: Path) -> None:
    expected = None
    for server_way, client_way in WAYS:
        with postgres(server_way, data, tmp_path, str(tmp_path)) as server:
            words = (
                "psql",
                "-X",
                "-v",
                "VERBOSITY=terse",
                "-h",
                tmp_path,
                "-p",
                server.port,
                "-U",
                "postgres",
                "postgres",
            )
            got = client(client_way, tmp_path, words, SESSION)
            told = (re.sub(r"PID \d+", "PID", got.output), *got.seen()[1:])
            expected = expected or told
            assert told == expected, (server_way, client_way)
            assert got.ring == (server_way == client_way == FASTSOCK)


@DATABASE
@pytest.mark.parametrize("ssl", ["disable", "require"])
def test_psql(ssl: str, data: Path, tmp_path: Path) -> None:
    expected = None
    for server_way in (PLAIN, FASTSOCK):
        with postgres(server_way, data, tmp_path) as server:
            for client_way in (PLAIN, FASTSOCK):
                got = server.client(client_way, "psql", given=SESSION, ssl=ssl)
                told = (re.sub(r"(?<=PID )\d+", "OWN", got.output), got.errors, got.status)
                expected = expected or told
                assert told == expected, (server_way, client_way)
                assert got.ring == 1 if server_way == client_way == FASTSOCK else got.ring == 0
    assert expected
    assert "canceling statement due to statement timeout" in expected[1]
    assert 'notification "news" with payload "told" received' in expected[0]


@DATABASE
def test_copy(data: Path, tmp_path: Path) -> None:
    hashes = set()
    for server_way in (PLAIN, FASTSOCK):
        with postgres(server_way, data, tmp_path) as server:
            for client_way in (PLAIN, FASTSOCK):
                out = server.client(client_way, "psql", "-c", f"copy ({ROWS}) to stdout")
                assert (out.status, out.errors) == (0, "")
                new = ("-c", "drop table if exists big", "-c", "create table big (n int, a text, b text)")
                again = server.client(client_way, "psql", "-q", *new, "-c", "copy big from stdin", given=out.output)
                assert again.status == 0, again.errors
                same = server.client(client_way, "psql", "-Atc", "copy (select * from big order by n) to stdout")
                hashes |= {hashlib.sha256(text.encode()).hexdigest() for text in (out.output, same.output)}
                if server_way == client_way == FASTSOCK:
                    assert (out.ring, again.ring, same.ring) == (1, 1, 1)
    assert len(hashes) == 1


@DATABASE
@needs("pgbench")
def test_pgbench(data: Path, tmp_path: Path) -> None:
    for server_way, client_way in WAYS:
        with postgres(server_way, data, tmp_path) as server:
            assert server.client(client_way, "pgbench", "-i", "-q", "-s", "1").status == 0
            for more in (("-S",), (), ("-S", "-M", "prepared"), ("-C", "-S")):
                got = server.client(client_way, "pgbench", "-n", "-c", "8", "-j", "2", "-t", "100", *more)
                assert (got.status, got.errors.partition("pgbench (")[0]) == (0, "")
                assert "actually processed: 800/800" in got.output
                if server_way == client_way == FASTSOCK and "-C" not in more:
                    assert got.ring >= 8
                elif PLAIN in (server_way, client_way):
                    assert got.ring == 0


SLEEP = "select pg_sleep(60)"


@DATABASE
@pytest.mark.parametrize("how", ["ctrl-c", "cancel", "terminate", "fast", "immediate", "kill"])
def test_a_query_that_does_not_come_to_its_end(how: str, data: Path, tmp_path: Path) -> None:
    expected = None
    for server_way, client_way in WAYS:
        with postgres(server_way, data, tmp_path) as server:
            output = tmp_path / "output"
            words = under(client_way, server.words("psql", "-f", tmp_path / "queries"))
            (tmp_path / "queries").write_text(MANY + f"\n{SLEEP};\nselect 'behind';\n")
            with output.open("w") as file:
                session = Process(words, stdout=file, stderr=file, env=environment(PGAPPNAME="asleep"), cwd=tmp_path)
            with session:
                server.waits_for(f"{SLEEP};")
                whose = "from pg_stat_activity where application_name = 'asleep'"
                if how == "ctrl-c":
                    os.kill(session.pid, signal.SIGINT)
                elif how in ("cancel", "terminate"):
                    got = server.client(client_way, "psql", "-Atc", f"select pg_{how}_backend(pid) {whose}")
                    assert got.output == "t\n"
                elif how == "kill":
                    pid = server.client(client_way, "psql", "-Atc", f"select pid {whose}").output
                    os.kill(int(pid), signal.SIGKILL)
                else:
                    server.stop(how)
                status = session.wait()
                told = (output.read_text(), status)
                expected = expected or told
                assert told == expected, (server_way, client_way)
            if how == "kill":  # the server begins anew, and serves
                server.server.said("ready to accept connections", times=2)
                assert server.client(client_way, "psql", "-Atc", "select 1").output == "1\n"


@DATABASE
def test_psycopg2(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("psycopg2")
    expected = None
    for server_way, client_way in WAYS:
        with postgres(server_way, data, tmp_path) as server:
            words = (sys.executable, SCRIPTS / "psycopg2_client.py", server.port)
            got = client(client_way, tmp_path, words, options=("--libc",))
            assert got.seen()[1:] == ("", 0)
            expected = expected or got.output
            assert got.output == expected, (server_way, client_way)
            assert got.ring >= 3 if server_way == client_way == FASTSOCK else got.ring == 0
