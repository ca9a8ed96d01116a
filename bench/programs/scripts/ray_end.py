"""usage: ray_end.py head PORT | client PORT      calls of an actor's method"""

import socket
import subprocess
import sys
import tempfile
from typing import Any

role, port = sys.argv[1], int(sys.argv[2])


def spare() -> int:
    """A free port: two clusters are alive at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: int = listener.getsockname()[1]
        return found


def head() -> int:
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        words = ["start", "--head", "--block", f"--port={port}", f"--temp-dir={folder}", "--num-cpus=2"]
        more = ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000"]
        more += ["--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0"]
        more += [f"--ray-client-server-port={spare()}", f"--dashboard-agent-listen-port={spare()}"]
        started = subprocess.Popen([sys.executable, "-m", "ray.scripts.scripts", *words, *more])
        try:
            return started.wait()
        except KeyboardInterrupt:
            started.terminate()
            return started.wait()


def client() -> None:
    import clock
    import ray

    ray.init(address=f"127.0.0.1:{port}", log_to_driver=False)

    class Adder:
        def add(self, a: int, b: int) -> int:
            return a + b

    adder: Any = ray.remote(Adder).remote()

    def one() -> None:
        assert ray.get(adder.add.remote(1, 2)) == 3

    clock.repeat(one)
    ray.shutdown()


sys.exit(head() if role == "head" else client())
