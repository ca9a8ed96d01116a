/* Polling connections for a while before a wait sleeps: for epoll, poll, select and the loops.
 *
 * Responsible for: how it looks, and what that has cost. Never: whether to poll, and for how long (the waits and spin_budget.c). */
#include "ready/member_spin.h"

#include "conn/send.h"
#include "conn/state.h"

enum { TURNS = 16 }; /* looks at the connections between two at the hints and the clock */

static int any_may_be_ready(const struct fs_spun *s) {
    for (int i = 0; i < s->count; i++)
        if (fs_may_be_ready(s->c[i], s->wanted[i])) return 1;
    return 0;
}

static int has_hint(struct fs_poller *p) {
    fs_lock_poller(p); /* (others change the set's pages) */
    int any = fs_has_hints(p->set);
    fs_unlock_poller(p);
    return any;
}

int fs_spin_on(const struct fs_spun *s, struct fs_poller *hinted, struct fs_spin_stats *stats, int64_t until, int64_t *spent) {
    int found = 0, lost = 0;
    int64_t began = fs_now(), now = began, last;
    do {
        int shares = fs_shares_cpu(fs_last_peer_cpu);
        if (fs_poller_host.is_interrupted && fs_poller_host.is_interrupted()) break;
        for (int turn = 0; turn < (shares ? 1 : TURNS) && !found; turn++) {
            found = any_may_be_ready(s);
            if (!found) fs_cpu_relax();
        }
        if (!found && hinted) found = has_hint(hinted);
        if (shares && !found && !fs_yield_to_peer(now)) break;
        last = now;
        now = fs_now();
        lost |= !shares && now - last > FS_LOST_CPU; /* (a yield gives it away on purpose) */
    } while (!found && now < until);
    fs_spin_note_cpu(stats, lost);
    for (int i = 0; i < s->count; i++) fs_publish_cpu(s->c[i]);
    int64_t took = FS_MIN(now, until) - began;
    fs_count(&fs_poller_totals.poll_ns, (uint64_t)took);
    *spent += took;
    return found;
}

void fs_spun_in_vain(int64_t *spent) {
    fs_count(&fs_poller_totals.poll_unpaid_ns, (uint64_t)*spent);
    *spent = 0;
}

int fs_members_spin(struct fs_poller *p, int64_t until, int64_t *spent) {
    /* (Beyond the stack: a handler of the program may have little of it.) */
    struct {
        struct fs_call calls[FS_SPUN];
        struct fs_spun s;
    } *of = fs_system.malloc(sizeof *of);
    if (!of) return 1; /* (the caller looks again) */
    of->s.count = 0;
    for (struct fs_member *m = p->first; m && of->s.count < FS_SPUN; m = m->after) {
        struct fs_connection *c = fs_load_relaxed(&m->it->c);
        if (c && m->enabled && fs_is_attached(c) && fs_call_enter(c, &of->calls[of->s.count])) fs_spun_add(&of->s, c, m->events);
    }
    fs_unlock_poller(p);
    int found = fs_spin_on(&of->s, p, &p->stats, until, spent);
    for (int i = of->s.count; i-- > 0;) fs_end_poller_call(of->s.c[i], &of->calls[i]);
    fs_system.free(of);
    fs_lock_poller(p);
    return found;
}
