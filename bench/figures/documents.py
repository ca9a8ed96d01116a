"""The places in documents that show figures. A place stands between two lines, the first of which names its content:

<!-- figures: CONTENT ROW... --> and <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bench.figures import words
from bench.figures.words import Document
from bench.programs.rows import Row
from bench.programs.table import ROWS
from bench.target import ROOT

DOCUMENTS = tuple(ROOT / name for name in ("README.md", "docs/performance.md", "docs/recipes.md"))
PLACE = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

NAMED: dict[str, Row] = {row.name: row for row in ROWS}

FRONT_PAGE = {
    "redis-py, GET from `redis-server`": "redis-1",
    "psycopg, a row of PostgreSQL": "psycopg",
    "pymemcache, get from memcached": "memcached",
    "rpyc, a call": "rpyc-call",
    "`multiprocessing.Manager()`, a call": "unix-manager",
    "redis-py by unix socket": "unix-redis",
    "psycopg2 by unix socket": "unix-psycopg2",
    "httpx against FastAPI under uvicorn": "httpx-sync",
    "Celery with redis, a task and its result": "celery",
    "websockets on uvloop, echo of 64 B": "websockets-uvloop-64",
    "a stream of 4 KiB records": "feed",
    "requests that open a connection each": "once-uvicorn-uvloop",
    "HTTP, 8 requests a connection": "sessions-uvicorn-8",
    "HTTP whose handler computes for 2 ms": "computing",
}
"""The README's rows."""

CONTENTS: dict[str, Callable[[Document, list[str]], str]] = {
    "front page": lambda document, _: words.chosen(document, {title: NAMED[it] for title, it in FRONT_PAGE.items()}),
    "sessions": lambda document, _: words.sessions(document),
    "programs": lambda document, _: words.programs(document, list(ROWS)),
    "loops": lambda document, _: words.loops(document),
    "curves": lambda document, _: words.curves(document),
    "recipe": lambda document, names: words.recipe(document, [NAMED[name] for name in names]),
}


def rendered(text: str, document: Document) -> str:
    """A document's text with what its places have to say. KeyError if one names what there is not."""

    def place(found: re.Match[str]) -> str:
        content = found[2] if found[2] in CONTENTS else found[2].split()[0]
        names = found[2].removeprefix(content).split()
        return found[1] + CONTENTS[content](document, names) + found[3]

    return PLACE.sub(place, text)


def outside(text: str) -> str:
    """A document's text without its places."""
    return PLACE.sub("", text)


def renew(document: Document) -> list[Path]:
    """Writes the documents whose places say something else; those written."""
    written = []
    for path in DOCUMENTS:
        text = path.read_text()
        if (new := rendered(text, document)) != text:
            path.write_text(new)
            written.append(path)
    return written
