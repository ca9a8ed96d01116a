"""The setting ``ready_on_ring``: what it replaces, and that nothing is replaced or loaded without it."""

import subprocess
import sys

import pytest

BEGIN = """
import select, selectors, socket, sys
kernel = select.epoll
import fastsock
"""


def run(program: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_it_nothing_is_replaced_or_loaded() -> None:
    assert (
        run(
            """
fastsock.patch()
print(select.epoll is kernel, selectors.EpollSelector._selector_cls is kernel,
      "fastsock.readiness" in sys.modules, "fastsock._native.epolls" in sys.modules,
      "fastsock._native.polls" in sys.modules)
"""
        )
        == "True True False False False"
    )


@pytest.mark.parametrize(("arguments", "environment"), [("ready_on_ring=1", {}), ("", {"FASTSOCK_READY_ON_RING": "1"})])
def test_with_it_epoll_is_replaced_until_unpatch(arguments: str, environment: dict[str, str]) -> None:
    program = f"""
fastsock.patch({arguments})
with selectors.DefaultSelector() as selector:
    print(select.epoll is kernel, type(selector._selector) is select.epoll)
fastsock.unpatch()
with selectors.DefaultSelector() as selector:
    print(select.epoll is kernel, type(selector._selector) is kernel)
"""
    assert run(program, **environment).split("\n") == ["False True", "True True"]


def test_with_it_select_and_poll_are_replaced_until_unpatch() -> None:
    program = """
before = select.select, select.poll
def show():
    with selectors.PollSelector() as polling, selectors.SelectSelector() as selecting:
        print(select.select is before[0], select.poll is before[1], type(polling._selector) is type(before[1]()),
              selecting._select is before[0], selecting.select(0), polling.select(0))
fastsock.patch(ready_on_ring=1)
show()
fastsock.unpatch()
show()
"""
    assert run(program).split("\n") == ["False False False False [] []", "True True True True [] []"]


def test_a_second_patch_follows_the_setting() -> None:
    program = """
for on in (0, 1, 0, 1):
    fastsock.patch(ready_on_ring=on)
    print(select.epoll is kernel)
fastsock.patch(enabled=0)
print(select.epoll is kernel)
"""
    assert run(program).split() == ["True", "False", "True", "False", "True"]


def test_what_another_has_put_there_since_stays() -> None:
    program = """
fastsock.patch(ready_on_ring=1)
select.epoll = other = object()
fastsock.unpatch()
print(select.epoll is other)
"""
    assert run(program) == "True"


def test_a_selector_from_before_hands_numbers_out() -> None:
    program = """
with selectors.DefaultSelector() as selector:
    fastsock.patch(ready_on_ring=1, move_after=0, meeting_ms=1000)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far = listener.accept()[0]
        selector.register(near, selectors.EVENT_READ)
        for _ in range(20):
            far.sendall(b"x")
            assert selector.select(10), "not told"
            near.sendall(near.recv(1))
            assert far.recv(1) == b"x"
        print(near._endpoint.exposed)
        far.close()
"""
    assert run(program) == "True"
