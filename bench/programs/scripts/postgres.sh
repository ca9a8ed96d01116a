# usage: postgres.sh PORT SCRATCH      PostgreSQL with an empty cluster; it does not run as root
if [ "$(id -u)" = 0 ]; then
    exec unshare --user --map-user=1000 --map-group=1000 sh "$0" "$@"
fi
for bin in /usr/lib/postgresql/*/bin; do
    PATH=$bin:$PATH
done
initdb -D "$2/data" -A trust -U postgres --no-sync >/dev/null || exit
exec postgres -D "$2/data" -p "$1" --listen_addresses=127.0.0.1 --unix_socket_directories="$2" --fsync=off
