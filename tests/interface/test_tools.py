"""`fastsock ss`, `fastsock top` and `fastsock bench`."""

import json
import os
import re
import socket
import subprocess
import sys

import pytest
from harness.pairs import until
from harness.processes import ended, running

from fastsock.path_events import REASONS
from fastsock.tools import checks, introspection, quickbench, ss, top
from interface.test_introspection import IDLE, PAIR

pytestmark = pytest.mark.usefixtures("bounded")


def run(*words, **variables):
    return ended([sys.executable, "-m", "fastsock", *words], None, **variables)


# ---- ss ----------------------------------------------------------------------------------------------------


def test_ss_shows_both_ends_of_a_moved_connection():
    with running(PAIR) as program:
        near, far = program.line().split()

        def answered():
            """What it printed, if the process had answered within the half second that it has."""
            done = run("ss", program.pid)
            return done if len(done.stdout.splitlines()) > 2 or done.returncode else None

        done = until(answered, "the process answers")
    assert (done.returncode, done.stderr) == (0, "")
    headings, *rows = done.stdout.splitlines()[1:]
    assert headings.split() == [column.head for column in ss.COLUMNS]
    assert len(rows) == 2
    for row in rows:
        assert row.startswith("ESTAB  ring  ")
        assert f"127.0.0.1:{near}" in row
        assert f"127.0.0.1:{far}" in row


def test_ss_says_why_one_is_on_kernel_tcp():
    with running(IDLE) as program:
        program.line()
        said = "too few operations"
        done = until(lambda: (done := run("ss", program.pid)) and said in done.stdout and done, "the process answers")
    assert said in done.stdout


LISTENER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    say(server.getsockname()[1])
    far, _ = server.accept()
    say(1)
    far.recv(1)
"""


def test_ss_shows_programs_that_have_met_no_peer_yet(tmp_path):
    """Also one that writes over its environment, and one with a connection to a program without fastsock."""
    (tmp_path / "served.py").write_text("say = lambda what: print(what, flush=True)\n" + LISTENER)
    words = [sys.executable, "-m", "fastsock", "run"]
    with (
        subprocess.Popen([*words, "cat"], stdin=subprocess.PIPE) as native,
        subprocess.Popen([*words, tmp_path / "served.py"], stdout=subprocess.PIPE, text=True) as python,
    ):
        port = int(python.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)):
            python.stdout.readline()
            until(lambda: json.loads(run("ss", "--json", native.pid).stdout), "the native program is shown")
            (process,) = json.loads(run("ss", "--json", python.pid).stdout)
            said = run("ss", python.pid, native.pid).stdout
        native.stdin.close()
    (end,) = process["connections"]
    assert (end["path"], end["reason"], end["local"]) == ("tcp", introspection.UNMET, f"127.0.0.1:{port}")
    assert introspection.UNMET in said
    assert f"{native.pid}  cat" in said


def test_ss_as_json():
    with running(PAIR) as program:
        program.line()
        (process,) = until(lambda: json.loads(run("ss", "--json", program.pid).stdout), "the process answers")
    assert process["pid"] == program.pid
    assert {end["path"] for end in process["connections"]} == {"ring"}
    assert set(process["connections"][0]["counters"]) == set(introspection.COUNTERS)


def of_process(command, ends, protocol=introspection.VERSION):
    gone = dict.fromkeys(introspection.COUNTERS, 10**12)
    return introspection.Process(
        pid=4194304, command=command, protocol=protocol, gone=gone, names=0, connections=tuple(ends)
    )


def end(local, peer, reason, moved):
    return introspection.Connection(
        inode=1, local=local, peer=peer, state="CLOSE-WAIT", path="ring" if moved else "tcp", reason=reason,
        peer_pid=4194303, receive_queue=10**9, send_queue=10**7, unconsumed=3, credits=30 if moved else None, window=32,
        marks=tuple(introspection.MARKS.values()),
        counters=dict.fromkeys(introspection.COUNTERS, 10**10) if moved else {},
    )  # fmt: skip


V6 = "[2001:db8:1234:5678:9abc:def0:1234:5678]"
WIDE = {
    "short": of_process("redis-server", [end("127.0.0.1:1", "127.0.0.1:2", "sending", True)]),
    "ring": of_process("x" * 300, [end(f"{V6}:65535", f"{V6}:65534", "both directions", True)]),
    "tcp": of_process("x" * 300, [end(f"{V6}:65535", f"{V6}:65534", max(REASONS, key=len), False)]),
    "no connection": of_process("python app.py", []),
    "another version": of_process("python app.py", [], protocol=1),
}
ESSENTIAL = {"ss": ["PATH", "REASON", "LOCAL", "PEER", "PID"], "top": ["pid", "ring", "tcp", "sent/s", "command"]}


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("process", WIDE)
@pytest.mark.parametrize("command", ESSENTIAL)
def test_a_table_fits_the_terminal_and_tells_what_is_missing(command, process, width):
    one = WIDE[process]
    now = top.Sample(2.0, (one,), {one.pid: 1.0})
    before = top.Sample(1.0, (one,), {one.pid: 0.5})
    drawn = {"ss": lambda width: ss.table([one], width), "top": lambda width: top.drawn(before, now, width)}[command]
    said = drawn(width)
    assert max(map(len, said)) <= width
    if command == "top" or one.connections:
        heads = said[1].split()
        assert [head for head in ESSENTIAL[command] if head not in heads] == []
    if command == "ss" and one.connections:
        note = " ".join(said[3:])
        assert [column.head for column in ss.COLUMNS if column.head not in heads and column.head not in note] == []
        assert bool(note) == (len(heads) < len(ss.COLUMNS))
        assert ":6553" in said[2] or process == "short"  # the ports are to be seen
    everything = "\n".join(drawn(None))
    for each in one.connections if command == "ss" else ():
        assert each.local in everything
        assert each.reason in everything
    if command == "top":  # nothing is known of one that speaks another version
        assert (said[2].split()[3:6] == ["-"] * 3) == (one.protocol == 1), said
    assert ("protocol version 1" in " ".join(said)) == (command == "ss" and one.protocol == 1)


# ---- top ---------------------------------------------------------------------------------------------------

BUSY = PAIR.replace(
    "    told()\n",
    """
    def drink():
        while far.recv(1 << 16): pass
    threading.Thread(target=drink, daemon=True).start()
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        near.sendall(b"x" * 100)
        time.sleep(0.001)
""",
)


def test_rates_are_what_changed():
    with running(BUSY) as program:
        program.line()
        until(lambda: introspection.query({program.pid}), "it answers")
        before = until(lambda: seen_sending(program.pid, 0), "it is in a sample")
        now = until(lambda: seen_sending(program.pid, sent(program.pid, before)), "more was sent")
    made = {title: rows for title, _, rows in top.tables(before, now)}
    (row,) = (row for row in made["processes"] if row[0] == str(program.pid))
    assert row[3:5] == ("2", "0")  # ends on the ring, and on kernel TCP
    (process,) = (process for process in now.processes if process.pid == program.pid)
    (earlier,) = (process for process in before.processes if process.pid == program.pid)
    rate = top.rates(top.totals(earlier), top.totals(process), now.when - before.when)
    assert rate.sent > 0
    assert rate.received > 0
    assert rate.polling >= 0


def seen_sending(pid, more):
    """A sample in which a process has sent more bytes than so many. One that does not answer in time is not in it."""
    sample = top.sample()
    return sample if sent(pid, sample) > more else None


def sent(pid, sample):
    return sum(process.total("bytes_sent") for process in sample.processes if process.pid == pid)


def test_rates_of_a_process_that_has_just_come_are_zero():
    assert top.rates({}, {}, 1.0) == top.Rates(
        sent=0, received=0, messages_sent=0, messages_received=0, doorbells=0, polling=0
    )


# ---- bench -------------------------------------------------------------------------------------------------


def test_bench_measures_every_work_on_both_paths():
    for _ in range(2):  # on a busy machine a slice may be over before its connection has moved
        done = run("bench", "--json", "--seconds", "6")
        assert re.fullmatch(r"(something else uses \d+% of the CPUs: figures will be off\n)?", done.stderr)
        pairs = json.loads(done.stdout)
        if done.returncode == 0:
            break
    assert [pair["work"]["name"] for pair in pairs] == [work.name for work in quickbench.WORKS]
    assert all(pair["tcp"] > 0 and pair["ring"] > 0 for pair in pairs)
    assert [pair["reason"] for pair in pairs] == [""] * len(pairs)
    assert done.returncode == 0


def pair(ratio, echo=True, reason="", tcp=1000.0):
    work = next(work for work in quickbench.WORKS if work.echo == echo)
    return quickbench.Pair(work, tcp, tcp * ratio, 1.0, 1.0, reason)


@pytest.mark.parametrize("share", [0.09, 0.4])
def test_bench_says_when_something_else_runs(monkeypatch, capsys, share):
    monkeypatch.setattr(quickbench, "busy", lambda seconds: share)
    monkeypatch.setattr(quickbench, "measure", lambda number, seconds: pair(2.0))
    assert quickbench.run(1, as_json=True) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)) == len(quickbench.WORKS)
    assert said.err == ("something else uses 40% of the CPUs: figures will be off\n" if share == 0.4 else "")


def test_a_busy_machine_is_found_busy():
    with running("say('up')\nwhile True: pass") as program:
        assert program.line() == "up"
        until(lambda: checks.busy(0.2) > 0.5 / os.cpu_count(), "one processor is in use")


def test_no_load_is_told_of_where_there_is_no_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "TIMES", tmp_path / "stat")
    assert checks.busy(0.01) == 0.0


def test_the_verdict_is_in_plain_words():
    said = quickbench.verdict([pair(12.0), pair(20.04), pair(1.0, echo=False)])
    assert "12.0 to 20.0 times as fast" in said
    assert "no gain here (1.0x to 1.0x)" in said


@pytest.mark.parametrize(
    ("tcp", "ratio", "best"),
    [
        (20_000, 5, ["1.67x", "1.25x", "1.09x", "1.04x", "1.01x", "1.00x"]),  # 50 us, of which 40 are saved
        (2_000, 2, ["-", "-", "-", "1.33x", "1.05x", "1.01x"]),  # no request takes less than its messages
        (20_000, 0.5, ["1.00x"] * 6),
    ],
)
def test_what_a_request_can_gain_at_best(tcp, ratio, best):
    said = quickbench.verdict([pair(ratio, tcp=tcp), pair(1.0, echo=False)])
    assert said.splitlines()[-3].split() == best
    assert max(map(len, said.splitlines())) <= 80


def test_the_verdict_on_connections_that_stayed():
    said = quickbench.verdict([pair(1.0, reason="disabled by settings")])
    assert "A connection stayed on kernel TCP: disabled by settings" in said
    assert "FASTSOCK_ENABLED" in said
