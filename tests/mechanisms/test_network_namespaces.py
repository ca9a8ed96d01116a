"""Processes in different network namespaces that see one folder (the setting `rendezvous_dir`). Where the kind is a
parameter, plain TCP is what the ring has to equal."""

import os
import signal
import stat
from pathlib import Path

import pytest
from harness.hosts import Container
from harness.pairs import eventually
from harness.processes import FASTSOCK, Program, command, ended

PORT = 7000
DIFFERENT = """
fastsock.patch()
SERVER, KIND = sys.argv[1:3]
def listener():
    made = socket.create_server((SERVER, 7000))
    say("listens")
    return made
def accepted(of):
    made, _ = of.accept()
    made.settimeout(SECONDS)
    if KIND == "ring": settle(made, leads=False)
    return made
def connected():
    made = socket.create_connection((SERVER, 7000), SECONDS)
    if KIND == "ring": settle(made)
    return made
"""
"""What both programs begin with: their addresses, and a connection that has moved if it is to."""


kinds = pytest.mark.parametrize("kind", ["kernel", "ring"])


class Two:
    """A server and a client, each in a container."""

    def __init__(
        self, three: list[Container], folder: Path, kind: str, server: str, client: str, **variables: str
    ) -> None:
        self.here, self.there = three[:2]
        self.texts, self.kind, self.variables = (server, client), kind, variables
        if kind == "ring":
            self.variables = {"FASTSOCK_RENDEZVOUS_DIR": str(folder), **variables}

    def program(self, where: Container, text: str) -> Program:
        return Program(
            DIFFERENT + text.replace("\n        ", "\n"),
            self.here.address,
            self.kind,
            within=where.within,
            **self.variables,
        )

    def __enter__(self) -> tuple[Program, Program]:
        self.server = self.program(self.here, self.texts[0])
        assert self.server.line() == "listens"
        self.client = self.program(self.there, self.texts[1])
        return self.server, self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.close()


ECHO = """
        conn = accepted(listener())
        while data := conn.recv(1 << 16): conn.sendall(data)
        say("end")
        """


@kinds
def test_echo(three: list[Container], folder: Path, kind: str) -> None:
    client = """
        conn = connected()
        for size in (1, 100, 40_000, 3_000_000):
            sent = os.urandom(size)
            threading.Thread(target=conn.sendall, args=[sent]).start()
            assert read_exactly(conn, size) == sent
        say(fastsock.path_of(conn).path)
        conn.close()
        """
    with Two(three, folder, kind, ECHO, client) as (server, client):
        assert client.line() == ("ring" if kind == "ring" else "tcp")
        assert server.line() == "end"
    assert os.listdir(folder) == []


@kinds
def test_event_loops(three: list[Container], folder: Path, kind: str) -> None:
    """Each wakes the other's event set by its page, which came by the way. (On a busy machine they meet later.)"""
    server = """
        import asyncio
        async def echo(reader, writer):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.close()
        async def main():
            server = await asyncio.start_server(echo, SERVER, 7000)
            say("listens")
            await server.serve_forever()
        fastsock.aio.run(main())
        """
    client = """
        import asyncio, itertools
        async def main():
            async def talks(number):
                reader, writer = await asyncio.open_connection(SERVER, 7000)
                moves, limit = KIND == "ring", time.monotonic() + SECONDS
                for i in itertools.count():
                    writer.write(b"%d/%d" % (number, i))
                    assert await reader.read(100) == b"%d/%d" % (number, i)
                    path = fastsock.path_of(writer).path
                    if i >= 300 and (path == "ring" or not moves or time.monotonic() > limit): break
                    if i % 100 == 0: await asyncio.sleep(0.05)
                writer.close()
                return path
            say(" ".join(sorted(set(await asyncio.gather(*map(talks, range(20)))))))
        fastsock.aio.run(main())
        """
    with Two(three, folder, kind, server, client) as (_, client):
        assert client.line() == ("ring" if kind == "ring" else "tcp")


def test_without_the_setting_nothing_moves(three: list[Container], folder: Path) -> None:
    server = """
        conn, _ = listener().accept()
        while data := conn.recv(100): conn.sendall(data)
        """
    client = """
        conn = socket.create_connection((SERVER, 7000), SECONDS)
        for _ in range(50):
            conn.sendall(b"x"); conn.recv(1)
        say(fastsock.path_of(conn).reason)
        """
    with Two(three, folder, "kernel", server, client) as (_, client):
        assert client.line() == "peer on another host"


@pytest.mark.parametrize("host", ["127.0.0.1", "own"])
def test_within_one_namespace_the_folder_is_not_used(three: list[Container], folder: Path, host: str) -> None:
    before = os.stat(folder).st_mtime_ns
    program = """
        l = socket.create_server((SERVER if KIND == "own" else KIND, 7001))
        a = socket.create_connection(l.getsockname()[:2]); b = l.accept()[0]
        def drive(): settle(b, leads=False)
        thread = threading.Thread(target=drive); thread.start()
        settle(a); thread.join()
        say(fastsock.path_of(a).path)
        say(os.listdir(os.environ["FASTSOCK_RENDEZVOUS_DIR"]))
        """.replace("\n        ", "\n")
    with Program(
        DIFFERENT + program, three[0].address, host, within=three[0].within, FASTSOCK_RENDEZVOUS_DIR=str(folder)
    ) as made:
        assert made.line() == "ring"
        assert made.line() == "[]"
    assert os.stat(folder).st_mtime_ns != before  # (it was tried once)


@kinds
def test_a_killed_peer(three: list[Container], folder: Path, kind: str) -> None:
    """Who reads gets what was sent, and then the end; who has bytes unread there gets the reset."""
    server = """
        of = listener()
        conn = accepted(of)
        conn.sendall(b"last words")
        signal.pause()
        """
    client = """
        conn = connected()
        assert read_exactly(conn, 10) == b"last words"
        if os.environ.get("UNREAD"): conn.sendall(b"nobody reads this")
        say("ready")
        try: say(repr(conn.recv(10)))
        except OSError as error: say(errno.errorcode[error.errno])
        """
    for unread, expected in (("", "b''"), ("1", "ECONNRESET")):
        with Two(three, folder, kind, server, client, UNREAD=unread) as (server_, client_):
            assert client_.line() == "ready"
            server_.kill()
            assert client_.line() == expected


@kinds
def test_a_stopped_peer_is_waited_for(three: list[Container], folder: Path, kind: str) -> None:
    client = """
        conn = connected()
        say("ready"); told()
        conn.sendall(b"are you there?")
        conn.settimeout(1.5)
        try: conn.recv(14)
        except TimeoutError: say("silence")
        conn.settimeout(SECONDS)
        say(read_exactly(conn, 14).decode())
        """
    with Two(three, folder, kind, ECHO, client) as (server, client):
        assert client.line() == "ready"
        os.killpg(server.pid, signal.SIGSTOP)
        client.tell()
        assert client.line() == "silence"
        os.killpg(server.pid, signal.SIGCONT)
        assert client.line() == "are you there?"


@kinds
def test_a_peer_that_has_half_closed_is_alive(three: list[Container], folder: Path, kind: str) -> None:
    """The kernel's tables here have no socket of its, and that says nothing."""
    server = """
        conn = accepted(listener())
        while conn.recv(100): pass
        conn.sendall(bytes(40_000_000))
        say("sent")
        conn.close()
        """
    client = """
        conn = connected()
        conn.sendall(b"a request")
        conn.shutdown(socket.SHUT_WR)
        time.sleep(2)
        say(len(read_to_eof(conn)))
        """
    with Two(three, folder, kind, server, client) as (server, client):
        assert client.line() == "40000000"
        assert server.line() == "sent"


@kinds
def test_a_descriptor_that_goes_to_another_program(three: list[Container], folder: Path, kind: str) -> None:
    """The connection goes back to the kernel, with bytes unread: the peer is asked by the way."""
    server = """
        import subprocess
        conn = accepted(listener())
        conn.settimeout(None)
        say("has it"); told()
        print(subprocess.run(["cat"], stdin=conn, capture_output=True).stdout.decode(), flush=True)
        """
    client = """
        conn = connected()
        conn.sendall(b"unread ")
        say("sent"); told()
        conn.sendall(b"and later")
        conn.shutdown(socket.SHUT_WR)
        conn.recv(1)
        """
    with Two(three, folder, kind, server, client) as (server, client):
        assert server.line() == "has it"
        assert client.line() == "sent"
        server.tell()
        client.tell()
        assert server.line() == "unread and later"


@kinds
def test_a_descriptor_goes_whose_peer_has_gone_back_already(three: list[Container], folder: Path, kind: str) -> None:
    """What has half-closed might be dead, so who sends to it goes back to the kernel, with these bytes already."""
    server = """
        import subprocess
        conn = accepted(listener())
        conn.settimeout(None)
        conn.shutdown(socket.SHUT_WR)
        say("has ended"); told()
        reader = subprocess.Popen(["cat"], stdin=conn, stdout=subprocess.PIPE)
        say("has gone")
        print(reader.communicate()[0].decode(), flush=True)
        """
    client = """
        conn = connected()
        assert conn.recv(1) == b""
        conn.sendall(b"through the kernel")
        say("sent"); told()
        conn.sendall(b", all of it")
        conn.shutdown(socket.SHUT_WR)
        told()
        """
    with Two(three, folder, kind, server, client) as (server, client):
        assert server.line() == "has ended"
        assert client.line() == "sent"
        server.tell()
        assert server.line() == "has gone"
        client.tell()
        assert server.line() == "through the kernel, all of it"


@kinds
def test_a_child_takes_a_connection_over(three: list[Container], folder: Path, kind: str) -> None:
    """Its event set is woken, though the peer's way led to the parent."""
    server = """
        import asyncio
        conn = accepted(listener())
        if os.fork():
            conn.close()
            os.wait()
            os._exit(0)
        async def main():
            reader, writer = await asyncio.open_connection(sock=conn)
            while data := await reader.read(100):
                writer.write(data)
            say("end")
        asyncio.run(main())
        os._exit(0)
        """
    client = """
        conn = connected()
        for i in range(5):
            time.sleep(0.3)
            for j in range(50):
                conn.sendall(b"%d" % j)
                assert conn.recv(10) == b"%d" % j
        conn.close()
        """
    with Two(three, folder, kind, server, client) as (server, client):
        assert server.line() == "end"
        assert client.wait() == 0


def test_two_servers_of_one_client(three: list[Container], folder: Path) -> None:
    """For the client both have the process id 0: their regions and event sets are told apart all the same."""
    server = """
        import selectors
        made, look = listener(), selectors.DefaultSelector()
        look.register(made, selectors.EVENT_READ)
        while True:
            for key, _ in look.select():
                if key.fileobj is made:
                    look.register(made.accept()[0], selectors.EVENT_READ)
                    continue
                data = key.fileobj.recv(100)
                if data: key.fileobj.sendall(data)
                else: look.unregister(key.fileobj), key.fileobj.close()
        """.replace("\n        ", "\n")
    client = """
        def moves(server):  # (on a busy machine one may be over before it has moved)
            with socket.create_connection((server, 7000), SECONDS) as conn:
                for j in range(100):
                    conn.sendall(b"%d" % j)
                    assert conn.recv(10) == b"%d" % j
                return fastsock.path_of(conn).path == "ring"
        for i in range(40):
            while not moves(("10.99.0.2", "10.99.0.4")[i % 2]): pass
        say("moved")
        """.replace("\n        ", "\n")
    setting = {"FASTSOCK_RENDEZVOUS_DIR": str(folder)}
    with (
        Program(DIFFERENT + server, three[0].address, "ring", within=three[0].within, **setting) as first,
        Program(DIFFERENT + server, three[2].address, "ring", within=three[2].within, **setting) as second,
    ):
        assert (first.line(), second.line()) == ("listens", "listens")
        with Program(DIFFERENT + client, "", "ring", within=three[1].within, **setting) as program:
            assert program.line(60) == "moved"


# ---- the folder ----------------------------------------------------------------------------------------------------


def test_a_thousand_connections_leave_nothing_there(three: list[Container], folder: Path) -> None:
    server = """
        made = listener()
        made.listen(100)
        def echo(conn):
            with conn:
                while data := conn.recv(100): conn.sendall(data)
        while True: threading.Thread(target=echo, args=[made.accept()[0]]).start()
        """
    client = """
        moved = 0
        for i in range(1000):
            conn = socket.create_connection((SERVER, 7000), SECONDS)
            for j in range(12):
                conn.sendall(b"x"); conn.recv(1)
            moved += fastsock.path_of(conn).path == "ring"
            conn.close()
        say(moved)
        """
    with Two(three, folder, "ring", server, client) as (_, client):
        assert int(client.line(60)) > 300
        eventually(lambda: os.listdir(folder), [])


def test_the_names_of_a_killed_process_are_swept(three: list[Container], folder: Path) -> None:
    publishes = """
        l = listener()
        kept = []
        while True:
            conn, _ = l.accept()
            kept.append(conn)
            for _ in range(3): conn.send(b"x")
            say("published")
        """
    client = """
        kept = [socket.socket() for _ in range(3)]
        for each in kept: each.connect((SERVER, 7000))
        signal.pause()
        """
    with Two(three, folder, "ring", publishes, client) as (server, _):
        for _ in range(3):
            assert server.line() == "published"
        assert len(os.listdir(folder)) == 3
        server.kill()
    assert len(os.listdir(folder)) == 3
    for left in folder.iterdir():
        assert stat.S_ISSOCK(left.stat().st_mode)
    import time

    time.sleep(6)
    with Two(three, folder, "ring", ECHO, "conn = connected(); say('moved'); conn.close()") as (server, client):
        assert client.line() == "moved"
        assert server.line() == "end"
    eventually(lambda: os.listdir(folder), [])


FAULTS = {
    "missing": ("it does not exist", "F=$1/none"),
    "a file": ("it is no folder", "F=$1/file; touch $F"),
    "of strangers": ("every user may write to it", "F=$1; chmod 1777 $F"),
    "read-only": ("this user may not write to it", "F=$1; mount --bind $F $F; mount -o remount,bind,ro $F"),
    "without sockets": ("its file system has no sockets", "F=/proc/self/fdinfo"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_cannot_be_used_has_one_line(three: list[Container], folder: Path, fault: str) -> None:
    expected, script = FAULTS[fault]
    program = """
import fastsock, socket
fastsock.patch(); fastsock.patch(poll_us=1)
l = socket.create_server(("127.0.0.1", 0)); a = socket.create_connection(l.getsockname()); b = l.accept()[0]
a.sendall(b"works"); print(b.recv(5).decode())
"""
    script += '; shift; export FASTSOCK_RENDEZVOUS_DIR=$F; exec "$@"'
    words = three[0].command("sh", "-c", script, "sh", folder, *command(FASTSOCK, "-c", program))
    done = ended(words)
    assert done.stdout == "works\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("fastsock: rendezvous_dir (FASTSOCK_RENDEZVOUS_DIR) is ")
    assert f", and is not used: {expected}" in line


def test_a_folder_that_every_trusted_user_may_write_to(folder: Path) -> None:
    folder.chmod(0o1777)
    done = ended(
        command(FASTSOCK, "-c", "import fastsock; fastsock.patch()"),
        FASTSOCK_RENDEZVOUS_DIR=str(folder),
        FASTSOCK_TRUST="any",
    )
    assert done.stderr == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user(folder: Path) -> None:
    os.chown(folder, 4321, 4321)
    program = "import fastsock; fastsock.patch(); print(1)"
    done = ended(command(FASTSOCK, "-c", program), FASTSOCK_RENDEZVOUS_DIR=str(folder))
    assert "it belongs to another user, whom trust does not name" in done.stderr
    done = ended(command(FASTSOCK, "-c", program), FASTSOCK_RENDEZVOUS_DIR=str(folder), FASTSOCK_TRUST="user,4321")
    assert done.stderr == ""


# ---- what cannot be proven -------------------------------------------------------------------------------------------

WAITS_FOR_REASON = """
        conn = socket.create_connection((SERVER, 7000), SECONDS)
        conn.sendall(b"x"); conn.recv(1)
        def decided():
            conn.sendall(b"x"); conn.recv(1)
            return fastsock.path_of(conn).reason not in ("looking for the peer", "too few operations")
        until(decided, "a decision")
        say(fastsock.path_of(conn).reason)
        """


def test_without_udp_it_stays_on_kernel_tcp(three: list[Container], folder: Path) -> None:
    server = """
        conn, _ = listener().accept()
        while data := conn.recv(100): conn.sendall(data)
        """
    rule = ["rule", "add", "ipproto", "udp", "blackhole"]
    ended(three[0].command("ip", *rule, alone=False))
    try:
        with Two(three, folder, "ring", server, WAITS_FOR_REASON) as (_, client):
            assert client.line() == "peer's address not proven"
    finally:
        ended(three[0].command("ip", "rule", "del", *rule[2:], alone=False))


def test_a_peer_without_fastsock(three: list[Container], folder: Path) -> None:
    server = """
        fastsock.unpatch()
        conn, _ = listener().accept()
        while data := conn.recv(100): conn.sendall(data)
        """
    with Two(three, folder, "ring", server, WAITS_FOR_REASON) as (_, client):
        assert client.line() == "peer not found in the rendezvous folder"
