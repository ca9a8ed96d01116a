"""`fastsock run`: a program cannot tell, but its sockets and its children's are patched.

Most tests are differential: the same program is started by `python` and by `fastsock run`, and has to print
the same, fail the same and end the same.
"""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest
from harness.pairs import SECONDS
from harness.processes import Process, ended, environment

import fastsock

PYTHON = [sys.executable]
FASTSOCK = [sys.executable, "-m", "fastsock"]
RUN = [*FASTSOCK, "run"]

PROBE = """
import inspect, json, os, sys
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "package": __package__, "spec": __spec__ and __spec__.name, "flags": repr(sys.flags),
    "xoptions": sys._xoptions, "warnoptions": sys.warnoptions, "frames": len(inspect.stack()),
    "is main": sys.modules["__main__"].__dict__ is globals(),
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
}))
"""

PATCHED = """
import json, multiprocessing, os, subprocess, sys
def patched():
    return "fastsock" in sys.modules and sys.modules["fastsock"].is_patched()
"""

MULTIPROCESSING = """
class Question:
    def __init__(self, text):
        self.text = text

class Answer:
    def __init__(self, question):
        self.text, self.patched = question.text.upper(), patched()

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        answer = pool.apply_async(Answer, (Question("text"),)).get(20)
    assert type(answer) is Answer
    print(answer.text, answer.patched)
"""
SUBPROCESSES = """
print("program", patched(), flush=True)
for words in (["child.py"], ["-m", "child"], ["-c", "import child"]):
    subprocess.run([sys.executable, *words], check=True)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, *sys.argv, "grandchild"], check=True)
"""


PROGRAMS = {  # what it does, the words after its name, and what it prints
    "alone": ("print(patched())", [], "True\n"),
    # A child gets a function, an argument and a result whose classes live in `__main__`.
    **{method: (MULTIPROCESSING, [method], "TEXT True\n") for method in ("spawn", "fork", "forkserver")},
    # Children and grandchildren, a script, a module and a command.
    "subprocesses": (SUBPROCESSES, [], "".join(["program True\n", *["child True\n"] * 3] * 2)),
    # A program that executes itself anew, as servers that reload do.
    "replaced": (
        "print(patched(), flush=True)\n"
        "if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])",
        [],
        "True\nTrue\n",
    ),
}


@pytest.fixture
def execute(tmp_path):
    """Run a command in `tmp_path` to its end; keyword arguments are environment variables."""

    return functools.partial(ended, status=None, cwd=tmp_path)


@pytest.fixture
def program(tmp_path):
    """Write a program's source to a file; gives its path."""

    def program(source, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return program


def outcome(process):
    return process.returncode, process.stdout, process.stderr


class TestIdentity:
    """`sys.argv`, `sys.path` and `__main__` are what `python` makes them."""

    @pytest.fixture(autouse=True)
    def probes(self, program, tmp_path):
        program(PROBE, "probe.py")
        program(PROBE, "below/probe.py")
        program("", "package/__init__.py")
        program(PROBE, "package/__main__.py")
        program(PROBE, "directory/__main__.py")
        with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
            archive.writestr("__main__.py", PROBE)

    def same(self, execute, words, options=(), **rest):
        plain = execute([*PYTHON, *options, *words], **rest)
        ours = execute([*PYTHON, *options, "-m", "fastsock", "run", *words], **rest)
        assert plain.returncode == 0
        assert json.loads(ours.stdout) == json.loads(plain.stdout)
        assert outcome(ours) == outcome(plain)

    @pytest.mark.parametrize(
        ("words", "options"),
        [
            (["probe.py"], []),
            (["probe.py", "-m", "--stats", "x", "--", "-h"], []),
            (["below/probe.py", "one argument", ""], []),
            (["-m", "probe", "argument"], []),
            (["-mprobe", "argument"], []),
            (["-m", "package", "-m", "x"], []),
            (["-m", "package.__main__"], []),
            (["directory", "argument"], []),
            (["archive.zip", "argument"], []),
            (["probe.py", "argument"], ["-u"]),
            (["probe.py", "argument"], ["-X", "dev", "-O"]),
            (["probe.py", "argument"], ["-Werror::UserWarning", "-s"]),
        ],
        ids=" ".join,
    )
    def test_program_sees_what_python_shows(self, execute, words, options):
        self.same(execute, words, options)

    @pytest.mark.parametrize("words", [["-c", PROBE, "a", "-m", "b c"], ["-c" + PROBE], ["-", "a"]], ids=range(3))
    def test_a_program_that_is_no_file(self, execute, words):
        self.same(execute, words, given=PROBE)

    @pytest.mark.parametrize("start", [["-Bum", "fastsock"], ["-mfastsock"], ["-Bumfastsock"]], ids=" ".join)
    def test_interpreter_options_next_to_the_m(self, execute, start):
        letters = start[0].partition("m")[0]
        plain = execute([*PYTHON, *([letters] if letters != "-" else []), "probe.py"])
        assert outcome(execute([*PYTHON, *start, "run", "probe.py"])) == outcome(plain)

    @pytest.mark.parametrize("value", ["", "below", "below::package"])
    def test_python_path_of_the_user_is_kept(self, execute, value):
        self.same(execute, ["probe.py"], PYTHONPATH=value)

    def test_console_script(self, execute):
        script = shutil.which("fastsock", path=sysconfig.get_path("scripts"))
        assert script is not None, "fastsock is not installed"
        plain = json.loads(execute([*PYTHON, "probe.py", "a"]).stdout)
        ours = json.loads(execute([script, "run", "probe.py", "a"]).stdout)
        del plain["orig_argv"][0], ours["orig_argv"][0]  # the script's first line may spell it otherwise
        assert ours == plain


class TestEnd:
    """A program under `run` ends as it would without us."""

    @pytest.mark.parametrize(
        ("source", "status"),
        [
            ("print('done')", 0),
            ("import sys; sys.exit(3)", 3),
            ("import sys; sys.exit('a message')", 1),
            ("import os; os._exit(7)", 7),
            ("def fail():\n    raise ValueError('with a traceback')\n\nfail()", 1),
            ("not python", 1),
            ("import atexit; atexit.register(print, 'at exit'); raise SystemExit", 0),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ],
    )
    def test_status_and_output(self, execute, program, source, status):
        path = program(source)
        plain = execute([*PYTHON, path])
        assert outcome(execute([*RUN, path])) == outcome(plain)
        assert plain.returncode == status

    @pytest.mark.parametrize(("words", "status"), [(["missing.py"], 2), (["-m", "missing"], 1)], ids=str)
    def test_missing_program(self, execute, words, status):
        ours = execute([*RUN, *words])
        assert outcome(ours) == outcome(execute([*PYTHON, *words]))
        assert ours.returncode == status
        assert len(ours.stderr.splitlines()) == 1

    @pytest.mark.parametrize("command", [PYTHON, RUN], ids=["plain", "fastsock"])
    @pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
    def test_signal(self, program, command, sent):
        path = program("""
            import signal, time
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as in the foreground
            print("ready", flush=True)
            while True:
                time.sleep(0.1)  # not pause(): a signal that comes before it, and is not yet handled, does not end it
            """)
        with Process([*command, path], env=environment(), stderr=subprocess.PIPE) as started:
            assert started.line() == "ready"
            started.process.send_signal(sent)
            errors = started.process.communicate(timeout=SECONDS)[1].decode()
        assert started.wait() == -sent  # killed by the signal itself, so that a shell sees it too
        assert errors.count("File ") == (1 if sent == signal.SIGINT else 0)
        assert errors.rstrip().endswith("KeyboardInterrupt" if sent == signal.SIGINT else "")


class TestPatched:
    """The program is patched, and so are the Python processes below it."""

    @pytest.mark.parametrize("name", PROGRAMS)
    @pytest.mark.parametrize(
        ("command", "enabled", "expected"),
        [(PYTHON, "1", "False"), (RUN, "1", "True"), (RUN, "0", "False")],
        ids=["plain", "run", "disabled"],
    )
    def test_program(self, execute, program, name, command, enabled, expected):
        program(PATCHED + "print('child', patched(), flush=True)", "child.py")
        source, words, printed = PROGRAMS[name]
        done = execute([*command, program(PATCHED + source), *words], FASTSOCK_ENABLED=enabled)
        assert outcome(done) == (0, printed.replace("True", expected), "")

    def test_run_below_run(self, execute, program):
        program("import os, sys; print(os.environ['PYTHONPATH'], sys.path)", "child.py")
        path = program("""
            import subprocess, sys
            subprocess.run([sys.executable, "child.py"], check=True)
            subprocess.run([sys.executable, "-m", "fastsock", "run", "child.py"], check=True)
            """)
        first, second = execute([*RUN, path], PYTHONPATH="elsewhere").stdout.splitlines()
        assert first == second
        assert "elsewhere" in first


class TestOtherInterpreters:
    """The environment of `run` reaches interpreters that are not ours; it never breaks one."""

    @pytest.fixture
    def other(self, execute, tmp_path):
        """An interpreter with nothing installed."""
        execute([*PYTHON, "-m", "venv", "--without-pip", tmp_path / "other"], status=0)
        return tmp_path / "other/bin/python"

    def test_without_fastsock(self, execute, program, other):
        program(PATCHED + "print(patched(), 'fastsock' in sys.modules)", "child.py")
        path = program("import subprocess, sys; subprocess.run([sys.argv[1], 'child.py'], check=True)")
        assert outcome(execute([*RUN, path, other])) == (0, "False False\n", "")

    def test_fastsock_on_the_path_of_the_parent_only(self, execute, program, other):
        """As in a checkout: `-m` finds fastsock in the current directory, scripts elsewhere cannot."""
        [libraries] = other.parent.parent.glob("lib/python*/site-packages")
        dependencies = {
            Path(module.__file__).parents[1] for module in map(__import__, ("attrs", "structlog", "uvloop"))
        }
        (libraries / "dependencies.pth").write_text("".join(f"{directory}\n" for directory in dependencies))
        program(PATCHED + "print(patched(), flush=True)", "child.py")
        path = program("""
            import os, runpy, subprocess, sys
            child = os.path.join(os.path.dirname(__file__), "child.py")
            runpy.run_path(child)
            subprocess.run([sys.executable, child], check=True)
            """)
        checkout = Path(fastsock.__file__).parents[1]
        started = execute([other, "-m", "fastsock", "run", path], cwd=checkout)
        assert outcome(started) == (0, "True\nTrue\n", "")

    @pytest.mark.parametrize("option", ["-I", "-E", "-S"])
    def test_child_that_ignores_the_environment(self, execute, program, option):
        program("import socket; print('child')", "child.py")
        path = program("""
            import subprocess, sys
            subprocess.run([sys.executable, *sys.argv[1:], "child.py"], check=True)
            """)
        assert outcome(execute([*RUN, path, option])) == (0, "child\n", "")


class TestSitecustomize:
    """A sitecustomize of the user's is imported as if ours were not there."""

    SHOW = """
        import sys
        module = sys.modules.get("sitecustomize")
        print(module and (module.__file__, module.__name__, module.__spec__.origin, module.value))
        """

    @pytest.mark.parametrize(
        "source",
        [
            "print('imported'); value = 1",
            "import nothing_of_this_name; value = 1",
            "raise RuntimeError('from the sitecustomize of the user')",
            "import sys; sys.path.append('added'); value = sys.modules[__name__].__dict__ is globals()",
        ],
    )
    def test_is_imported(self, execute, program, source):
        program(source, "custom/sitecustomize.py")
        path = program(self.SHOW)
        variables = {"PYTHONPATH": "custom", "PYTHONUNBUFFERED": ""}
        plain = execute([*PYTHON, path], **variables)
        # Two interpreters import it: the one that `run` starts as, and the one it becomes.
        ours = execute([*RUN, path], **variables)
        twice = [*plain.stdout.splitlines()[:-1], *plain.stdout.splitlines()]
        assert (ours.returncode, ours.stdout.splitlines()) == (plain.returncode, twice)
        assert ours.stderr == plain.stderr * 2


class TestBelowTheCLibrary:
    """`run --libc` preloads the library and nothing else; `patch()` in such a program gives loops their transports."""

    def test_patch_adds_the_transports(self, execute, program):
        path = program("""
            import asyncio, sys
            print("fastsock" in sys.modules, "libfastsock.so" in open("/proc/self/maps").read())
            import fastsock

            async def kind():
                done = asyncio.Event()
                async def serve(reader, writer):
                    writer.close()
                    done.set()
                server = await asyncio.start_server(serve, "127.0.0.1", 0)
                _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                await done.wait()
                writer.close()
                return type(writer.transport).__module__.partition(".")[0]

            for call in (lambda: None, fastsock.patch, fastsock.unpatch):
                call()
                print(fastsock.is_patched(), asyncio.run(kind()))
            """)
        expected = "False True\nFalse asyncio\nTrue fastsock\nFalse asyncio\n"
        assert outcome(execute([*RUN, "--libc", path])) == (0, expected, "")


class TestErrors:
    """What cannot be done ends with status 2 and one line that says why."""

    def refused(self, process, *parts):
        assert process.returncode == 2
        assert process.stdout == ""
        assert process.stderr.startswith("fastsock: ")
        assert len(process.stderr.splitlines()) == 1
        assert all(part in process.stderr for part in parts)

    def test_bad_setting_in_a_child(self, execute, program):
        """It is told, but the child runs: nobody asked it to be patched."""
        program(PATCHED + "print(patched())", "child.py")
        path = program("""
            import os, subprocess, sys
            environment = {**os.environ, "FASTSOCK_POLL_US": "soon"}
            subprocess.run([sys.executable, "child.py"], env=environment, check=True)
            """)
        started = execute([*RUN, path])
        assert (started.returncode, started.stdout) == (0, "False\n")
        assert started.stderr.startswith("fastsock: not patched: ")
        assert len(started.stderr.splitlines()) == 1

    @pytest.mark.parametrize("option", ["-E", "-S"])
    def test_interpreter_without_environment_or_site(self, execute, program, option):
        # Without site there are no installed packages; where they are has to be said then.
        path = os.pathsep.join(entry for entry in [str(Path(fastsock.__file__).parents[1]), *sys.path] if entry)
        refused = execute([*PYTHON, option, "-m", "fastsock", "run", program("print()")], PYTHONPATH=path)
        self.refused(refused, "-E and -S")


class TestStats:
    """`run --stats FILE` writes the statistics of that one process when it exits."""

    CONNECT = """
        import os, socket, sys
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
                near.sendall(b"bytes")
                assert far.recv(5) == b"bytes"
        """

    def written(self, file):
        return json.loads(file.read_text())

    @pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError"])
    @pytest.mark.parametrize("form", [["--stats", "stats.json"], ["--stats=stats.json"]], ids=" ".join)
    def test_written_at_exit(self, execute, program, tmp_path, form, end):
        """Under the name FILE has where the program was started, wherever it went since."""
        path = program(textwrap.dedent(self.CONNECT) + f"os.chdir('/')\n{end}")
        execute([*RUN, *form, path])
        stats = self.written(tmp_path / "stats.json")
        assert stats["connections_ring"] + stats["connections_tcp"] > 0
        assert isinstance(stats["fallback_reasons"], dict)

    def test_children_do_not_write(self, execute, program, tmp_path):
        program(self.CONNECT, "child.py")
        path = program("""
            import os, subprocess, sys
            subprocess.run([sys.executable, "child.py"], check=True)
            process = os.fork()
            if process == 0:
                import child
                sys.exit()  # through atexit, as the parent
            assert os.waitpid(process, 0)[1] == 0
            os.rename("stats.json", "too-early.json") if os.path.exists("stats.json") else None
            """)
        execute([*RUN, "--stats", "stats.json", path], status=0)
        stats = self.written(tmp_path / "stats.json")
        assert stats["connections_ring"] + stats["connections_tcp"] == 0
        assert not (tmp_path / "too-early.json").exists()

    def test_nothing_written_without_it(self, execute, program, tmp_path):
        path = program(self.CONNECT)
        assert outcome(execute([*RUN, path])) == (0, "", "")
        assert {entry.name for entry in tmp_path.iterdir()} <= {"program.py", "__pycache__"}
