"""Connects the core to CPython: the GIL is the host lock, and the process id is known to the core."""
