"""What is told of connections: where one stands, and what they counted."""

COUNTERS: tuple[str, ...]
"""The names of the counters, in the order of struct fs_counters (core/ring/ring.h)."""
