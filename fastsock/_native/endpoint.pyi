"""The endpoint: a connection that the transport of an event loop drives."""

class Endpoint:
    """A connection that a transport drives."""
