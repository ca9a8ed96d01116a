"""An empty remote procedure, in four systems that know nothing of fastsock (SOVIA, section 5.4).

The argument is a string, or there is none for a size of 0; the procedure returns an integer.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.warmup import Address, Order
from bench.worker import BenchError, Report, Role
from research.loops import calls, moving, offer, offered

ANSWER = 42
HOST = "127.0.0.1"
THRIFT = """
service Empty {
    i32 nothing(),
    i32 argument(1: string text),
}
"""
PROGRAM, VERSION = 0x20000042, 1  # ONC RPC: a number of the range that sites give out themselves (RFC 5531, 8.1)

Serving = tuple[int, Callable[[], None]]  # the port, and what ends the server
Client = tuple[Callable[[], Any], Callable[[], None]]  # one call, and what ends the client


class Procedures:
    def nothing(self) -> int:
        return ANSWER

    def argument(self, text: str) -> int:
        return ANSWER


def in_thread(serve: Callable[[], Any]) -> None:
    threading.Thread(target=serve, daemon=True).start()


# --- Apache Thrift, by thriftpy2 ----------------------------------------------------------------------------


def thrift_service() -> Any:
    import thriftpy2

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "empty.thrift")
        path.write_text(THRIFT)
        return thriftpy2.load(str(path), module_name="empty_thrift").Empty


def serve_thrift() -> Serving:
    from thriftpy2.rpc import make_server

    with socket.socket() as probe:  # it wants a number
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    server = make_server(thrift_service(), Procedures(), HOST, port, client_timeout=60_000)
    server.daemon = True
    server.trans.listen()
    server.trans.listen = lambda: None  # it is listening before the client is told
    in_thread(server.serve)
    return port, server.close


def call_thrift(port: int, text: str) -> Client:
    from thriftpy2.rpc import make_client

    client = make_client(thrift_service(), HOST, port, timeout=60_000)
    return (lambda: client.argument(text)) if text else client.nothing, client.close


# --- RPyC ---------------------------------------------------------------------------------------------------


def serve_rpyc() -> Serving:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Service(rpyc.Service):  # type: ignore[misc]
        exposed_nothing = Procedures.nothing
        exposed_argument = Procedures.argument

    server = ThreadedServer(Service, hostname=HOST, port=0)
    in_thread(server.start)
    while not server.active:  # listening, from here on
        time.sleep(0.001)
    return server.port, server.close


def call_rpyc(port: int, text: str) -> Client:
    import rpyc

    connection = rpyc.connect(HOST, port)
    nothing, argument = connection.root.nothing, connection.root.argument
    return (lambda: argument(text)) if text else nothing, connection.close


# --- XML-RPC, of the standard library, with kept-alive connections --------------------------------------------


def serve_xmlrpc() -> Serving:
    from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

    class Handler(SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1"

    server = SimpleXMLRPCServer((HOST, 0), Handler, logRequests=False)
    server.register_instance(Procedures())
    in_thread(server.serve_forever)
    return server.server_address[1], lambda: None  # `shutdown` would wait for a connection that is kept alive


def call_xmlrpc(port: int, text: str) -> Client:
    from xmlrpc.client import ServerProxy

    client = ServerProxy(f"http://{HOST}:{port}/")
    return (lambda: client.argument(text)) if text else client.nothing, client("close")


# --- ONC RPC over TCP with record marks (RFC 5531), by sunrpc --------------------------------------------------


def sunrpc_module() -> ModuleType:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it imports xdrlib
        import sunrpc
    return sunrpc  # type: ignore[no-any-return]


def serve_onc() -> Serving:
    sunrpc = sunrpc_module()
    from sunrpc.server import TCPServer
    from sunrpc.types import RpcInt, RpcStr

    class Server(TCPServer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(HOST, 0, PROGRAM, VERSION)
            self.add_method(1, self.nothing)
            self.add_method(2, self.argument)

        @sunrpc.server.rpc_server_obtain()  # type: ignore[untyped-decorator]
        @sunrpc.server.rpc_server_return(RpcInt)  # type: ignore[untyped-decorator]
        def nothing(self) -> list[int]:
            return [ANSWER]

        @sunrpc.server.rpc_server_obtain(RpcStr)  # type: ignore[untyped-decorator]
        @sunrpc.server.rpc_server_return(RpcInt)  # type: ignore[untyped-decorator]
        def argument(self, text: str) -> list[int]:
            return [ANSWER]

    server = Server()
    server.bind()
    server.sock.listen()  # before the client is told
    in_thread(server.listen)
    return server.port, lambda: None


def call_onc(port: int, text: str) -> Client:
    sunrpc = sunrpc_module()
    from sunrpc.client import TCPClient
    from sunrpc.types import RpcInt, RpcStr

    class Caller(TCPClient):  # type: ignore[misc]
        @sunrpc.client.rpc_client_send(1)  # type: ignore[untyped-decorator]
        @sunrpc.client.rpc_client_obtain(RpcInt)  # type: ignore[untyped-decorator]
        def nothing(self, answer: int) -> int:
            return answer

        @sunrpc.client.rpc_client_send(2, RpcStr)  # type: ignore[untyped-decorator]
        @sunrpc.client.rpc_client_obtain(RpcInt)  # type: ignore[untyped-decorator]
        def argument(self, answer: int) -> int:
            return answer

    client = Caller(HOST, port, PROGRAM, VERSION)
    client.connect()
    return (lambda: client.argument(text)) if text else client.nothing, client.close


SYSTEMS: dict[str, tuple[Callable[[], Serving], Callable[[int, str], Client]]] = {
    "thriftpy2": (serve_thrift, call_thrift),
    "rpyc": (serve_rpyc, call_rpyc),
    "xmlrpc": (serve_xmlrpc, call_xmlrpc),
    "ONC RPC": (serve_onc, call_onc),
}


# --- the ends of a sample -------------------------------------------------------------------------------------


def serve_rpc(listener: socket.socket, order: Order, role: Role) -> Report:
    with moving(role) as report:
        port, end = SYSTEMS[order["system"]][0]()
        offer(listener, port)
        end()
    return report


def drive_rpc(address: Address, order: Order, role: Role) -> Report:
    with offered(address) as port, moving(role) as report:
        call, end = SYSTEMS[order["system"]][1](port, "a" * order["size"])
        if call() != ANSWER:
            raise BenchError("the procedure returned something else")
        elapsed, count = calls(call, order)
        end()
    return {"seconds": elapsed, "count": count, **report}
