"""What the recipe on containers says: those that share a network namespace move, those on a bridge do not."""

import contextlib
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import two_hosts

ROOT = Path(__file__).parent.parent
DEADLINE = 60
RECIPE = (ROOT / "docs/recipes.md").read_text().partition("## Containers\n")[2]
CONTAINER = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
"""What a container has for itself beside the network: mounts, process ids, names."""

SERVER = """
import socket, sys, threading

def serve(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)

with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""

CLIENT = """
import socket, sys, time
import fastsock

host, port, wanted, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3].split("|"), float(sys.argv[4])
ends = time.monotonic() + seconds
found = None
while found not in wanted and time.monotonic() < ends:
    with socket.create_connection((host, port)) as sock:
        for _ in range(2000):
            sock.sendall(b"hello")
            assert sock.recv(4096) == b"hello"
            path = fastsock.path_of(sock)
            found = path.path if path.path == "ring" else path.reason
            if found in wanted:
                break
print(found)
"""


@pytest.fixture
def hosts():
    with two_hosts() as both:
        yield both


def command(network, program, *words):
    run = [sys.executable, "-m", "fastsock", "run", program, *map(str, words)]
    return ["ip", "netns", "exec", network, *CONTAINER, *run]


def found(tmp_path, server, client, address, wanted):
    """Where the connection of a client in one container to a server in another one is, or why it is not on the ring."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    options = {"env": {**kept, "PYTHONPATH": str(ROOT)}, "stdin": subprocess.DEVNULL, "text": True, "cwd": tmp_path}
    for name, source in (("server.py", SERVER), ("client.py", CLIENT)):
        (tmp_path / name).write_text(source)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(server, "server.py", address), **pipes, **options) as serving:
        try:
            assert select.select([serving.stdout], [], [], DEADLINE)[0], "the server does not start"
            port = serving.stdout.readline().strip()
            assert port, serving.stderr.read()
            asking = command(client, "client.py", address, port, "|".join(wanted), DEADLINE / 2)
            done = subprocess.run(asking, **pipes, **options, timeout=DEADLINE, check=False)
            assert (done.returncode, done.stderr) == (0, "")
            return done.stdout.strip()
        finally:
            with contextlib.suppress(ProcessLookupError):
                serving.kill()


@pytest.mark.timeout(3 * DEADLINE)
@pytest.mark.parametrize("address", ["127.0.0.1", "10.77.0.1"])
def test_containers_in_one_pod_move(hosts, tmp_path, address):
    (pod, _), _ = hosts
    assert found(tmp_path, pod, pod, address, ["ring"]) == "ring"


@pytest.mark.timeout(3 * DEADLINE)
def test_containers_on_a_bridge_stay_on_kernel_tcp_for_a_reason_that_the_recipe_names(hosts, tmp_path):
    (server, address), (client, _) = hosts
    reasons = re.findall(r'"(peer [^"]+)"', RECIPE)
    assert len(reasons) == 2
    assert found(tmp_path, server, client, address, reasons) in reasons
