"""A super-server, as inetd(8) is: listens, and starts a program for each connection, with the connection as 0 and 1.

    python examples/super_server.py examples/inetd_service.py

An ordinary program; it does not know about fastsock.
"""

import argparse
import json
import signal
import socket
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, lets the kernel choose")
    parser.add_argument("program", help="a Python program that serves one connection")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    services: list[subprocess.Popen] = []
    started = 0
    try:
        with socket.create_server(("127.0.0.1", options.port)) as listener:
            print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
            while True:
                sock, _ = listener.accept()
                with sock:
                    services.append(subprocess.Popen([sys.executable, options.program], stdin=sock, stdout=sock))
                started += 1
                services = [service for service in services if service.poll() is None]
    finally:
        for service in services:
            service.wait()
        print(json.dumps({"started": started}))


if __name__ == "__main__":
    main()
