"""Graphs of who knows whom: what a module needs, and which modules need each other."""

from __future__ import annotations

from collections.abc import Mapping


def reached(graph: Mapping[str, set[str]], start: set[str]) -> set[str]:
    """Everything that somebody of `start` needs, by whatever detour."""
    found, new = set(start), set(start)
    while new:
        new = set().union(*(graph[name] for name in new)) - found
        found |= new
    return found - start


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules that need each other."""
    needs = {name: reached(graph, {name}) for name in graph}
    return {frozenset({name, *(other for other in needs[name] if name in needs[other])}) for name in graph} - {
        frozenset({name}) for name in graph
    }
