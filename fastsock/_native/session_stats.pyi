"""What the sessions of a service were like, as an object that its connections share."""

class SessionStats:
    """What the sessions of one service were like."""

    def note(self, operations: int, sought: int = 0, calls: int = 0, messages: int = 0) -> int:
        """A session has ended after so many operations. `sought`: 0 it did not look for its peer, 1 in vain, 2 and moved (then with the
        system calls to sleep and to wake, and messages), -1 it could not move, and nothing is learned."""
    @property
    def later(self) -> int:
        """Operations before which no session looks for its peer; 0: as the settings say."""
