"""`python -m bench.programs`: what a session leaves behind, and how it judges. Not how fast anything is."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from harness.processes import ended, marked

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # bench is no installed package

from bench.programs import calls, table  # noqa: E402
from bench.programs.measure import measure  # noqa: E402
from bench.programs.pair import AGAIN, FASTSOCK, PLAIN, SCRIPTS, Slice  # noqa: E402
from bench.programs.plan import Plan  # noqa: E402
from bench.programs.results import Result, humps  # noqa: E402
from bench.programs.rows import APART, FREE, NULL, PLACEMENTS, Row, python  # noqa: E402
from bench.programs.show import verdict  # noqa: E402

ROWS = ("sessions-http.server-4", "crowd-2")
QUICK = Plan(rounds=1, slices=2, seconds=0.02, calls=False)
SESSION_SECONDS = 100
VERDICTS = {"yes", "no: ratio", "no: CPU time", "no: ratio, CPU time"}

STUCK_SERVER = """
import socket, sys
def never_answers():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    peers = []
    while True:
        peers.append(listener.accept())
never_answers()
"""
STUCK_CLIENT = """
import clock, socket, sys, time
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def waits_for_ever():
    while not sock.recv(1):  # the server may be ended first
        time.sleep(0.01)
for _ in clock.slices():
    waits_for_ever()
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A session of a few rows in both placements, and the processes that it left."""
    file = tmp_path_factory.mktemp("bench") / "programs.json"
    words = ["--quick", "--slices", "2", "--null", "--json", str(file), *ROWS]
    mark = str(os.getpid())
    done = ended([sys.executable, "-m", "bench.programs", *words], PROGRAM_BENCH_TEST=mark)
    left = marked("PROGRAM_BENCH_TEST", mark)
    told = {"file": file, "printed": done.stdout, "progress": done.stderr, "left": left}
    return {**json.loads(file.read_text()), **told}


pytestmark = pytest.mark.timeout(SESSION_SECONDS + 20)


def test_a_session_has_every_row_in_every_placement_that_it_has(session):
    rows = [(row["name"], row["placement"]) for row in session["rows"]]
    assert rows == [*((ROWS[0], placement) for placement in PLACEMENTS), (ROWS[1], FREE)]
    for row in session["rows"]:
        assert row["program"].split()[0] in session["printed"]
        assert f"{row['name']} {row['placement']}: " in session["progress"]


def test_a_session_leaves_no_process_behind(session):
    assert session["left"] == []


def test_programs_of_a_background_job_hear_that_they_are_told_to_end():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    job = f"""
import signal, subprocess, sys
from bench.programs.__main__ import let_programs_hear_interrupts
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.run([sys.executable, "-c", {program!r}])
let_programs_hear_interrupts()
subprocess.run([sys.executable, "-c", {program!r}])
"""
    assert ended([sys.executable, "-c", job]).stdout.split() == ["True", "False"]


def test_a_row_tells_its_goal_its_verdict_and_the_path(session):
    for row in session["rows"]:
        declared = next(one for one in table.ROWS if one.name == row["name"])
        assert row["goal"]["ratio"] == declared.goal(row["placement"])
        assert row["verdict"] in (VERDICTS if row["goal"]["ratio"] is not None else {"-"})
        if row["name"] == ROWS[0]:  # a crowd's connections are those of the processes that it starts
            assert re.match(r"ring \d+|tcp \d+ \(", row["path"])
        assert "client" in row["stats"]


def test_system_calls_are_counted_where_something_counts_them(session):
    tracer = calls.tool()
    for row in session["rows"]:
        for side in ("plain", "fastsock"):
            counted = row[side]["calls_per_operation"]
            assert (counted is None) == (tracer is None)
            if counted is not None:
                assert counted["by"] == tracer
                assert counted["server"] > 0
                assert counted["client"] > 0
                assert counted["by_name"]["client"]


# ---- what goes wrong ---------------------------------------------------------------------------------------


def test_a_hang_is_told_with_what_both_ends_were_doing(tmp_path):
    ends = []
    for name, source in (("server", STUCK_SERVER), ("client", STUCK_CLIENT)):
        (tmp_path / f"{name}.py").write_text(source)
        ends.append(python(f"{tmp_path}/{name}.py {{port}}"))
    row = Row("stuck", "stuck", (ends[0],), ends[1], slice_seconds=0.5)
    result = measure(row, FREE, QUICK, tmp_path, None, lambda _: None)
    assert not result.measured
    assert result.problem is not None
    for word in ("said nothing", "in never_answers", "in waits_for_ever", "client: ", "server0: "):
        assert word in result.problem
    assert verdict(result) == "INVALID"


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path):
    (tmp_path / "server.py").write_text("raise SystemExit('no such application')")
    row = Row("gone", "gone", (python(f"{tmp_path}/server.py"),), python("http_client.py urllib3 {port}"))
    result = measure(row, FREE, QUICK, tmp_path, None, lambda _: None)
    assert result.problem is not None
    assert "no such application" in result.problem


# ---- verdicts ----------------------------------------------------------------------------------------------


def slices(*rates: float, cpu: float = 1.0) -> list[Slice]:
    """Slices of a second with so many operations, each of which cost `cpu` milliseconds."""
    return [Slice(int(rate), 1.0, rate * cpu / 2000, rate * cpu / 2000) for rate in rates]


def result(free: float | str, fastsock: list[Slice], again: list[Slice] | None = None) -> Result:
    row = Row("row", "row", (), python("x.py"), free, 2)
    taken = {PLAIN: slices(*[1000] * len(fastsock)), FASTSOCK: fastsock}
    return Result(row, FREE, {**taken, **({AGAIN: again} if again else {})})


NOISY, EVEN = slices(900, 950, 1000, 1050, 1100), slices(*[1000] * 5, cpu=1.05)


@pytest.mark.parametrize(
    ("goal", "taken", "again", "problem", "expected"),
    [
        (1.2, slices(1100, 1300, 1300), None, None, "yes"),
        (1.4, slices(1100, 1300, 1300), None, None, "no: ratio"),
        (1.2, slices(1300, 1300, cpu=1.1), None, None, "no: CPU time"),
        (NULL, slices(*[960] * 5), NOISY, None, "yes"),
        (NULL, slices(*[940] * 5), NOISY, None, "no: ratio"),
        (NULL, EVEN, slices(*[1000] * 5, cpu=1.1), None, "yes"),
        (1.2, slices(1300, 1300), None, "client said nothing", "INVALID"),
    ],
    ids=["reached", "missed", "more CPU time", "within noise", "below noise", "CPU within noise", "failed later"],
)
def test_a_verdict(goal, taken, again, problem, expected):
    judged = result(goal, taken, again)
    judged.problem = problem
    assert verdict(judged) == expected


def test_figures_in_two_humps_are_told():
    one = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09]
    assert humps(one) is None
    low, high = humps([*one[:5], *(3 * figure for figure in one[5:])])
    assert low == pytest.approx(1.02, rel=0.01)
    assert high == pytest.approx(3.21, rel=0.01)
    assert humps([1.0] * 9 + [3.0]) is None  # a straggler is no hump


# ---- the table ---------------------------------------------------------------------------------------------


def test_the_rows_of_the_table_can_be_started():
    names = [row.name for row in table.ROWS]
    assert len(names) == len(set(names))
    values = {"port": "1", "inner": "2", "scripts": SCRIPTS, "scratch": "x", **Plan().sizes}
    for row in table.ROWS:
        for end in (*row.servers, row.client):
            words = [word.format(**values) for word in end.words]
            assert end.native or words[0] == "-m" or (SCRIPTS / words[0]).is_file(), row.name
            assert all(Path(word).is_file() for word in words if word.startswith(str(SCRIPTS))), row.name
        assert set(row.placements) <= set(PLACEMENTS)
        assert row.goal(APART) is None or APART in row.placements


def test_calls_are_read_from_what_the_tracers_write():
    perf, strace = calls.Calls(), calls.Calls()
    calls.read_perf("# started\n\n350,,raw_syscalls:sys_enter,28,100.00,,\n0,,syscalls:sys_enter_read,28,1,,\n", perf)
    calls.read_perf("7,,syscalls:sys_enter_futex,28,100.00,,\n", perf)
    assert (perf.total, perf.by_name) == (350, {"futex": 7})
    lines = [
        "% time     seconds  usecs/call     calls    errors syscall",
        "------ ----------- ----------- --------- --------- ----------------",
        " 60.00    0.000060           6        10         2 recvfrom",
        " 40.00    0.000040           4        10           sendto",
        "100.00    0.000100                    20         2 total",
    ]
    calls.read_strace("\n".join(lines), strace)
    assert (strace.total, strace.by_name) == (20, {"recvfrom": 10, "sendto": 10})
