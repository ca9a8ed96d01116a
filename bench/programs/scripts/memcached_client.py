"""usage: memcached_client.py PORT"""

import sys

import clock
from pymemcache.client.base import Client

client = Client(("127.0.0.1", int(sys.argv[1])), no_delay=True)
client.set("key", b"value", noreply=False)


def one() -> None:
    assert client.get("key") == b"value"


clock.repeat(one)
