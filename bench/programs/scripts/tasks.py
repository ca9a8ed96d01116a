"""Tasks of Celery, and a job of RQ."""

from celery import Celery

app = Celery("tasks")


@app.task(name="tasks.add")  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> int:
    return a + b


def job(a: int, b: int) -> int:
    return a + b
