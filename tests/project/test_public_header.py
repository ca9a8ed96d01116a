"""The public headers of the core: each function has its contract and its errors, is the core's, and is used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from project.test_structure import CONNECTIONS, CORE, CORE_SOURCES, NATIVE, NATIVE_SOURCES, PUBLIC, includes

FUNCTION = re.compile(r"^(?:static inline )?(?:__attribute__\(\(\w+\)\) )?[a-z][\w ]*?[ *](fs_\w+)\(", re.MULTILINE)


def public_text() -> str:
    return "".join(path.read_text() for path in PUBLIC)


def public_functions() -> list[str]:
    return FUNCTION.findall(public_text())


def test_each_public_header_is_read_in_one_sitting() -> None:
    counts = {path: len(FUNCTION.findall(path.read_text())) for path in PUBLIC}
    assert 60 < sum(counts[path] for path in CONNECTIONS) <= 98
    assert 20 < counts[CORE / "include/fastsock_loop.h"] <= 40
    assert 10 < counts[CORE / "include/fastsock_messages.h"] <= 20
    (front,) = (path for path in CONNECTIONS if path.stem == "fastsock")
    assert includes(front) | includes(CORE / "include/fastsock_types.h") | {front} == set(CONNECTIONS)
    assert len(set(public_functions())) == len(public_functions())


def test_each_public_function_has_its_contract() -> None:
    """A comment above it, or above the function before it: it says what is returned, and which lock is needed."""
    text = re.sub(r"/\*(?:[^*]|\*(?!/))*\*/", lambda found: "/* " + "C" * ("[" in found[0]) + " */", public_text())
    for name in public_functions():
        before = text[: re.search(rf"^[a-z].*\b{name}\(", text, re.MULTILINE).start()]  # type: ignore[union-attr]
        above = before.rstrip().splitlines()[-1]
        assert above == "/* C */" or FUNCTION.match(above), f"{name} has no contract"


def contracts() -> Iterator[tuple[str, list[str]]]:
    """Each comment of the public headers that functions follow, with their names."""
    parts = re.split(r"(/\*(?:[^*]|\*(?!/))*\*/\n)(?=[a-z])", public_text())
    for comment, below in zip(parts[1::2], parts[2::2], strict=True):
        if names := FUNCTION.findall(below.partition("\n\n")[0]):
            yield comment, names


def test_each_public_function_that_can_fail_lists_its_errors() -> None:
    listed = 0
    for comment, names in contracts():
        text = re.sub(r"\s+\*?\s*", " ", comment)
        fails, errors = "-errno" in text, re.search(r"Errors: (.*)\[", text)
        assert fails <= (errors is not None), f"{names} fails with no list of errors"
        if errors:
            listed += 1
            assert re.search(r"\bE[A-Z]{3,}|those of ", errors[1]), names
    assert listed > 20


def test_what_a_signal_handler_may_call_takes_no_lock() -> None:
    """The list at the head of fastsock.h; `interrupt` of public.c calls each."""
    text = re.search(r"A handler may call ([^.]*)\.", (CORE / "include/fastsock.h").read_text())
    assert text
    names = re.findall(r"fs_\w+", text[1])
    assert len(names) > 10
    handler = re.search(
        r"^static void interrupt\(.*?^}", (CORE.parent / "tests/native/public.c").read_text(), re.M | re.S
    )
    assert handler
    contract = {name: comment for comment, names in contracts() for name in names}
    for name in names:
        assert "[any" in contract[name], name
        assert f"{name}(" in handler[0], name
    assert set(re.findall(r"fs_\w+(?=\()", handler[0])) <= set(names)


def test_each_public_function_is_the_core_s_and_is_used() -> None:
    core = "".join(path.read_text() for path in CORE_SOURCES if path.suffix == ".c" or path in PUBLIC)
    fronts = [path for path in (*NATIVE_SOURCES, NATIVE / "loop_step.h") if path not in CORE_SOURCES]
    used = "".join(path.read_text() for path in fronts)
    used += "".join(re.findall(r"^    .*", re.sub(r"/\*[^*]*(?:\*(?!/)[^*]*)*\*/", "", public_text()), re.MULTILINE))
    for name in public_functions():
        assert re.search(rf"^[a-z][\w ()]*[ *]{name}\([^;]*\{{", core, re.MULTILINE), f"{name} is not defined"
        assert re.search(rf"\b{name}\b", used), f"no front end uses {name}"


def test_no_other_header_declares_a_public_function() -> None:
    """A function has one contract."""
    names = set(public_functions())
    headers = [path for path in CORE_SOURCES if path.suffix == ".h" and path not in PUBLIC]
    assert [path for path in headers if names & set(FUNCTION.findall(path.read_text()))] == []
