"""Downloads every file an HTTP server lists in /SHA256SUMS over one keep-alive connection and checks them.

An ordinary program on the standard library; it does not know about fastsock.
"""

import argparse
import hashlib
import http.client
import json
import sys
import time
import urllib.parse
from pathlib import Path

CHUNK = 64 * 1024


def get(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    connection.request("GET", urllib.parse.quote(path))
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"GET {path}: {response.status} {response.reason}")
    return response


def download(connection: http.client.HTTPConnection, name: str, target: Path) -> tuple[int, str]:
    """Fetch one file into `target`; returns its size in bytes and its SHA-256."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with get(connection, f"/{name}") as response, target.open("wb") as output:
        while chunk := response.read(CHUNK):
            digest.update(chunk)
            output.write(chunk)
        return output.tell(), digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("directory", type=Path, help="where the files go")
    options = parser.parse_args()

    began = time.perf_counter()
    connection = http.client.HTTPConnection(options.address, timeout=30)
    with get(connection, "/SHA256SUMS") as response:
        listed = [line.split("  ", 1) for line in response.read().decode().splitlines()]
    size = 0
    wrong = []
    for expected, name in listed:
        received, found = download(connection, name, options.directory / name)
        size += received
        if found != expected:
            wrong.append(name)
    connection.close()
    seconds = round(time.perf_counter() - began, 6)
    print(json.dumps({"files": len(listed), "bytes": size, "wrong": wrong, "seconds": seconds}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
