"""A server for calls from afar: KIND (xmlrpc, rpyc-threaded, rpyc-forking), on a port of its own choice."""

import logging
import signal
import sys
import xmlrpc.server


def xmlrpc_server():
    class Handler(xmlrpc.server.SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1"

    with xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), Handler, allow_none=True, logRequests=False) as server:
        server.register_introspection_functions()
        server.register_multicall_functions()
        server.register_function(pow)
        server.register_function(lambda blob: xmlrpc.client.Binary(blob.data[::-1]), "turn")
        print("port", server.server_address[1])
        server.serve_forever()


def rpyc_server(kind):
    import rpyc.utils.server

    class Service(rpyc.Service):
        def exposed_turn(self, blob):
            return blob[::-1]

        def exposed_apply(self, function, values):
            return [function(value) for value in values]

        def exposed_fail(self):
            raise KeyError("as asked")

        def exposed_table(self):
            return {"a": [1, 2, 3]}

    server = getattr(rpyc.utils.server, kind)(Service, hostname="127.0.0.1", port=0, logger=logging.getLogger())
    print("port", server.port)
    server.start()


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if sys.argv[1] == "xmlrpc":
    xmlrpc_server()
else:
    rpyc_server({"rpyc-threaded": "ThreadedServer", "rpyc-forking": "ForkingServer"}[sys.argv[1]])
