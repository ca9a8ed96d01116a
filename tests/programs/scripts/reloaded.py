"""werkzeug with its reloader, on a port of its own choice; serves the VERSION that its module `version` has."""

import signal
import sys

from version import VERSION
from werkzeug.serving import run_simple


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{VERSION} {'fastsock' in sys.modules}".encode()]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    run_simple("127.0.0.1", 0, app, use_reloader=True, reloader_interval=0.1, reloader_type="stat")
