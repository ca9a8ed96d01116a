"""psycopg2 against a PostgreSQL server: PORT. Prints what it gets."""

import hashlib
import io
import select
import sys
import threading

import psycopg2
from psycopg2.extensions import POLL_OK, POLL_READ, POLL_WRITE, QueryCanceledError


def connected(**more):
    made = psycopg2.connect(host="127.0.0.1", port=int(sys.argv[1]), user="postgres", dbname="postgres", **more)
    if not more:
        made.autocommit = True
    return made


def wait(connection):
    """As programs wait for an asynchronous connection."""
    while (state := connection.poll()) != POLL_OK:
        reads, writes = [connection] * (state == POLL_READ), [connection] * (state == POLL_WRITE)
        assert any(select.select(reads, writes, [], 60))


one, two = connected(), connected()
cursor = one.cursor()
total = 0
for number in range(1000):
    cursor.execute("select %s, %s", (number, "x" * number))
    total += cursor.fetchone()[0]
print("selects", total)

cursor.execute("create temp table rows (n int, what text)")
cursor.copy_expert("copy rows from stdin", io.StringIO("".join(f"{n}\t{'z' * 50}\n" for n in range(100_000))))
out = io.StringIO()
cursor.copy_expert("copy rows to stdout", out)
print("copied", cursor.rowcount, hashlib.sha256(out.getvalue().encode()).hexdigest())

with two.cursor() as listening:
    for _ in range(20):
        listening.execute("select 1")
    listening.execute("listen news")
for number in range(5):
    cursor.execute("notify news, 'number %s'", (number,))
    while not two.notifies:
        assert select.select([two], [], [], 60)[0]
        two.poll()
    print("heard", two.notifies.pop(0).payload)

later = threading.Timer(0.2, one.cancel)
later.start()
try:
    cursor.execute("select pg_sleep(60)")
except QueryCanceledError as error:
    print("canceled", error.pgcode)
later.join()
cursor.execute("select 'and on'")
print(cursor.fetchone()[0])

three = connected(async_=True)
wait(three)
waiting = three.cursor()
for number in range(200):
    waiting.execute("select %s", (number,))
    wait(three)
print("asynchronous", waiting.fetchone()[0])

try:
    two.cursor().execute("select pg_terminate_backend(pg_backend_pid())")
except psycopg2.Error as error:
    print("terminated", error.pgcode, two.closed != 0)
