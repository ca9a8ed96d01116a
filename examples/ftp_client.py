"""Uploads the files of a directory to an FTP server, lists them there, downloads them again and checks them.

An ordinary program on the standard library; it does not know about fastsock.
"""

import argparse
import ftplib
import hashlib
import json
import sys
import time
from pathlib import Path


def upload(ftp: ftplib.FTP, path: Path) -> None:
    with path.open("rb") as file:
        ftp.storbinary(f"STOR {path.name}", file)


def download_digest(ftp: ftplib.FTP, name: str) -> str:
    digest = hashlib.sha256()
    ftp.retrbinary(f"RETR {name}", digest.update)
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("directory", type=Path, help="whose files to upload; subdirectories are left out")
    parser.add_argument("--user", default="demo")
    parser.add_argument("--password", default="demo")
    options = parser.parse_args()

    began = time.perf_counter()
    host, _, port = options.address.rpartition(":")
    files = sorted(path for path in options.directory.iterdir() if path.is_file())
    wrong = []
    with ftplib.FTP() as ftp:
        ftp.connect(host, int(port), timeout=30)
        ftp.login(options.user, options.password)
        for path in files:
            upload(ftp, path)
        sizes = {name: int(facts["size"]) for name, facts in ftp.mlsd(facts=["size"]) if "size" in facts}
        for path in files:
            content = path.read_bytes()
            expected = hashlib.sha256(content).hexdigest()
            if sizes.get(path.name) != len(content) or download_digest(ftp, path.name) != expected:
                wrong.append(path.name)
    size = sum(path.stat().st_size for path in files)
    seconds = round(time.perf_counter() - began, 6)
    print(json.dumps({"files": len(files), "bytes": size, "wrong": wrong, "seconds": seconds}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
