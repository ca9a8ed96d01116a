"""A WSGI application whose page /wait is answered when a file exists: DIRECTORY in the environment."""

import os
import time


def app(environ, start_response):
    if environ["PATH_INFO"] == "/wait":
        with open(os.path.join(os.environ["DIRECTORY"], "waiting"), "w"):
            pass
        while not os.path.exists(os.path.join(os.environ["DIRECTORY"], "go")):
            time.sleep(0.01)
    answer = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(answer)))])
    return [answer]
