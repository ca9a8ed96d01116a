"""Every reason why a connection is on kernel TCP has one line of advice, which the documents show too."""

import re
from pathlib import Path

import pytest

from fastsock import rendezvous
from fastsock.advice import ADVICE, advice_for

ROOT = Path(__file__).parent.parent
KNOWN = {*rendezvous.REASONS, rendezvous.DISABLED, rendezvous.FOREIGN}


def test_no_reason_lacks_advice_and_no_advice_lacks_its_reason():
    assert set(ADVICE) == KNOWN


@pytest.mark.parametrize("reason", sorted(KNOWN))
def test_advice_is_one_line_that_says_something(reason):
    text = advice_for(reason)
    assert 20 < len(text) < 200
    assert text.endswith(".")
    assert text[0].isupper() or text.startswith(("ports_allowed", "enabled"))
    assert "\n" not in text


def test_the_documents_have_the_same_table():
    lines = (ROOT / "docs/reasons.md").read_text().split("## Events")[0].splitlines()
    rows = dict(re.match(r"\| (.*?) \| (.*) \|$", line).groups() for line in lines if line.startswith("| "))
    del rows["reason"], rows["---"]
    assert rows == dict(ADVICE)


def test_no_reason_is_written_anywhere_else():
    """One home: a text that is spelled again would miss its advice."""
    for path in (ROOT / "fastsock").rglob("*.p*"):
        if path.suffix in (".py", ".pyx") and path.name not in ("rendezvous.py", "advice.py"):
            for reason in KNOWN:
                assert f'"{reason}"' not in path.read_text(), f"{path.name}: {reason}"


def test_an_unknown_reason_gets_advice_too():
    assert "version" in advice_for("of a later version")
