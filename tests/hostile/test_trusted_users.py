"""Two users who are to share memory must trust each other; which of the ends has which part does not matter."""

import json
import os

import pytest
from harness.processes import running

from fastsock.path_events import Reason

pytestmark = [
    pytest.mark.usefixtures("bounded"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user"),
]

ROOT, ALICE, BOB = 0, 50001, 50002

UNIX = {"FASTSOCK_UNIX_STREAMS": "1"}

USERS = """
import json
UNDECIDED = {"too few operations", "looking for the peer", "returned to the kernel, or nothing sent yet"}
UNDECIDED |= {"sending", "receiving"}
def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
def standing(sock):
    return [path_of(sock), fastsock.path_of(sock).reason]
if sys.argv[3:] == ["unix"]:
    def listening():
        sock = fastsock.socket(socket.AF_UNIX)
        sock.bind("")
        sock.listen()
        return sock
    def connect(name, publishes=None):
        sock = fastsock.socket(socket.AF_UNIX)
        sock.connect("\\0" + name)
        return sock
    def address(listener):
        return listener.getsockname()[1:].decode()
else:
    def connect(port, publishes=None, over_tcp=connect):
        return over_tcp(int(port), publishes)
    def address(listener):
        return listener.getsockname()[1]
def line(sock):
    said = b""
    while not said.endswith(b"\\n"):
        said += sock.recv(1000)
    return said
become(int(sys.argv[1]))
"""

SERVER = (
    USERS
    + """
with listening() as listener:
    say(address(listener))
    ends = [listener.accept()[0] for _ in range(2)]
def serve(end):
    while end.recv(1):
        end.sendall(json.dumps(standing(end)).encode() + b"\\n")
threads = [threading.Thread(target=serve, args=(end,)) for end in ends]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
)

CLIENT = (
    USERS
    + """
ends = [connect(sys.argv[2], publishes) for publishes in (True, False)]
def both(end):
    end.sendall(b"?")
    time.sleep(0.001)
    return json.loads(line(end)), standing(end)
def decided():
    said = [both(end) for end in ends]
    return not UNDECIDED & {reason for end in said for _, reason in end}
until(decided, "both paths are decided")
say(json.dumps([standing for end in ends for standing in both(end)]))
"""
)

MEET = ["ring", "both directions"]
APART = ["tcp", Reason.UNTRUSTED]

PAIRS = [  # the server's user and its `trust`, the client's, and where that leads
    (ALICE, f"user,{BOB}", BOB, f"user,{ALICE}", MEET),
    (ALICE, f"{BOB}", BOB, f"{ALICE}", MEET),
    (ALICE, "any", BOB, f"{ALICE}", MEET),
    (ALICE, "user", BOB, f"user,{ALICE}", APART),
    (ALICE, "any", BOB, "user", APART),
    (ALICE, f"user,{BOB}", BOB, f"user,{BOB}", APART),
    (ROOT, "user", ALICE, "user", APART),  # root does not trust all who trust root
    (ROOT, f"user,{ALICE}", ALICE, "user", MEET),
    (ROOT, f"user,{ALICE}", ALICE, f"{ALICE}", APART),  # who names users names root, too
    (ROOT, f"{ALICE}", ALICE, "root", MEET),
    (ALICE, f"{ALICE}", ALICE, "user", MEET),
    (ALICE, f"{BOB}", ALICE, f"{BOB}", APART),  # and one's own
]


@pytest.mark.parametrize("streams", ["tcp", "unix"])
@pytest.mark.parametrize(("user", "trust", "other", "others_trust", "path"), PAIRS)
def test_users_meet_who_trust_each_other(
    user: int, trust: str, other: int, others_trust: str, path: list[str], streams: str
) -> None:
    """As publisher and as seeker; and both ends say why if they do not."""
    with (
        running(SERVER, user, "", streams, FASTSOCK_TRUST=trust, **UNIX) as server,
        running(CLIENT, other, server.line(), streams, FASTSOCK_TRUST=others_trust, **UNIX) as client,
    ):
        assert json.loads(client.line()) == [path] * 4


FALLS_BACK = (
    USERS
    + """
with listening() as listener:
    say(address(listener))
    end = listener.accept()[0]
settle(end, leads=False)
told()
cookie = end.getsockopt(socket.SOL_SOCKET, 57, 8)
with taken_back(end) as kernel:
    say(len(read_exactly(kernel, 50000)) if kernel.getsockopt(socket.SOL_SOCKET, 57, 8) == cookie else "a bridge")
    kernel.sendall(b"kernel")
"""
)

SENDS = (
    USERS
    + """
end = connect(sys.argv[2])
settle(end)
end.sendall(bytes(50000))
say("sent")
say(end.recv(10))
"""
)


@pytest.mark.parametrize("streams", ["tcp", "unix"])
def test_a_connection_of_two_users_falls_back_with_what_lies_unread(streams: str) -> None:
    """The peer sends it again. (Without its help a bridge process would carry the connection.)"""
    with (
        running(FALLS_BACK, ALICE, "", streams, FASTSOCK_TRUST=f"{BOB}", **UNIX) as server,
        running(SENDS, BOB, server.line(), streams, FASTSOCK_TRUST=f"{ALICE}", **UNIX) as client,
    ):
        assert client.line() == "sent"
        server.tell()
        assert (server.line(), client.line()) == ("50000", "b'kernel'")


STAYS = (
    USERS
    + """
with listening() as listener:
    say(address(listener))
    end = listener.accept()[0]
settle(end, leads=False)
told()
with taken_back(end) as kernel:
    said = struct.unpack("3i", kernel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    say([said[1], len(read_exactly(kernel, 50000)), kernel.recv(1)])
    kernel.sendall(b"an answer")
"""
)

SHUTS = (
    USERS
    + """
end = connect(sys.argv[2])
settle(end)
end.sendall(bytes(50000))
end.shutdown(socket.SHUT_WR)
say("sent")
say(end.recv(10))
"""
)


def test_no_bridge_makes_one_user_look_like_another() -> None:
    """What the socket says of the other end is the kernel's word, and a bridge would have this process's user. So where
    the peer cannot help, the connection stays on the ring."""
    with (
        running(STAYS, ALICE, "", "unix", FASTSOCK_TRUST=f"{BOB}", **UNIX) as server,
        running(SHUTS, BOB, server.line(), "unix", FASTSOCK_TRUST=f"{ALICE}", **UNIX) as client,
    ):
        assert client.line() == "sent"
        server.tell()
        assert server.line() == f"[{BOB}, 50000, b'']"
        assert client.line() == "b'an answer'"


APART_HERE = """
    import ctypes
    user = sys.argv[1]
    if ctypes.CDLL(None).unshare(0x10000000):
        say("may not make a user namespace")
        raise SystemExit
    if user:
        with open("/proc/self/uid_map", "w") as numbers:
            numbers.write(f"{user} 0 1")
    with listening() as listener, connect(listener.getsockname()[1]) as near, listener.accept()[0] as far:
        def reasons():
            for one, other in ((near, far), (far, near)):
                one.sendall(b"?")
                other.recv(1)
            return {fastsock.path_of(sock).reason for sock in (near, far)}
        decided = {"both directions", "peer belongs to another user"}
        say(until(lambda: " ".join(reasons() & decided), "a path is decided"))
"""


@pytest.mark.parametrize(
    ("number", "trust", "reason"),
    [
        ("1000", "user", "both directions"),
        ("1000", "1000", "both directions"),
        *((number, trust, Reason.UNTRUSTED) for number in ("", "65534") for trust in ("user", "any", "65534")),
    ],
)
def test_users_without_a_number_are_trusted_by_nobody(number: str, trust: str, reason: str) -> None:
    """All users whom a user namespace has no number for look like 65534 there, so who has it may be anybody."""
    with running(APART_HERE, number, FASTSOCK_TRUST=trust) as program:
        said = program.line()
    if said == "may not make a user namespace":
        pytest.skip(said)
    assert said == reason
