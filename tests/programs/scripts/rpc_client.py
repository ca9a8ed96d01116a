"""Calls to every server for calls from afar: KIND=PORT ..."""

import sys
import xmlrpc.client

import rpyc
from report import digest, exercise, print_report

BLOB = bytes(range(256)) * 8000


def use_xmlrpc(port, answers):
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}", allow_none=True) as server:
        answers.append([server.pow(3, number) for number in range(9)])
        answers.append(digest(server.turn(xmlrpc.client.Binary(BLOB)).data))
        answers.append(server.system.listMethods())
        calls = xmlrpc.client.MultiCall(server)
        calls.pow(2, 10)
        calls.pow(2, 11)
        answers.append(list(calls()))
        try:
            server.missing()
        except xmlrpc.client.Fault as fault:
            answers.append(fault.faultString)


def use_rpyc(port, answers):
    with rpyc.connect("127.0.0.1", int(port), config={"sync_request_timeout": 20}) as connection:
        root = connection.root
        answers.append([digest(root.turn(BLOB[:length])) for length in (0, 1, 100, 70_000, len(BLOB))])
        answers.append(list(root.apply(lambda value: value * 2, range(30))))
        answers.append(root.table()["a"][1])
        later = [rpyc.async_(root.turn)(bytes([number])) for number in range(20)]
        answers.append([digest(result.value) for result in later])
        try:
            root.fail()
        except KeyError as error:
            answers.append(error.args[0])
        connection.ping()


for word in sys.argv[1:]:
    kind, port = word.split("=")
    for number in range(2):
        with exercise(f"{kind} {number}") as answers:
            (use_xmlrpc if kind == "xmlrpc" else use_rpyc)(port, answers)
print_report()
