"""Sends small requests over one keep-alive connection, one after the other, and measures each one's latency.

An ordinary program on the standard library; it does not know about fastsock.
"""

import argparse
import http.client
import json
import time


def fetch(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/")
    response = connection.getresponse()
    body = response.read()
    if response.status != 200 or body != b"hello, world\n":
        raise SystemExit(f"unexpected answer: {response.status} {body!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("--requests", type=int, default=5000, help="requests measured (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=500, help="requests before (default: %(default)s)")
    options = parser.parse_args()

    connection = http.client.HTTPConnection(options.address, timeout=30)
    for _ in range(options.warm_up):
        fetch(connection)
    latencies = []
    began = then = time.perf_counter()
    for _ in range(options.requests):
        fetch(connection)
        now = time.perf_counter()
        latencies.append(now - then)
        then = now
    connection.close()
    latencies.sort()
    summary = {
        "requests_per_second": round(options.requests / (then - began), 1),
        "p50_us": round(1e6 * latencies[len(latencies) // 2], 1),
        "p99_us": round(1e6 * latencies[len(latencies) * 99 // 100], 1),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
