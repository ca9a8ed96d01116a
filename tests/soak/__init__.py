"""Chaos: ordinary programs at both ends of many connections, and a driver that kills, stops and starves them.

`./dev chaos` runs it; docs/testing.md says how, and what it checks.
"""
