"""asyncio on the virtual interface: loops, and the transports that they give to programs."""

from fastsock.aio.loops import EventLoopPolicy, new_event_loop, run

__all__ = ["EventLoopPolicy", "new_event_loop", "run"]
