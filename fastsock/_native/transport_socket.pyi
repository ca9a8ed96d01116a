"""The sockets that transports show (get_extra_info), made when somebody wants one."""

def show_above(base: type) -> None:
    """`base` is what uvloop's transports show: ours show an object of a class derived from it."""
