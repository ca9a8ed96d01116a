"""What mkdocs does beside its own work: links into the repository, and the reference from the docstrings."""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
LINK_FROM_ROOT = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
REFERENCE = "<!-- reference -->"
PICTURES = """
![Latency: half a round trip over message size, on the ring, on kernel TCP and on a unix socket](latency.svg)
![Throughput: bytes a second of a stream over message size, on the same three](throughput.svg)
"""
LOOSE_LINK = re.compile(r"\[([^\]]*)\]\(\s*([^)\s]+)\s*\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Adds what is made of files of the repository: the pictures of figures, the page of the papers' figures, and
    CHANGELOG.md as a page, whose links are from the repository's root."""
    sys.path.insert(0, str(ROOT))  # no installed packages
    from bench.figures import pictures, store
    from research.catalogue import FIGURES, PAPERS
    from research.documents import read_medians
    from research.draw import draw_all
    from research.page import figures_page

    documents = read_medians(ROOT / "docs/papers/medians.json")
    files.append(File.generated(config, "papers-figures.md", content=figures_page(PAPERS, documents)))
    with tempfile.TemporaryDirectory() as drawn:
        pictures.draw(Path(drawn), store.read())
        draw_all(Path(drawn, "papers"), FIGURES, documents)
        for path in Path(drawn).rglob("*.*"):
            files.append(File.generated(config, str(path.relative_to(drawn)), content=path.read_bytes()))
    text = (ROOT / "CHANGELOG.md").read_text()
    text = LINK_FROM_ROOT.sub(lambda found: "](" + posixpath.relpath(found[1], "docs"), text)
    files.append(File.generated(config, "changelog.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Gives each page its final text; PluginError for a link to a file that is not in the repository."""
    markdown = markdown.replace("<!-- pictures -->", PICTURES)
    markdown = LOOSE_LINK.sub(lambda found: f"[{found[1]}]({found[2]})", markdown)  # links broken across lines

    def into_repository(found: re.Match[str]) -> str:
        if found[1] == "../CHANGELOG.md":
            return f"](changelog.md{found[2] or ''})"
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), found[1]))
        if path.startswith("..") or not (ROOT / path).exists():
            raise PluginError(f"{page.file.src_uri} links to {found[1]}, which is not there")
        return f"]({config.repo_url}/blob/main/{path}{found[2] or ''})"

    return LINK.sub(into_repository, markdown).replace(REFERENCE, reference() if REFERENCE in markdown else "")


def reference() -> str:
    """Every public name, with its signature and docstring, as Markdown."""
    import fastsock

    return "\n".join(section(name, getattr(fastsock, name)) for name in sorted(fastsock.__all__, key=str.lower))


def section(name: str, value: Any) -> str:
    """One name of `fastsock`."""
    lines = [f"## `fastsock.{name}`", ""]
    if not inspect.isclass(value):
        lines += ["```python", f"{name}{inspect.signature(value)}", "```", ""]
    lines += [inspect.getdoc(value) or "", ""]
    if inspect.isclass(value):
        documented = attribute_docs(value)
        lines += [f"- `{attribute}`: {text}" for attribute, text in documented.items()]
        for method, function in vars(value).items():
            if not method.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
                lines += ["", f"**`{method}{inspect.signature(function)}`**", "", inspect.getdoc(function) or ""]
    return "\n".join([*lines, ""])


def attribute_docs(value: type) -> dict[str, str]:
    """Attributes with the strings that stand below them in the source."""
    import ast

    try:
        tree = ast.parse(inspect.getsource(value))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found: dict[str, str] = {}
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and names:
            text = " ".join(str(node.value.value).split())
            found.update(dict.fromkeys(names, text))
            names = []
        else:
            names = []
    return found
