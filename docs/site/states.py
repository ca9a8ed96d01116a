"""Draws the table of states (core/conn/state.c) into `docs/states.svg`, and lists its events in docs/states.md.
Lists the table of path states (core/rendezvous/path_state.c) there, too.

`python docs/site/states.py` writes both files; a test compares them with the source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "core/conn/state.c"
EVENTS = ROOT / "core/conn/state.h"
PICTURE, PAGE = ROOT / "docs/states.svg", ROOT / "docs/states.md"
BEGIN, END = "<!-- states: made by docs/site/states.py -->", "<!-- states: end -->"
PATH, PATH_EVENTS = ROOT / "core/rendezvous/path_state.c", ROOT / "core/rendezvous/path_state.h"
PATH_BEGIN, PATH_END = "<!-- paths: made by docs/site/states.py -->", "<!-- paths: end -->"

LINE = re.compile(r"\[FS_EV_(\w+)\]\s*=\s*\{([^,{}]*),([^,{}]*),([^,{}]*),([^,{}]*)\}")
MEANING = re.compile(r"\bFS_EV_(\w+)(?: = \w+)?,\s*/\* (.*?) \*/")
PATH_LINE = re.compile(r"^    \[FS_PATH_(\w+)\] = \{(.*?)\},\n", re.DOTALL | re.MULTILINE)
PATH_STEP = re.compile(r"\[(?:FS_(\w+)|0 \.\.\. FS_PATH_STATES - 1)\] = TO\(FS_(\w+)\)")
PATH_LATE = re.compile(r"^    \[FS_PATH_(\w+)\] = ([^{]*?),\n", re.MULTILINE)
PATH_MEANING = re.compile(r"\bFS_PATH_(\w+),\s*/\* (.*?) \*/")

Bits = frozenset[str]


class Event(NamedTuple):
    """A line of the table."""

    needs: Bits
    never: Bits
    brings: Bits
    takes: Bits


ROWS: dict[str, dict[str, set[str]]] = {
    "what this side sends": {
        "KERNEL": set(),
        "RING": {"SENDING_MOVED"},
        "BACK": {"SENDING_BACK"},
        "HELD": {"SENDING_BACK", "SENDING_HELD"},
    },
    "what this side receives": {"KERNEL": set(), "RING": {"RECEIVING_MOVED"}, "BACK": {"RECEIVING_BACK"}},
    "a fallback of this side": {
        "NONE": set(),
        "COLLECTING": {"COLLECTING"},
        "OUT, COLLECTING": {"OUT", "COLLECTING"},
        "OUT": {"OUT"},
    },
}
"""What is drawn: the states of each row, and their bits but for those of the past."""

PAST = {"SENDING_MOVED": "SENDING_BACK", "RECEIVING_MOVED": "RECEIVING_BACK"}
"""Bit -> what makes it past: whether a direction that went back has been on the ring makes no difference any more."""


def table(text: str) -> dict[str, Event]:
    def bits(words: str) -> Bits:
        return frozenset(re.findall(r"FS_(\w+)", words))

    return {found[1]: Event(*map(bits, found.groups()[1:])) for found in LINE.finditer(text)}


def state_of(row: str, bits: Bits) -> str:
    present = bits - {old for old, new in PAST.items() if new in bits}
    return next(name for name, own in ROWS[row].items() if own == present)


def arrows(row: str, events: dict[str, Event]) -> dict[tuple[str, str], list[str]]:
    """(state, next state) -> the events that lead there, as far as the bits of this row decide."""
    own = set().union(*ROWS[row].values())
    found: dict[tuple[str, str], list[str]] = {}
    seen, new = set(), {Bits()}
    while new:
        bits = new.pop()
        seen.add(bits)
        for name, event in events.items():
            after = (bits | event.brings & own) - event.takes
            if after == bits or not event.needs & own <= bits or event.never & bits:
                continue
            found.setdefault((state_of(row, bits), state_of(row, after)), []).append(name)
            if after not in seen:
                new.add(after)
    return {step: sorted(set(names)) for step, names in sorted(found.items()) if step[0] != step[1]}


# ---- the picture ---------------------------------------------------------------------------------------------

WIDE, HIGH, GAP, LEFT, ROW = 128, 36, 136, 24, 220
STEP = WIDE + GAP
STYLE = """
.p{fill:#fff}text,.t{fill:#222}.n{text-anchor:middle}.e{font-size:11px;fill:#444;text-anchor:middle}.h{font-weight:bold}
.s{fill:#e2f3ec;stroke:#286}.a{stroke:#333;stroke-width:1.5;fill:none;marker-end:url(#m)}
@media (prefers-color-scheme: dark){
.p{fill:#1e2129}text,.t{fill:#eee}.e{fill:#c8ccd4}
.s{fill:#1d4234;stroke:#5c9}.a{stroke:#ddd}
}"""
TITLE = "The states of what a side sends and receives, and of a fallback, with the events between them"


def drawn(events: dict[str, Event]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * LEFT + 3 * STEP + WIDE} {ROW * len(ROWS)}"'
        ' font-family="sans-serif" font-size="14" role="img" aria-labelledby="t">',
        f'<title id="t">{TITLE}</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="m" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" class="t"/></marker></defs>',
        '<rect class="p" width="100%" height="100%"/>',  # readable whatever the page's colour
    ]
    for number, row in enumerate(ROWS):
        top = number * ROW + 105
        parts.append(f'<text class="h" x="{LEFT}" y="{number * ROW + 18}">{escape(row)}</text>')
        names = list(ROWS[row])
        for place, name in enumerate(names):
            x = LEFT + place * STEP
            parts.append(f'<rect class="s" x="{x}" y="{top}" width="{WIDE}" height="{HIGH}" rx="6"/>')
            parts.append(f'<text class="n" x="{x + WIDE // 2}" y="{top + 23}">{escape(name)}</text>')
        for (before, after), labels in arrows(row, events).items():
            draw = line if abs(names.index(before) - names.index(after)) == 1 else arc
            parts += draw(names.index(before), names.index(after), top, ", ".join(labels))
    return "\n".join([*parts, "</svg>", ""])


def line(start: int, end: int, top: int, label: str) -> list[str]:
    """Between neighbours: to the right in the upper half of the boxes, to the left in the lower one."""
    left = LEFT + min(start, end) * STEP + WIDE
    if end > start:
        return arrow(f"M{left} {top + 11} H{left + GAP - 4}", left + GAP // 2, top + 6, label)
    return arrow(f"M{left + GAP} {top + 26} H{left + 4}", left + GAP // 2, top + 39, label)


def arc(start: int, end: int, top: int, label: str) -> list[str]:
    """Over others: above the boxes from the first and the third state on, below from the others, so that none cross."""
    over, far = (-1, 0) if start % 2 == 0 else (1, HIGH)
    wide = abs(end - start) - 1
    from_x, to_x = LEFT + start * STEP + WIDE // 2 - 16 * wide, LEFT + end * STEP + WIDE // 2 - 24 * (3 - wide)
    edge, peak = top + far, 26 + 26 * wide
    bend = edge + over * peak * 4 // 3
    curve = f"M{from_x} {edge} C{from_x} {bend} {to_x} {bend} {to_x} {edge + over * 4}"
    return arrow(curve, (from_x + to_x) // 2, edge + over * peak + (-5 if over < 0 else 14), label)


def arrow(path: str, x: int, y: int, label: str) -> list[str]:
    return [f'<path class="a" d="{path}"/>', f'<text class="e" x="{x}" y="{y}">{escape(label)}</text>']


# ---- the table -----------------------------------------------------------------------------------------------


def listed(events: dict[str, Event], meanings: dict[str, str]) -> str:
    """The events in Markdown. ValueError for an event that is in one of the two sources only."""
    if list(events) != list(meanings):
        raise ValueError("state.c and state.h have different events")
    lines = ["| event | what has happened | leads | cannot be |", "| --- | --- | --- | --- |"]
    for name, event in events.items():
        steps = [f"{a} → {b}" for row in ROWS for (a, b), names in arrows(row, events).items() if name in names]
        never = ", ".join(f"`FS_{bit}`" for bit in sorted(event.never))
        lines.append(f"| `{name}` | {meanings[name]} | {'; '.join(steps)} | {never} |")
    return "\n".join(lines)


def paths(table: str, header: str) -> str:
    """The table of path states in Markdown. ValueError for an event that is in one of the two sources only."""
    meanings = dict(PATH_MEANING.findall(header))
    events = {name: PATH_STEP.findall(steps) for name, steps in PATH_LINE.findall(table)}
    if list(events) != list(meanings):
        raise ValueError("path_state.c and path_state.h have different events")
    late = {name: states_in(expression) for name, expression in PATH_LATE.findall(table)}
    lines = ["| event | what has happened | leads | changes nothing in |", "| --- | --- | --- | --- |"]
    for name, steps in events.items():
        leads = "; ".join(f"{a.replace('_', ' ') or 'all'} → {b.replace('_', ' ')}" for a, b in steps)
        lines.append(f"| `{name}` | {meanings[name]} | {leads} | {late.get(name, '')} |")
    return "\n".join(lines)


def states_in(expression: str) -> str:
    """An expression of `late` in words."""
    states = ", ".join(name.replace("_", " ") for name in re.findall(r"IN\(FS_(\w+)\)", expression))
    return f"all others{' but ' + states if states else ''}" if "EVERYWHERE" in expression else states


def between(page: str, begin: str, end: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, _, rest = page.partition(begin)
    _, _, behind = rest.partition(end)
    return f"{before}{begin}\n\n{text}\n\n{end}{behind}"


def made() -> dict[Path, str]:
    """File -> its text as the table has it."""
    events, meanings = table(TABLE.read_text()), dict(MEANING.findall(EVENTS.read_text()))
    page = between(PAGE.read_text(), BEGIN, END, listed(events, meanings))
    page = between(page, PATH_BEGIN, PATH_END, paths(PATH.read_text(), PATH_EVENTS.read_text()))
    return {PICTURE: drawn(events), PAGE: page}


if __name__ == "__main__":
    for file, text in made().items():
        file.write_text(text)
