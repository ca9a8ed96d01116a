"""`fastsock doctor`: what is in the way on this host, and what became of a program's connections."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
from harness.processes import Process, Server, ended, port_for_later

from fastsock.path_events import Reason
from fastsock.tools import checks, doctor

DOCTOR = [sys.executable, "-m", "fastsock", "doctor"]

ECHO = """
    import socket, sys, threading

    def serve(listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def echo(connection):
        with connection:
            while data := connection.recv(100):
                connection.sendall(data)

    def talk(port, times):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            for _ in range(times):
                sock.sendall(b"x")
                sock.recv(1)

    def move(port):
        import time, fastsock

        ends, moved = time.monotonic() + 20, False
        with socket.create_connection(("127.0.0.1", port)) as sock:
            while not moved and time.monotonic() < ends:
                moved = fastsock.path_of(sock).reason == "both directions"
                sock.sendall(b"x")  # (once more: the other end may not have seen that this one sends on the ring)
                sock.recv(1)

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    port = listener.getsockname()[1]
"""


def run(command, tmp_path, **variables):
    return ended(command, None, cwd=tmp_path, **variables)


@pytest.fixture
def watched(tmp_path):
    """Runs a program under the doctor; gives what it said as JSON."""

    def watched(source, status=0, **variables):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(source))
        done = run([*DOCTOR, "--json", "--", sys.executable, program], tmp_path, **variables)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    return watched


# ---- this host ---------------------------------------------------------------------------------------------


def test_every_check_of_this_host_says_something(tmp_path):
    done = run([*DOCTOR, "--json"], tmp_path)
    assert done.stderr == ""
    findings = [checks.Finding(**finding) for finding in json.loads(done.stdout)]
    looked_at = {finding.what for finding in findings}
    assert looked_at >= {
        "python", "kernel", "memfd", "names", "processors", "descriptors", "seccomp", "yama", "network",
        "settings", "connection", "running",
    }  # fmt: skip
    assert all(finding.do for finding in findings if finding.level in (checks.WARN, checks.BAD))
    (connection,) = (finding for finding in findings if finding.what == "connection")
    assert "moved to the ring" in connection.says
    assert done.returncode == 0


def test_disabled_is_bad_and_says_where_it_comes_from(tmp_path):
    done = run(DOCTOR, tmp_path, FASTSOCK_ENABLED="0", FASTSOCK_POLL_US="7", FASTSOCK_POLLUS="1")
    assert done.returncode == 1
    assert "enabled=False (FASTSOCK_ENABLED)" in done.stdout
    assert "poll_us=7 (FASTSOCK_POLL_US)" in done.stdout
    assert "no such setting: FASTSOCK_POLLUS" in done.stdout
    assert "did you mean FASTSOCK_POLL_US?" in done.stdout
    assert "Connections do not move here" in done.stdout


def refused(*_: object, **__: object) -> int:
    raise PermissionError(1, "Operation not permitted")


NO_PROC = {"STATUS": Path("/nowhere"), "os.readlink": refused, "introspection.query": refused}
HOSTS = {  # what is different there, who looks, how bad it is, and what he advises in the end
    "kernel 4.18": ({"platform.release": lambda: "4.18.0-1"}, checks.kernel, [checks.BAD], ""),
    "kernel 5.4": ({"platform.release": lambda: "5.4.0"}, checks.kernel, [checks.NOTE], ""),
    "kernel 6.12": ({"platform.release": lambda: "6.12.1-amd64"}, checks.kernel, [checks.OK], ""),
    "no memfd": ({"os.memfd_create": refused}, checks.memory, [checks.BAD], ""),
    "no abstract names": ({"_socket": refused}, checks.names, [checks.BAD], ""),
    "no /proc, sandbox": (NO_PROC, checks.sandbox, [checks.NOTE], "mount /proc"),
    "no /proc, namespaces": (NO_PROC, checks.namespaces, [checks.NOTE], "mount /proc"),
    "no /proc, running": (NO_PROC, checks.running, [checks.NOTE], "mount /proc"),
    "one processor and a small quota": (
        {
            "os.sched_getaffinity": lambda _: {0},
            "_control_group": lambda name: "50000 100000" if name == "cpu.max" else "",
        },
        checks.processors, [checks.NOTE, checks.WARN], "",
    ),
    "few descriptors": (
        {"resource.getrlimit": lambda _: (256, 4096)}, checks.descriptors, [checks.WARN], "ulimit -n 4096",
    ),
    "few descriptors, which only root can raise": (
        {"resource.getrlimit": lambda _: (256, 256)}, checks.descriptors, [checks.WARN], "LimitNOFILE",
    ),
    "enough descriptors": ({"resource.getrlimit": lambda _: (1024, 4096)}, checks.descriptors, [checks.OK], ""),
}  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_host(host, monkeypatch):
    different, look, levels, advice = HOSTS[host]
    for name, value in different.items():
        monkeypatch.setattr(f"fastsock.tools.checks.{name}", value)
    findings = list(look())
    assert [finding.level for finding in findings] == levels
    assert advice in findings[-1].do
    assert ("ulimit -n" in findings[-1].do) == ("ulimit -n" in advice)
    if look is checks.descriptors:
        said = "connections of a process can move at the same time; moved ones need none"
        assert findings[0].says in (f"limit 256: 4 {said}", f"limit 1024: 16 {said}")


def test_a_setting_like_no_other_is_answered_with_all_names(monkeypatch):
    monkeypatch.setenv("FASTSOCK_ZZZ", "1")
    (finding,) = [finding for finding in checks.settings() if "no such" in finding.says]
    assert "FASTSOCK_POLL_US" in finding.do
    assert "FASTSOCK_RUN" not in finding.do


# ---- a program ---------------------------------------------------------------------------------------------


def test_what_moved_and_what_did_not(watched):
    said = watched(ECHO + "    move(port); talk(port, 1); talk(port, 2)")
    ends = {(end["local"], end["peer"]) for end in said["moved"]}
    assert any((peer, local) in ends for local, peer in ends)
    assert 2 <= len(ends) < 6  # (an end of a short session may move, since the two processes know each other by then)
    assert said["stayed"] == {Reason.FEW: 6 - len(ends)}
    assert said["advice"][Reason.FEW].startswith("Nothing to do")
    assert len(said["processes"]) == 1


BASH = """["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/$0; while echo x >&3; do read -u 3 line; sleep 0.02; done"]"""
ENDLESS = "while sock.sendall(b'x') or sock.recv(9): time.sleep(0.02)"
CLIENT = f"import socket, sys, time; sock = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n{ENDLESS}"
OTHER_ENDS = {
    "bash": (BASH, "The other end, bash -c "),
    "python": (f"[sys.executable, '-I', '-c', {CLIENT!r}]", "If it is yours, start the other end, "),
    "refuses": (
        f"['env', 'FASTSOCK_PORTS_EXCLUDED=1-65535', sys.executable, '-c', {CLIENT!r}]",
        f"refused: {Reason.EXCLUDED}. For that end: ",
    ),
}


@pytest.mark.parametrize("other", OTHER_ENDS)
def test_the_program_at_the_other_end_is_named_and_gets_no_advice_that_it_cannot_take(watched, other):
    command, says = OTHER_ENDS[other]
    for seconds in (2, 5, 15):  # on a busy machine the doctor may not look in time
        said = watched(f"""
        import os, socket, subprocess, sys, time
        with socket.create_server(("127.0.0.1", 0)) as listener:
            peer = subprocess.Popen([*{command}, str(listener.getsockname()[1])], stderr=subprocess.DEVNULL)
            far = listener.accept()[0]
        ends = time.monotonic() + {seconds}
        while time.monotonic() < ends:
            far.sendall(far.recv(9))
        peer.kill()
        """)
        ends = [end for reason in (Reason.PEER, Reason.SEEKING) for end in said["examples"].get(reason, [])]
        if any(says in end["advice"] for end in ends):
            break
    (end,) = ends
    assert says in end["advice"]
    assert "(pid " in end["program"]
    assert said["refused_by"].get(Reason.PEER, "the other end") == "the other end"
    told = doctor.report(doctor.Watched(**{name: said[name] for name in attrs.fields_dict(doctor.Watched)}), [""])
    assert says[:40] in " ".join(told.split())


def test_a_program_that_is_over_before_it_is_seen_gets_the_advice_too(watched):
    """Its connection is open at its end, and who listens at the other end is there still: this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = watched(f"import socket; sock = socket.create_connection(('127.0.0.1', {port})); sock.sendall(b'x')")
    (end,) = said["examples"][Reason.FEW]
    assert end["peer"] == f"127.0.0.1:{port}"
    assert f"(pid {os.getpid()})" in end["program"]


LATER = "    import encodings.idna, fastsock, os\n    fastsock.path_of(listener)\n"
"""Imports what another user may not read."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_program_that_changes_its_user_is_watched_on(watched):
    said = watched(ECHO + LATER + "    os.setgid(65534); os.setuid(65534); move(port)")
    assert len(said["moved"]) == 2
    assert len(said["processes"]) == 1
    assert not said["uncounted"]


def test_child_processes_are_watched_too(watched):
    said = watched(
        ECHO
        + """
    import subprocess
    source = '''
    import fastsock, socket, sys, time
    ends = time.monotonic() + 20
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
        while fastsock.path_of(sock).reason != "both directions" and time.monotonic() < ends:
            sock.sendall(b"x"); sock.recv(1)
    '''
    import textwrap
    subprocess.run([sys.executable, "-c", textwrap.dedent(source), str(port)], check=True)
    """
    )
    assert len(said["processes"]) == 2
    assert len({end["pid"] for end in said["moved"]}) == 2


def test_a_program_that_is_killed_leaves_what_was_seen(watched):
    said = watched(
        ECHO + "    move(port)\n    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n", status=128 + 9
    )
    assert len(said["moved"]) == 2
    watched = doctor.Watched(**{name: said[name] for name in attrs.fields_dict(doctor.Watched)})
    assert watched.uncounted == [end["pid"] for end in said["moved"][:1]]
    assert "may be missing" in " ".join(doctor.report(watched, [""]).split())


def test_a_program_is_watched_to_its_end_where_nobody_can_be_asked(tmp_path, monkeypatch, capsys):
    asked = tmp_path / "asked"

    def look(pids):
        asked.touch()
        raise FileNotFoundError(2, "No such file or directory: no /proc")

    monkeypatch.setattr(doctor.introspection, "query", look)
    waits = "import os, sys, time\nends = time.monotonic() + 30\n"
    waits += "while not os.path.exists(sys.argv[1]) and time.monotonic() < ends: time.sleep(0.05)\n"
    waits += "raise SystemExit(5 if os.path.exists(sys.argv[1]) else 6)"
    assert doctor.watch([sys.executable, "-c", waits, str(asked)], as_json=True) == 5
    assert len(json.loads(capsys.readouterr().out)["processes"]) == 1


def test_a_program_of_gevent_is_told_of_nothing(watched):
    said = watched("import gevent.monkey\ngevent.monkey.patch_all()\n" + textwrap.dedent(ECHO) + "move(port)")
    assert (said["events"], len(said["moved"])) == ({}, 2)


def test_a_program_whose_python_comes_up_without_us(tmp_path):
    done = run([*DOCTOR, "--", sys.executable, "-I", "-c", "print('ran')"], tmp_path)
    assert done.returncode == 0
    assert done.stdout == "ran\n"
    assert "No process of the program loaded fastsock" in done.stderr


def test_every_event_of_a_program_is_told_with_what_to_do():
    told_only = {"fastsock.bridge", "fastsock.rendezvous_failed"}  # one connection's: its reason has the advice
    assert doctor.EVENTS.keys() == doctor.EVENT_ADVICE.keys() | told_only
    said = attrs.evolve(
        doctor.Watched(status=0, seconds=1, processes={}, moved=[], stayed={}, examples={}, events={}, origins={}),
        events={"fastsock.violation": ["ack ahead"]},
    )
    assert "same version of fastsock" in " ".join(doctor.report(said, ["x"]).split())


def test_the_report_in_words(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(ECHO + "    talk(port, 1); move(port)\n    print('its own output')"))
    done = run([*DOCTOR, "--", sys.executable, program], tmp_path)
    assert (done.returncode, done.stdout) == (0, "its own output\n")
    for line in ("moved to the ring: 2 connection ends", "stayed with the kernel: 2 connection ends"):
        assert line in done.stderr.splitlines()
    assert f"-> {doctor.advice_for(Reason.FEW)[:40]}" in done.stderr


def test_a_signal_is_passed_on_to_the_program(tmp_path):
    program = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(3))\nprint('up', flush=True)\n"
    program += "for _ in range(400): time.sleep(0.1)"  # one that comes just before a sleep is handled behind it
    with Process([*DOCTOR, "--", sys.executable, "-c", program], stderr=subprocess.DEVNULL, cwd=tmp_path) as started:
        assert started.line() == "up"
        started.process.terminate()
        assert started.wait() == 3


# ---- real programs -------------------------------------------------------------------------------------------

APP = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""
TEST = """
import socket, threading

def test_it():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far = listener.accept()[0]
    with near, far:
        for _ in range(3):
            near.sendall(b"x")
            assert far.recv(9) == b"x"
"""
REDIS = ["redis-server", "--port", "PORT", "--bind", "127.0.0.1", "--save", ""]
PROGRAMS = {  # words, what it says when it listens ("": it ends by itself), and a line of the report
    "redis": (REDIS, "Ready to accept", "fastsock doctor: redis-server --port PORT --bind 127.0.0.1 --save ''"),
    "redis, separated": (["--", *REDIS], "Ready to accept", "ran for "),
    "pytest": (["-m", "pytest", "-q", "test_of_user.py"], "", "fastsock doctor: -m pytest -q test_of_user.py"),
    "uvicorn": (["uvicorn", "app:app", "--port", "PORT"], "running on", "fastsock doctor: uvicorn app:app --port PORT"),
    "uvicorn as a module": (["-m", "uvicorn", "app:app", "--port", "PORT"], "running on", "ran for "),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_command_line_of_a_user(name, tmp_path):
    words, listens, line = PROGRAMS[name]
    if name.startswith("redis") and shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_of_user.py").write_text(TEST)
    port = str(port_for_later())
    words = [word.replace("PORT", port) for word in words]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    with Server([*DOCTOR, *words], tmp_path, PATH=path, PYTHONPATH=str(tmp_path)) as server:
        if listens:
            server.said(listens)
            with socket.create_connection(("127.0.0.1", int(port))) as sock:
                sock.sendall(b"PING\r\n" if "redis" in name else b"GET / HTTP/1.0\r\n\r\n")
                assert sock.recv(100)
            os.killpg(server.pid, signal.SIGINT)  # as Ctrl-C does
        status = server.wait()
        said = server.text()
    assert status in (0, 128 + signal.SIGINT), said
    report = said[said.index("fastsock doctor: ") :].splitlines()
    assert any(each.startswith(line.replace("PORT", port)) for each in report), said
    assert f"stayed with the kernel: {'1 connection end' if listens else '2 connection ends'}" in report
    assert max(map(len, report[1:])) <= 100
    assert "Traceback" not in said
