"""usage: tasks_client.py celery|rq PORT      a task after the other's result; PORT is redis's"""

import sys

import clock

kind, url = sys.argv[1], f"redis://127.0.0.1:{sys.argv[2]}/0"

if kind == "celery":
    from tasks import add, app

    app.conf.update(broker_url=url, result_backend=url)

    def one() -> None:
        assert add.delay(1, 2).get(timeout=15) == 3
else:
    from redis import Redis
    from rq import Queue

    queue = Queue(connection=Redis.from_url(url))

    def one() -> None:
        result = queue.enqueue("tasks.job", 1, 2).latest_result(timeout=15)
        assert result is not None
        assert result.return_value == 3


clock.repeat(one)
