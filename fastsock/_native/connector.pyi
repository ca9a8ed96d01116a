"""The connection thread and its accept queue, the look-up of the other end, and the mapping of regions. A region is named by its address here."""

from typing import Literal

from fastsock._native.vi import Endpoint

# ---- regions

def region_size(window: int, chunk: int) -> int:
    """Bytes of a region with `window` descriptors per direction and chunks of `chunk` bytes."""

def create_region(window: int, chunk: int, id: bytes) -> tuple[int, int, int]:
    """A new sealed region: (memfd, address, size). OSError or MemoryError if there is none to be had."""

def unmap_region(memory: int, size: int) -> None:
    """Gives a region's mapping back to the system."""

def mark_done(memory: int, size: int, side: int, window: int) -> None:
    """This side will not touch the region any more."""

def recycle_region(memory: int, window: int) -> bool:
    """Readies a region for the next connection if both sides are done with it: true if they are."""

def wakeup_seen(memory: int) -> bool:
    """Packet WAKEUP: whether the publisher has taken the region."""

def park(memory: int, size: int, wake_fd: int, peer_fd: int, turn: int, id: bytes) -> int:
    """The publisher keeps a finished connection's region for the next one. What it displaces is unmapped: its size in
    bytes, 0 if nothing."""

def drop_parked() -> int:
    """Unmaps the publisher's parked regions. The bytes given back."""

# ---- descriptors out of the program's way

def descriptor_turn() -> int:
    """A number that changes when the program has closed our descriptors: those of an earlier turn are somebody else's now."""

def close_eventfd(fd: int) -> None:
    """Closes one, unless the number means another file by now."""

def new_eventfd() -> int:
    """An eventfd in our share of the numbers. OSError without one, as keep_away."""

def keep_away(fd: int, passing: bool = False) -> int:
    """Moves a descriptor into our share of the numbers, its upper half if it serves a meeting only (`passing`).
    BlockingIOError when that is full, OSError (EMFILE) when the program is near its limit or `fd` is negative."""

# ---- names and what comes through them

def set_trust(any_user: bool) -> None:
    """Whom the connection thread answers: processes of this user and root, or those of any user."""

def set_backlog(length: int) -> None:
    """The bound of the accept queue: the largest backlog any listener asked for."""

def publish(name: bytes, endpoint: Endpoint, steps: bool) -> int:
    """Publishes an abstract unix name and returns a handle for it; the endpoint's operations take no step until
    something has come of it, unless `steps`. OSError if it cannot be published (EADDRINUSE:
    somebody holds it), BlockingIOError if too many are published already."""

def arrived(handle: int, endpoint: Endpoint) -> tuple[int, int, int, int, bytes, bool] | str | Literal[False] | None:
    """What came through a published name. None: nothing yet. A str: a violation of whoever came. False: withdrawn
    unclaimed. Else (memory, size, wake_fd, peer_fd, id, reused), taken from the accept queue. OSError (EMFILE) if somebody
    came and there were no descriptors for it."""

def withdraw(handle: int, endpoint: Endpoint) -> int:
    """Takes a name back, and refuses a VI that was not yet taken."""

class Lookup:
    """The step of a seeker until its peer is found: looks `name` up, ever less often. Whatever else there is to do is
    left to the step of the endpoint's search: at first, when the name was found, when it was looked for long enough, and
    while the connection is on kernel TCP for another reason than `reason`."""

    over: bool
    """Whether the name was looked for often enough, and for `seconds`."""

    def __new__(cls, name: bytes, reason: str, seconds: float) -> Lookup: ...
    def __call__(self, endpoint: Endpoint) -> None: ...
    def finds(self, endpoint: Endpoint) -> bool:
        """One look-up. If the name is not there, the endpoint's next step is the next one. OSError without a
        descriptor."""

    def pause(self, now: int, operations: int) -> int:
        """Operations until the next look-up, after one that was in vain `now` (monotonic ns)."""

    def take(self) -> int:
        """The descriptor of the socket that is connected to the peer, the caller's from now on."""

    def close(self) -> None:
        """Ends the look-up; the next one starts over."""

# ---- requests of the peers

def expect_asks(endpoint: Endpoint, side: int, id: bytes) -> None:
    """Makes the connection thread ready to answer the requests of the endpoint's peer, before the endpoint attaches.
    OSError or MemoryError: nothing has changed."""

def answer_asks(memory: int, side: int) -> None:
    """The endpoint of this region has attached: the region says where to ask."""

def ignore_asks(endpoint: Endpoint) -> None:
    """The endpoint ends, or has not attached. Waits for an answer that is being given."""

def ask(memory: int, side: int, id: bytes) -> None:
    """Asks the other side of a region for a doorbell byte."""

# ---- the thread

def ensure_thread() -> None:
    """Starts the connection thread unless it runs. OSError if it cannot be started."""

def stop_thread() -> None:
    """Before a fork: a thread does not survive it, and its locks must be free. It does not start before `fork_is_over`."""

def fork_is_over() -> None:
    """In the parent, after each `stop_thread`, whether or not there is a child."""

def forks_under_way() -> int:
    """How many forks of this process are under way."""

def start_again() -> None:
    """Starts the thread if a fork has stopped or delayed it, and no fork is under way. OSError as `ensure_thread`."""

def after_fork_in_child() -> int:
    """What the parent published is the parent's, and so is its epoll. Bytes of parked regions that were unmapped."""
