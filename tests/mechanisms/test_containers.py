"""What happens to containers whose programs meet in a folder: users, a folder that is read-only or goes, a restart; and
what the tools say of them. The containers are those of the recipes (`harness.hosts.images`), of users without
capabilities, below Docker's filter of system calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.hosts import Container, Images, containers, images
from harness.pairs import until
from harness.processes import FASTSOCK, ROOT, Program, Server, command, ended
from interpose.test_musl import COMPILER as WITH_HEADERS
from interpose.test_musl import FOLDER as OF_MUSL
from interpose.test_musl import WITH_MUSL

from fastsock.tools import export
from mechanisms.test_network_namespaces import DIFFERENT

ECHO = """
        of = listener()
        def echo(conn):
            while data := conn.recv(1 << 16): conn.sendall(data)
            conn.close()
        while True: threading.Thread(target=echo, args=[of.accept()[0]]).start()
        """
ASKS = """
        ON_THE_WAY = ("looking for the peer", "too few operations", "sending", "receiving",
                      "returned to the kernel, or nothing sent yet")
        def asks():
            conn = socket.create_connection((SERVER, 7000), SECONDS)
            def decided():
                conn.sendall(b"x" * 100)
                assert read_exactly(conn, 100) == b"x" * 100
                return fastsock.path_of(conn).reason not in ON_THE_WAY
            until(decided, "a decision")
            return conn
        conn = asks()
        say(fastsock.path_of(conn).reason)
        """
MOVED = "both directions"


@pytest.fixture(scope="module")
def made() -> Iterator[Images]:
    with images() as made:
        yield made


@pytest.fixture(scope="module")
def spaces(made: Images) -> Iterator[list[Container]]:
    with containers(2, users=True) as spaces:
        yield spaces


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "meet").mkdir()
    return folder / "meet"


class Two:
    """A server and a client, each in a container, with a folder that both see as /meet."""

    def __init__(self, made: Images, spaces: list[Container], folder: Path, **variables: str) -> None:
        self.made, self.spaces, self.folder = made, spaces, folder
        self.variables = {"FASTSOCK_RENDEZVOUS_DIR": "/meet", "HOME": "/", **variables}
        self.running: list[Program] = []

    def program(self, where: int, text: str, user: int, writable: bool = True) -> Program:
        within = self.made.starts(self.spaces[where], user, [], {"/meet": (self.folder, writable)})
        address = self.spaces[0].address
        text = text.replace("\n        ", "\n")
        self.running.append(Program(DIFFERENT + text, address, "kernel", within=within, **self.variables))
        return self.running[-1]

    def server(self, user: int = 1000, text: str = ECHO) -> Program:
        program = self.program(0, text, user)
        assert program.line() == "listens"
        return program

    def client(self, text: str = ASKS, user: int = 1000, writable: bool = True) -> Program:
        return self.program(1, text, user, writable)

    def __enter__(self) -> Two:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.running:
            program.close()


USERS = {  # users of server and client, owner and mode of the folder, trust -> what the client says
    "one user": (1000, 1000, 1000, 0o700, "user", MOVED),
    "root": (0, 0, 0, 0o700, "user", MOVED),
    "root and another": (0, 1000, 0, 0o1777, "any", MOVED),
    "two users, named": (1000, 1001, 0, 0o1777, "any", MOVED),
    "two users": (1000, 1001, 0, 0o1777, "user", "peer on another host"),
}


@pytest.mark.parametrize("case", USERS)
def test_users(case: str, made: Images, spaces: list[Container], folder: Path) -> None:
    server, client, owner, mode, trust, expected = USERS[case]
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    with Two(made, spaces, folder, FASTSOCK_TRUST=trust) as two:
        two.server(server)
        assert two.client(user=client).line() == expected


def test_a_folder_that_one_may_only_read(made: Images, spaces: list[Container], folder: Path) -> None:
    os.chown(folder, 1000, 1000)
    with Two(made, spaces, folder) as two:
        two.server()
        assert two.client(writable=False).line() == "peer on another host"


def test_the_folder_goes_while_they_run(made: Images, spaces: list[Container], folder: Path) -> None:
    """What has moved stays; what comes later stays on kernel TCP, and says why."""
    os.chown(folder, 1000, 1000)
    later = """
        told()
        second = asks()
        say(fastsock.path_of(second).reason)
        conn.sendall(b"y"); say(conn.recv(1).decode())
        say(fastsock.path_of(conn).reason)
        """
    with Two(made, spaces, folder) as two:
        two.server()
        client = two.client(ASKS + later)
        assert client.line() == MOVED
        shutil.rmtree(folder)
        client.tell()
        assert client.line() == "peer not found in the rendezvous folder"
        assert (client.line(), client.line()) == ("y", MOVED)


def test_a_container_is_started_again(made: Images, spaces: list[Container], folder: Path) -> None:
    """With the same address and other process ids: what was proven of the one before it holds for nobody."""
    os.chown(folder, 1000, 1000)
    again = """
        for _ in range(2):
            told()
            try: say(repr(conn.recv(1)))
            except OSError as error: say(errno.errorcode[error.errno])
            conn.close()
            told()
            conn = asks()
            say(fastsock.path_of(conn).reason)
        """
    with Two(made, list(spaces), folder) as two:
        server = two.server()
        client = two.client(ASKS + again)
        assert client.line() == MOVED
        for _ in range(2):
            server.close()
            client.tell()
            assert client.line() in ("b''", "ECONNRESET")
            spaces[0] = two.spaces[0] = two.spaces[0].again()
            server = two.server()
            client.tell()
            assert client.line() == MOVED


# ---- what the tools say ----------------------------------------------------------------------------------------------


AS_1000 = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]


def inside(where: Container, program: Program, *words: object) -> list[str]:
    """A command in the container of a program, beside it, as its user."""
    first = child_of_all(program.pid)
    enter = ["nsenter", "--target", str(first), "--user", "--net", "--mount", "--pid", "--ipc", "--root", "--wd"]
    return [*enter, *AS_1000, *map(str, words)]


def child_of_all(pid: int) -> int:
    """The process that stands at the end of a chain of `nsenter` and `unshare`."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def test_ss_in_a_container(made: Images, spaces: list[Container], folder: Path) -> None:
    os.chown(folder, 1000, 1000)
    with Two(made, spaces, folder) as two:
        server, client = two.server(), two.client(ASKS + "told()")
        assert client.line() == MOVED
        for where, program in ((spaces[0], server), (spaces[1], client)):
            words = inside(where, program, *command(FASTSOCK)[:-1], "ss", "--json")
            (process,) = json.loads(ended(words).stdout)
            assert process["pid"] == 1
            connections = [one for one in process["connections"] if one["state"] == "ESTAB"]
            assert [(one["path"], one["reason"], one["peer_pid"]) for one in connections] == [("ring", MOVED, None)]


def test_ss_from_outside(made: Images, spaces: list[Container], folder: Path) -> None:
    """In the container's network alone, as its user: so the process ids are those of the node."""
    os.chown(folder, 1000, 1000)
    with Two(made, spaces, folder) as two:
        two.server()
        client = two.client(ASKS + "told()")
        assert client.line() == MOVED
        enter = ["nsenter", "--target", child_of_all(client.pid), "--net", *AS_1000]
        words = [*enter, *command(FASTSOCK)[:-1], "ss", "--json"]
        (process,) = json.loads(ended(words).stdout)
        assert process["pid"] == child_of_all(client.pid)
        (connection,) = process["connections"]
        assert (connection["path"], connection["peer"]) == ("ring", f"{spaces[0].address}:7000")


@pytest.mark.parametrize("given", [True, False])
def test_doctor_in_a_container(given: bool, made: Images, spaces: list[Container], folder: Path) -> None:
    os.chown(folder, 1000, 1000)
    program = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as conn:
    for _ in range(3000):
        conn.sendall(b"x"); conn.recv(1)
"""
    with Two(made, spaces, folder) as two:
        two.server()
        setting = ["FASTSOCK_RENDEZVOUS_DIR=/meet"] if given else []
        words = ["env", "HOME=/", *setting, *command(FASTSOCK)[:-1], "doctor", "-c", program, spaces[0].address]
        said = ended(made.starts(spaces[1], 1000, words, {"/meet": (folder, True)}), None).stderr
    if given:
        assert "moved to the ring: 1 connection end" in said
    else:
        assert "peer on another host" in said
        assert "rendezvous_dir" in said


# ---- programs in C, of either C library ------------------------------------------------------------------------------


@pytest.mark.skipif(not WITH_MUSL, reason="no musl-gcc here when fastsock was built")
@pytest.mark.parametrize(("of_server", "of_client"), [("musl", "musl"), ("musl", "glibc"), ("glibc", "musl")])
def test_programs_of_two_c_libraries(
    of_server: str, of_client: str, made: Images, spaces: list[Container], folder: Path
) -> None:
    """Each is served by the library for its own, from one folder that `fastsock export` has filled."""
    os.chown(folder, 1000, 1000)
    folder.chmod(0o700)
    shared, reports = folder.parent / "fastsock", folder.parent / "reports"
    export.export(str(shared))
    for place in (reports, reports / "0", reports / "1"):
        place.mkdir()
        place.chmod(0o777)
    only = [OF_MUSL / "glibc_only.c", "-include", OF_MUSL / "glibc_only.h"]
    for name, compiler in (("glibc", [os.environ.get("CC", "cc")]), ("musl", [*WITH_HEADERS, "-D_GNU_SOURCE", *only])):
        words = [*compiler, "-O1", ROOT / "tests/soak/echo.c", "-pthread", "-ldl", "-o", shared / f"echo-{name}"]
        subprocess.run(words, check=True, timeout=60)
    volumes = {"/meet": (folder, True), "/fastsock": (shared, False)}
    libraries = {"glibc": "libfastsock.so", "musl": "libfastsock-musl.so"}

    def program(where: int, libc: str, *words: object) -> list[str]:
        variables = {
            "LD_PRELOAD": f"/fastsock/{libraries[libc]}",
            "FASTSOCK_RENDEZVOUS_DIR": "/meet",
            "FASTSOCK_RUN_REPORT": "/reports",
        }
        given = [f"{name}={value}" for name, value in variables.items()]
        words = ("env", *given, f"/fastsock/echo-{libc}", *words)
        return made.starts(spaces[where], 1000, words, {**volumes, "/reports": (reports / str(where), True)})

    def moved(where: int) -> bool:
        return any('"path": "ring"' in path.read_text() for path in (reports / str(where)).glob("*.jsonl"))

    address = spaces[0].address
    with (
        Server(program(0, of_server, "server", "threads", address, 7001)) as server,
        Server(program(1, of_client, "client", "blocking", address, 7001, 1)) as client,
    ):
        until(lambda: client.text().count("ok ") >= 20 and moved(0) and moved(1), "connections of both move")
        assert set(client.text().split()[::2]) <= {"ok", "cut"}, client.text()
        assert server.text() == ""
