"""Gets or puts a file over FTP some times, and tells the seconds of each transfer. An ordinary program on `ftplib`."""

from __future__ import annotations

import argparse
import ftplib
import json
import time
from pathlib import Path

BUFFER = 64 << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("port", type=int)
    parser.add_argument("way", choices=("get", "put"))
    parser.add_argument("name", help="of the file at the server")
    parser.add_argument("path", type=Path, help="of the file here")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    seconds = []
    with ftplib.FTP() as ftp:
        ftp.connect("127.0.0.1", options.port, timeout=60)
        ftp.login("user", "password")
        for _ in range(options.times):
            if options.way == "get":
                with options.path.open("wb", buffering=0) as file:
                    start = time.perf_counter()
                    ftp.retrbinary(f"RETR {options.name}", file.write, BUFFER)
            else:
                with options.path.open("rb", buffering=0) as file:
                    start = time.perf_counter()
                    ftp.storbinary(f"STOR {options.name}", file, BUFFER)
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "bytes": options.path.stat().st_size}))


if __name__ == "__main__":
    main()
