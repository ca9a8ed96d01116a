"""What the documents have somebody type after `./dev` and after the name of an example: words, options, files.

Only parsed here, not run: these commands are tests themselves, or take long. Other commands: test_snippets.py.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest
from harness.processes import ended

ROOT = Path(__file__).parents[2]
PAGES = [page for folder in (".", "docs", "examples") for page in sorted((ROOT / folder).glob("*.md"))]
TEXTS = [page.read_text() for page in PAGES if page.name != "CHANGELOG.md"]
TYPED = {" ".join(words.split()) for text in TEXTS for words in re.findall(r"\./dev ((?:(?!  )[^`\n#<])*)", text)}
COMMANDS = sorted({words.removesuffix("-->").strip() for words in TYPED})
MODULES = {
    "bench": "bench", "bench copies": "bench.copies", "bench figures": "bench.figures",
    "bench messages": "bench.messages", "bench programs": "bench.programs", "bench rivals": "bench.rivals",
    "chaos": "tests.soak", "demo": "bench.demo", "papers": "research", "soak": "tests.soak.soak",
    "stdlib": "tests.third_party.stdlib", "verify": "tests.verify",
}  # fmt: skip
"""Commands that argparse reads."""
RUN_LINES = re.findall(r'^    \("(\w+)", "([^"]*)",', (ROOT / "models/run").read_text(), re.MULTILINE)
EXAMPLES = sorted({word for text in TEXTS for word in re.findall(r"^    .*?(examples/\S+\.py.*)$", text, re.MULTILINE)})


def split(command: str) -> tuple[str, list[str]]:
    """The command, with its second word if it has one, and the words that it is given."""
    name, *words = shlex.split(command)
    if words and f"{name} {words[0]}" in MODULES:
        name += f" {words.pop(0)}"
    return name, words


def helped(*words: str) -> str:
    return ended([sys.executable, *words, "--help"]).stdout


def options_of(words: list[str]) -> set[str]:
    return {word.strip("[]") for word in words if word.lstrip("[").startswith("--")}


def test_there_are_such_commands():
    assert len(COMMANDS) > 30
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize("command", [command for command in COMMANDS if split(command)[0] in MODULES])
def test_words_that_argparse_reads(command):
    """Wrong values end the command before it comes to --help; an unknown option is not in what that prints."""
    name, words = split(command)
    said = helped("-m", MODULES[name], *(() if "[" in command else words))
    assert sorted(option for option in options_of(words) if option not in said) == []


@pytest.mark.parametrize("command", [command for command in COMMANDS if split(command)[0] not in MODULES])
def test_words_of_the_other_commands(command):
    name, words = split(command)
    match name, words:
        case "models", _:
            assert any(set(words) <= {model, *options.split()} for model, options in RUN_LINES)
        case "fuzz", _:
            assert all(
                f"        {option})" in (ROOT / "tests/hostile/fuzz/run").read_text() for option in options_of(words)
            )
        case "test", _:
            assert all((ROOT / word).is_file() for word in words if not word.startswith("-"))
        case "sanitize", [("thread" | "address"), *rest]:
            assert all((ROOT / word).is_file() for word in rest if word.endswith(".py"))
        case "wheel", ["bare"]:
            assert (ROOT / "tests/wheels/bare").is_file()
        case "wheel", [*rest]:
            script = (ROOT / "tests/wheels/run").read_text()
            assert all(
                word.startswith("python3") or f"        {word}) " in script or f"        {word})\n" in script
                for word in rest
            )
        case "docs", ["serve"]:
            pass
        case _, []:  # that there is such a command: test_site.py
            pass
        case _:
            pytest.fail(f"./dev {command}: no such words")


@pytest.mark.parametrize("command", EXAMPLES)
def test_options_of_the_examples(command):
    program, *words = shlex.split(command.partition("  #")[0])
    assert (ROOT / program).is_file()
    wanted = options_of(words)
    said = helped(program) if wanted else ""
    assert sorted(option for option in wanted if option not in said) == []


def test_files_that_the_documents_name_are_there():
    """In the checkout, or below the folder that the page is about."""
    below = (ROOT, ROOT / "tests", ROOT / "fastsock", ROOT / "examples", ROOT / "tests/hostile/fuzz", ROOT / "bench")
    made = {"bench/out/programs.json"}
    folders = "tests|fastsock|bench|docs|papers|research|models|examples|aio|_native|tools|corpus|filters|native"
    named = {word for text in TEXTS for word in re.findall(rf"`((?:{folders})/[\w./*-]+)(?:::\w+)?`", text)}
    assert len(named) > 40
    assert sorted(name for name in named - made if not any(any(folder.glob(name)) for folder in below)) == []
