"""redis-py against a Redis server: PORT SECONDS, for at least that long on one connection."""

import sys
import threading
import time

import redis
from report import digest, exercise, print_report

port, seconds = int(sys.argv[1]), float(sys.argv[2])

with exercise("redis") as answers, redis.Redis(port=port, socket_timeout=20, single_connection_client=True) as client:
    end = time.monotonic() + seconds
    client.flushall()
    answers.append([client.incr("counter") for _ in range(50)])
    client.set("blob", bytes(range(256)) * 10_000)
    answers.append(digest(client.get("blob")))
    while time.monotonic() < end:
        client.ping()
with exercise("pool") as answers, redis.Redis(port=port, socket_timeout=20, health_check_interval=1) as client:
    pipeline = client.pipeline()
    for number in range(1000):
        pipeline.rpush("list", number)
    answers.append(pipeline.execute()[-1])
    answers.append([int(item) for item in client.lrange("list", 0, 5)])
    with client.pubsub() as listening:
        listening.subscribe("channel")
        answers.append(listening.get_message(timeout=10)["type"])
        answers.append(client.publish("channel", "news"))
        answers.append(listening.get_message(timeout=10)["data"].decode())
    later = threading.Timer(0.05, client.rpush, ("queue", "item"))
    later.start()
    answers.append([part.decode() for part in client.blpop("queue", timeout=10)])
    later.join()
    answers.append(client.blpop("queue", timeout=0.05))
print_report()
