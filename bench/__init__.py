"""How fast fastsock is, next to kernel TCP: `python -m bench`.

Every figure is one of a pair. For each work, kernel TCP and fastsock are run alternately in one invocation
(tcp, ring, tcp, ring, ...), each run in two fresh processes, a server role and a client role that start with
the same code and differ in one line: the ring roles call `fastsock.patch()` first, the kernel roles never
import it. Everything else is alike, so that a fastsock that did nothing would have a ratio of 1. Ratios
travel between machines, absolute figures do not, so what is required of fastsock is a ratio, and the ratio
shown is the median over the pairs. A run whose connection was not where the work says it has to be (on the
ring, or for a foreign peer on the kernel) does not count: its row is invalid and the exit status says so.

What a work measures, how a process is driven and how results are shown know nothing of each other:

    works.py        the declared table of works: what is run and what it has to reach
    subject.py      which fastsock is measured

    role.py         the process of a role, as the loops see it
    meeting.py      how the two ends get a connection to where it is meant to be
    data.py         the loops of the works about data: ping-pong, stream
    connections.py  the loops of the works about connections: one-shot, short-lived, idle
    aio.py, http.py the loops of asyncio programs, and of a web service
    loops.py        the table of loops; one sample seen from both ends
    roles.py        the program that both role processes run

    process.py      processes seen from outside: deadlines, resident memory, CPU time

    results.py      medians, ratios, verdicts
    report.py       the table and the JSON file
    plot.py         latency and bandwidth over message size

Two files join them:

    role_process.py a process of the program of roles.py, driven as process.py does it
    harness.py      runs the pairs and the curves, and refuses runs that were not what they should be

Above them is the command, `__main__.py`. All this is drawn by tests/project/test_structure_bench.py, which fails on a
circle.

Programs of other people's libraries are another command, `python -m bench.programs`: see bench/programs. `python -m
bench.figures` measures all that the documents publish: see bench/figures.
`./dev demo` is `python -m bench.demo`: three pairs of those programs in half a minute, for whoever has just arrived.
"""
