"""Every figure of the papers at its smallest size: all lines give figures, and JSON, PNG and page are written.

No test here says how large a figure has to be.
"""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from bench.process import RunFailed
from bench.turns import Line
from research.catalogue import FIGURES, PAPERS, chosen
from research.datacutter.guarantees import latency_at_rate, rate_at_latency
from research.documents import read_medians, summary, write_medians
from research.figures import Plan
from research.measure import measure
from research.page import figures_page, page

ROOT = Path(__file__).resolve().parents[2]
NO_ONC_RPC = sys.version_info >= (3, 13)  # sunrpc needs xdrlib, which left the standard library
UNAVAILABLE = ("ONC RPC",) if NO_ONC_RPC else ()


@pytest.mark.parametrize("paper", [paper.name for paper in PAPERS])
def test_every_line_of_a_paper_gives_figures_at_its_smallest_size(paper, tmp_path):
    words = [sys.executable, "-m", "research", "--least", "--out", tmp_path, "--raw", tmp_path / "raw", paper]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    wrong = [line for line in done.stderr.splitlines() if line.startswith("INVALID")]
    absent = [line for line in wrong if "not installed: " in line]  # programs that are not Python
    assert [line for line in wrong if line not in absent and not any(name in line for name in UNAVAILABLE)] == []
    assert done.returncode == bool(wrong), done.stderr
    assert "| not measured |" in (tmp_path / "papers.md").read_text()
    text = (tmp_path / "raw/papers-figures.md").read_text()
    medians = read_medians(tmp_path / "papers/medians.json")
    assert medians.keys() == {figure.full_name for figure in chosen([paper])}
    for figure in chosen([paper]):
        if any(f"{figure.full_name}, " in line for line in absent):
            continue
        document = json.loads((tmp_path / "raw" / f"{figure.full_name}.json").read_text())
        assert (tmp_path / "raw/papers" / f"{figure.full_name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"### {figure.title}" in text
        xs = [str(x) for x in figure.xs["least"]]
        for line in figure.lines:
            if not line.name.startswith(UNAVAILABLE or " "):
                assert list(document["samples"][line.name]) == xs
        for panel in figure.panels:
            shown = medians[figure.full_name]["panels"][panel.key]
            assert shown, panel.key
            assert all(figure > 0 for by_x in shown.values() for taken in by_x.values() for figure in taken), panel.key


def test_the_page_belongs_to_the_medians_beside_it():
    medians = read_medians(ROOT / "docs/papers/medians.json")
    names = {figure.full_name for figure in FIGURES}
    assert medians.keys() == names
    assert (ROOT / "docs/papers.md").read_text() == page(PAPERS, medians), "run python -m research --page"


def test_medians_are_read_as_they_were_written(tmp_path):
    """A point of several runs has its least figure, its median and its greatest; one of a single run has that."""
    figure = chosen(["sovia-table1"])[0]
    samples = {"fastsock": {"1 get": [{"bits_per_second": n} for n in (5.0, 1.0, 3.0, 2.123456)], "2": []}}
    samples["kernel TCP"] = {"1 get": [{"bits_per_second": 4.0}]}
    told = summary(figure, samples, "a machine", {"local copy": 'it "failed"'})
    panel = {"fastsock": {"1 get": [1.0, 2.5617, 5.0]}, "kernel TCP": {"1 get": [4.0]}}
    assert told["panels"] == {"bits_per_second": panel}
    write_medians(tmp_path / "new/medians.json", {figure.full_name: told})
    assert read_medians(tmp_path / "new/medians.json") == {figure.full_name: told}


def rate(name, value):
    return [{name: value}]


SLOW = {"fastsock": {"1 get": rate("bits_per_second", 50.0)}, "kernel TCP": {"1 get": rate("bits_per_second", 100.0)}}
PER_CPU = {
    "fastsock": {"4": rate("mb_per_cpu_second", 9.0), "64": rate("mb_per_cpu_second", 40.0)},
    "kernel TCP, a CPU each": {"4": rate("mb_per_cpu_second", 10.0), "64": rate("mb_per_cpu_second", 10.0)},
}
STAYED = {
    "thriftpy2, fastsock": {"0": [{"seconds": 1.0, "connections_moved": 1}]},
    "rpyc, fastsock": {"0": [{"seconds": 1.0, "connections_moved": 0}]},
    "rpyc, kernel TCP": {"0": [{"seconds": 1.0}]},
}


@pytest.mark.parametrize(
    ("name", "samples", "problems", "parts"),
    [
        (
            "sovia-table1",
            {**SLOW, "local copy": {}},
            {"local copy": "it failed"},
            [
                "fastsock is behind kernel TCP in bit/s at file 1 get (0.50x)",
                "| SOVIA table 1: 1 of 1 | 0.50 |",
                chosen(["sovia-table1"])[0].slower,
                "**No figures of local copy**: it failed",
                "Not measured yet: `./dev papers sovia-fig6a`",
            ],
        ),
        ("wsdlite-fig4-7", PER_CPU, {}, ["| 1 everywhere | 0.90 (at 4) | 0.90 to 4.00 |"]),
        ("sovia-fig7", STAYED, {}, ["All connections stayed on kernel TCP in: rpyc, fastsock."]),
    ],
    ids=["what is slower or has no figures", "the worst ratio, where the goal is for all x", "what stayed"],
)
def test_the_page_tells(name, samples, problems, parts):
    documents = {name: summary(chosen([name])[0], samples, "a machine", problems)}
    text = page(PAPERS, documents) + figures_page(PAPERS, documents)
    assert [part for part in parts if part not in text] == []


def test_guarantees():
    """Kernel TCP meets a latency of 100 us with small blocks only; fastsock with large ones, if it may choose. Each
    line has the hardest guarantee that it can keep, too."""

    def at(updates, microseconds):
        return [{"updates": updates, "latency": microseconds / 1e6}]

    samples = {
        "kernel TCP": {"1024": at(10.0, 100.0), "65536": at(77.0, 400.0)},
        "fastsock": {"1024": at(60.0, 25.0), "65536": at(200.0, 100.0)},
    }
    rates = {line: by_x.get("100") for line, by_x in rate_at_latency(samples).items()}
    assert rates == {"kernel TCP": [10.0], "fastsock": [60.0], "fastsock with DR": [200.0]}
    table = latency_at_rate(samples)
    assert (table["kernel TCP"]["10"], table["kernel TCP"]["77"]) == ([100e-6], [400e-6])
    assert table["fastsock"]["10"] == table["fastsock with DR"]["10"] == [25e-6]
    assert "200" not in table["kernel TCP"]
    assert table["fastsock with DR"]["200"] == [100e-6]
    samples["kernel TCP"]["1024"] = at(10.0, 123.0)
    assert rate_at_latency(samples)["kernel TCP"]["123"] == [10.0]


def test_a_line_that_fails_has_no_figures_and_does_not_stop_the_others():
    def fails(stack, plan):
        raise RunFailed("it does not start")

    def works(stack, plan):
        return lambda x: {"seconds": float(x)}

    figure = attrs.evolve(
        chosen(["sovia-fig7"])[0], lines=(Line("fails", fails), Line("works", works)), xs={"least": (1, 2)}
    )
    measured = measure(figure, Plan.named("least"), lambda text: None)
    assert measured.problems == {"fails": "RunFailed: it does not start"}
    assert measured.samples == {"fails": {}, "works": {"1": [{"seconds": 1.0}], "2": [{"seconds": 2.0}]}}
