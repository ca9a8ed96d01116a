"""usage: dask_client.py PORT submit|map|scatter|scatter-direct|between-workers MIB      MIB: of each of ten arrays"""

import sys
from itertools import count
from typing import Any

import clock
import numpy as np
from distributed import Client, wait

port, kind, length = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 17
numbers = count()


def increment(number: int) -> int:
    return number + 1


def make(number: int, length: int) -> Any:
    return np.ones(length) * number


def size_of(array: Any) -> int:
    return int(array.nbytes)


def main() -> None:
    client: Any = Client(f"tcp://127.0.0.1:{port}")  # type: ignore[no-untyped-call]
    client.wait_for_workers(2)
    first, second = list(client.scheduler_info()["workers"])
    arrays = [np.random.rand(length) for _ in range(10)]

    def submit() -> None:
        number = next(numbers)
        assert client.submit(increment, number).result() == number + 1

    def map_() -> None:
        assert len(client.gather(client.map(increment, [next(numbers) for _ in range(100)]))) == 100

    def scatter(direct: bool) -> None:
        futures = client.scatter(arrays, direct=direct)
        assert len(client.gather(futures, direct=direct)) == 10
        client.cancel(futures)

    def between_workers() -> None:
        made = [client.submit(make, number, length, workers=[first], pure=False) for number in range(10)]
        wait(made)  # type: ignore[no-untyped-call]
        sizes = client.gather([client.submit(size_of, one, workers=[second], pure=False) for one in made])
        assert sizes == [length * 8] * 10

    if kind == "map":
        clock.repeat(map_, 100)
    else:
        clock.repeat(
            {
                "submit": submit,
                "scatter": lambda: scatter(False),
                "scatter-direct": lambda: scatter(True),
                "between-workers": between_workers,
            }[kind]
        )
    client.close()


if __name__ == "__main__":
    main()
