"""Programs that live on unix sockets and pass descriptors over them: they say the same whichever end is under fastsock,
and stream sockets of AF_UNIX may move, at once or after some calls."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, PLAIN, Server, ended

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
