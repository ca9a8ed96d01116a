"""What the command line says to somebody who makes a mistake, looks for help, or goes away: one line, no traceback."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import termios
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from harness.pairs import until
from harness.processes import running

import fastsock
from fastsock import cli, config
from fastsock.tools import checks, columns, ss, top
from interface.test_introspection import PAIR

DEADLINE = 150
FASTSOCK = [sys.executable, "-m", "fastsock"]
BAD = {"FASTSOCK_POLL_US": "fast"}
NOT_A_NUMBER = "fastsock: poll_us (FASTSOCK_POLL_US) is 'fast', but must be a whole number"
MISSPELT = {"FASTSOCK_POL_US": "5"}
WARNING = "fastsock: warning: no such setting: FASTSOCK_POL_US; did you mean FASTSOCK_POLL_US?"
VARIABLES = [f"FASTSOCK_{name.upper()}" for name in vars(config.Settings())]
PATCHES_AGAIN = """
import subprocess, sys
subprocess.run([sys.executable, '-c', 'import fastsock; fastsock.patch()'], check=True)
"""
ENABLED = "import fastsock; print(fastsock.is_patched())"
QUICK = ["bench", "--seconds", "0.1"]


pytestmark = pytest.mark.usefixtures("bounded")


def environment(variables):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FASTSOCK_")}
    return {**plain, **variables}


def ended(words, variables=(), directory=None, **options):
    return subprocess.run(
        [*FASTSOCK, *words],
        env=environment(dict(variables)), cwd=directory, timeout=DEADLINE, check=False, stdin=subprocess.DEVNULL,
        **{"capture_output": True, "text": True, **options},
    )  # fmt: skip


# Words, variables, exit status, what the one line on stderr begins with ("": nothing is said), and what stdout has.
SAID = [
    (QUICK, BAD, 2, NOT_A_NUMBER, ""),
    (["run", "-c", "print(1)"], BAD, 2, NOT_A_NUMBER, ""),
    (["doctor", "--", sys.executable, "-c", "print(1)"], BAD, 2, NOT_A_NUMBER, ""),
    (["doctor"], BAD, 1, "", f"bad   settings     {NOT_A_NUMBER.removeprefix('fastsock: ')}"),
    (["doctor"], BAD, 1, "", "ok    names "),
    (["doctor", "--json"], BAD, 1, "", '"what": "running"'),
    (["ss", "1"], BAD, 1, "", "none of your processes"),
    (["top", "--rounds", "1.5"], {}, 2, "fastsock: argument --rounds: must be a whole number above 0, not '1.5'",
     ""),
    (["top", "--rounds", "0"], {}, 2, "fastsock: argument --rounds: must be a whole number above 0, not '0'", ""),
    (["top", "--interval", "nan"], {}, 2, "fastsock: argument --interval: must be a number of seconds above 0", ""),
    (["bench", "--seconds", "-1"], {}, 2, "fastsock: argument --seconds: ", ""),
    (["ss", "1.5"], {}, 2, "fastsock: argument PID: must be a whole number above 0, not '1.5'", ""),
    (["ss", "--jso"], {}, 2, "fastsock: unrecognized arguments: --jso; see fastsock ", ""),
    (["walk"], {}, 2, "fastsock: argument COMMAND: invalid choice: 'walk'", ""),
    ([], {}, 2, "fastsock: no command given; see fastsock --help", ""),
    (["run"], {}, 2, "fastsock: run needs a program: a script, -m MODULE, -c CODE or a command; see", ""),
    (["run", "-c"], {}, 2, "fastsock: -c needs code", ""),
    (["run", "-m"], {}, 2, "fastsock: -m needs a module", ""),
    (["run", "--stats"], {}, 2, "fastsock: argument --stats: expected one argument; see fastsock run --help", ""),
    (["run", "--stats="], {}, 2, "fastsock: argument --stats: must be the name of a file", ""),
    (["run", "--polls=0", "program.py"], {}, 2, "fastsock: unrecognized arguments: --polls=0; see fastsock", ""),
    (["ss", "x"], {}, 2, "fastsock: argument PID: must be a whole number above 0, not 'x'", ""),
    (["top", "--interval"], {}, 2, "fastsock: argument --interval: expected one argument", ""),
    (["bench", "--seconds", "0"], {}, 2, "fastsock: argument --seconds: must be a number of seconds above 0", ""),
    (["doctor", "--"], {}, 2, "fastsock: doctor needs a program: a script, -m MODULE, -c CODE or a command; see", ""),
    (["doctor", "-m"], {}, 2, "fastsock: -m needs a module", ""),
    (["doctor", "--jso", "app.py"], {}, 2, "fastsock: unrecognized arguments: --jso; see fastsock ", ""),
    (["doctor", "--json=1"], {}, 2, "fastsock: argument --json: ignored explicit argument '1'", ""),
    (["--version"], {}, 0, "", f"fastsock {version('fastsock')}\n"),
    (["run", "-h", "program.py"], {}, 0, "", "usage: fastsock run "),
    (["doctor", "-c", "print(1)"], {}, 0, "", "1\n"),
    (["doctor", "-m", "platform"], {}, 0, "", "Linux"),
    (["doctor", "app.py", "--json"], {}, 0, "", "['app.py', '--json']\n"),
    (["doctor", "--json", "--", "app.py"], {}, 0, "", "['app.py']\n"),
    (["doctor", "./app.py"], {}, 0, "", "['./app.py']\n"),
    (["doctor", "tool"], {}, 0, "", "tool\n"),
    (["doctor", "tool", "-x"], {}, 0, "", "tool\n"),
    (["doctor", "echo", "-n", "1"], {}, 0, "", "1"),
    (["doctor", "gone.py"], {}, 2, "", ""),
    (["doctor", "--", "gone"], {}, 127, "fastsock: gone: command not found", ""),
    (["doctor", "--", "/no/such/tool"], {}, 127, "fastsock: /no/such/tool: no such file or directory", ""),
    (["run", "--stats", "/nonexistent/x", "-c", "print(1)"], {}, 2,
     "fastsock: argument --stats: /nonexistent/x cannot be written: the folder /nonexistent does not exist", ""),
    (["run", "--stats", "/", "-c", "print(1)"], {}, 2, "fastsock: argument --stats: / is a folder", ""),
    (["run", "-c", "print(1)"], MISSPELT, 0, WARNING, "1\n"),
    (["run", "-c", PATCHES_AGAIN], MISSPELT, 0, WARNING, ""),
    (["doctor", "--", sys.executable, "-c", "print(1)"], MISSPELT, 0, WARNING, "1\n"),
    (["doctor"], MISSPELT, 0, WARNING, "no such setting: FASTSOCK_POL_US"),
    (["ss", "1"], {"FASTSOCK_ZZZ": "1"}, 1, "fastsock: warning: no such setting: FASTSOCK_ZZZ", ""),
    (["run", "-c", ENABLED], dict.fromkeys(VARIABLES, ""), 0, "", "True\n"),
    (["run", "-c", ENABLED], dict.fromkeys(VARIABLES, " ") | {"FASTSOCK_XYZ": ""}, 0, "", "True\n"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "variables", "status", "line", "shown"), SAID)
def test_one_line_says_it(tmp_path, words, variables, status, line, shown):
    (tmp_path / "app.py").write_text("import sys; print(sys.argv)")
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    done = ended(words, variables, tmp_path)
    said = [each for each in done.stderr.splitlines() if each.startswith("fastsock: ")]
    assert "Traceback" not in done.stderr
    assert [each[: len(line)] for each in said] == ([line] if line else []), done.stderr
    assert shown in done.stdout
    if status == 2 and line:
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
    if words is QUICK and status == 0:
        assert done.returncode in (0, 1)  # 1: a slice was too short for its connection to move
    elif words == ["doctor"] and variables is MISSPELT:
        assert "did you mean FASTSOCK_POLL_US?" in done.stdout
    else:
        assert done.returncode == status


def test_doctor_lists_processes_by_their_command_lines(tmp_path):
    (tmp_path / "module.py").write_text("import os; os.fork() or os._exit(0); os.wait()")
    done = ended(["doctor", "--", sys.executable, "-m", "module", "an argument"], directory=tmp_path)
    assert re.search(rf"^    \d+ {sys.executable} -m module an argument$", done.stderr, re.MULTILINE), done.stderr


def test_a_program_that_patches_itself_is_told_once():
    program = "import fastsock; fastsock.patch(); fastsock.patch(); fastsock.socket().close()"
    command, options = [sys.executable, "-c", program], {"capture_output": True, "text": True}
    done = subprocess.run(command, env=environment(MISSPELT), timeout=DEADLINE, check=True, **options)
    (line,) = done.stderr.splitlines()
    assert "fastsock.no_such_setting" in line
    assert "FASTSOCK_POLL_US" in line


def test_statistics_that_cannot_be_written_any_more_are_told_at_the_end(tmp_path):
    (tmp_path / "there").mkdir()
    program = "import os, sys; os.rmdir('there'); sys.exit(3)"
    done = ended(["run", "--stats", "there/x", "-c", program], directory=tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("fastsock: cannot write statistics: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["-m", "fastsock", "doctor"], ["-c", "import fastsock"]], ids=" ".join)
def test_a_checkout_that_is_not_built_says_what_to_do(tmp_path, words):
    """It hides the installed package from what starts in it; the command fastsock is not affected."""
    whole = Path(fastsock.__file__).parent
    shutil.copytree(whole, tmp_path / "fastsock", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    options = {"cwd": tmp_path, "env": environment({}), "capture_output": True, "text": True, "timeout": DEADLINE}
    done = subprocess.run([sys.executable, *words], check=False, **options)
    assert done.returncode == 1
    assert f"fastsock is not built in {tmp_path}: run `pip install -e .` there" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 1 or words[0] == "-c"
    command = shutil.which("fastsock", path=sysconfig.get_path("scripts"))
    assert subprocess.run([command, "run", "-c", ENABLED], check=True, **options).stdout == "True\n"


# ---- who goes away -----------------------------------------------------------------------------------------

ALL = [
    ["--help"], ["--version"], ["run", "--help"], ["doctor"], ["doctor", "--json"], ["ss"], ["ss", "--json"],
    ["top", "--rounds", "1", "--interval", "0.01"], QUICK, ["doctor", "--json", "--", sys.executable, "-c", ""],
]  # fmt: skip


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_it_without_a_word(words):
    read, write = os.pipe()
    os.close(read)
    try:
        done = ended(words, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert done.returncode == -signal.SIGPIPE
    assert re.sub(r"something else uses \d+% of the CPUs: figures will be off\n", "", done.stderr) == ""


@pytest.mark.parametrize("words", [["ss"], ["--help"], ["doctor"]], ids=" ".join)
def test_an_output_that_is_full_is_told_once(words):
    with open("/dev/full", "w") as full:
        done = ended(words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "fastsock: No space left on device\n")


def interrupted(words, shown):
    """Sends a Ctrl-C to the command and to what it has started, once it has written something or started a process."""
    with subprocess.Popen(
        [*FASTSOCK, *words],
        env=environment({"FASTSOCK_MOVE_AFTER": "1000000"}),  # so that doctor waits for its connection
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert process.stdout is not None
        if shown:
            assert process.stdout.readline()
        else:
            until(children.read_text, "it has started a process")
            time.sleep(0.05)  # which is coming up; that it already runs a program of ours is not needed
        os.killpg(process.pid, signal.SIGINT)
        said, complained = process.communicate(timeout=DEADLINE)
        return process.returncode, said, complained


@pytest.mark.parametrize("words", [["bench"], ["doctor"]], ids=" ".join)
def test_an_interrupt_ends_it_and_what_it_has_started_without_a_word(words):
    status, _, complained = interrupted(words, shown=False)
    assert status == -signal.SIGINT
    assert re.sub(r"something else uses \d+% of the CPUs: figures will be off\n", "", complained) == ""


def test_an_interrupt_is_how_top_ends():
    status, _, complained = interrupted(["top", "--rounds", "1000", "--interval", "0.05"], shown=True)
    assert (status, complained) == (0, "")


# ---- help --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", cli.COMMANDS)
@pytest.mark.parametrize("ask", ["{} --help", "{} -h", "help {}"])
def test_each_command_has_its_own_help(command, ask):
    done = ended(ask.format(command).split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: fastsock {command} ")


def test_the_help_names_every_command():
    lines = ended(["--help"]).stdout.splitlines()
    for command in cli.COMMANDS:
        assert any(re.match(rf" +{command} +\w", line) for line in lines), command


@pytest.mark.parametrize(
    ("command", "shown"),
    [("ss", ss.COLUMNS), ("top", top.PROCESSES), ("top", top.CONNECTIONS), ("doctor", checks.LEVELS)],
)
def test_the_help_explains_every_column(command, shown):
    said = ended([command, "--help"]).stdout
    for column in shown:
        assert re.search(rf"^  {re.escape(column.head)} +\w", said, re.MULTILINE), column.head
    assert columns.lines(shown, [])[0].split("  ")[0] == shown[0].head


# ---- top ---------------------------------------------------------------------------------------------------


def on_a_terminal(words, width):
    """What a command writes to a terminal of so many columns."""
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (24, width)) if hasattr(termios, "tcsetwinsize") else _resize(far, width)
    with subprocess.Popen(
        [*FASTSOCK, *words], env=environment({"TERM": "xterm"}), stdin=far, stdout=far, stderr=subprocess.STDOUT
    ) as process:
        os.close(far)
        written = b""
        try:
            while data := os.read(near, 4096):
                written += data
        except OSError:  # the terminal's other end is closed
            pass
        finally:
            os.close(near)
    assert process.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


def _resize(terminal, width):
    import fcntl
    import struct

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))


def test_top_shows_ports_in_80_columns():
    with running(PAIR) as program:
        near, far = program.line().split()

        def shown():
            written = on_a_terminal(["top", "--rounds", "1", "--interval", "0.1", str(program.pid)], 80)
            return f"127.0.0.1:{near}" in written and written

        written = until(shown, "the process answers")
    assert f"127.0.0.1:{far}" in written
    assert max(map(len, written.splitlines())) <= 80


def test_top_writes_one_round_of_whole_lines_into_a_pipe():
    with running(PAIR) as program:
        near, _ = program.line().split()

        def shown():
            done = ended(["top", "--interval", "0.1", str(program.pid)])
            assert (done.returncode, done.stderr) == (0, "")
            return f"127.0.0.1:{near}" in done.stdout and done.stdout

        written = until(shown, "the process answers")
    assert "\x1b" not in written
    for table in (top.PROCESSES, top.CONNECTIONS):
        (line,) = (line for line in written.splitlines() if line.split()[-1:] == [table[-1].head.split()[-1]])
        assert all(column.head in line for column in table)


LONG = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535"


@pytest.mark.parametrize("width", [60, 70, 80, 120, None])
@pytest.mark.parametrize("address", ["127.0.0.1:40000", LONG])
def test_ports_are_whole_at_every_width(width, address):
    row = ["1234567", address, address, "1234567", "32/32", "999.9 GB", "999 MB", "1,234,567", "1,234", "12,345"]
    lines = columns.lines(top.CONNECTIONS, [row], width)
    assert all(len(line) <= width for line in lines) if width else address in lines[1]
    assert lines[1].count(address.rpartition(":")[2]) == 2


@pytest.mark.parametrize("command", ["run", "doctor"])
@pytest.mark.parametrize("ignores", ["", "PIPE", "XFSZ", "PIPE XFSZ HUP"])
def test_a_program_gets_the_signals_that_the_parent_left(command: str, ignores: str) -> None:
    """Python ignores SIGPIPE and SIGXFSZ from its start on, and the command is Python's."""
    script = shutil.which("fastsock", path=sysconfig.get_path("scripts"))
    assert script is not None, "fastsock is not installed"
    trap = f"trap '' {ignores}; " if ignores else ""
    asks = "grep SigIgn /proc/self/status"
    told = []
    for shell in (asks, f"exec {script} {command} {asks}", f"{script} {command} {asks}; true"):
        done = subprocess.run(["sh", "-c", trap + shell], check=True, capture_output=True, text=True, timeout=60)
        told.append(done.stdout.splitlines()[0])
    assert told == [told[0]] * 3
