"""Which modules of the `test` package are run, under which settings, and which differences are excepted."""

import datetime
from dataclasses import dataclass
from pathlib import Path

EAGER: dict[str, object] = {"move_after": 0, "_meeting_ms": 20, "unix_streams": 1}
MODES: dict[str, dict[str, object]] = {
    "normal": {"unix_streams": 1},
    "eager": EAGER,
    "eager-nopoll": {**EAGER, "poll_us": 0},
    "libc": EAGER,
}
"""Settings by mode. Eager moves every eligible connection at its first byte, so that the ring is what is tested. In
mode libc the interpreters are unpatched, and have the library as other programs do."""
PRELOADED = "libc"


@dataclass(frozen=True)
class Suite:
    """A module of the `test` package."""

    name: str
    ring: bool = True
    """Whether its connections on loopback move when eager; a run that shows none then fails."""
    quick: str = ""
    """Tests for every run of pytest: shell patterns of ids; "*" is all of them."""
    resources: str = "network"
    """The `-u` of `python -m test`."""
    until: tuple[int, int] = (4, 0)
    """The version of Python that has it no more, with the module that it tests."""


TCP_CLASSES = "*TCP* *FileObject* *BasicSocketPairTest* *SendfileUsing* *NonBlocking* *CreateServer* *InheritanceTest*"

SUITES = {
    suite.name: suite
    for suite in (
        Suite("test_socket", quick=TCP_CLASSES),
        Suite("test_selectors", ring=False, quick="*"),
        Suite("test_select", ring=False, quick="*"),
        Suite("test_poll", ring=False, quick="*"),
        Suite("test_epoll", ring=False, quick="*"),  # one thread that never waits is done before they meet
        Suite("test_timeout", ring=False, quick="*TCP*"),  # connects to other hosts, if there is a network
        Suite("test_socketserver", quick="*"),
        Suite("test_ftplib"),
        Suite("test_httplib"),
        Suite("test_httpservers"),
        Suite("test_urllib2_localnet"),
        Suite("test_xmlrpc"),
        Suite("test_docxmlrpc"),
        Suite("test_smtplib"),
        Suite("test_poplib"),
        Suite("test_imaplib"),
        Suite("test_logging"),
        Suite("test_wsgiref", ring=False),
        Suite("test_ssl"),
        Suite("test_os"),
        Suite("test_subprocess", ring=False),
        Suite("test_asyncio"),
        Suite("test_asyncore", until=(3, 12)),
        Suite("test_telnetlib", ring=False, until=(3, 13)),  # its server never sends
        Suite("test_multiprocessing_fork"),
        Suite("test_multiprocessing_forkserver"),
        Suite("test_multiprocessing_spawn"),
        Suite("test_multiprocessing_main_handling", ring=False),
        Suite("test_concurrent_futures", ring=False),
    )
}


@dataclass(frozen=True)
class Excepted:
    """A difference that is known: the test may come out differently in this mode."""

    test: str
    reason: str
    since: datetime.date


EXCEPTIONS = Path(__file__).with_name("exceptions.txt")


def exceptions(file: Path = EXCEPTIONS) -> dict[str, Excepted]:
    """The excepted tests by id. Raises ValueError for a line that is not `test | reason | date`."""
    known = {}
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            test, reason, date = (part.strip() for part in line.split("|"))
            known[test] = Excepted(test, reason, datetime.date.fromisoformat(date))
    return known
