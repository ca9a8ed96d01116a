"""`patch()`: what it replaces, what it leaves, and how it is undone."""

import abc
import copy
import faulthandler
import logging
import os
import pickle
import signal
import socket
import sys
import types
import weakref
from collections.abc import Iterator

import pytest
from harness.hostile_peer import events
from harness.pairs import SECONDS, KernelSocket, deadline, listening, move, path_of, payload, read_exactly, until
from harness.processes import running

import fastsock
from fastsock import config, patching
from fastsock._native import os_calls

ORIGINALS = {(module, name): getattr(module, name) for module, name, _ in patching.TABLE}


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = config.active()
    with deadline(50):
        yield
    fastsock.unpatch()
    config.use(before)
    assert in_place() == ORIGINALS


def in_place() -> dict[tuple[object, str], object]:
    return {(module, name): getattr(module, name) for module, name in ORIGINALS}


@pytest.fixture
def patched() -> None:
    fastsock.patch(move_after=0)


@pytest.fixture
def ring(patched):
    """Two sockets made by the patched module, on the ring."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=SECONDS)
        far, _ = listener.accept()
    with near, far:
        far.settimeout(SECONDS)
        move(near, far)
        near.settimeout(None)
        far.settimeout(None)
        yield near, far


def test_table_is_applied_and_undone():
    assert not fastsock.is_patched()
    others = [(faulthandler, name) for name in ("enable", "register", "dump_traceback")] + [(signal, "set_wakeup_fd")]
    writes_to_numbers = {where: getattr(*where) for where in others}
    fastsock.patch()
    fastsock.patch()
    assert fastsock.is_patched()
    assert all(getattr(*where) is not original for where, original in writes_to_numbers.items())
    assert (signal.set_wakeup_fd.__module__, signal.set_wakeup_fd.__name__) == ("signal", "set_wakeup_fd")
    assert socket.socket is fastsock.socket
    assert in_place() == {(module, name): replacement for module, name, replacement in patching.TABLE}
    assert all(in_place()[name] is not original for name, original in ORIGINALS.items())
    for _ in range(2):
        fastsock.unpatch()
        assert not fastsock.is_patched()
        assert in_place() == ORIGINALS
        assert all(getattr(*where) is original for where, original in writes_to_numbers.items())


def test_isinstance_both_ways(patched):
    with KernelSocket() as old, socket.socket() as new, Shouting() as derived:
        for each in (old, new, derived):
            assert isinstance(each, KernelSocket)
            assert isinstance(each, socket.socket)
        assert not isinstance(new, Shouting)
        fastsock.unpatch()
        assert not isinstance(old, fastsock.socket)
        assert isinstance(derived, fastsock.socket)
    assert issubclass(fastsock.socket, KernelSocket)
    assert not issubclass(KernelSocket, fastsock.socket)
    for other in (object(), None, 1):
        assert not isinstance(other, fastsock.socket)


@pytest.mark.parametrize("first", ["ssl", "fastsock"])
def test_ssl_imported_before_and_after(first):
    """Whichever came first, its class is the socket class's, as `isinstance` sees it."""
    source = """
    for name in [name for name in sys.modules if name in ("ssl", "_ssl", "asyncio") or name.startswith("asyncio.")]:
        del sys.modules[name]
    if sys.argv[1] == "ssl":
        import ssl
    fastsock.patch(move_after=0)
    import ssl
    context = ssl.create_default_context()
    with context.wrap_socket(socket.socket(), server_hostname="localhost", do_handshake_on_connect=False) as sock:
        say([isinstance(sock, socket.socket), isinstance(sock, ssl.SSLSocket)])
    say([issubclass(ssl.SSLSocket, socket.socket), issubclass(socket.socket, ssl.SSLSocket)])
    say([isinstance(socket.socket(), ssl.SSLSocket), fastsock.socket in ssl.SSLSocket.__mro__])
    """
    with running(source, first) as program:
        assert program.line() == "[True, True]"
        assert program.line() == "[True, False]"
        assert program.line() == f"[False, {first == 'fastsock'}]"
        assert program.wait() == 0


def test_class_imported_before(ring):
    """`from socket import socket` before the patch: such a socket is a plain one, and a peer like any other."""
    with socket.create_server(("127.0.0.1", 0)) as listener, KernelSocket() as near:
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:
            for _ in range(100):
                near.sendall(b"plain")
                assert far.recv(5) == b"plain"
                far.sendall(b"ours")
                assert near.recv(4) == b"ours"
            assert fastsock.path_of(far).path == "tcp"


def test_methods_captured_before(patched):
    """`socket.socket.recv` and `send` taken from the class before the patch: the kernel's, on any socket. A connection
    that is used through them alone makes no operation of ours, gives no consent, and stays on kernel TCP."""
    recv, send = KernelSocket.recv, KernelSocket.send
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=SECONDS)
        far, _ = listener.accept()
        with near, far:
            for _ in range(100):
                near.sendall(b"question")
                assert recv(far, 100) == b"question"
                send(far, b"answer")
                assert near.recv(100) == b"answer"
            assert path_of(near) == path_of(far) == "tcp"


def test_late_patch_leaves_existing_sockets():
    with listening(False) as early:
        fastsock.patch(move_after=0)
        with socket.create_connection(early.getsockname()) as near, early.accept()[0] as far:
            assert type(near) is fastsock.socket
            # The stdlib's accept makes sockets of the module's class.
            move(near, far) if type(far) is fastsock.socket else far.sendall(b"x")
            assert early.fileno() >= 0


def test_sockets_go_on_after_unpatch(ring):
    near, far = ring
    fastsock.unpatch()
    near.sendall(b"still here")
    assert far.recv(10) == b"still here"
    assert path_of(near) == path_of(far) == "ring"


def test_names_imported_before_are_listed(caplog):
    early = types.ModuleType("early_bird")
    exec("from socket import socket\nfrom os import read as rd", early.__dict__)
    sys.modules["early_bird"] = early
    try:
        with caplog.at_level(logging.INFO, "fastsock"):
            fastsock.patch()
    finally:
        del sys.modules["early_bird"]
    [told] = events(caplog, "fastsock.out_of_reach")
    assert "early_bird.socket" in told
    assert "early_bird.rd" in told
    assert len(events(caplog, "fastsock.patched")) == 1


@pytest.mark.parametrize("module", ["gevent.monkey", "eventlet.patcher"])
def test_declines_after_another_patch(module, caplog, monkeypatch):
    check = "is_module_patched" if "gevent" in module else "is_monkey_patched"
    other = types.SimpleNamespace(**{check: lambda name: name == "socket"})
    monkeypatch.setitem(sys.modules, module, other)
    fastsock.patch()
    assert not fastsock.is_patched()
    assert in_place() == ORIGINALS
    [told] = events(caplog, "fastsock.declined")
    assert module in told
    monkeypatch.setitem(sys.modules, module, types.SimpleNamespace(**{check: lambda name: False}))
    fastsock.patch()
    assert fastsock.is_patched()


# ---- the module's helpers


def test_the_modules_functions(ring):
    """They look the class up by its name."""
    near, far = ring
    assert all(hasattr(socket, name) for name in socket.__all__)
    assert type(near) is type(far) is fastsock.socket  # by create_server() and create_connection()
    with socket.fromfd(near.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy_of_near:
        copy_of_near.sendall(b"by the copy")
        assert far.recv(11) == b"by the copy"
        assert path_of(copy_of_near) == "ring"
    assert socket.has_dualstack_ipv6() is True
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, listener.getsockname()[1])) as one, listener.accept()[0] as other:
                move(one, other)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_sockets_that_are_no_tcp(patched, family):
    if family == socket.AF_UNIX:
        near, far = socket.socketpair()
    else:
        near, far = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
        far.bind(("127.0.0.1", 0))
        near.connect(far.getsockname())
    with near, far:
        assert type(near) is fastsock.socket
        near.sendall(b"other")
        assert far.recv(10) == b"other"
        assert path_of(near) == "tcp"


# ---- the object


def test_pickling_and_copying_fail_as_ever(ring):
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle 'socket' object"):
            call(ring[0])


def test_repr(ring):
    near, _ = ring
    assert weakref.ref(near)() is near
    text = repr(near)
    assert text.startswith(("<fastsock.socket_class.socket fd=", "<socket.socket fd="))
    assert f"raddr={near.getpeername()}" in text
    near.close()
    assert "[closed] fd=-1" in repr(near)


LIKE_THE_STDLIBS = """
import gc, pickle, pydoc, warnings
before = repr(socket.socket), socket.socket.__module__, socket.socket.__qualname__, socket.socket.__doc__
heading = pydoc.plaintext.document(socket.socket).splitlines()[1]
fastsock.patch()
assert socket.socket is fastsock.socket
assert (repr(socket.socket), socket.socket.__module__, socket.socket.__qualname__, socket.socket.__doc__) == before
assert pydoc.plaintext.document(socket.socket).splitlines()[1] == heading, heading
assert pydoc.locate("socket.socket") is pickle.loads(pickle.dumps(socket.socket)) is socket.socket
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "unclosed <socket.socket fd=", ResourceWarning)
unraisable = []
sys.unraisablehook = unraisable.append
sock = socket.socket()
assert repr(sock).startswith("<socket.socket fd=")
del sock
gc.collect()
assert not unraisable, unraisable
fastsock.unpatch()
assert pickle.loads(pickle.dumps(fastsock.socket)) is fastsock.socket
assert (repr(socket.socket), socket.socket.__module__) == before[:2]
assert repr(fastsock.socket) == "<class 'fastsock.socket_class.socket'>"
say("like the stdlib's")
"""


def test_while_patched_the_class_shows_itself_as_the_stdlibs():
    with running(LIKE_THE_STDLIBS) as program:
        assert program.line() == "like the stdlib's"
        assert program.wait() == 0


def test_an_unclosed_socket_warns_and_ends(ring):
    near, far = ring
    duplicate = near.dup()
    near.close()
    with pytest.warns(ResourceWarning, match="unclosed"):
        del duplicate
    assert far.recv(1) == b""


class Shouting(fastsock.socket, abc.ABC):
    """Overrides two data calls, and has an abstract base."""

    def send(self, data, *args):
        return super().send(bytes(data).upper(), *args)

    def recv(self, *args):
        return super().recv(*args) + b"!"


def test_subclass_that_overrides_send_and_recv(patched):
    with socket.create_server(("127.0.0.1", 0)) as listener, Shouting() as near:
        near.connect(listener.getsockname())
        with listener.accept()[0] as far:

            def on_ring() -> bool:
                near.send(b"loud")
                assert far.recv(4) == b"LOUD"
                far.sendall(b"x")
                assert near.recv(1) == b"x!"
                return path_of(near) == "ring"

            until(on_ring, "the connection moves")
            assert on_ring()
            with near.dup() as again:
                assert type(again) is Shouting


def test_unbound_calls(ring):
    """As trio makes them."""
    near, far = ring
    assert socket.socket.send(near, b"unbound") == 7
    assert socket.socket.recv(far, 7) == b"unbound"
    with KernelSocket() as plain, pytest.raises(TypeError):
        socket.socket.recv(plain, 1)


# ---- calls of os on descriptors


def test_os_read_and_write(ring):
    near, far = ring
    assert os.write(near.fileno(), b"by number") == 9
    assert os.read(far.fileno(), 100) == b"by number"
    assert os.writev(far.fileno(), [b"scattered", b" and ", b"gathered"]) == 22
    parts = [bytearray(9), bytearray(20)]
    assert os.readv(near.fileno(), parts) == 22
    assert bytes(parts[0] + parts[1][:13]) == b"scattered and gathered"
    os.set_blocking(near.fileno(), False)
    with pytest.raises(BlockingIOError):
        os.read(near.fileno(), 1)


def test_os_readinto(ring):
    """os.readinto is there from Python 3.14 on; ours behaves so before that too."""
    readinto = getattr(os, "readinto", os_calls.readinto)
    assert readinto is os_calls.readinto
    near, far = ring
    os.write(near.fileno(), b"by number")
    buffer = bytearray(100)
    assert readinto(far.fileno(), memoryview(buffer)[10:]) == 9
    assert buffer[10:19] == b"by number"
    near.sendall(b"abcdef")
    assert [readinto(far.fileno(), memoryview(buffer)[:4]), bytes(buffer[:4])] == [4, b"abcd"]
    assert [readinto(far.fileno(), memoryview(buffer)[:4]), bytes(buffer[:2])] == [2, b"ef"]
    os.set_blocking(far.fileno(), False)
    with pytest.raises(BlockingIOError):
        readinto(far.fileno(), buffer)
    near.close()
    assert readinto(far.fileno(), buffer) == 0


def test_os_sendfile(ring, tmp_path):
    near, far = ring
    (tmp_path / "file").write_bytes(payload(50_000))
    with open(tmp_path / "file", "rb") as file:
        assert os.sendfile(near.fileno(), file.fileno(), 10, 20_000) == 20_000
        assert read_exactly(far, 20_000) == payload(50_000)[10:20_010]
        assert os.sendfile(near.fileno(), file.fileno(), None, 100) == 100
        assert file.read(5) == payload(50_000)[100:105]
        assert os.sendfile(near.fileno(), file.fileno(), 50_000, 10) == 0
        assert read_exactly(far, 100) == payload(50_000)[:100]


def test_os_dup_and_close(ring):
    near, far = ring
    fd = os.dup(near.fileno())
    near.close()
    os.write(fd, b"by the duplicate")
    assert far.recv(16) == b"by the duplicate"
    os.close(fd)
    assert far.recv(1) == b""


def test_os_dup2(ring, tmp_path):
    near, far = ring
    with open(tmp_path / "file", "wb") as file:
        fd = os.dup(file.fileno())
    assert os.dup2(near.fileno(), fd) == fd
    assert not os.get_blocking(fd) or os.get_inheritable(fd)
    os.write(fd, b"over a file")
    assert far.recv(11) == b"over a file"
    with open(tmp_path / "other", "wb") as file:
        os.dup2(file.fileno(), fd)
    os.write(fd, b"a file again")
    assert (tmp_path / "other").read_bytes() == b"a file again"
    os.close(fd)
    near.sendall(b"goes on")
    assert far.recv(7) == b"goes on"


def test_dup2_over_the_last_descriptor_is_a_close(ring):
    near, far = ring
    fd = near.detach()
    exit_, entry = os.pipe()
    os.dup2(entry, fd)
    assert far.recv(1) == b""
    os.write(fd, b"pipe")
    assert os.read(exit_, 4) == b"pipe"
    for each in (fd, exit_, entry):
        os.close(each)


def test_a_class_that_has_functions_of_os_as_attributes_does_not_bind_them(ring):
    """Builtin functions are no methods, and a program may count on that."""

    class System:
        write, read, dup, close = os.write, os.read, os.dup, os.close

    near, far = ring
    system = System()
    assert system.write(near.fileno(), b"through an attribute") == 20
    assert system.read(far.fileno(), 100) == b"through an attribute"
    system.close(system.dup(far.fileno()))
    assert path_of(near) == path_of(far) == "ring"


def test_plain_descriptors_are_as_ever(patched, tmp_path):
    exit_, entry = os.pipe()
    assert os.write(entry, b"pipe") == 4
    assert os.read(exit_, 10) == b"pipe"
    assert os.writev(entry, [b"a", b"b"]) == 2
    assert os.readv(exit_, [bytearray(1), bytearray(1)]) == 2
    copy_of = os.dup(entry)
    os.close(entry)
    assert os.write(copy_of, b"x") == 1
    os.dup2(exit_, copy_of)
    os.close(copy_of)
    os.close(exit_)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(exit_, 1)
    with pytest.raises(TypeError):
        os.read("1", 1)
    with pytest.raises(TypeError):
        os.close([])
    with open(tmp_path / "a", "wb+") as file, open(tmp_path / "b", "wb") as other:
        file.write(b"contents")
        file.flush()
        assert os.sendfile(other.fileno(), file.fileno(), 0, 8) == 8
    assert (tmp_path / "b").read_bytes() == b"contents"


# ---- other processes


METHODS = {
    "recv": (1,),
    "recv_into": (bytearray(1),),
    "recvfrom": (1,),
    "recvfrom_into": (bytearray(1),),
    "recvmsg": (1,),
    "recvmsg_into": ([bytearray(1)],),
    "send": (b"x",),
    "sendall": (b"x",),
    "sendto": (b"x", ("127.0.0.1", 1)),
    "sendmsg": ([b"x"],),
    "accept": (),
    "connect": (("127.0.0.1", 1),),
    "connect_ex": (("127.0.0.1", 1),),
    "fileno": (),
    "settimeout": (1.0,),
    "setblocking": (False,),
    "setsockopt": (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "getsockopt": (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    "_real_close": (),
    "__del__": (),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_class_refuse_other_objects(name):
    """They are native and know where the slots of their own sockets lie."""
    method = getattr(fastsock.socket, name)
    with KernelSocket() as other:
        for anything in (other, object(), None):
            with pytest.raises(TypeError, match=r"requires a 'fastsock\.socket' object"):
                method(anything, *METHODS[name])
        assert other.gettimeout() is None
