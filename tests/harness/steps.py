"""The way of a connection to the ring, for tests that do something at each step of it."""

from fastsock import Path
from fastsock.path_events import Reason

STEPS = (
    Path("tcp", Reason.FEW),
    Path("tcp", Reason.SEEKING),
    Path("tcp", Reason.BACK),  # attached, and nothing has moved
    Path("ring", "sending"),
    Path("ring", "receiving"),
    Path("ring", "both directions"),
)
"""As path_of tells of it."""
