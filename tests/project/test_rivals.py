"""`./dev bench rivals`: every line has its row, and the page says who is ahead. Not how fast anything is."""

import re
import sys
from importlib.util import find_spec

from harness.processes import ended

from bench.rivals.__main__ import ASYNCIO, BLOCKING

PAGE = "before\n<!-- rivals -->\nold\n<!-- end -->\nafter\n"


def test_the_page_has_a_row_for_each_and_says_who_is_ahead(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    ended([sys.executable, "-m", "bench.rivals", "--quick", "--runs", "1", "--page", page])
    text = page.read_text()
    assert re.fullmatch(r"before\n<!-- rivals -->\n.*\n<!-- end -->\nafter\n", text, re.DOTALL)
    assert "old" not in text
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("|")}
    for line in (*BLOCKING, *ASYNCIO):
        assert line.name in rows
    for name in ("kernel TCP", "fastsock", "unix socket", "asyncio on kernel TCP", "asyncio, fastsock"):
        assert "not measured" not in rows[name], rows[name]
    for name, module in {"iceoryx2": "iceoryx2", "pyzmq": "zmq", "uvloop, aiofastnet": "aiofastnet"}.items():
        assert ("not measured" in rows[name]) == (find_spec(module) is None), rows[name]
    assert len(re.findall(r"^- .*(?:faster|less CPU time) than fastsock: ", text, re.MULTILINE)) == 6
