"""What was measured, as pages: docs/papers.md for a reader who wants the outcome, and a page with every figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from research.catalogue import Paper
from research.documents import Document
from research.figures import Figure, Panel, Table, Versus, is_numeric

HERE = Path(__file__).parent
NOISE = 0.97  # a ratio from here to 1 is told as equal
SHOWN = 6  # values of x in a table, at most
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def page(papers: tuple[Paper, ...], documents: dict[str, Document]) -> str:
    """docs/papers.md."""
    parts = [(HERE / "head.md").read_text().strip(), headlines(papers, documents), losses(papers, documents)]
    return "\n\n".join([*parts, (HERE / "mechanisms.md").read_text().strip()]) + "\n"


def figures_page(papers: tuple[Paper, ...], documents: dict[str, Document]) -> str:
    """Every figure: what the paper says, what was measured here, and where fastsock is slower."""
    parts = [(HERE / "figures.md").read_text().strip()]
    for paper in papers:
        parts.append(f"## {paper.title}")
        parts += [section(figure, documents.get(figure.full_name)) for figure in paper.figures]
    return "\n\n".join(part for part in parts if part) + "\n"


def headlines(papers: tuple[Paper, ...], documents: dict[str, Document]) -> str:
    """The ratios that the papers are known for, and what they are here."""
    rows = []
    for paper in papers:
        for figure in paper.figures:
            for versus in figure.versus:
                if versus.goal is not None:
                    rows.append(headline(figure, versus, documents.get(figure.full_name)))
    head = "| what | the paper | here | at all values of x |"
    return "\n".join(["## Headline ratios", "", head, "| --- | --- | --- | --- |", *rows])


def headline(figure: Figure, versus: Versus, document: Document | None) -> str:
    panel = panels_of(figure, versus)[0]
    what = f"{figure.title}: {panel.label}, {versus.ours} against {versus.theirs}"
    goal = f"{versus.goal:g}{' everywhere' if versus.everywhere else ''}"
    found = ratios(document["panels"].get(panel.key, {}), panel, versus) if document is not None else {}
    pick = min if versus.everywhere else max
    at = str(versus.at) if versus.at is not None else pick(found, key=found.__getitem__, default="")
    if at not in found:
        return f"| {what} | {goal} | not measured | |"
    return f"| {what} | {goal} | {found[at]:.2f} (at {at}) | {min(found.values()):.2f} to {max(found.values()):.2f} |"


def losses(papers: tuple[Paper, ...], documents: dict[str, Document]) -> str:
    """Why fastsock is slower than what it is compared with, in which figures, and at how many points."""
    rows: dict[str, list[tuple[str, float]]] = {}
    for paper in papers:
        for figure in paper.figures:
            shown = documents[figure.full_name]["panels"] if figure.full_name in documents else {}
            found = [ratio for *_, by_x in compared(figure, shown) for ratio in by_x.values()]
            if late := [ratio for ratio in found if ratio < NOISE]:
                why = figure.slower.partition(". ")[0].rstrip(".") or "Why has not been looked into"
                where = f"{figure.title.partition(':')[0]}: {len(late)} of {len(found)}"
                rows.setdefault(why, []).append((where, min(late)))
    lines = [
        f"| {why}. | {'; '.join(where for where, _ in found)} | {min(worst for _, worst in found):.2f} |"
        for why, found in rows.items()
    ]
    head = "| why | figures, and at how many points | the worst ratio |"
    return "\n".join(["## Where fastsock is slower", "", head, "| --- | --- | ---: |", *lines])


def section(figure: Figure, document: Document | None) -> str:
    parts = [f"### {figure.title}"]
    if document is None:
        parts.append(f"Not measured yet: `./dev papers {figure.full_name}`.")
    else:
        parts.append(f"![{figure.title}](papers/{figure.full_name}.png)")
        parts += [table(figure, panel, document["panels"].get(panel.key, {})) for panel in figure.panels]
    parts.append("The paper: " + "; ".join(f"{what} **{number}**" for what, number in figure.said) + ".")
    parts.append(figure.shows)
    if document is not None:
        parts.append(comparison(figure, document["panels"]))
        if document["stayed"]:
            parts.append(f"All connections stayed on kernel TCP in: {', '.join(document['stayed'])}.")
        parts.append(document["conclusion"])
        parts.append(f"*{document['caption']}.*")
        parts += [f"**No figures of {line}**: {why}" for line, why in document["problems"].items()]
    return "\n\n".join(part for part in parts if part)


# --- tables -------------------------------------------------------------------------------------------------


def table(figure: Figure, panel: Panel, shown: Table) -> str:
    every = list(dict.fromkeys(x for by_x in shown.values() for x in by_x))
    xs = some(sorted(every, key=float) if is_numeric(shown) else every)
    head = f"| {panel.label}, at {panel.xlabel or figure.xlabel} | " + " | ".join(xs) + " |"
    lines = [head, "| --- |" + " --: |" * len(xs)]
    for line, by_x in shown.items():
        lines.append(f"| {line} | " + " | ".join(cell(by_x.get(x)) for x in xs) + " |")
    return "\n".join(lines)


def some(xs: list[str]) -> list[str]:
    """At most SHOWN of them, the first and the last among them."""
    if len(xs) <= SHOWN:
        return xs
    return [xs[round(n * (len(xs) - 1) / (SHOWN - 1))] for n in range(SHOWN)]


def cell(figures: list[float] | None) -> str:
    if not figures:
        return "-"
    middle = median(figures)
    spread = (max(figures) - min(figures)) / middle / 2 if middle else 0.0
    return f"{short(middle)} ±{spread:.0%}" if len(figures) > 1 else short(middle)


def short(number: float) -> str:
    """Three digits and a prefix: 3.21 u, 1.5 G."""
    if number == 0:
        return "0"
    scale, prefix = next((pair for pair in PREFIXES if abs(number) >= pair[0]), PREFIXES[-1])
    value = number / scale
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}{' ' + prefix if prefix else ''}"


# --- who is ahead -------------------------------------------------------------------------------------------


def panels_of(figure: Figure, versus: Versus) -> tuple[Panel, ...]:
    return tuple(panel for panel in figure.panels if not versus.keys or panel.key in versus.keys)


def ratios(shown: Table, panel: Panel, versus: Versus) -> dict[str, float]:
    """How many times better ours is than theirs, by x."""
    ours, theirs = shown.get(versus.ours, {}), shown.get(versus.theirs, {})
    found = {}
    for x in ours:
        if x in theirs:
            mine, other = median(ours[x]), median(theirs[x])
            if mine > 0 and other > 0:
                found[x] = other / mine if panel.lower_is_better else mine / other
    return found


def compared(figure: Figure, panels: dict[str, Table]) -> Iterator[tuple[Versus, Panel, dict[str, float]]]:
    """What the page compares, with the ratios by x."""
    for versus in figure.versus:
        for panel in panels_of(figure, versus):
            if found := ratios(panels.get(panel.key, {}), panel, versus):
                yield versus, panel, found


def comparison(figure: Figure, panels: dict[str, Table]) -> str:
    told, behind = [], []
    for versus, panel, found in compared(figure, panels):
        told.append(f"- {versus.ours} against {versus.theirs}, {panel.label}: {extent(found)}")
        if late := {x: ratio for x, ratio in found.items() if ratio < NOISE}:
            where = ", ".join(f"{x} ({ratio:.2f}x)" for x, ratio in late.items())
            axis = f"{panel.label} at {panel.xlabel or figure.xlabel}"
            behind.append(f"- {versus.ours} is behind {versus.theirs} in {axis} {where}.")
    text = "\n".join(told)
    if behind:
        why = figure.slower or "Why has not been looked into."
        text += "\n\n**Where fastsock is slower:**\n\n" + "\n".join(behind) + f"\n\n{why}"
    return text


def extent(found: dict[str, float]) -> str:
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    if low == high:
        return f"{found[low]:.2f}x better at {low}"
    return f"{found[low]:.2f}x (at {low}) to {found[high]:.2f}x better (at {high})"
