"""The published figures: measured by one command, kept in one file, shown wherever a document has a place for them.

`./dev bench figures` measures the price of a wakeup, the curves, the programs and the loops, writes
`docs/figures.json`, and renews the documents from it. No figure of these is typed.

    store.py      the file: sessions (which machine, when) and what was measured in them
    wakeup.py     the price of a wakeup on this machine
    pictures.py   the two pictures of latency and throughput, which the site draws
    words.py      figures as words and tables
    documents.py  the places in documents: what each has to say, and whether it says it
"""
