"""The documentation site builds without a warning, and its links lead somewhere."""

import importlib.util
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from harness.processes import ended

import fastsock
from bench.figures import store
from bench.figures.pictures import PICTURES, caption
from fastsock import cli
from research.catalogue import FIGURES

ROOT = Path(__file__).parents[2]
HOOKS = importlib.util.spec_from_file_location("hooks", ROOT / "docs/site/hooks.py")
IMAGE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
BADGE = re.compile(r"https://github.com/fastsock/fastsock/actions/workflows/([\w.]+)/badge.svg")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(\s*([^)\s]+)\s*\)")


@pytest.fixture(scope="session")
def site(made_once):
    return made_once(
        "site",
        lambda folder: ended(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder], NO_MKDOCS_2_WARNING="1"
        ),
    )


def test_the_site_builds_without_a_warning(site):
    for page in ROOT.glob("docs/*.md"):
        name = "index.html" if page.stem == "index" else f"{page.stem}/index.html"
        assert (site / name).is_file(), page.name


def test_the_site_draws_the_published_figures(site):
    """The curves with what they were taken on, and every figure of the papers."""
    document = store.read()
    for name in PICTURES.values():
        assert caption(document).splitlines()[0] in " ".join(
            re.findall(r"<text[^>]*>([^<]*)", (site / name).read_text())
        )
        assert f'src="../{name}"' in (site / "performance/index.html").read_text()
    page = (site / "papers-figures/index.html").read_text()
    for figure in FIGURES:
        assert f'src="../papers/{figure.full_name}.png"' in page
        assert (site / f"papers/{figure.full_name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_reference_has_every_public_name_and_setting(site):
    text = (site / "reference/index.html").read_text()
    for name in fastsock.__all__:
        assert f"fastsock.{name}</code>" in text, name
    for setting in ("poll_us", "memory_cap", "trust"):
        assert f"<code>{setting}</code>" in text


def test_nothing_is_loaded_from_another_host(site):
    text = (site / "index.html").read_text()
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', text)
    ours = ("https://github.com/fastsock/fastsock", "https://fastsock.github.io/fastsock/")  # links, not loaded
    assert [url for url in loaded if not url.startswith(ours)] == []


class Rows(HTMLParser):
    """How many cells each row of each table of a page has."""

    def __init__(self, page):
        super().__init__()
        self.tables = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append(0)
        elif tag in ("th", "td"):
            self.tables[-1][-1] += 1


def test_tables_are_tables(site):
    """A table is made of each one in the sources, and no cell of it is broken in two or lost."""
    count = 0
    for source in ROOT.glob("docs/*.md"):
        page = (site / ("index.html" if source.stem == "index" else f"{source.stem}/index.html")).read_text()
        tables = Rows(page).tables
        assert len(tables) == len(re.findall(r"^ *\|(?: *:?-+:? *\|)+$", source.read_text(), re.MULTILINE)), source.name
        for number, rows in enumerate(tables):
            assert len(set(rows)) == 1, f"{source.name}, table {number}: {rows}"
        count += len(tables)
    assert count > 50


def colours(style):
    """The fills that a style sheet gives, by the name of a class, or of an element."""
    rules = [(names, fill) for names, fill in re.findall(r"([.\w,]+)\{[^{}]*?fill:(#\w+)", style)]
    return {name.lstrip("."): fill for names, fill in rules for name in names.split(",")}


def light(colour):
    """The relative luminance of #rgb or #rrggbb: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", ["byte.svg", "states.svg"])
def test_a_picture_is_readable_in_both_modes(name):
    text = (ROOT / "docs" / name).read_text()
    usual, dark = re.search(
        r"<style>(.*?)@media \(prefers-color-scheme: dark\)\{(.*)</style>", text, re.DOTALL
    ).groups()
    assert not re.search(r'(?:fill|stroke)="', text)  # all colours are in the style sheet
    written = {"text", *re.findall(r'<text class="(\w+)"', text)}
    shapes = set(re.findall(r'<(?:rect|g) class="(\w+)"', text))
    assert len(shapes) > 1
    for fills in (colours(usual), {**colours(usual), **colours(dark)}):
        assert shapes <= fills.keys()
        for word in written & fills.keys():
            for shape in shapes:
                low, high = sorted([light(fills[word]), light(fills[shape])])
                assert (high + 0.05) / (low + 0.05) >= 4.5, (fills[word], fills[shape])
    assert light(colours(dark)["p"]) < 0.1 < 0.9 < light(colours(usual)["p"])


def test_links_between_files_of_the_repository_lead_somewhere():
    """Also those of files that are no page: README, CONTRIBUTING, SECURITY, CHANGELOG, examples."""
    found = 0
    for file in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]:
        for target in LINK.findall(file.read_text()):
            if target.startswith(("http://", "https://", "#")):
                continue
            found += 1
            assert (file.parent / target.partition("#")[0]).exists(), f"{file.name}: {target}"
    assert found > 40


def test_commands_that_the_documents_name_exist():
    """`./dev NAME` and `fastsock NAME`, in text and in blocks; a module of `python -m bench` or `research` too."""
    texts = [file.read_text() for file in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"))]
    ours = re.findall(r"^    ([a-z0-9]+)\)(?: |$)", (ROOT / "dev").read_text(), re.MULTILINE)
    named = {word for text in texts for word in re.findall(r"\./dev ([a-z0-9]+)", text)}
    assert {"demo", "test", "bench", "docs"} <= named
    assert sorted(named - set(ours)) == []
    tools = {word for text in texts for word in re.findall(r"^ {4}fastsock ([a-z]+)", text, re.MULTILINE)}
    assert {"doctor", "ss", "bench"} <= tools
    assert sorted(tools - cli.COMMANDS.keys()) == []
    for word in {word for text in texts for word in re.findall(r"python -m ((?:bench|research)[a-z_.]*)", text)}:
        path = ROOT / word.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), word


def test_pictures_are_there_and_have_words_for_those_who_do_not_see_them():
    found = []
    for file in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in IMAGE.findall(file.read_text()):
            found.append(target)
            if badge := BADGE.fullmatch(target):
                assert (ROOT / ".github/workflows" / badge[1]).is_file(), target
                continue
            assert (file.parent / target).is_file(), f"{file.name}: {target}"
    assert {"docs/byte.svg", "states.svg"} <= set(found)


def test_attributes_of_the_api_page_have_their_own_words():
    assert HOOKS
    hooks = importlib.util.module_from_spec(HOOKS)
    HOOKS.loader.exec_module(hooks)
    for shown in (fastsock.Metric, fastsock.Path):
        words = hooks.attribute_docs(shown)
        assert len(words) == len(set(words.values())) == len(attrs.fields(shown)), shown


def test_a_link_out_of_the_repository_fails_the_build():
    assert HOOKS
    hooks = importlib.util.module_from_spec(HOOKS)
    HOOKS.loader.exec_module(hooks)

    class Page:
        class file:
            src_uri = "design.md"

    class Config:
        repo_url = "https://example.org/repository"

    def made(text):
        return hooks.on_page_markdown(text, page=Page, config=Config, files=None)

    assert made("[x](../setup.py)") == "[x](https://example.org/repository/blob/main/setup.py)"
    assert made("[x](\nprotocol.md)") == "[x](protocol.md)"
    for target in ("../no-such-file.py", "../../outside"):
        with pytest.raises(hooks.PluginError):
            made(f"[x]({target})")
