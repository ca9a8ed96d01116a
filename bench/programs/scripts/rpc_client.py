"""usage: rpc_client.py rpyc PORT call|attribute | connection PORT|PATH [BYTES] | thrift|grpc|xmlrpc|manager PORT"""

import sys
from multiprocessing.connection import Client
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any
from xmlrpc.client import ServerProxy

import clock

kind, path, word = sys.argv[1], sys.argv[2] if "/" in sys.argv[2] else "", sys.argv[3] if len(sys.argv) > 3 else ""
port = 0 if path else int(sys.argv[2])
KEY = b"key"


def drive_rpyc() -> None:
    import rpyc

    connection = rpyc.connect("127.0.0.1", port)
    root = connection.root

    def call() -> None:
        assert root.add(1, 2) == 3

    def attribute() -> None:
        assert root.value == 42

    clock.repeat(call if word == "call" else attribute)
    connection.close()


def drive_thrift() -> None:
    import thriftpy2
    from thriftpy2.rpc import make_client

    calc = thriftpy2.load(str(Path(__file__).parent / "calc.thrift"), module_name="calc_thrift")
    client = make_client(calc.Calc, "127.0.0.1", port)

    def one() -> None:
        assert client.add(1, 2) == 3

    clock.repeat(one)
    client.close()


def drive_grpc() -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        echo = channel.unary_unary("/bench.Calls/Echo")

        def one() -> None:
            assert echo(b"hello") == b"hello"

        clock.repeat(one)


def drive_xmlrpc() -> None:
    proxy = ServerProxy(f"http://127.0.0.1:{port}/")

    def one() -> None:
        assert proxy.add(1, 2) == 3

    clock.repeat(one)


def drive_manager() -> None:
    class Manager(BaseManager):
        pass

    Manager.register("get_dict")
    manager: Any = Manager(("127.0.0.1", port), KEY)
    manager.connect()
    held = manager.get_dict()
    held.__setitem__("x", 1)

    def one() -> None:
        assert held.get("x") == 1

    clock.repeat(one)


def drive_connection() -> None:
    connection = Client(path or ("127.0.0.1", port), authkey=KEY)
    message: Any = b"x" * int(word) if word else {"a": 1, "b": "text"}

    def one() -> None:
        connection.send(message)
        assert connection.recv() == message

    clock.repeat(one)


DRIVE = {"rpyc": drive_rpyc, "thrift": drive_thrift, "grpc": drive_grpc, "xmlrpc": drive_xmlrpc}
{**DRIVE, "manager": drive_manager, "connection": drive_connection}[kind]()
