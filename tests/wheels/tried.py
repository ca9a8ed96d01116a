"""What an installed wheel must do: tests/wheels/run runs it below `fastsock run`, in an otherwise empty environment."""

import os
import socket
import subprocess
import sys
import threading
import time

import fastsock
from fastsock import launch

assert fastsock.is_patched()


def echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)


with socket.create_server(("127.0.0.1", 0)) as listener:
    threading.Thread(target=echo, args=(listener,), daemon=True).start()
    with socket.create_connection(listener.getsockname()) as sock:
        count, ends = 0, time.monotonic() + 20
        while count < 500 or (fastsock.path_of(sock).path != "ring" and time.monotonic() < ends):
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            count += 1
        assert fastsock.path_of(sock).path == "ring", fastsock.path_of(sock)

# Processor time of an import in a new interpreter, the best of some: beyond the import of socket alone.
spent = {}
for code in ("import socket", "import socket, fastsock; fastsock.patch()"):
    times = []
    for _ in range(7):
        process = subprocess.Popen([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(1000 * (used.ru_utime + used.ru_stime))
    spent[code] = min(times)
plain, patched = spent.values()
print(f"import and patch(): {patched - plain:.0f} ms of processor time beyond `import socket` ({plain:.0f} ms)")

# A program that is not Python, and a Python of another environment: the library is there, and not in the way.
assert os.path.exists(launch.LIBRARY)
SYSTEMS = "/usr/bin/python3"
READ = "print(open('/proc/self/maps').read())"
for program in ["cat", "/proc/self/maps"], *([[SYSTEMS, "-c", READ]] if os.path.exists(SYSTEMS) else []):
    words = [sys.executable, "-m", "fastsock", "run", *program]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert launch.LIBRARY in told.stdout, told.stderr
