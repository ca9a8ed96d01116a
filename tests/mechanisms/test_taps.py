"""What an observer sees of the bytes of moved connections."""

from __future__ import annotations

import itertools

import pytest
from harness.observing import ROUNDS, TALK, do, watched
from harness.pairs import pattern, until
from harness.processes import running

from fastsock.tools import taps, tcpdump
from fastsock.tools.pcapng import ACK, FIN, PSH, RST, SYN
from fastsock.tools.taps import Packet

pytestmark = pytest.mark.usefixtures("bounded")


def stream(packets: list[Packet], port: int) -> bytes:
    """The bytes that the end with this port has sent, which must be without gaps."""
    own = [each for each in packets if each.flow.ends[each.side][1] == port and each.length]
    for before, after in itertools.pairwise(own):
        assert after.seq == before.seq + before.length
    return b"".join(each.data for each in own)


def test_both_directions_come_in_order_and_once():
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, ROUNDS.format(50, "b'GET %d\\r\\n' % i", "b'+%d\\r\\n' % i"))
            packets = list(seen.packets(last=True))
    assert stream(packets, near) == b"".join(b"GET %d\r\n" % i for i in range(50))
    assert stream(packets, far) == b"".join(b"+%d\r\n" % i for i in range(50))
    assert [each.flow.ends[each.side][1] for each in packets if each.length] == [near, far] * 50
    assert {str(address) for each in packets for address, _ in each.flow.ends} == {"127.0.0.1"}
    asked, answered = packets[0], packets[1]
    assert asked.comment.startswith(f"pid {program.pid} ")
    assert asked.seq + asked.length == answered.ack
    assert {each.flags for each in packets} == {PSH | ACK}
    assert sorted(each.when for each in packets) == [each.when for each in packets]


def test_many_bytes_go_round_the_page():
    step, steps = 1 << 20, 12
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid) as seen:
            packets = []
            do(program, "reads = lambda: Task(lambda: read_exactly(far, 1 << 20))")
            for _ in range(steps):
                do(program, "task = reads(); near.sendall(pattern(1 << 20)); task.join()")
                packets += seen.packets(last=True)
            assert seen.lost() == 0
    assert stream(packets, near) == pattern(step) * steps


def test_a_part_of_each_packet_is_kept_and_all_bytes_count():
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid, snaplen=7) as seen:
            do(program, "task = Task(lambda: read_exactly(far, 1 << 22)); near.sendall(pattern(1 << 22)); task.join()")
            packets = list(seen.packets(last=True))
            assert seen.lost() == 0
    assert sum(each.length for each in packets) == 1 << 22
    assert {len(each.data) for each in packets} == {7}
    assert packets[0].data == pattern(1 << 22)[:7]
    stream(packets, near)


def test_an_observer_that_does_not_read_loses_packets_and_holds_nobody_up():
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, "task = Task(lambda: read_exactly(far, 1 << 24)); near.sendall(pattern(1 << 24)); task.join()")
            packets = list(seen.packets(last=True))
            process = next(iter(seen.processes.values()))
            assert process.tap.dropped == process.dropped == seen.lost() > 100
            do(program, "near.sendall(b'and again'); far.recv(99)")
            packets += seen.packets(last=True)
    shown = [each for each in packets if each.flow.ends[each.side][1] == near]
    assert shown[-1].data == b"and again"
    assert shown[-1].seq - shown[0].seq == 1 << 24  # a gap is one
    assert sum(each.length for each in shown) < 1 << 24


@pytest.mark.parametrize(
    ("ends", "letters"),
    [
        ("near.close(); far.recv(1); far.close()", "FF"),
        (
            "near.shutdown(socket.SHUT_WR); far.recv(1); far.sendall(b'rest'); near.recv(9); far.close(); near.close()",
            "FPF",
        ),
        ("near.sendall(b'unread'); far.close(); near.close()", "PR"),
    ],
    ids=["closed", "half-closed", "reset"],
)
def test_a_connection_that_begins_and_ends(ends: str, letters: str):
    source = """
        fastsock.patch()
        with make_pair("ring"):
            say("is there")
            told()
            kept = make_pair("ring")
            near, far = kept.__enter__()
            near.sendall(b"hello")
            far.recv(9)
            exec(sys.argv[1])
            say("done")
            told()
    """
    with running(source, ends) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            assert program.line() == "done"
            packets = list(seen.packets(last=True))
            assert not seen.flows
    shown = "".join(tcpdump.LETTERS[each.flags & (FIN | RST | PSH)] for each in packets)
    assert shown.endswith(f"P{letters}")
    last = [each for each in packets if each.flags & FIN and not each.flags & RST]
    assert all(
        each.seq == max(other.seq + other.length for other in packets if other.side == each.side) for each in last
    )


def test_the_handshake_of_a_connection_that_is_seen_from_its_first_byte():
    source = """
        fastsock.patch(_meeting_ms=2000)
        def both():
            listener = listening()
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
            reads = Task(lambda: far.recv(9))
            near.sendall(b"first")
            reads.join()
            return near, far
        kept = [both()]
        say("is there")
        told()
        kept.append(both())
        say(path_of(kept[-1][0]))
        told()
    """
    with running(source) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            assert program.line() == "ring"
            packets = list(seen.packets(last=True))
    assert [(each.flags, each.seq, each.ack) for each in packets[:3]] == [(SYN, 0, 1), (SYN | ACK, 0, 1), (ACK, 1, 1)]
    assert [(each.flags, each.seq, each.data) for each in packets[3:]] == [(PSH | ACK, 1, b"first")]
    client, server = packets[0].side, 1 - packets[0].side
    ports = [end[1] for end in packets[0].flow.ends]
    assert ports[client] > ports[server]  # (nothing else says who has connected)


def test_a_unix_stream(tmp_path):
    source = """
        fastsock.patch(unix_streams=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[1])
        listener.listen()
        near = socket.socket(socket.AF_UNIX)
        near.connect(sys.argv[1])
        far, _ = listener.accept()
        follows = threading.Thread(target=settle, args=(far,), kwargs=dict(leads=False), daemon=True)
        follows.start()
        settle(near)
        follows.join()
        say("moved")
        told()
        near.sendall(b"question"); far.recv(99); far.sendall(b"answer"); near.recv(99)
        say("done")
        told()
    """
    path = str(tmp_path / "listener")
    with running(source, path) as program:
        program.line()
        with watched(program.pid) as seen:
            program.tell()
            program.line()
            packets = list(seen.packets(last=True))
    assert [each.data for each in packets] == [b"question", b"answer"]
    answered = packets[1]
    address, port = answered.flow.ends[answered.side]
    assert (str(address), answered.flow.names[answered.side]) == ("127.85.0.1", path)
    assert 1024 <= port < 32768
    assert f"{path} (unix stream)" in packets[0].comment
    assert f"UNIX {path}.{port} > -." in tcpdump.line(answered)


def test_only_the_port_that_is_asked_for():
    source = """
        fastsock.patch()
        with make_pair("ring") as one, make_pair("ring") as two:
            say(one.near.getsockname()[1])
            told()
            for near, far in one, two:
                near.sendall(b"x"); far.recv(9)
            say("done")
            told()
    """
    with running(source) as program:
        port = int(program.line())
        with watched(program.pid, port=port) as seen:
            program.tell()
            program.line()
            packets = list(seen.packets(last=True))
    assert [port in (each.flow.ends[0][1], each.flow.ends[1][1]) for each in packets] == [True]


def test_a_forked_child_goes_on_in_the_page_of_its_parent():
    with running(TALK) as program:
        near, far = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'parent'); far.recv(9)")
            do(program, "pid = os.fork(); pid or (far.sendall(b'child'), os._exit(0)); near.recv(9); os.wait()")
            packets = list(seen.packets(last=True))
    assert stream(packets, near) == b"parent"
    assert stream(packets, far) == b"child"


def test_the_end_of_a_process_is_the_end_of_its_connections():
    with running(TALK) as program:
        program.line()
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'last words'); far.recv(99)")
            program.process.kill()
            program.wait()
            seen.searched = 0
            seen.search()
            packets = list(seen.packets())
            assert not seen.processes
            assert not seen.flows
    assert packets[0].data == b"last words"
    assert [each.comment for each in packets if each.flags & FIN] == [f"pid {program.pid} has ended"] * 2


def test_two_processes_show_each_byte_once():
    server = """
        fastsock.patch()
        listener = listening()
        say(listener.getsockname()[1])
        sock, _ = listener.accept()
        settle(sock, leads=False)
        while data := sock.recv(99):
            sock.sendall(data.upper())
    """
    client = """
        fastsock.patch()
        sock = connect(int(sys.argv[1]))
        settle(sock)
        say("moved")
        told()
        for i in range(20):
            sock.sendall(b"%d a" % i); sock.recv(99)
        sock.close()
        say("done")
        told()
    """
    with running(server) as far, running(client, port := int(far.line())) as near:
        near.line()
        with watched(far.pid) as seen:
            seen.pids = {far.pid, near.pid}
            seen.searched = 0
            seen.search()
            until(lambda: [each.tap.answer for each in seen.processes.values()] == [taps.SHOWS] * 2, "both do")
            near.tell()
            near.line()
            far.wait()
            packets = list(seen.packets(last=True))
    assert stream(packets, port) == b"".join(b"%d A" % i for i in range(20))
    assert [each.flow.ends[each.side][1] == port for each in packets if each.length] == [False, True] * 20
    assert len([each for each in packets if each.flags & FIN]) == 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_bytes_that_event_loops_send_and_receive(loop: str):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    source = """
        import asyncio, importlib
        fastsock.patch()

        async def answers(reader, writer):
            while line := await reader.readline():
                writer.write(line.upper())

        async def main():
            server = await asyncio.start_server(answers, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sock = writer.get_extra_info("socket")
            while fastsock.path_of(writer.transport).path != "ring":
                writer.write(b"move\\n")
                await reader.readline()
            say(port)
            await asyncio.get_running_loop().run_in_executor(None, told)
            for i in range(20):
                writer.write(b"line %d\\n" % i)
                await reader.readline()
            say("done")
            await asyncio.get_running_loop().run_in_executor(None, told)

        importlib.import_module(sys.argv[1]).run(main())
    """
    with running(source, loop) as program:
        port = int(program.line())
        with watched(program.pid) as seen:
            program.tell()
            assert program.line() == "done"
            packets = list(seen.packets(last=True))
    assert stream(packets, port).endswith(b"".join(b"LINE %d\n" % i for i in range(20)))


def test_a_connection_that_goes_back_to_the_kernel():
    """What it sends there is not seen, and its end is not made up."""
    with running(TALK) as program:
        near, _ = map(int, program.line().split())
        with watched(program.pid) as seen:
            do(program, "near.sendall(b'on the ring'); far.recv(99)")
            do(program, "near.sendall(b'unread'); leave(far)")
            do(program, "near.sendall(b'in the kernel'); near.close(); read_to_eof(far); far.close()")
            packets = list(seen.packets(last=True))
            assert not seen.flows
    assert stream(packets, near) == b"on the ringunread"
    assert {each.flags for each in packets} == {PSH | ACK}
