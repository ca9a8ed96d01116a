"""paramiko at both ends, commands and what they are sent: server, or PORT."""

import random
import signal
import socket
import sys
import threading

import paramiko
from report import digest, exercise, print_report

LARGE = random.Random(4).randbytes(1_500_000)


class Interface(paramiko.ServerInterface):
    def check_auth_password(self, username, password):
        return paramiko.AUTH_SUCCESSFUL if password == "secret" else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=self.execute, args=(channel, command), daemon=True).start()
        return True

    def execute(self, channel, command):
        data = b""
        while piece := channel.recv(32768):
            data += piece
        channel.sendall(command + b":" + data[::-1])
        channel.send_exit_status(len(data) % 256)
        channel.close()


def serve():
    key = paramiko.ECDSAKey.generate()
    listener = socket.create_server(("127.0.0.1", 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("port", listener.getsockname()[1], flush=True)
    transports = []
    while True:
        transports.append(paramiko.Transport(listener.accept()[0]))
        transports[-1].add_server_key(key)
        transports[-1].start_server(threading.Event(), Interface())


def use(client, answers):
    client.set_missing_host_key_policy(paramiko.MissingHostKeyPolicy())
    login = {"username": "user", "password": "secret", "look_for_keys": False, "allow_agent": False}
    client.connect("127.0.0.1", int(sys.argv[1]), timeout=20, **login)
    for size in (0, 1, 300_000, len(LARGE)):
        stdin, stdout, _ = client.exec_command(f"turn {size}", timeout=20)
        stdin.write(LARGE[:size])
        stdin.channel.shutdown_write()
        answers.append([digest(stdout.read()), stdout.channel.recv_exit_status()])
    return client.get_transport()


if sys.argv[1] == "server":
    serve()
else:
    with exercise("ssh") as answers, paramiko.SSHClient() as client:
        transport = use(client, answers)
    transport.join(10)  # its thread would complain if it ended later than the interpreter
    print_report()
