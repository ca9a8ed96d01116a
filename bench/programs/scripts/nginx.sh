# usage: nginx.sh PORT INNER SCRATCH      nginx before an application at the address INNER, with kept connections to it
cd "$3" || exit
[ "$(id -u)" = 0 ] && user="user root;"
cat >nginx.conf <<END
daemon off;
$user
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
    upstream application {
        server $2;
        keepalive 32;
        keepalive_requests 1000000;
    }
    server {
        listen 127.0.0.1:$1;
        location / {
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }
    }
}
END
exec nginx -e stderr -p . -c nginx.conf
