"""`./dev bench messages`: every way has its row. Not how fast anything is."""

import re
import sys

import pytest
from harness.processes import ended

from bench import messages

BENCH = [sys.executable, "-m", "bench.messages", "--seconds", "0.02"]


@pytest.mark.parametrize("way", [[], ["--latency"]], ids=["cost", "latency"])
def test_every_way_has_its_row(way):
    lines = ended([*BENCH, *way, "--sizes", "64,2000"]).stdout.splitlines()
    assert lines[0].split() == ["us", "64", "2,000"]
    cells = {line[:28].strip(): line[28:].split() for line in lines[1:]}
    assert list(cells) == list(messages.WAYS)
    for name, row in cells.items():
        if row == ["-", "-"]:  # what is not installed has no figures
            assert name.startswith(("iceoryx2", "pyzmq"))
        else:
            assert all(float(cell) > 0 for cell in row)


def test_eight_readers_and_four_writers():
    lines = ended([*BENCH, "--group"]).stdout.splitlines()
    figures = [[float(figure) for figure in re.findall(r"\d+\.\d+", line)] for line in lines[1:]]
    assert [len(row) for row in figures] == [2, 2, 2, 2, 1, 1]
    assert all(figure > 0 for row in figures for figure in row)


def test_readers_that_have_not_read_the_same_are_found(monkeypatch):
    monkeypatch.setattr(messages, "read", read_something_else)
    with pytest.raises(ValueError, match="not read the same"):
        messages.in_one_order(2, 2, 64, 20)


def read_something_else(name, writers, count, together, told):
    together.wait()
    told.put(f"{id(told)} {messages.os.getpid()}")
