"""Where fastsock does something else than kernel TCP, and why. Each entry must really differ, or the test fails."""

from .comparison import Difference

DIFFERENCES = (
    Difference(
        name="a receive with a timeout outlives the socket object",
        where=r"call=recv-timeout event=near\.(close|reset|leave|child_goes_on)",
        tcp=r"(after it|far has \w+): recv (EBADF|blocked)",
        here=r"(after it|far has \w+): recv (data|blocked|eof|EBADF)",
        reason="On TCP, Python polls the number, and then finds that it is closed: EBADF, and the bytes are "
        "lost. Here the call belongs to the connection, as one without a timeout does everywhere.",
    ),
    Difference(
        name="a poll returns when another thread closes its number",
        where=r"path=(met|out|in|ring) .* call=poll event=near\.(close|reset|child_goes_on)",
        tcp=r"after it: poll blocked",
        here=r"after it: poll none",
        reason="In the kernel the poll waits on, and keeps the socket open until something comes. Here it returns with "
        "POLLNVAL, and the close ends the connection at once.",
    ),
    Difference(
        name="a poller does not see that a killed peer had bytes unread",
        where=r"event=(near|far)\.killed",
        tcp=r"after it: poll IN\|ERR\|HUP|(near|far) polls: IN\|OUT\|(ERR\|)?HUP\|RDHUP",
        here=r"after it: poll IN(\|HUP)?|(near|far) polls: IN\|OUT\|RDHUP",
        reason="In docs/limitations.md: the bytes lay in the ring, so that the kernel saw a FIN, and no RST.",
    ),
    Difference(
        name="sends to a killed peer are taken",
        where=r"event=(near|far)\.killed",
        tcp=r"(near|far) sends to nobody: (EPIPE|ECONNRESET)",
        here=r"(near|far) sends to nobody: (ok|EAGAIN|EPIPE)",
        reason="In docs/limitations.md: the first send draws the RST that the unread bytes would have drawn.",
    ),
    Difference(
        name="the end of a full direction arrives at once",
        where=r"out=\w+/us in=full/peer|out=full/us in=\w+/peer|in=full/peer call=sendall event=far\.(cl|res|kil)",
        tcp=r"event: ok|after it: sendall ECONNRESET",
        here=r"event: ENOTCONN|after it: sendall EPIPE",
        reason="On TCP the FIN waits behind the bytes: until it has arrived shutdown succeeds, and a reset that "
        "overtakes it is ECONNRESET. Here the end is told by the kernel's FIN and the ring's, which no bytes hold up: "
        "a shutdown behind both ends fails, and a reset is EPIPE, as on TCP where there was room.",
    ),
    Difference(
        name="the way back draws the reset first",
        where=r"out=\w+/us in=\w+/us call=none event=(near|far)\.leave",
        tcp=r"far sends: (ok|EAGAIN)|far polls: IN\|OUT\|ERR\|HUP\|RDHUP",
        here=r"far sends: EPIPE|far polls: IN\|OUT\|(HUP\|)?RDHUP",
        reason="Near has shut both its directions. What far sends draws a reset, on TCP its next bytes, here "
        "the byte by which the leaver asks.",
    ),
    Difference(
        name="behind a bridge a close looks like a half-close",
        where=r"in=\w+/peer call=none event=near\.leave",
        tcp=r"near sends to nobody: (EPIPE|ECONNRESET)|near polls: \S+",
        here=r"near sends to nobody: ok|near polls: \S+",
        reason="In docs/limitations.md: a peer that has ended its stream cannot help, so a process carries "
        "the connection.",
    ),
    Difference(
        name="a reset does not cross a bridge whose end has shut its stream",
        where=r"in=waiting/us call=none event=near\.leave",
        tcp=r"near reads: part, then ECONNRESET",
        here=r"near reads: part, then eof",
        reason="Near has shut both its directions with bytes unread, which only a bridge can keep for it. The reset "
        "that far's next bytes draw ends the bridge's own connection; near has had all that came before.",
    ),
    Difference(
        name="an end that leaves has room in the kernel",
        where=r"path=(met|in|out) out=full/open .* call=(sendall|both) event=(near|far)\.leave",
        tcp=r"after it: sendall blocked",
        here=r"after it: sendall done",
        reason="What did not fit into the ring fits into the kernel's buffers, which were widened.",
    ),
)

FAULTS: tuple[Difference, ...] = ()
"""Faults of the code as it is: an entry goes when its fault is mended. What a fault leads to is not looked at."""

OF_UNIX_STREAMS = (
    Difference(
        name="a sendall that has done a part leaves no error",
        where=r"path=ring out=full/open .* call=(sendall|both) event=far\.(close|reset|killed)",
        tcp=r"after it: (sendall|recv) ECONNRESET",
        here=r"after it: (sendall EPIPE|recv eof)",
        reason="In the kernel the call has done nothing, and has the error. Here the ring took its first bytes: the "
        "call that has done a part takes the error, as in the kernel, and the next one fails.",
    ),
    Difference(
        name="a sendall is done as its peer is killed",
        where=r"path=(met|in) out=full/open .* call=(sendall|both) event=far\.killed",
        tcp=r"after it: sendall (ECONNRESET|EPIPE)",
        here=r"after it: sendall done",
        reason="In docs/limitations.md, as on TCP: sends to a killed peer are taken. The kernel gives up what the peer "
        "had not read, so that the direction is empty, and may move.",
    ),
    Difference(
        name="the first send behind a bridge is taken",
        where=r"in=\w+/us call=none event=(near|far)\.leave",
        tcp=r"(near sends to nobody|far sends): EPIPE",
        here=r"(near sends to nobody|far sends): ok",
        reason="Near has shut a direction with bytes unread, which only a bridge can keep for it. As on TCP, that "
        "takes what is sent until it finds that nobody reads.",
    ),
)
"""What there is beside them on stream sockets of AF_UNIX."""

IN_SEQUENCES = (
    Difference(
        name="a shutdown behind a killed peer succeeds",
        where=r"kind=(ring|midstream) peer=killed",
        tcp=r"shutdown ENOTCONN",
        here=r"shutdown ok",
        reason="In docs/limitations.md: what the peer left unread, or what was sent to it afterwards, lay in the ring, "
        "so that the kernel saw a FIN, and no RST.",
    ),
    Difference(
        name="sends to a killed peer are taken",
        where=r"kind=(ring|midstream) peer=killed",
        tcp=r"(send|sendall) (EPIPE|ECONNRESET)",
        here=r"(send|sendall) done",
        reason="In docs/limitations.md: the first send draws the RST that the unread bytes would have drawn.",
    ),
    Difference(
        name="a long send to a killed peer is told of a reset",
        where=r"kind=(ring|midstream) peer=killed",
        tcp=r"sendall EPIPE",
        here=r"sendall ECONNRESET",
        reason="What the ring took of it before anybody looked at the kernel connection counts as unread by the peer.",
    ),
    Difference(
        name="bytes sent to a killed peer count as unread by it",
        where=r"kind=(ring|midstream) peer=killed .*drawn",
        tcp=r"(read|recv) eof",
        here=r"(read|recv) ECONNRESET",
        reason="In docs/limitations.md: they were taken by the ring before anybody looked at the kernel connection. "
        "When it was that the peer died nobody can tell afterwards.",
    ),
)
"""The same of `conversation.py`, whose words for where they are stand in `Conversation.allows`."""
