"""The recipes of containers, each played as it stands in the documents: the YAML is what is read here. A container is
what `harness.hosts` makes: network, mounts, processes, IPC, names and users of its own, no capabilities, no_new_privs,
and the system calls of Docker's default profile. An image is a program of this machine, as the image's user."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness.hosts import Container, Images, containers, images
from harness.processes import Server, ended
from third_party.programs.test_caches_and_databases import binaries

from project.test_recipes import RECIPES, files_of, rings
from project.test_snippets import CLIENT, SERVER

yaml = pytest.importorskip("yaml")
pytest.importorskip("psycopg")
pytest.importorskip("redis")

FILES = files_of(RECIPES["Containers"])
VENV = Path(sys.prefix) / "bin"
POSTGRES = """umask 077 && echo "$POSTGRES_PASSWORD" > /data/password
initdb -D /data/cluster -A scram-sha-256 -U postgres --pwfile=/data/password --no-sync > /dev/null
echo "host all all all scram-sha-256" >> /data/cluster/pg_hba.conf
exec postgres -D /data/cluster -c listen_addresses=* -c unix_socket_directories= -c fsync=off"""
IMAGES: dict[str, tuple[int, list[str], int]] = {  # user, command, where it listens
    "redis": (999, ["redis-server", "--save", "", "--protected-mode", "no"], 6379),
    "postgres": (999, ["sh", "-c", POSTGRES], 5432),
    "app": (0, [], 0),
    "client": (0, [], 0),
}
"""`redis:alpine` is none of them: there is no redis of musl here."""

TALKS = """
import redis
cache = redis.Redis(host=HOST)
for number in range(500):
    cache.set("last", number)
    assert int(cache.get("last")) == number
print("done")
"""


@dataclass
class Step:
    """A container that is started: its name, where, as whom, and what it is given."""

    name: str
    network: str
    image: str
    user: int
    words: list[str]
    variables: dict[str, str]
    volumes: dict[str, str] = field(default_factory=dict)
    """Its path in the container -> the name of the volume, with ":ro" where it may only be read."""
    to_its_end: bool = False


def words_of(command: Any) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(word) for word in command or []]


def steps_of_compose(text: str) -> list[Step]:
    made = yaml.safe_load(text)
    services = made["services"]
    waited_for = {
        name
        for service in services.values()
        if isinstance(conditions := service.get("depends_on"), dict)
        for name, of in conditions.items()
        if of["condition"] == "service_completed_successfully"
    }
    steps = []
    for name, service in services.items():
        if service["image"] not in IMAGES:
            continue
        user, command, _ = IMAGES[service["image"]]
        network = service.get("network_mode", f"service:{name}").partition(":")[2]
        variables = {key: str(value) for key, value in service.get("environment", {}).items()}
        mounts = {path: volume + (":ro" if how else "") for volume, path, *how in
                  (mount.split(":") for mount in service.get("volumes", []))}  # fmt: skip
        words = words_of(service.get("command")) or command
        steps.append(
            Step(
                name,
                network,
                service["image"],
                int(service.get("user", user)),
                words,
                variables,
                mounts,
                name in waited_for,
            )
        )
    return steps


def steps_of_pods(text: str) -> list[Step]:
    steps = []
    for pod in yaml.safe_load_all(text):
        spec, name = pod["spec"], pod["metadata"]["name"]
        sources = {
            volume["name"]: volume.get("hostPath", {}).get("path", f"{name}-{volume['name']}")
            for volume in spec["volumes"]
        }
        for kind in ("initContainers", "containers"):
            for one in spec[kind]:
                user = one.get("securityContext", spec["securityContext"])["runAsUser"]
                variables = {it["name"]: it["value"] for it in one.get("env", [])}
                mounts = {
                    it["mountPath"]: sources[it["name"]] + (":ro" if it.get("readOnly") else "")
                    for it in one["volumeMounts"]
                }
                words = words_of(one.get("command")) or IMAGES[one["image"]][1]
                steps.append(
                    Step(one["name"], name, one["image"], user, words, variables, mounts, kind != "containers")
                )
    return steps


class Node:
    """Containers and volumes of a machine."""

    def __init__(self, stack: contextlib.ExitStack, made: Images, networks: dict[str, Container]) -> None:
        self.stack, self.images, self.networks = stack, made, networks
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fs-")))
        self.folder.chmod(0o755)
        names = [f"{where.address} {name}" for name, where in networks.items()]
        (self.images.etc / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))

    def path(self, name: str) -> Path:
        """A folder for everybody, as the runtime makes volumes (by mounts that are for the container alone)."""
        path = self.folder / name.strip("/").replace("/", "-")
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
        return path

    def start(self, step: Step) -> Server | None:
        """None if it has run to its end."""
        volumes = {
            path: (self.path(name.removesuffix(":ro")), not name.endswith(":ro")) for path, name in step.volumes.items()
        }
        volumes |= {"/app": (self.path("app"), False), "/reports": (self.path(f"reports-{step.name}"), True)}
        volumes |= {"/data": (self.path(f"data-{step.name}"), True)}
        path = os.pathsep.join([str(VENV), str(binaries()), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"])
        variables = {**step.variables, "PATH": path, "FASTSOCK_RUN_REPORT": "/reports", "HOME": "/"}
        words = ["env", "-i", "-C", "/app", *(f"{name}={value}" for name, value in variables.items()), *step.words]
        line = self.images.starts(self.networks[step.network], step.user, words, volumes)
        if step.to_its_end:
            done = ended(line)
            assert done.stderr == ""
            return None
        server = self.stack.enter_context(Server(line))
        if port := IMAGES[step.image][2]:
            server.until(lambda: self.listens(step.network, port), f"{step.name} listens")
        return server

    def listens(self, network: str, port: int) -> bool:
        where = self.networks[network]
        probe = f"import socket; print(socket.socket().connect_ex(({where.address!r}, {port})))"
        return ended(where.command("python3", "-c", probe, alone=False)).stdout == "0\n"

    def moved(self, name: str) -> int:
        return rings(self.path(f"reports-{name}"))


@contextlib.contextmanager
def node(steps: list[Step]) -> Iterator[Node]:
    networks = list(dict.fromkeys(step.network for step in steps))
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(images())
        spaces = stack.enter_context(containers(len(networks), users=True))
        yield Node(stack, made, dict(zip(networks, spaces, strict=True)))


def play(steps: list[Step], programs: dict[str, str], last: str, rings_expected: int) -> Node:
    """Starts them in their order. The last one runs to its end, and so many of its connections have moved."""
    found = {"redis": shutil.which("redis-server"), "postgres": binaries()}
    missing = [step.image for step in steps if not found.get(step.image, True)]
    if missing:
        pytest.skip(f"not installed: {missing}")
    for _ in range(3):  # (on a busy machine it may be over before its connections have moved)
        with node(steps) as here:
            for name, source in programs.items():
                (here.path("app") / name).write_text(source)
            for step in steps:
                server = here.start(step)
                if server and step.name == "app" != last:
                    server.said("listening")
                if server and step.name == last:
                    assert server.wait() == 0, server.text()
                    assert "fastsock" not in server.text()
            if here.moved(last) == rings_expected:
                return
            said = {step.name: here.moved(step.name) for step in steps}
    pytest.fail(f"connections that moved: {said}")


REFUSED = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
WANTED = ("CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
print(*(line for line in open("/proc/self/status") if line.split()[0] in WANTED))
for number, what in ((438, "pidfd_getfd"), (312, "kcmp"), (272, "unshare"), (425, "io_uring_setup")):
    assert libc.syscall(number, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM, what
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
def test_what_a_container_may_do() -> None:
    with images() as made, containers(1, users=True) as (one,):
        done = ended(made.starts(one, 1000, ["python3", "-c", REFUSED], {}))
    nothing = "0" * 16
    assert done.stdout.split() == ["CapEff:", nothing, "CapBnd:", nothing, "NoNewPrivs:", "1", "Seccomp:", "2"]


@pytest.mark.parametrize("own_users", [True, False], ids=["users of the images", "one user"])
def test_compose_on_a_bridge(own_users: bool) -> None:
    steps = steps_of_compose(FILES["compose-bridge.yaml"])
    assert [step.name for step in steps] == ["fastsock", "redis", "postgres", "app"]
    for step in steps[1:]:
        assert step.volumes == {"/fastsock": "fastsock"}
        assert step.variables["FASTSOCK_RENDEZVOUS_DIR"].startswith("/fastsock/")
        assert step.variables["LD_PRELOAD"] == "/fastsock/libfastsock.so"
    if not own_users:
        for step in steps:
            step.variables.pop("FASTSOCK_TRUST", None)
            step.user = 1000
        steps[0].words[-1] = steps[0].words[-1].replace("1777", "0700")
    play(steps, {"app.py": FILES["app.py"]}, "app", 2)


def test_compose_with_one_network() -> None:
    programs = {"server.py": f"HOST = '127.0.0.1'\n{TALKS}"}
    steps = steps_of_compose(FILES["compose-volume.yaml"])
    assert [step.network for step in steps[1:]] == ["redis", "redis"]
    play(steps, programs, "app", 1)


def test_compose_of_two_that_have_python() -> None:
    settings = "HOST, PORT, EXPECTED = '127.0.0.1', 8000, {'ring'}\n"
    steps = steps_of_compose(FILES["compose.yaml"])
    play(steps, {"server.py": settings + SERVER, "client.py": settings + CLIENT}, "client", 1)


def test_a_pod() -> None:
    play(steps_of_pods(FILES["pod.yaml"]), {"server.py": f"HOST = '127.0.0.1'\n{TALKS}"}, "app", 1)


def test_two_pods_of_a_node() -> None:
    steps = steps_of_pods(FILES["node.yaml"])
    assert {step.network for step in steps} == {"redis", "app"}
    play(steps, {"server.py": f"HOST = 'redis'\n{TALKS}"}, "app", 1)
