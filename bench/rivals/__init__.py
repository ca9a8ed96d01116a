"""fastsock next to other ways to make programs of one host talk faster: `python -m bench.rivals` measures all in one
run, in turns (`bench.turns`), and renews the table of docs/comparison.md.

    __main__.py  the lines, the table, the command
    channels.py  message libraries behind the few calls of a socket that the loops of `bench.data` make
    sockmap.py   BPF sockmap: two connected sockets whose data the kernel passes on without TCP
"""
