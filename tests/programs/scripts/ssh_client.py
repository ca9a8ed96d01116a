"""paramiko against an SSH server: PORT."""

import io
import random
import sys

import paramiko
from report import digest, exercise, print_report

LARGE = random.Random(4).randbytes(1_500_000)

with exercise("ssh") as answers, paramiko.SSHClient() as client:
    client.set_missing_host_key_policy(paramiko.MissingHostKeyPolicy())
    client.connect("127.0.0.1", int(sys.argv[1]), username="user", password="secret", look_for_keys=False,
                   allow_agent=False, timeout=20)  # fmt: skip
    transport = client.get_transport()
    for size in (0, 1, 300_000):
        stdin, stdout, _ = client.exec_command(f"turn {size}", timeout=20)
        stdin.write(LARGE[:size])
        stdin.channel.shutdown_write()
        answers.append([digest(stdout.read()), stdout.channel.recv_exit_status()])
    with client.open_sftp() as files:
        files.get_channel().settimeout(20)
        answers.append(files.putfo(io.BytesIO(LARGE), "/large").st_size)
        got = io.BytesIO()
        answers.append([files.getfo("/large", got), digest(got.getvalue())])
        try:
            files.open("/missing")
        except OSError as error:
            answers.append(str(error))
transport.join(10)  # its thread would complain if it ended later than the interpreter
print_report()
