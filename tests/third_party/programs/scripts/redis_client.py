"""redis-py against a Redis server: PORT."""

import sys
import threading

import redis
from report import digest, exercise, print_report

options = {"port": int(sys.argv[1]), "socket_timeout": 20}

with exercise("one") as answers, redis.Redis(single_connection_client=True, **options) as client:
    client.flushall()
    answers.append([client.incr("counter") for _ in range(50)])
    client.set("blob", bytes(range(256)) * 10_000)
    answers.append(digest(client.get("blob")))
with exercise("pool") as answers, redis.Redis(health_check_interval=1, **options) as client:
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
