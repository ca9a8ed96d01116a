/* What the Python package in this process asks of connections: their paths, and a list of them.
 *
 * Responsible for: that an early connection is in the list too. Never: events (program_log.c). */
#include "interpose.h"
#include "report.h"

static struct fs_libc_path path_of(const struct ip_socket *s) {
    const struct fs_connection *c = ip_conn(s);
    int sends = fs_is(c, FS_IS_SENDING_RING), receives = fs_is(c, FS_IS_RECEIVING_RING);
    return (struct fs_libc_path){sends, receives, fs_is(c, FS_IS_ATTACHED), (int)fs_reason_of(c)};
}

int fs_libc_path(int fd, struct fs_libc_path *path) {
    ip_lock();
    struct ip_socket *s = ip_socket_at(fd);
    if (s) ip_open(s);
    int open = s && s->opened;
    if (open) *path = path_of(s);
    ip_unlock();
    return open;
}

struct asked { struct fs_libc_connection *list; int room, count; };

static void add(struct ip_socket *s, void *with) {
    struct asked *asked = with;
    ip_open(s);
    if (!s->opened || fs_is(ip_conn(s), FS_IS_CLOSED)) return;
    if (asked->count < asked->room) {
        struct fs_libc_connection *told = &asked->list[asked->count];
        told->fd = fs_fd(ip_conn(s));
        told->path = path_of(s);
        ip_ends(s, told->local, told->peer);
        fs_sum_counters(ip_conn(s), &told->count);
    }
    asked->count++;
}

int fs_libc_connections(struct fs_libc_connection *list, int room) {
    struct asked asked = {list, room, 0};
    ip_lock();
    ip_each_socket(add, &asked);
    ip_unlock();
    return asked.count;
}
