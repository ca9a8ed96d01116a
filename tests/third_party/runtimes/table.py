"""Servers and clients in other languages, or of other people: how each is started and asked, and what is expected.

In words, {a}, {b} and {c} are ports, {folder} is the test's, {here} the one of the scripts. Each server listens on
the port of its place. A client that says `idle` then reads a line, and asks once more. A shell script says by $COUNTED
the connections of which command are counted.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

MOVES = ""
ASKED = "{here}/pages_client.py {a}"

APACHE = """
ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
ErrorLog {folder}/error.log
Listen 127.0.0.1:{a}
User www-data
Group www-data
LoadModule mpm_%s_module /usr/lib/apache2/modules/mod_mpm_%s.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
StartServers 2
MaxKeepAliveRequests 0
KeepAliveTimeout 60
DocumentRoot {folder}/html
"""
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; user root;
events {{ }}
http {{
    access_log off; client_max_body_size 20m; keepalive_requests 100000; fastcgi_keep_conn on;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    upstream php {{ server 127.0.0.1:{b}; keepalive 4; }}
    server {{
        listen 127.0.0.1:%s; root {folder}/html;
        location ~ \\.php$ {{
            fastcgi_pass php;
            fastcgi_param SCRIPT_FILENAME {here}$fastcgi_script_name;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param REQUEST_METHOD $request_method;
        }}
    }}
}}
"""
PHP = """
[global]
error_log = {folder}/php.log
daemonize = no
[www]
listen = 127.0.0.1:{b}
pm = static
pm.max_children = 2
"""
HAPROXY = """
global
    maxconn 100
defaults
    mode %s
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{a}
    default_backend behind
backend behind
    http-reuse always
    server one 127.0.0.1:{b}
"""
RSYNC = """
use chroot = no
[module]
path = {folder}/served
read only = no
uid = root
gid = root
"""
SQL = """
create or replace table things (id int primary key, what varchar(60)) engine=memory;
insert into things select seq, md5(seq) from seq_1_to_5000;
select count(*), min(what), max(what) from things;
{many}
select seq, md5(seq), repeat('y', 60) from seq_1_to_30000;
select sleep(0.1);
insert into things values (1, 'twice');
select repeat('z', 3000000);
select 'idle';
""".replace("{many}", "\n".join(f"select {n}, repeat('x', {n * 20});" for n in range(300)))
MARIADB = (
    "mariadbd --no-defaults --datadir={folder}/data --port={a} --bind-address=127.0.0.1 --socket={folder}/socket"
    " --pid-file={folder}/pid --user=root --skip-grant-tables --skip-name-resolve --thread-handling="
)
SQL_CLIENT = "mariadb --no-defaults -h 127.0.0.1 -P {a} --batch --force -n --max-allowed-packet=64M test"


@dataclass(frozen=True)
class Runtime:
    """A pair that is tried on every path."""

    needs: str
    """The programs that have to be there."""
    servers: tuple[str, ...]
    """Started from the last to the first: those in front need those after them."""
    client: str
    stays: str = MOVES
    """Why connections are on kernel TCP where both ends are under fastsock; by default, some move."""
    files: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    """Run once, in the test's folder."""
    given: str = ""
    """What the client reads first."""
    ends: int = signal.SIGTERM
    settings: dict[str, str] = field(default_factory=dict)


def java(server: str, client: str) -> Runtime:
    needs, run = "javac java", "java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp {folder}"
    sources = " ".join(f"{{here}}/{name.split()[0]}.java" for name in (server, client))
    return Runtime(needs, (f"{run} {server}",), f"{run} {client}", prepare=f"javac -d {{folder}} {sources}")


def node(server: str, client: str, stays: str = MOVES, **settings: str) -> Runtime:
    return Runtime("node", (f"node {{here}}/{server}",), f"node {{here}}/{client}", stays, settings=settings)


def erlang(backend: str) -> Runtime:
    run = "erl -noinput -pa {folder} -run echo serve", "erl -noshell -pa {folder} -run echo client"
    server, client = (f"{words} {{a}} {backend}" for words in run)
    return Runtime("erl erlc", (server,), client, prepare="erlc -o {folder} {here}/echo.erl")


def apache(model: str, stays: str = MOVES, **settings: str) -> Runtime:
    server = "apache2 -D FOREGROUND -f {folder}/apache.conf"
    client = f"{ASKED} /page*300 /large*3 /nothing +/page"
    return Runtime("apache2", (server,), client, stays, {"apache.conf": APACHE % (model, model)}, settings=settings)


def php(more: str = "") -> Runtime:
    servers = (
        "nginx -c {folder}/nginx.conf -e {folder}/nginx.log",
        "php-fpm8.2 -R -F -y {folder}/php.conf",
        "perl {here}/echo.pl {c}",
    )
    client = f"{ASKED} /page*100 /streams.php?port={{c}}{more}*6"
    files = {"php.conf": PHP, "nginx.conf": NGINX % "{a}"}
    return Runtime("php-fpm8.2 nginx perl", servers, client, files=files)


def haproxy(mode: str) -> Runtime:
    servers = "haproxy -db -f {folder}/haproxy.cfg", "nginx -c {folder}/nginx.conf -e {folder}/nginx.log"
    files = {"haproxy.cfg": HAPROXY % mode, "nginx.conf": NGINX % "{b}"}
    return Runtime("haproxy nginx", servers, f"{ASKED} /page*300 /large*3 /nothing", files=files)


RUNTIMES = {
    "java, selectors": java("Echo {a}", "EchoClient {a}"),
    "java, calls that another thread ends": java("Echo {a}", "EchoClient {a} ends"),
    "java, HttpServer": java("Pages {a}", "PagesClient {a}"),
    "node, net": node("echo.mjs {a}", "echo_client.mjs {a}"),
    "node, cluster": node("echo.mjs {a} cluster", "echo_client.mjs {a}", "descriptor detached"),
    "node, cluster whose workers accept": node(
        "echo.mjs {a} cluster", "echo_client.mjs {a}", NODE_CLUSTER_SCHED_POLICY="none"
    ),
    "node, http": node("pages.mjs {a} http", "pages_client.mjs {a} http"),
    "node, http2": node("pages.mjs {a} http2", "pages_client.mjs {a} http2"),
    "erlang, inet": erlang("inet"),
    "erlang, socket": erlang("socket"),
    "ruby": Runtime("ruby", ("ruby {here}/echo.rb {a}",), "ruby {here}/echo_client.rb {a}"),
    "puma": Runtime("puma ruby", ("puma -q -b tcp://127.0.0.1:{a} {here}/puma.ru",), "ruby {here}/pages_client.rb {a}"),
    "puma, workers": Runtime(
        "puma ruby", ("puma -q -w 2 -b tcp://127.0.0.1:{a} {here}/puma.ru",), "ruby {here}/pages_client.rb {a}"
    ),
    "perl": Runtime("perl", ("perl {here}/echo.pl {a}",), "perl {here}/echo_client.pl {a}"),
    "php-fpm": php(),
    "php-fpm, a stream that is imported": php("&import=1"),
    "apache, prefork": apache("prefork", FASTSOCK_TRUST="any"),
    "apache, worker": apache("worker", FASTSOCK_TRUST="any"),
    "apache, event": apache("event", FASTSOCK_TRUST="any"),
    "apache, of another user": apache("event", "peer belongs to another user"),
    "haproxy, http": haproxy("http"),
    "haproxy, tcp": haproxy("tcp"),
    "mariadb": Runtime(
        "mariadbd mariadb mariadb-install-db",
        (MARIADB + "one-thread-per-connection",),
        SQL_CLIENT,
        prepare="mariadb-install-db --no-defaults --datadir={folder}/data --auth-root-authentication-method=normal",
        given=SQL,
    ),
    "mosquitto": Runtime(
        "mosquitto mosquitto_sub mosquitto_pub",
        ("mosquitto -c {folder}/mosquitto.conf",),
        "sh {here}/mqtt.sh {a}",
        files={"mosquitto.conf": "listener {a} 127.0.0.1\nallow_anonymous true\nsys_interval 1\nuser root\n"},
    ),
    "rsync": Runtime(
        "rsync",
        ("rsync --daemon --no-detach --port={a} --address=127.0.0.1 --config={folder}/rsync.conf",),
        "sh {here}/rsync.sh {a}",
        files={"rsync.conf": RSYNC},
    ),
    "iperf3": Runtime("iperf3", ("iperf3 -s -B 127.0.0.1 -p {a}",), "sh {here}/iperf.sh {a}"),
}
