"""sendfile: whole files and parts of them, from descriptors and from memory, in order with other sends."""

import io
import socket
from pathlib import Path

import pytest
from harness.pairs import Pair, Task, payload, read_exactly, read_to_eof

DATA = payload(3 << 20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize(
    ("offset", "count"),
    [
        (0, None), (0, 1), (0, 48), (1000, None), (1000, 5000), (4096, 1 << 20), (len(DATA) - 10, 100),
        (len(DATA) - 10, None), (len(DATA), None), (len(DATA) + 1000, 10),
    ],
)  # fmt: skip
@pytest.mark.parametrize("memory", [False, True], ids=["descriptor", "memory"])
def test_the_asked_part_is_sent(pair: Pair, path: Path, memory: bool, offset: int, count: int | None) -> None:
    near, far = pair
    expected = DATA[offset:] if count is None else DATA[offset : offset + count]
    reader = Task(read_exactly, far, len(expected) + 1)
    with io.BytesIO(DATA) if memory else path.open("rb") as file:
        assert near.sendfile(file, offset, count) == len(expected)
        if expected:
            assert file.tell() == offset + len(expected)
    near.sendall(b"!")
    assert reader.result() == expected + b"!"


def test_files_and_sends_keep_their_order(pair: Pair, path: Path) -> None:
    near, far = pair
    reader = Task(read_to_eof, far)
    with path.open("rb") as file:
        for offset in range(0, 200_000, 40_000):
            near.sendall(b"part:")
            assert near.sendfile(file, offset, 40_000) == 40_000
            assert near.sendfile(io.BytesIO(b";"), 0) == 1
    near.shutdown(socket.SHUT_WR)
    parts = [b"part:" + DATA[offset : offset + 40_000] + b";" for offset in range(0, 200_000, 40_000)]
    assert reader.result() == b"".join(parts)


def test_a_peer_that_goes_away_cuts_it(pair: Pair, tmp_path: Path) -> None:
    near, far = pair
    (tmp_path / "large").write_bytes(bytes(16 << 20))
    with (tmp_path / "large").open("rb") as file:
        sending = Task(near.sendfile, file).until_asleep()
        far.close()
        with pytest.raises(ConnectionError):
            sending.result()
