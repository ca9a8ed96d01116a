"""vsftpd, lftp and curl, and programs of rpcgen: the same whichever end is under fastsock."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.processes import FASTSOCK, ROOT, WAYS, Process, Server, port_for_later

from research import onc
from research.natives import VSFTPD

from .native import Answer, client, needs, under

# ---- FTP -----------------------------------------------------------------------------------------------------------

TLS = {
    "ssl_enable": "YES", "allow_anon_ssl": "YES", "require_ssl_reuse": "NO", "ssl_ciphers": "HIGH",
    "strict_ssl_read_eof": "NO", "rsa_cert_file": str(ROOT / "bench/localhost.pem"),
}  # fmt: skip
MODES = {"sessions are processes": {}, "one process": {"one_process_model": "YES"}, "TLS": TLS}
FTP = needs("vsftpd", "lftp", "curl")
EAGER = {"FASTSOCK_MOVE_AFTER": "0"}
"""Short connections move as well. (A control connection does not: the server copies it onto 0, 1 and 2.)"""
RUNS = [*((server, client, {}) for server, client in WAYS), (FASTSOCK, FASTSOCK, EAGER)]
"""How the server and its client are started, and their settings."""


@contextlib.contextmanager
def vsftpd(way: str, folder: Path, settings: dict[str, str], **more: str) -> Iterator[tuple[str, int]]:
    port = port_for_later()
    root, conf = folder / "served", folder.parent / "vsftpd.conf"
    root.mkdir()
    conf.write_text(
        "".join(f"{k}={v}\n" for k, v in {**VSFTPD, **more, "listen_port": port, "anon_root": root}.items())
    )
    with Server(under(way, ["vsftpd", conf]), cwd=folder, **settings) as server:
        server.listens(port)
        yield f"ftp://127.0.0.1:{port}", port
        assert server.process.poll() is None
        assert server.text() == ""


def contents(folder: Path) -> dict[str, str]:
    """Its files, and what they have."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def lftp(way: str, variables: dict[str, str], folder: Path, url: str, *commands: str) -> Answer:
    settings = "set net:max-retries 1; set cmd:fail-exit yes; set ssl:verify-certificate no; set ftp:use-mdtm no"
    return client(
        way, folder.parent, ["lftp", "--norc", "-e", "; ".join((settings, *commands, "quit")), url], **variables
    )


def session(way: str, folder: Path, url: str, tls: bool, variables: dict[str, str]) -> list[Answer]:
    """Files of all sizes there and back, lists, parts, and changes, in passive and in active mode."""
    ten, many, back = folder / "ten", folder / "many", folder / "back"
    many.mkdir(exist_ok=True)
    ten.write_bytes(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(320_000)))
    for n in range(60):
        (many / f"{n}").write_bytes(ten.read_bytes()[n : n + n * 300])
    part = folder / "part"
    part.write_bytes(ten.read_bytes()[:4_000_000])

    def curl(*more: str) -> Answer:
        return client(way, folder.parent, ["curl", "-sS", *(["--ssl-reqd", "-k"] if tls else []), *more], **variables)

    return [
        lftp(
            way, variables, folder, url, f"put {ten}", f"mirror -R {many}", f"mirror many {back}/many",
            f"get ten -o {back}/ten",
        ),
        lftp(
            way, variables, folder, url, "set ftp:passive-mode no", "nlist many", "cls -1 --size many",
            f"get ten -o {back}/active",
        ),
        lftp(
            way, variables, folder, url, f"get -c ten -o {part}", "mkdir new", "mv many/3 new/three", "rm many/4",
            "nlist new",
        ),
        curl("-C", "9000000", f"{url}/ten", "-o", f"{back}/rest"),
        curl("--ftp-port", "127.0.0.1", "-T", f"{many}/9", f"{url}/nine"),
        curl(f"{url}/nothing"),
        curl("--list-only", f"{url}/new/"),
    ]  # fmt: skip


@FTP
@pytest.mark.parametrize("mode", MODES)
def test_ftp(mode: str, tmp_path: Path) -> None:
    expected = None
    for number, (server_way, client_way, settings) in enumerate(RUNS):
        folder = tmp_path / f"{number}"
        (folder / "back").mkdir(parents=True)
        with vsftpd(server_way, folder, settings, **MODES[mode]) as (url, port):
            answers = session(client_way, folder, url, mode == "TLS", settings)
        told = [
            tuple(str(part).replace(f"{folder}", "").replace(f"{port}", "") for part in one.seen()) for one in answers
        ]
        expected = expected or (told, contents(folder))
        assert (told, contents(folder)) == expected, (server_way, client_way)
        ring = sum(one.ring for one in answers)
        if settings:
            assert ring >= 1
        assert ring == 0 or server_way == client_way == FASTSOCK
    assert expected
    if mode != "TLS":  # curl and vsftpd end an active transfer by an error with it
        assert [one[2] for one in expected[0]] == ["0", "0", "0", "0", "0", "78", "0"]


ABORTS = """
import ftplib, socket, sys
ftp = ftplib.FTP()
ftp.connect("127.0.0.1", int(sys.argv[1]), 60)
ftp.login()
ftp.set_pasv(sys.argv[2] == "passive")
for number in range(40):
    data = ftp.transfercmd("RETR ten")
    got = 0
    while got < 200_000:
        got += len(data.recv(50_000))
    if number % 2:
        data.close()  # the server finds the end of the data connection first
    ftp.sock.sendall(b"ABOR\\r\\n", socket.MSG_OOB if number % 4 < 2 else 0)
    data.close()
    ftp.putcmd("NOOP")
    while not (said := ftp.getmultiline()).startswith("200"):  # what it says of the end depends on who was faster
        pass
    print(said, ftp.size("ten"))
print(ftp.quit())
"""


@FTP
@pytest.mark.parametrize("mode", ["passive", "active"])
def test_aborted_transfers(mode: str, tmp_path: Path) -> None:
    script = tmp_path / "aborts.py"
    script.write_text(ABORTS)
    expected = None
    for number, (server_way, client_way, settings) in enumerate(RUNS):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        with vsftpd(server_way, folder, settings) as (_, port):
            (folder / "served/ten").write_bytes(b"0123456789" * 2_000_000)
            got = client(client_way, tmp_path, [sys.executable, script, port, mode], options=("--libc",), **settings)
        expected = expected or got.seen()
        assert got.seen() == expected, (server_way, client_way)
        assert got.ring >= 1 if settings else got.ring == 0 or server_way == client_way == FASTSOCK
    assert expected
    assert expected[2] == 0, expected


# ---- ONC RPC -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server and client that rpcgen makes."""
    if why := onc.missing():
        pytest.skip(why)
    return onc.build(tmp_path_factory.mktemp("onc"))


def test_rpc(calls: Path, tmp_path: Path) -> None:
    """Calls of up to 64 KiB, one that fails, one that comes too late, and the server's death."""
    expected = None
    for server_way, client_way in WAYS:
        stats = tmp_path / "server.json"
        with Server(under(server_way, [calls, "serve"], stats), stats=stats) as server:
            got = client(client_way, tmp_path, [calls, "check", server.port, 60])
            expected = expected or got.seen()
            assert got.seen() == expected, (server_way, client_way)
            assert server.wait() == 3
            both = server_way == client_way == FASTSOCK
            assert got.ring == (2 if both else 0)
            if server_way == FASTSOCK:
                assert server.stats()["connections_ring"] == got.ring
    assert expected
    assert "1080 calls came back" in expected[0]


def test_many_clients_of_an_rpc_server(calls: Path, tmp_path: Path) -> None:
    """Some of them are killed."""
    for server_way, client_way in WAYS:
        with Server(under(server_way, [calls, "serve"])) as server, contextlib.ExitStack() as stack:
            words = under(client_way, [calls, "measure", server.port, 5000, 60])
            killed = [stack.enter_context(Process(words)) for _ in range(5)]
            for size in (0, 4, 65536):
                assert client(client_way, tmp_path, [calls, "measure", server.port, size, 0.2]).status == 0
            for one in killed:
                one.kill()
            assert client(client_way, tmp_path, [calls, "check", server.port, 1]).status == 0
            assert server.wait() == 3
