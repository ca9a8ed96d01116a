"""A word counter as a Thrift service, with thriftpy2, a thread for each connection.

An ordinary program; it does not know about fastsock.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

import thriftpy2
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TServerSocket

service = thriftpy2.load(str(Path(__file__).with_name("words.thrift")), module_name="words_thrift")


class Words:
    calls = 0

    def ping(self) -> None:
        Words.calls += 1

    def count(self, text: str) -> dict[str, int]:
        Words.calls += 1
        words = text.split()
        return {word: words.count(word) for word in set(words)}


class Listening(TServerSocket):
    """Listens once: before the server serves, so that the port can be told."""

    def listen(self) -> None:
        if self.sock is None:
            super().listen()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, lets the kernel choose")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listening = Listening("127.0.0.1", options.port, client_timeout=None)
    listening.listen()
    print(f"listening on 127.0.0.1:{listening.sock.getsockname()[1]}", flush=True)
    server = TThreadedServer(TProcessor(service.Words, Words()), listening, daemon=True)
    try:
        server.serve()  # returns when SIGTERM or Ctrl-C raises
    finally:
        print(json.dumps({"calls": Words.calls}))


if __name__ == "__main__":
    main()
