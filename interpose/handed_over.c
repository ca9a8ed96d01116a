/* A connection that a fork hands over to the child.
 *
 * A server that has a child for each connection accepts it, forks, and closes its copy. Most such connections end early, and what is done
 * for the others before a fork (ip_prepare_to_share) would be most of what they cost. So where a process is known to do so, one connection
 * stays early: the parent says in shared memory that it has closed its copy without having used it, and then the child is the only process
 * that has it. Until then whoever needs more of the connection than that it is early leaves it to the kernel for good.
 *
 * Responsible for: which connection that is, and which process has it alone. Never: what becomes of it. */
#include "handed_over.h"

#include "fastsock_loop.h"

enum {
    NEVER = INT32_MAX, /* operations before the parent would look for a peer */
    KNOWN = 2,         /* connections of a service that were closed unused, in turn: the next one is handed over */
};

static struct {
    struct ip_socket *s; /* that a fork hands over or has handed over, that is watched, or that this process was given; NULL: none */
    uint32_t number;     /* of the hand-over (ip_next_hand_over) */
    int64_t made;        /* operations of the watched one until the fork */
} handed IP_EACH_FORK;

static void forget(void) {
    if (handed.s) handed.s->handed = IP_NOT_HANDED;
    handed.s = NULL;
}

void ip_begin_hand_over(void) {
    if (!handed.s) return;
    if (handed.s->handed == IP_WATCHED) handed.s->early.service->given = 0; /* it was not closed before this fork */
    if (handed.s->handed == IP_WATCHED || handed.s->handed == IP_NOT_HANDED) forget(); /* (the fork may look twice at all of them) */
}

int ip_hand_over(struct ip_socket *s) {
    if (handed.s || !ip_is(&s->thing, IP_EARLY) || s->thing.numbers != 1 || s->prepared || s->is_unix || s->shut) return 0;
    if (ip_load_relaxed(&s->under_way) || ip_where_registered(s) || !s->early.service) return 0;
    handed.number = s->early.service->given < KNOWN ? 0 : ip_next_hand_over();
    handed.s = s;
    return handed.number != 0;
}

void ip_hand_over_in_parent(void) {
    struct ip_socket *s = handed.s;
    if (!s || s->handed != IP_NOT_HANDED) return;
    if (ip_is(&s->thing, IP_EARLY)) {
        s->handed = IP_HANDED_OVER;
        s->early.allowed = NEVER; /* what it makes from now on is the parent's use of it */
        ip_store_relaxed(&s->left, NEVER);
    } else if (s->opened) {
        s->handed = IP_WATCHED;
        handed.made = fs_operations_of(ip_conn(s));
    } else {
        forget();
    }
}

void ip_hand_over_in_child(void) {
    if (!handed.s || handed.s->handed != IP_NOT_HANDED) return;
    if (ip_is(&handed.s->thing, IP_EARLY)) handed.s->handed = IP_INHERITED;
    else forget();
}

int ip_is_held_elsewhere(struct ip_socket *s) {
    enum ip_handed was = (enum ip_handed)s->handed;
    if (ip_likely(was == IP_NOT_HANDED)) return 0;
    forget();
    if (was == IP_HANDED_OVER) s->early.service->given = 0;
    return was == IP_HANDED_OVER || !ip_is_told_closed(handed.number);
}

static int is_unused(struct ip_socket *s) {
    if (s->handed == IP_WATCHED) return fs_path_is_undecided(ip_conn(s)) && fs_operations_of(ip_conn(s)) == handed.made;
    return !ip_made_early(s) && !ip_load_sc(&s->inside) && !s->shut && !ip_where_registered(s);
}

/* (A child that ends it tells nobody: its parent left the connection to the kernel with the fork.) */
void ip_end_handed_over(struct ip_socket *s) {
    struct fs_service *service = s->early.service;
    /* SYNC: early - pairs with ip_begins_early: no call of another thread begins on it any more. */
    if (s->handed == IP_HANDED_OVER) ip_store_sc(&s->thing.kind, IP_NOTHING);
    if (s->handed != IP_INHERITED) service->given = is_unused(s) ? IP_MIN(service->given + 1, KNOWN) : 0;
    if (s->handed == IP_HANDED_OVER) {
        if (service->given) ip_tell_closed(handed.number);
        s->early.service = NULL; /* this was no session of the parent's */
    }
    forget();
}
