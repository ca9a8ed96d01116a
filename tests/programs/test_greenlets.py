"""gevent and eventlet replace the socket module too: fastsock gives way, whoever comes first, and says so."""

import subprocess

import pytest

from programs.launch import DEADLINE, FASTSOCK, PLAIN, SCRIPTS, command, environment


def ended(way: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(way, SCRIPTS / "green_echo.py", *words),
        # eventlet's own resolver imports dnspython, and that trio, which cannot stand its sockets (Python 3.10)
        env={**environment(), "EVENTLET_NO_GREENDNS": "yes"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("library", "module"), [("gevent", "gevent.monkey"), ("eventlet", "eventlet.patcher")])
def test_declines_whichever_is_first(library, module):
    plain = ended(PLAIN, library)
    assert plain.stdout.splitlines()[-2:] == [f"<class 'type'> {library}", "False"]
    for way, words, because in (
        (FASTSOCK, (), f"{module} replaces the socket module"),
        (PLAIN, ("patch-before",), f"{module} replaces the socket module"),
        (PLAIN, ("patch-after",), f"{module} has replaced the socket module"),
    ):
        done = ended(way, library, *words)
        assert done.stdout == plain.stdout
        lines = [line for line in done.stderr.splitlines() if "fastsock." in line]
        assert len(lines) == 1
        assert "fastsock.declined" in lines[0]
        assert because in lines[0]
