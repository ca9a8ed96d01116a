"""The experiments of the five papers that fastsock comes from, made again: `./dev papers [--quick] [NAME...]`.

Each figure is a set of lines over x. A line is a pair (or a group) of processes that differ from another line's in one
thing: on kernel TCP or with fastsock, or with one mechanism of the paper switched off. The lines take turns at every x,
run after run. What is shown is the median with its range, as in `bench`, whose harness and role processes these are.

    figures.py      what a figure is: lines, panels, what the paper says
    series.py       lines made of bench's role processes, and of programs started as a user starts them
    measure.py      has the lines of a figure take turns (`bench.turns`)
    draw.py         the PNG of a figure
    documents.py    the JSON of all runs, and the medians that page and pictures are made of
    page.py         docs/papers.md and the page of all figures, from the medians
    catalogue.py    the figures of all papers
    sovia/ emp/ datacutter/ grim/ wsdlite/
                    a folder for each paper: README.md, the figures (`__init__.py`), the programs
"""
