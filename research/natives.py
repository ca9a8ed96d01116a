"""Lines of programs that are not Python, unchanged: vsftpd with curl, nginx with wrk, and programs of rpcgen."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.process import RunFailed
from bench.programs.pair import free_port
from bench.turns import Line, Start, Take
from research import onc
from research.figures import Plan, Sample
from research.ftp import asked, figures, folder, sized
from research.series import RING, environment, started

WAYS = (RING, "kernel TCP")
START_SECONDS = 20.0
SEVERAL = 5
VSFTPD = {
    "listen": "YES",
    "listen_address": "127.0.0.1",
    "background": "NO",
    "run_as_launching_user": "YES",
    "seccomp_sandbox": "NO",  # it kills calls of today's C library, also without fastsock
    "anonymous_enable": "YES",
    "no_anon_password": "YES",
    "write_enable": "YES",
    "anon_upload_enable": "YES",
    "anon_mkdir_write_enable": "YES",
    "anon_other_write_enable": "YES",
    "anon_umask": "022",
    "async_abor_enable": "YES",
    "connect_from_port_20": "NO",
    "xferlog_enable": "NO",
}
"""What vsftpd needs to serve anybody as whoever starts it."""

NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr;
{user}
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {servers}
}}
"""


def missing(*programs: str) -> str:
    """What of these is not installed; empty if all is."""
    absent = [program for program in programs if not shutil.which(program)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def under(way: str, words: list[str], stats: Path | None = None) -> list[str]:
    told = ["--stats", str(stats)] if stats else []
    return [sys.executable, "-m", "fastsock", "run", *told, *words] if way == RING else words


def serving(stack: ExitStack, words: list[str], port: int) -> None:
    """A server that listens, and ends with the stack."""
    nothing = subprocess.DEVNULL
    server = subprocess.Popen(words, env=environment(), stdin=nothing, stdout=nothing, stderr=nothing)

    def end() -> None:
        server.send_signal(signal.SIGTERM)
        server.wait(20)

    stack.callback(end)
    limit = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None or time.monotonic() > limit:
            raise RunFailed(f"{words[-3:]} does not listen on {port}")
        time.sleep(0.01)


def output_of(way: str, words: list[str], stats: Path, seconds: float = 120) -> tuple[str, Sample]:
    """What a client prints, and how many of its connections moved."""
    done = subprocess.run(
        under(way, words, stats), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RunFailed(f"{words[0]} ended with {done.returncode}: {done.stderr[-300:]}")
    if way != RING:
        return done.stdout, {}
    counted = json.loads(stats.read_text())
    return done.stdout, {name: counted[name] for name in ("connections_ring", "connections_tcp")}


# --- FTP ----------------------------------------------------------------------------------------------------


def ftp(way: str) -> Start:
    """x is as research.ftp has it. One transfer more comes first: it logs in. Of a large file the median of several
    counts, as curl now and then waits a second for the end of one, on any path."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        if why := missing("vsftpd", "curl"):
            raise RunFailed(why)
        there, here = folder(stack), folder(stack)
        there.chmod(0o755)
        port, conf = free_port(), here / "vsftpd.conf"
        words = {**VSFTPD, "listen_port": port, "anon_root": there}
        conf.write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        serving(stack, under(way, ["vsftpd", str(conf)]), port)

        def once(x: object) -> Sample:
            size, direction, times = asked(str(x))
            source, target = (there / "file", here / "file") if direction == "get" else (here / "file", there / "file")
            for old in (source, target):
                old.unlink(missing_ok=True)
            sized(source, size)
            url = f"ftp://127.0.0.1:{port}/file"
            each = [url, "-o", str(target)] if direction == "get" else ["-T", str(source), url]
            words = ["curl", "-sS", "-w", "%{time_total}\\n", *each * (max(times, SEVERAL) + 1)]
            output, ways = output_of(way, words, here / "stats.json")
            if not filecmp.cmp(source, target, shallow=False):
                raise RunFailed(f"the file arrived changed: {x}")
            return {**figures([float(line) for line in output.split()[1:]], size), **ways}

        return once

    return start


def ftp_lines() -> tuple[Line, ...]:
    return tuple(Line(way, ftp(way)) for way in WAYS)


# --- ONC RPC ------------------------------------------------------------------------------------------------


def rpc(way: str) -> Start:
    """Calls that give their argument back."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        if why := onc.missing():
            raise RunFailed(why)
        here = folder(stack)
        program = str(onc.build(here))
        server = started(stack, under(way, [program, "serve"]))

        def once(x: object) -> Sample:
            words = [program, "measure", str(server.port), str(x), f"{plan.seconds}"]
            output, ways = output_of(way, words, here / "stats.json")
            told = json.loads(output)
            return {"seconds": told["seconds"] / told["calls"], **ways}

        return once

    return start


def rpc_lines() -> tuple[Line, ...]:
    return tuple(Line(way, rpc(way)) for way in WAYS)


# --- web server ---------------------------------------------------------------------------------------------


def web(way: str, clients: int) -> Start:
    """Seconds for a request, by how many requests a connection has. wrk measures whole seconds."""

    def start(stack: ExitStack, plan: Plan) -> Take:
        if why := missing("nginx", "wrk"):
            raise RunFailed(why)
        here = folder(stack)
        here.chmod(0o755)
        ports = {requests: free_port() for requests in (1, 8, 0)}
        server = "server {{ listen 127.0.0.1:{}; root {}; keepalive_requests {}; keepalive_timeout 60; }}"
        servers = "\n".join(server.format(port, here, requests or 1_000_000_000) for requests, port in ports.items())
        user = "user root;" if os.geteuid() == 0 else ""
        (here / "nginx.conf").write_text(NGINX.format(folder=here, servers=servers, user=user))
        serving(stack, under(way, ["nginx", "-c", str(here / "nginx.conf"), "-p", str(here)]), ports[0])

        def once(x: object) -> Sample:
            sized(here / f"{x}", int(str(x)))
            sample: Sample = {}
            for requests, port in ports.items():
                words = ["wrk", "-t", "1", "-c", f"{clients}", "-d", "1s", f"http://127.0.0.1:{port}/{x}"]
                output, ways = output_of(way, words, here / "stats.json")
                found = re.search(r"Requests/sec: +([\d.]+)", output)
                if not found or "Non-2xx" in output:
                    raise RunFailed(output[-300:])
                sample[f"seconds_{requests}"] = clients / float(found[1])
                sample.update(ways)
            return sample

        return once

    return start


def web_lines(clients: int) -> tuple[Line, ...]:
    return tuple(Line(way, web(way, clients)) for way in WAYS)
