"""The command line: `fastsock`, or `python -m fastsock`.

`run` checks the settings and then replaces the process (execve) by `python SCRIPT ...`, in an environment that patches
Python as it starts (`fastsock._startup`). So the process id, `sys.argv`, `sys.path`, `__main__`, exit status, signals
and tracebacks are Python's own, and the program runs without frames of fastsock below. Other programs are started by
`fastsock-run` (launcher/run.c), which the command `fastsock` calls at once where it can.
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
    """The command line cannot be executed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Executes the command line. Returns the exit status: 2 for a bad setting or command line, 126 or 127 for a program
    that cannot be executed.

    A successful `run` does not return. A closed pipe and Ctrl-C end the process by SIGPIPE and SIGINT, without output.
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
        sys.stdout = None  # if stdout is what failed, the interpreter would fail again at exit
    except launch.CannotStart as error:
        _complain(str(error))
        return error.status
    except (UsageError, fastsock.SettingError, RuntimeError) as error:
        _complain(str(error))
    return 2


def _ended_by(number: signal.Signals) -> int:
    """Ends the process by a signal's default action, so that a shell sees the signal."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    return 128 + number


def _complain(text: str) -> None:
    if sys.stderr is not None:
        print(f"fastsock: {text}", file=sys.stderr, flush=True)


def _done(words: list[str]) -> int:
    """Executes the command line. Returns the exit status."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    own, program = _divided(words)
    try:
        options = _parser().parse_args(own)
    except SystemExit:  # the help was printed
        return 0
    if options.version:
        print(f"fastsock {importlib.metadata.version('fastsock')}")
        return 0
    if options.command is None:
        raise UsageError("no command given; see fastsock --help")
    given = {name: value for name, value in vars(options).items() if name.startswith(config.PREFIX)}
    os.environ.update({name: value for name, value in given.items() if value is not None})
    for name, nearest in {} if config.TOLD in os.environ else config.unknown().items():
        _complain(f"warning: no such setting: {name}" + (f"; did you mean {nearest}?" if nearest else ""))
        os.environ[config.TOLD] = "1"
    return int(options.does(options, *([] if program is None else [program])))


def _divided(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Returns the words of fastsock's own command line, and those of the program to start, or None."""
    if words[:1] not in (["run"], ["doctor"]):
        return words, None
    at = 1
    while at < len(words) and words[at].startswith("-") and not words[at].startswith(("-m", "-c")):
        if words[at] in ("-", "--"):
            break
        at += 2 if words[at] == "--stats" or words[at] in _options_of_settings() else 1
    if words[0] == "run":
        return words[:at], words[at:]
    separated = words[at : at + 1] == ["--"]
    return words[:at], words[at + separated :] if separated or at < len(words) else None


def _options_of_settings() -> dict[str, str]:
    """Option -> variable, of each setting."""
    return {f"--{name.replace('_', '-')}": f"{config.PREFIX}{name.upper()}" for name in config.origins()}


# ---- the parser --------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` for a bad command line, and whose help explains columns."""

    explains: Callable[[], str] | None = None
    """Returns the last part of the help. Called only for the help, since it imports modules."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        print(self.format_help(), end="", file=file)  # `main` handles errors, which argparse's method would hide

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
        "Options of the interpreter stand before -m: python -X dev -m fastsock run SCRIPT.",
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
        made.add_argument("--json", action="store_true", help="print JSON instead of a table")

    made = command(
        "run",
        "start a program with its sockets on fastsock",
        """\
Starts a program: connections to other programs under fastsock on this host move to shared memory, all others stay on
the kernel's sockets. A Python program gets the same arguments as from `python`. Any other one is looked up as by a
shell. Python processes that a Python program starts use fastsock too, and all that any other program starts.

  SCRIPT         a script, or a directory or zip file with a __main__.py; - reads from standard input
  -m MODULE      a module, or a package with a __main__.py
  -c CODE        Python code
  PROGRAM        a program that is not Python, such as redis-server: a file, or a command on the PATH
""",
        "fastsock run [--libc] [--stats FILE] [--SETTING X] (-m MODULE | -c CODE | SCRIPT | PROGRAM) [ARGUMENT ...]",
    )
    made.add_argument(
        "--libc",
        action="store_true",
        help="preload the library into Python programs too, as into all others, and leave their event loops alone",
    )
    made.add_argument(
        "--stats",
        metavar="FILE",
        type=file_to_write,
        help="write fastsock.stats() of the program (without its children) to FILE as JSON when it exits",
    )
    for option, variable in _options_of_settings().items():
        made.add_argument(option, dest=variable, help=argparse.SUPPRESS)
    made.epilog = f"{SEE} As options: --poll-us 0. --enabled 0 runs the program on the kernel's sockets."

    made = command(
        "doctor",
        "find out why connections do not move",
        """\
Checks this host for problems. With a program, such as `fastsock doctor app.py`, starts it as `fastsock run` does,
watches it until it exits, and reports which of its connections moved, which did not, and what to do about each reason.
The exit status is then that of the program. A -- before the program is allowed.
""",
        "fastsock doctor [--json] [(-m MODULE | -c CODE | SCRIPT | PROGRAM) [ARGUMENT ...]]",
    )
    gives_json(made)
    made.explains = _levels

    made = command(
        "export",
        "put the library and the launcher into a folder, for programs without Python",
        """\
Puts the library, its launcher fastsock-run and a README into a folder or volume, such as one that containers share.
What is in it needs no Python: see docs/interpose.md.
""",
    )
    made.add_argument("folder", metavar="FOLDER", help="where to; it is made if it does not exist")

    made = command(
        "ss",
        "list the connections of your programs under fastsock",
        "Lists connections like ss(8). A narrow terminal gets fewer columns: fastsock ss | cat shows all.",
    )
    gives_json(made)
    made.add_argument("--links", action="store_true", help="list instead what the processes have in common with others")
    made.add_argument("pids", metavar="PID", nargs="*", type=whole, help="only these processes")
    made.explains = _columns_of_ss

    made = command(
        "top",
        "show the activity of your programs under fastsock",
        "Shows the processes and the busiest connections on the ring until Ctrl-C; once if the output is a pipe.\n"
        "A narrow terminal gets fewer columns: fastsock top | cat shows all.",
    )
    made.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=1.0, help="time between updates (default: 1)"
    )
    made.add_argument("--rounds", metavar="N", type=whole, help="exit after N updates")
    made.add_argument("pids", metavar="PID", nargs="*", type=whole, help="only these processes")
    made.explains = _columns_of_top

    made = command(
        "tcpdump",
        "print or write the bytes of moved connections of your programs",
        """\
Prints a line for each send and receive on the ring, like tcpdump -nn, until Ctrl-C. With -w it writes a pcapng stream,
which Wireshark decodes: fastsock tcpdump -w - | wireshark -k -i -
""",
        "fastsock tcpdump [-A | -X] [-c COUNT] [-s SNAPLEN] [-w FILE] [--pid PID] [port N]",
    )
    made.add_argument("-A", dest="text", action="store_true", help="print the bytes as text")
    made.add_argument("-X", dest="dump", action="store_true", help="print the bytes as hexadecimal numbers and text")
    made.add_argument("-c", dest="count", metavar="COUNT", type=whole, help="exit after COUNT packets")
    made.add_argument(
        "-s", dest="snaplen", metavar="SNAPLEN", type=whole, default=1 << 18, help="keep SNAPLEN bytes of each packet"
    )
    made.add_argument("-w", dest="file", metavar="FILE", help="write a pcapng stream to FILE; - is the standard output")
    made.add_argument("--pid", metavar="PID", type=whole, action="append", help="only this process; may be repeated")
    made.add_argument("filter", metavar="port N", nargs="*", help="only TCP connections with this port at one end")
    made.epilog = "Bytes on kernel TCP, such as those before a connection moves, are tcpdump's own: docs/tcpdump.md."

    made = command(
        "bench",
        "measure kernel TCP and fastsock on this host",
        "Measures a server and a client with blocking sockets, alternately on kernel TCP and under fastsock.",
    )
    gives_json(made)
    made.add_argument(
        "--seconds", metavar="SECONDS", type=seconds, default=30.0, help="approximate duration (default: 30)"
    )
    made.epilog = """\
columns:
  kernel TCP, fastsock   round trips or messages per second
  ...x                   speed of fastsock relative to kernel TCP
  CPU time               of both ends per message, on kernel TCP -> under fastsock, in microseconds"""
    return parser


def seconds(text: str) -> float:
    """Returns a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def whole(text: str) -> int:
    """Returns a whole number above 0."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def file_to_write(text: str) -> str:
    """Returns the name of a file. Checks as far as possible that it can be written when the program ends."""
    folder = os.path.dirname(os.path.abspath(text))
    reasons = {
        "must be the name of a file": not text,
        f"{text} is a folder": os.path.isdir(text),
        f"{text} cannot be written": os.path.exists(text) and not os.access(text, os.W_OK),
        f"{text} cannot be written: the folder {folder} does not exist": not os.path.isdir(folder),
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
    """Replaces this process by `program`: the words that would follow `python`, or that a shell would execute.

    Raises `UsageError`, `fastsock.SettingError`, or OSError if the interpreter or the program cannot be executed.
    """
    _check_words("run", program)
    if program[0] == "--":
        raise UsageError("run has no option --: write the program right after run; see fastsock run --help")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError("run needs the environment and the site module: start Python without -I, -E and -S")
    if not sys.executable:
        raise UsageError(
            "run cannot find the Python interpreter (sys.executable is empty): start python by its full path"
        )
    ignored = launch.take_ignored()
    settings = config.from_environment()  # raises for a bad setting
    python = [sys.orig_argv[0], *interpreter_options(), *program]
    native = launch.is_program(program[0])
    if not native:
        launch.check_script(program[0])
    launch.give_signals_back(ignored)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # what a sitecustomize has printed
        stream.flush()
    if native or options.libc:
        own = [
            "fastsock-run",
            *(["--libc"] if options.libc else []),
            *(["--stats", options.stats] if options.stats else []),
        ]
        os.execv(launch.LAUNCHER, [*own, *(program if native else [sys.executable, *python[1:]])])
    os.execve(sys.executable, python, _startup.environment(os.environ, settings, options.stats))


def _check_words(command: str, program: list[str]) -> None:
    """Raises `UsageError` if the words name no program."""
    if not program:
        raise UsageError(
            f"{command} needs a program: a script, -m MODULE, -c CODE or a command; see fastsock {command} --help"
        )
    if program in (["-m"], ["-c"]):
        raise UsageError(f"{program[0]} needs {'a module' if program == ['-m'] else 'code'}")


def interpreter_options() -> list[str]:
    """Returns the options that this interpreter was started with, such as `-u` or `-X dev`."""
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    started = own.pop()
    if sys.modules["__main__"].__spec__ is None:  # the console script
        return own
    # One of `-m fastsock`, `-um fastsock`, `-mfastsock`, `-umfastsock`: letters before the m are options.
    letters = started.partition("m")[0] if started.startswith("-") else own.pop().removesuffix("m")
    return own if letters == "-" else [*own, letters]


def doctor(options: argparse.Namespace, program: list[str] | None = None) -> int:
    """Checks this host, or runs and watches a program. Returns the exit status."""
    from fastsock.tools import doctor

    if program is None:
        return doctor.examine(options.json)
    _check_words("doctor", program)
    return doctor.watch(program, options.json, [sys.executable, *interpreter_options()])


def export(options: argparse.Namespace) -> int:
    """Puts the library into a folder. Returns the exit status."""
    from fastsock.tools import export

    print(f"{options.folder}: {', '.join(export.export(options.folder))}")
    return 0


def ss(options: argparse.Namespace) -> int:
    """Lists connections, or links. Returns the exit status."""
    from fastsock.tools import ss

    return ss.show(set(options.pids) or None, options.json, options.links)


def top(options: argparse.Namespace) -> int:
    """Shows activity. Returns the exit status."""
    from fastsock.tools import top

    return top.run(set(options.pids) or None, options.interval, options.rounds)


def tcpdump(options: argparse.Namespace) -> int:
    """Shows bytes. Returns the exit status."""
    from fastsock.tools import tcpdump

    try:
        port = tcpdump.port_of(options.filter)
    except ValueError as error:
        raise UsageError(f"{error}; see fastsock tcpdump --help") from None
    names = "count", "file", "snaplen", "text", "dump"
    chosen = {name: getattr(options, name) for name in names}
    return tcpdump.run(tcpdump.Options(pids=set(options.pid) if options.pid else None, port=port, **chosen))


def bench(options: argparse.Namespace) -> int:
    """Measures. Returns the exit status."""
    from fastsock.tools import quickbench

    return quickbench.run(options.seconds, options.json)


def _levels() -> str:
    from fastsock.tools import checks, columns

    return columns.explained("levels", checks.LEVELS)


def _columns_of_ss() -> str:
    from fastsock.tools import columns, groups, ss

    tables = ("columns", ss.COLUMNS), ("columns of groups", groups.COLUMNS), ("columns of links", ss.LINKS)
    return "\n\n".join(columns.explained(*each) for each in tables)


def _columns_of_top() -> str:
    from fastsock.tools import columns, top

    return "\n\n".join(
        columns.explained(title, table)
        for title, table in (("columns of processes", top.PROCESSES), ("columns of connections", top.CONNECTIONS))
    )


COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run, "doctor": doctor, "export": export, "ss": ss, "top": top, "tcpdump": tcpdump,
    "bench": bench,
}  # fmt: skip
