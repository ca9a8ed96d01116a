"""fastsock's counters of a process for Prometheus.

fastsock run examples/prometheus_exporter.py --port 9400
curl http://127.0.0.1:9400/metrics
"""

import argparse
import time

from prometheus_client import start_http_server

import fastsock.exporters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="port of /metrics (default: the kernel's choice)")
    options = parser.parse_args()
    fastsock.exporters.prometheus()
    server, _ = start_http_server(options.port, addr="127.0.0.1")
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
