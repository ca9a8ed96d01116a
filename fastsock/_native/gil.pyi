"""CPython as the core's front end: the GIL, and which process this is."""
