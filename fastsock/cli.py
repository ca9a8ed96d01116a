"""The command line: `python -m fastsock`, or `fastsock`.

`run` does not imitate the interpreter: the process checks its settings and then becomes (execve)
`python SCRIPT ...`, in an environment that patches it on its way up (`fastsock._boot`). The process id,
`sys.argv`, `sys.path`, `__main__`, exit status, signals and tracebacks are therefore Python's own, and no
frame of ours lies below the program.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence

import fastsock
from fastsock import _boot

HELP = """\
usage: fastsock run [--stats FILE] (-m MODULE | -c CODE | SCRIPT) [ARGUMENT ...]
       fastsock doctor [--json] [-- COMMAND [ARGUMENT ...]]
       fastsock ss [--json] [PID ...]
       fastsock top [--interval SECONDS] [--rounds N]
       fastsock bench [--json] [--seconds SECONDS]
       fastsock --version
       fastsock --help

run starts a Python program with its sockets patched, as `python` with the same words (SCRIPT, -m MODULE or -c CODE)
would start it: connections to other patched programs on this host move to shared memory, all others stay on kernel
TCP. Python processes that the program starts are patched too.

  SCRIPT         a script, or a directory or zip file with a __main__.py; - reads it from the standard input
  -m MODULE      a module, or a package with a __main__.py
  -c CODE        a program as text
  --stats FILE   write fastsock.stats() of the program (not of its children) to FILE, as JSON, when it exits

doctor says what helps and what is in the way on this host. With a command, such as `fastsock doctor -- python app.py`,
it starts that under fastsock, watches it to its end, and says which of its connections moved, which did not, and what
to do about each reason.

ss lists the connections of your fastsock processes, top shows what they do just now (it needs rich), bench measures
kernel TCP and fastsock on this host in half a minute.

Options of the interpreter stand where they always do: python -X dev -m fastsock run SCRIPT. Settings are
environment variables, such as FASTSOCK_POLL_US=0; FASTSOCK_ENABLED=0 runs the program unpatched.
"""


class UsageError(ValueError):
    """The command line asks for nothing that can be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status, 2 for a bad setting or command line.

    A successful `run` does not return.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        match words[:1]:
            case ["run"]:
                run(words[1:])
            case ["doctor" | "ss" | "top" | "bench" as tool]:
                return look(tool, words[1:])
            case ["--version" | "-V"]:
                print(f"fastsock {importlib.metadata.version('fastsock')}")
            case ["--help" | "-h" | "help"]:
                print(HELP, end="")
            case []:
                raise UsageError("nothing to do; see fastsock --help")
            case [word]:
                raise UsageError(f"no such command: {word}; see fastsock --help")
    except (UsageError, fastsock.SettingError, OSError, RuntimeError) as error:
        print(f"fastsock: {error}", file=sys.stderr)
        return 2
    return 0


def run(words: Sequence[str]) -> None:
    """Become the patched program that `words`, the words after `run`, describe.

    Raises `UsageError`, `fastsock.SettingError`, or OSError where the interpreter cannot be executed.
    """
    stats, program = split(words)
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError("run needs the environment and the site module: leave out -I, -E and -S")
    if not sys.executable:
        raise UsageError("run needs an interpreter to start, and sys.executable is empty")
    fastsock.patch()  # only to find a bad setting here, where it ends the command
    command = [sys.orig_argv[0], *interpreter_options(), *program]
    os.execve(sys.executable, command, _boot.environment(os.environ, stats))


def look(tool: str, words: list[str]) -> int:
    """The commands that look at fastsock at work. Returns the exit status; raises as they do, and `UsageError`."""
    command: list[str] | None = None
    if tool == "doctor" and "--" in words:
        words, command = words[: words.index("--")], words[words.index("--") + 1 :]
        if not command:
            raise UsageError("doctor -- needs a command")
    options, plain = options_of(tool, words)
    as_json = "--json" in options
    match tool:
        case "doctor":
            from fastsock.tools import doctor

            return doctor.examine(as_json) if command is None else doctor.watch(command, as_json)
        case "ss":
            from fastsock.tools import ss

            return ss.show({int(number(word, "a process id")) for word in plain} or None, as_json)
        case "top":
            from fastsock.tools import top

            rounds = options.get("--rounds")
            try:
                return top.run(number(options.get("--interval", "1"), "--interval"), int(rounds) if rounds else None)
            except ImportError:
                raise UsageError("top needs rich: pip install rich") from None
        case _:
            from fastsock.tools import quickbench

            return quickbench.run(number(options.get("--seconds", "30"), "--seconds"), as_json)


OPTIONS = {
    "doctor": {"--json": False},
    "ss": {"--json": False},
    "top": {"--interval": True, "--rounds": True},
    "bench": {"--json": False, "--seconds": True},
}
"""Of each command that looks: option -> whether it has a value."""


def options_of(tool: str, words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options with their values, and the other words, which only ss may have."""
    options, plain, rest = {}, [], list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help"):
            print(HELP, end="")
            sys.exit(0)
        if not word.startswith("-") and tool == "ss":
            plain.append(word)
            continue
        option, equals, value = word.partition("=")
        if option not in OPTIONS[tool] or (equals and not OPTIONS[tool][option]):
            raise UsageError(f"{tool} does not take {word}; see fastsock --help")
        if OPTIONS[tool][option] and not equals:
            if not rest:
                raise UsageError(f"{option} needs a value")
            value = rest.pop(0)
        options[option] = value
    if "--rounds" in options:
        number(options["--rounds"], "--rounds")
    return options, plain


def number(text: str, what: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise UsageError(f"{what} must be a number above 0, and not {text}")
    return value


def split(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file of `--stats`, and the program with its arguments, exactly as they would follow `python`."""
    stats = None
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-" and not rest[0].startswith(("-m", "-c")):
        option, equals, value = rest.pop(0).partition("=")
        if option in ("-h", "--help"):
            print(HELP, end="")
            sys.exit(0)
        if option != "--stats":
            raise UsageError(f"run has no option {option}; see fastsock --help")
        stats = value if equals else rest.pop(0) if rest else ""
        if not stats:
            raise UsageError("--stats needs a file")
    if not rest:
        raise UsageError("run needs a script, -m and a module, or -c and code")
    if rest in (["-m"], ["-c"]):
        raise UsageError(f"{rest[0]} needs {'a module' if rest == ['-m'] else 'code'}")
    return stats, rest


def interpreter_options() -> list[str]:
    """The options this interpreter was started with, such as `-u` or `-X dev`, up to its script or module."""
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv[1:])]
    started = own.pop()
    if sys.modules["__main__"].__spec__ is None:  # the console script
        return own
    # One of `-m fastsock`, `-um fastsock`, `-mfastsock`, `-umfastsock`: what stands before the m are options.
    letters = started.partition("m")[0] if started.startswith("-") else own.pop().removesuffix("m")
    return own if letters == "-" else [*own, letters]
