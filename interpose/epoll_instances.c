/* The pollers of the program's epoll instances, and registrations of sockets that are no connections of the core's yet.
 *
 * Responsible for: that an instance has one poller, once it needs it. Never: waits (poll_calls.c). */
#include "interpose.h"

struct fs_poller *ip_poller_for(struct ip_epoll *e, int epoll, int *failed) {
    struct fs_poller *p = ip_poller_of(e);
    if (p) return p;
    ip_lock();
    int is_it = ip_epoll_at(epoll) == e;
    *failed = -EBADF;
    p = is_it ? ip_poller_of(e) : NULL;
    if (is_it && !p) {
        p = fs_poller_new(e->number, failed);
        if (p && e->exposed) fs_poller_expose(p);
        if (p) fs_poller_share(p, ip_load_relaxed(&e->family));
        /* SYNC: poller - pairs with ip_poller_of. */
        if (p) ip_store_release(&e->poller, p);
    }
    ip_unlock();
    return p;
}

int ip_register(struct ip_socket *s) {
    struct ip_epoll *e = ip_where_registered(s);
    struct epoll_event event = {.events = s->registered.events, .data.u64 = s->registered.data};
    int failed = -ENOMEM;
    if (!e) return 0;
    ip_prepare(s);
    /* (One with EPOLLEXCLUSIVE can never be changed.) */
    struct fs_poller *p = event.events & EPOLLEXCLUSIVE ? NULL : ip_poller_for(e, e->number, &failed);
    if (p) failed = fs_poller_ctl(p, EPOLL_CTL_MOD, s->registered.fd, fs_pollable_of(ip_conn(s)), &event);
    if (!failed) s->registered.in = NULL;
    return failed;
}
