"""usage: http_client.py KIND PORT [REQUESTS A SESSION] | http_client.py http.client-kept PATH

KIND: requests, requests-session, urllib3, httpx, http.client, http.client-kept, curl. One client after the other's
answer: kept connections, or with "requests" a new one for each request. http.client has sessions of so many requests;
curl is started for so many requests, each on a connection of its own."""

import http.client
import socket
import subprocess
import sys

import clock

kind, path = sys.argv[1], sys.argv[2] if "/" in sys.argv[2] else ""
port = 0 if path else int(sys.argv[2])
requests_of_session = int(sys.argv[3]) if len(sys.argv) > 3 else 1
url = f"http://127.0.0.1:{port}/"


class ByPath(http.client.HTTPConnection):
    """To a server at a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)


if kind == "requests":
    import requests

    def one() -> None:
        assert requests.get(url).status_code == 200

    clock.repeat(one)
elif kind == "requests-session":
    import requests

    session = requests.Session()
    session.trust_env = False

    def one() -> None:
        assert len(session.get(url).content) == 1024

    clock.repeat(one)
elif kind == "urllib3":
    import urllib3

    pool = urllib3.PoolManager()

    def one() -> None:
        assert len(pool.request("GET", url).data) == 1024

    clock.repeat(one)
elif kind == "httpx":
    import httpx

    with httpx.Client(trust_env=False) as client:

        def one() -> None:
            assert client.get(url + "item/7").json()["id"] == 7

        clock.repeat(one)
elif kind == "http.client":

    def one() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(requests_of_session):
            connection.request("GET", "/")
            assert len(connection.getresponse().read()) == 1024
        connection.close()

    clock.repeat(one, requests_of_session)
elif kind == "http.client-kept":
    kept = ByPath("localhost") if path else http.client.HTTPConnection("127.0.0.1", port)

    def one() -> None:
        kept.request("GET", "/")
        assert len(kept.getresponse().read()) == 1024

    clock.repeat(one)
elif kind == "curl":
    command = ["curl", "--silent", "--fail", "--noproxy", "*", "--header", "Connection: close", "--output", "/dev/null"]

    def one() -> None:
        subprocess.run([*command, f"{url}[1-{requests_of_session}]"], check=True, stdin=subprocess.DEVNULL)

    clock.repeat(one, requests_of_session)
