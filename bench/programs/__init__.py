"""Programs of other people's libraries under fastsock, next to the same ones without it: `python -m bench.programs`.

A row of the table is a server program and a client program, ordinary ones: unchanged libraries, no word of fastsock
in them (scripts/). They run as two pairs, alive at once: a plain one, and one started by `fastsock run`. The
pairs are driven in short slices by turns, so that whatever the machine does happens to both, and neighbouring slices
are compared. A third pair, plain again, is the null test: what its ratios differ by is noise.

    rows.py       what a row is; its goals
    table.py      the declared table of rows
    plan.py       how much of everything a session measures
    scripts/      the programs; clock.py has what every client has in common
    pair.py       a pair of programs: started, driven with deadlines, ended
    processes.py  CPU time of processes from outside, and what they are doing when they hang
    calls.py      system calls of running processes
    measure.py    rounds and slices
    results.py    ratios, quartiles, humps, verdicts
    show.py       the table, JSON
"""
