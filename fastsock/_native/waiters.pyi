"""The event set of a thread, with which it waits in its calls of `select` and `poll`."""

from fastsock._native.members import EventSet

class Waiter(EventSet):
    """The event set of one thread, which alone waits on it, for its calls of select and poll."""
