"""The sockets that transports return from get_extra_info("socket"), created at the first call."""

def show_above(base: type) -> None:
    """Sets the class of uvloop's transport sockets. Ours are of a class derived from it."""
