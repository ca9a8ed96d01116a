"""The command line: `fastsock`, or `python -m fastsock`.

`run` does not imitate the interpreter: the process checks its settings and then becomes (execve)
`python SCRIPT ...`, in an environment that patches it on its way up (`fastsock._startup`). The process id,
`sys.argv`, `sys.path`, `__main__`, exit status, signals and tracebacks are therefore Python's own, and no
frame of ours lies below the program. A program that is not Python it becomes as it is, with the library that
`fastsock.launch` knows.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import fastsock
from fastsock import _startup, config, launch

SEE = "Settings are environment variables, such as FASTSOCK_POLL_US=0: see docs/settings.md."


class UsageError(ValueError):
    """The command line asks for nothing that can be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status, 2 for a bad setting or command line.

    A successful `run` does not return. A pipe that nobody reads, and an interrupt, end the process by their signal,
    without a word.
    """
    try:
        status = _done(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        return _ended_by(signal.SIGPIPE)
    except KeyboardInterrupt:
        return _ended_by(signal.SIGINT)
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        sys.stdout = None  # if it is what fails, the interpreter would try it again
    except (UsageError, fastsock.SettingError, RuntimeError) as error:
        _complain(str(error))
    return 2


def _ended_by(number: signal.Signals) -> int:
    """As if nobody had caught the signal: a shell sees it then."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    return 128 + number


def _complain(text: str) -> None:
    if sys.stderr is not None:
        print(f"fastsock: {text}", file=sys.stderr, flush=True)


def _done(words: list[str]) -> int:
    """Does it; returns the exit status."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    own, program = _divided(words)
    try:
        options = _parser().parse_args(own)
    except SystemExit:  # the help was asked for, and is printed
        return 0
    if options.version:
        print(f"fastsock {importlib.metadata.version('fastsock')}")
        return 0
    if options.command is None:
        raise UsageError("nothing to do; see fastsock --help")
    for name, nearest in config.unknown().items():
        _complain(f"warning: no such setting: {name}" + (f"; did you mean {nearest}?" if nearest else ""))
        os.environ[config.TOLD] = "1"
    return int(options.does(options, *([] if program is None else [program])))


def _divided(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and those of the program that is to be started, if there is one."""
    if words[:1] == ["doctor"] and "--" in words:
        return words[: words.index("--")], words[words.index("--") + 1 :]
    if words[:1] != ["run"]:
        return words, None
    at = 1
    while at < len(words) and words[at].startswith("-") and not words[at].startswith(("-m", "-c")):
        if words[at] in ("-", "--"):
            break
        at += 2 if words[at] == "--stats" else 1
    return words[:at], words[at:]


# ---- the parser --------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Ends with `UsageError` in place of a usage message, and explains columns if it is asked for help."""

    explains: Callable[[], str] | None = None
    """What the help ends with: looked up only for the help, as a module has to be imported for it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)  # errors are for `main`; argparse's own method hides them

    def format_help(self) -> str:
        if self.explains is not None:
            self.epilog = self.explains()
        return super().format_help().rstrip() + "\n"


def _parser() -> Parser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog="fastsock",
        description="TCP between programs on one host, carried over shared memory.",
        epilog=f"`fastsock COMMAND --help` explains a command and its columns. {SEE}\n"
        "Options of the interpreter stand where they always do: python -X dev -m fastsock run SCRIPT.",
        formatter_class=plain,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")

    def command(name: str, short: str, description: str, usage: str | None = None) -> Parser:
        made = commands.add_parser(
            name, help=short, description=description, usage=usage, formatter_class=plain, allow_abbrev=False
        )
        made.set_defaults(does=COMMANDS[name])
        return made

    def gives_json(made: Parser) -> None:
        made.add_argument("--json", action="store_true", help="print JSON in place of the table")

    made = command(
        "run",
        "start a program with its sockets on fastsock",
        """\
Starts a program: connections to other programs under fastsock on this host move to shared memory, all others stay on
kernel TCP. A Python program is started as `python` with the same words would, and Python processes that it starts are
served too. Any other program is started as a shell would, and all that it starts is served.

  SCRIPT         a script, or a directory or zip file with a __main__.py; - reads it from the standard input
  -m MODULE      a module, or a package with a __main__.py
  -c CODE        a program of Python as text
  PROGRAM        a program that is not Python, such as redis-server: a file, or a command on the PATH
""",
        "fastsock run [--libc] [--stats FILE] (-m MODULE | -c CODE | SCRIPT | PROGRAM) [ARGUMENT ...]",
    )
    made.add_argument(
        "--libc",
        action="store_true",
        help="serve Python programs below the C library too, as all others: nothing in them is patched",
    )
    made.add_argument(
        "--stats",
        metavar="FILE",
        type=file_to_write,
        help="write fastsock.stats() of the program (not of its children) to FILE, as JSON, when it exits",
    )
    made.epilog = f"{SEE} FASTSOCK_ENABLED=0 runs the program on kernel TCP."

    made = command(
        "doctor",
        "what is in the way on this host, or for one program",
        """\
Says what helps and what is in the way on this host. With a command, such as `fastsock doctor -- python app.py`, it
starts that under fastsock, watches it to its end, and says which of its connections moved, which did not, and what
to do about each reason. The exit status is then the program's.
""",
        "fastsock doctor [--json] [-- COMMAND [ARGUMENT ...]]",
    )
    gives_json(made)
    made.explains = _levels

    made = command("ss", "list the connections of your programs under fastsock", "Lists connections, as ss(8) does.")
    gives_json(made)
    made.add_argument("pids", metavar="PID", nargs="*", type=whole, help="only these processes")
    made.explains = _columns_of_ss

    made = command(
        "top",
        "show what they do just now",
        "Shows the processes and the busiest connections on the ring, until Ctrl-C. Into a pipe: one round.",
    )
    made.add_argument("--interval", metavar="SECONDS", type=seconds, default=1.0, help="between two looks (default: 1)")
    made.add_argument("--rounds", metavar="N", type=whole, help="end behind so many")
    made.add_argument("pids", metavar="PID", nargs="*", type=whole, help="only these processes")
    made.explains = _columns_of_top

    made = command(
        "bench",
        "measure kernel TCP and fastsock on this host",
        "Measures a server and a client with blocking sockets on kernel TCP and under fastsock, in turn.",
    )
    gives_json(made)
    made.add_argument(
        "--seconds", metavar="SECONDS", type=seconds, default=30.0, help="to measure for, about (default: 30)"
    )
    made.epilog = """\
columns:
  kernel TCP, fastsock   round trips or messages a second
  ...x                   how many times as fast fastsock is
  processor time         of both ends for a message, on kernel TCP -> under fastsock, in microseconds"""
    return parser


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, and not {text!r}")
    return value


def whole(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, and not {text!r}")
    return int(text)


def file_to_write(text: str) -> str:
    """A file that can be written when the program ends, as far as that can be known before."""
    folder = os.path.dirname(os.path.abspath(text))
    reasons = {
        "must be the name of a file": not text,
        f"{text} is a folder": os.path.isdir(text),
        f"{text} cannot be written": os.path.exists(text) and not os.access(text, os.W_OK),
        f"{text} cannot be written: there is no folder {folder}": not os.path.isdir(folder),
        f"{text} cannot be written: no permission in {folder}": not (
            os.path.exists(text) or os.access(folder, os.W_OK | os.X_OK)
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise argparse.ArgumentTypeError(reason)
    return text


# ---- the commands ------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, program: list[str]) -> NoReturn:
    """Become the program that `program`, the words that would follow `python` or stand in a shell, describes.

    Raises `UsageError`, `fastsock.SettingError`, or OSError where the interpreter or the program cannot be executed.
    """
    if not program:
        raise UsageError("run needs a script, -m and a module, or -c and code; see fastsock run --help")
    if program in (["-m"], ["-c"]):
        raise UsageError(f"{program[0]} needs {'a module' if program == ['-m'] else 'code'}")
    if program[0] == "--":
        raise UsageError("run has no option --; see fastsock run --help")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError("run needs the environment and the site module: leave out -I, -E and -S")
    if not sys.executable:
        raise UsageError("run needs an interpreter to start, and sys.executable is empty")
    settings = config.from_environment()  # a bad setting ends the command here
    native = launch.find(program[0])
    started = native or (launch.find(sys.executable) if options.libc else None)
    if started is not None and started.refused:
        _complain(f"{program[0]} stays on kernel TCP: {started.refused}")
    if options.libc:
        asked = launch.environment(_startup.without(os.environ), settings, options.stats)
    elif native is not None:
        asked = launch.environment(os.environ, settings, None if native.python else options.stats)
        asked = _startup.environment(asked, options.stats if native.python else None)
    else:
        asked = _startup.environment(os.environ, options.stats)
    if native is not None:
        os.execve(native.path, program, asked)
    os.execve(sys.executable, [sys.orig_argv[0], *interpreter_options(), *program], asked)


def interpreter_options() -> list[str]:
    """The options this interpreter was started with, such as `-u` or `-X dev`, up to its script or module."""
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    started = own.pop()
    if sys.modules["__main__"].__spec__ is None:  # the console script
        return own
    # One of `-m fastsock`, `-um fastsock`, `-mfastsock`, `-umfastsock`: what stands before the m are options.
    letters = started.partition("m")[0] if started.startswith("-") else own.pop().removesuffix("m")
    return own if letters == "-" else [*own, letters]


def doctor(options: argparse.Namespace, program: list[str] | None = None) -> int:
    """What is in the way on this host, or for a program."""
    from fastsock.tools import doctor

    if program is None:
        return doctor.examine(options.json)
    if not program:
        raise UsageError("doctor -- needs a command")
    return doctor.watch(program, options.json)


def ss(options: argparse.Namespace) -> int:
    """The connections."""
    from fastsock.tools import ss

    return ss.show(set(options.pids) or None, options.json)


def top(options: argparse.Namespace) -> int:
    """What they do."""
    from fastsock.tools import top

    return top.run(set(options.pids) or None, options.interval, options.rounds)


def bench(options: argparse.Namespace) -> int:
    """What they could do."""
    from fastsock.tools import quickbench

    return quickbench.run(options.seconds, options.json)


def _levels() -> str:
    from fastsock.tools import checks, columns

    return columns.explained("levels", checks.LEVELS)


def _columns_of_ss() -> str:
    from fastsock.tools import columns, ss

    return columns.explained("columns", ss.COLUMNS)


def _columns_of_top() -> str:
    from fastsock.tools import columns, top

    return "\n\n".join(
        columns.explained(title, table)
        for title, table in (("columns of processes", top.PROCESSES), ("columns of connections", top.CONNECTIONS))
    )


COMMANDS: dict[str, Callable[..., Any]] = {"run": run, "doctor": doctor, "ss": ss, "top": top, "bench": bench}
