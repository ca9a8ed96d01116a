"""Statistics of a service's past sessions, shared by its connections."""

class SessionStats:
    """Statistics of a service's past sessions."""

    def note(self, operations: int, sought: int = 0, calls: int = 0, messages: int = 0) -> int:
        """Adds a session that has ended after so many operations. `sought`: 0 if it did not look for its peer, 1 if it did
        in vain, 2 if it moved (then `calls` is its number of system calls to sleep and wake), -1 if it could not move,
        which is ignored."""
    @property
    def later(self) -> int:
        """Number of operations before a session looks for its peer; 0: use the setting move_after."""
