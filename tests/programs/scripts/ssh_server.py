"""A paramiko server, commands and files, on a port of its own choice: DIRECTORY."""

import os
import signal
import socket
import sys
import threading

import paramiko

directory = sys.argv[1]


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


class Handle(paramiko.SFTPHandle):
    def stat(self):
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class Files(paramiko.SFTPServerInterface):
    def open(self, path, flags, attr):
        fd = os.open(directory + self.canonicalize(path), flags, 0o600)
        handle = Handle(flags)
        handle.readfile = handle.writefile = os.fdopen(fd, "r+b" if flags & os.O_ACCMODE else "rb")
        return handle

    def stat(self, path):
        return paramiko.SFTPAttributes.from_stat(os.stat(directory + self.canonicalize(path)))


key = paramiko.ECDSAKey.generate()
listener = socket.create_server(("127.0.0.1", 0))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("port", listener.getsockname()[1])
transports = []
while True:
    connection, _ = listener.accept()
    transports.append(paramiko.Transport(connection))
    transports[-1].add_server_key(key)
    transports[-1].set_subsystem_handler("sftp", paramiko.SFTPServer, Files)
    transports[-1].start_server(threading.Event(), Interface())
