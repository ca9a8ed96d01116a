"""usage: rpc_server.py rpyc|thrift|grpc|xmlrpc|manager|connection PORT | rpc_server.py connection PATH"""

import sys
from multiprocessing.connection import Listener
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

kind, path = sys.argv[1], sys.argv[2] if "/" in sys.argv[2] else ""
port = 0 if path else int(sys.argv[2])
KEY = b"key"


def add(a: int, b: int) -> int:
    return a + b


def serve_rpyc() -> None:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Service(rpyc.Service):  # type: ignore[misc]
        exposed_value = 42

        def exposed_add(self, a: int, b: int) -> int:
            return a + b

    ThreadedServer(Service, hostname="127.0.0.1", port=port).start()


def serve_thrift() -> None:
    import thriftpy2
    from thriftpy2.rpc import make_server

    class Handler:
        add = staticmethod(add)

    calc = thriftpy2.load(str(Path(__file__).parent / "calc.thrift"), module_name="calc_thrift")
    make_server(calc.Calc, Handler(), "127.0.0.1", port, client_timeout=None).serve()


def serve_grpc() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(4))
    methods = {"Echo": grpc.unary_unary_rpc_method_handler(lambda request, _context: request)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Calls", methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def serve_xmlrpc() -> None:
    class Handler(SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1"

    server = SimpleXMLRPCServer(("127.0.0.1", port), requestHandler=Handler, logRequests=False)
    server.register_function(add, "add")  # type: ignore[arg-type]
    server.serve_forever()


def serve_manager() -> None:
    held: dict[str, Any] = {}

    class Manager(BaseManager):
        pass

    Manager.register("get_dict", lambda: held, exposed=["get", "__getitem__", "__setitem__", "__len__"])
    Manager(("127.0.0.1", port), KEY).get_server().serve_forever()


def serve_connections() -> None:
    listener = Listener(path or ("127.0.0.1", port), authkey=KEY)
    while True:
        try:
            with listener.accept() as peer:
                while True:
                    peer.send(peer.recv())
        except (EOFError, OSError):
            pass  # the peer is gone, or did not know the key


SERVE = {"rpyc": serve_rpyc, "thrift": serve_thrift, "grpc": serve_grpc, "xmlrpc": serve_xmlrpc}
SERVE |= {"manager": serve_manager, "connection": serve_connections}
try:
    SERVE[kind]()
except KeyboardInterrupt:
    pass
