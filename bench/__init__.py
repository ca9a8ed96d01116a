"""How fast fastsock is, next to kernel TCP and others. Every figure is one of a pair, or of a group: the lines of a
measurement take turns (`turns.py`, the one loop of works, curves, programs, the papers' figures and rivals), each in
processes of its own that differ in one thing. For a work, kernel TCP and fastsock run in two fresh processes each, a
server role and a client role: the ring roles call `fastsock.patch()` first, the kernel roles never import it. A
fastsock that did nothing would have a ratio of 1. Ratios travel between machines, absolute figures do not, so what is
required of fastsock is a ratio: the median over the pairs. CPU time of both ends stands beside it. A run whose
connection was not where the work says it has to be (on the ring, or for a foreign peer on the kernel) does not count:
its row is invalid and the exit status says so.

What a work measures, how a process is driven and how results are shown know nothing of each other:

    workloads.py    the declared table of works: what is run and what it has to reach
    target.py       which fastsock is measured

    worker.py       the process of a role, as the loops see it
    warmup.py       how the two ends get a connection to where it is meant to be
    data.py         the loops of the works about data: ping-pong, stream
    connections.py  the loops of the works about connections: one-shot, short-lived, idle
    aio.py, http.py the loops of asyncio programs, and of a web service
    loops.py        the table of loops; one sample seen from both ends
    worker_main.py  the program that both role processes run

    process.py      processes seen from outside: deadlines, resident memory, CPU time

    results.py      medians, ratios, verdicts
    report.py       the table and the JSON file
    plot.py         latency and bandwidth over message size

These join them:

    placement.py    where the two ends run: free, apart, together
    turns.py        lines take turns
    worker_process.py  a process of the program of worker_main.py, driven as process.py does it
    harness.py      works and curves as lines; refuses runs that were not what they should be

Above them is the command, `__main__.py`. All this is drawn by tests/project/test_structure_bench.py, which fails on a
circle.

Other commands are `python -m bench.programs` (programs of other people's libraries), `bench.rivals` (other ways to make
programs of one host talk faster), `bench.figures` (all that the documents publish) and `bench.idle`.
`./dev demo` is `python -m bench.demo`: three pairs of those programs in half a minute, for whoever has just arrived.
"""
