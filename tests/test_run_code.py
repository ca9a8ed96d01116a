"""`fastsock run -c CODE` and `fastsock run -` start what `python -c CODE` and `python -` start."""

import subprocess
import sys

import pytest

PROGRAM = """
import _socket, socket, sys
print(sys.argv, __name__, sys.path[0], socket.socket.__base__ is not _socket.socket, file=sys.stderr)
print(sys.argv, __name__, sys.path[0], globals().get("__file__"))
sys.exit(7)
"""
RUN = ["-m", "fastsock", "run"]


def execute(words: list[str], given: str = "") -> tuple[int, str, str]:
    command = [sys.executable, *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["-c", PROGRAM, "a", "-m", "b c"], ["-c" + PROGRAM], ["-", "a"]])
def test_a_program_that_is_no_file(words: list[str]) -> None:
    plain, run = execute(words, PROGRAM), execute([*RUN, *words], PROGRAM)
    assert run[:2] == plain[:2]
    assert (plain[0], plain[2].split()[-1], run[2].split()[-1]) == (7, "False", "True")


def test_code_that_is_missing() -> None:
    status, output, error = execute([*RUN, "-c"])
    assert (status, output, error) == (2, "", "fastsock: -c needs code\n")
