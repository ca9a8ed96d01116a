"""CPython's own tests as oracle: the interpreter's `test` package in a patched interpreter; see `__main__`."""
