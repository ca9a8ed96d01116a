"""Every HTTP client library, each as one session, against every server: NAME=PORT ..."""

import http.client
import sys
import urllib.error
import urllib.request

import httpx
import requests
import urllib3
from report import digest, exercise, print_report

KEPT = ("Content-Type", "Content-Length", "Transfer-Encoding", "Connection")
BODY = bytes(range(256)) * 1200


def use_requests(base):
    session = requests.Session()

    def fetch(method, path, body=None):
        answer = session.request(method, base + path, data=body, timeout=20)
        return answer.status_code, answer.headers, answer.content

    return fetch, session.close


def use_urllib3(base):
    pool = urllib3.PoolManager()

    def fetch(method, path, body=None):
        answer = pool.request(method, base + path, body=body, timeout=20)
        return answer.status, answer.headers, answer.data

    return fetch, pool.clear


def use_httpx(base):
    client = httpx.Client(timeout=20)

    def fetch(method, path, body=None):
        answer = client.request(method, base + path, content=body)
        return answer.status_code, answer.headers, answer.content

    return fetch, client.close


def use_http_client(base):
    connection = http.client.HTTPConnection(base.removeprefix("http://"), timeout=20)

    def fetch(method, path, body=None):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    return fetch, connection.close


def use_urllib(base):
    def fetch(method, path, body=None):
        request = urllib.request.Request(base + path, body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.headers, answer.read()

    return fetch, lambda: None


LIBRARIES = {
    "requests": use_requests,
    "urllib3": use_urllib3,
    "httpx": use_httpx,
    "http.client": use_http_client,
    "urllib.request": use_urllib,
}
REQUESTS = [
    *[("GET", "/small")] * 15,
    ("GET", "/large"),
    ("POST", "/echo", BODY),
    ("GET", "/stream"),
    ("GET", "/missing"),
    ("HEAD", "/large"),
    *[("GET", "/small"), ("POST", "/echo", BODY[:10])] * 1,
]

if __name__ == "__main__":
    for word in sys.argv[1:]:
        server, port = word.split("=")
        for library, use in LIBRARIES.items():
            fetch, close = use(f"http://127.0.0.1:{port}")
            with exercise(f"{server} {library}") as answers:
                for request in REQUESTS:
                    status, headers, body = fetch(*request)
                    answers.append([*request[:2], status, {name: headers.get(name) for name in KEPT}, digest(body)])
                close()
    print_report()
