"""The figures of all papers, in the order of the page."""

from __future__ import annotations

import attrs

from research import datacutter, emp, grim, sovia, wsdlite
from research.figures import Figure


@attrs.frozen
class Paper:
    name: str
    title: str
    figures: tuple[Figure, ...]


PAPERS = (
    Paper("sovia", "SOVIA: sockets over VIA (Kim, Kim, Jung)", sovia.FIGURES),
    Paper("emp", "Sockets over EMP (Balaji, Shivam, Wyckoff, Panda)", emp.FIGURES),
    Paper("datacutter", "SocketVIA and DataCutter (Balaji and others)", datacutter.FIGURES),
    Paper("grim", "GRIM: multicast and sockets (a thesis' chapter 8)", grim.FIGURES),
    Paper("wsdlite", "WSDLite (Speight, Shafi, Bennett)", wsdlite.FIGURES),
)

FIGURES = tuple(figure for paper in PAPERS for figure in paper.figures)


def chosen(names: list[str]) -> tuple[Figure, ...]:
    """Figures by the name of a paper, of a figure, or of both: "sovia", "sovia-fig7". ValueError for another."""
    known = {paper.name: paper.figures for paper in PAPERS} | {figure.full_name: (figure,) for figure in FIGURES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no figure {unknown[0]}; there are {', '.join(known)}")
    wanted = [figure for name in names or [paper.name for paper in PAPERS] for figure in known[name]]
    return tuple(dict.fromkeys(wanted))
