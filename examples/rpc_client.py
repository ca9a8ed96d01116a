"""Calls the word counter of `rpc_server.py` so many times, and tells how long a call takes.

An ordinary program; it does not know about fastsock.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import thriftpy2
from thriftpy2.rpc import make_client

service = thriftpy2.load(str(Path(__file__).with_name("words.thrift")), module_name="words_thrift")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    client = make_client(service.Words, host, int(port), timeout=30_000)
    counted = client.count("a rose is a rose is a rose")
    seconds = []
    for _ in range(options.calls):
        start = time.perf_counter()
        client.ping()
        seconds.append(time.perf_counter() - start)
    client.close()
    print(json.dumps({
        "calls": options.calls + 1,
        "counted": counted,
        "median_us": round(median(seconds) * 1e6, 1),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
