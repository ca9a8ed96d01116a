/* One look at the members that may be ready.
 *
 * A look takes the locks of connections, so it is made without the poller's lock: a member is taken out of the list under the lock, looked
 * at without it, and told under the lock again, unless it has changed meanwhile. What comes while it is looked at puts it back.
 *
 * No arrival is lost. An edge-triggered member is armed before it is looked at: what comes before that is seen by the look, and what comes
 * after it is a hint, which puts the member back (SYNC labels and the argument in ring/doorbell.h). A level-triggered one stays in the
 * list until it is armed and a look after that finds nothing.
 *
 * Responsible for: what a wait reports of members. Never: waits, or decides whether to. */
#include "ready/scan.h"

#include "control/page_offers.h"
#include "conn/state.h"
#include "ready/inherited.h"
#include "ready/common_set.h"
#include "ready/edge.h"
#include "ready/level.h"

enum { FEW = 2, BATCH = 32 };
#define COOL ((int64_t)1000000) /* ns after which a quiet member among busy ones is left to the event set */

/* A member as it was when it was taken out of the list. */
struct claim {
    struct fs_member *m;
    struct fs_call call;
    struct fs_level level;
    uint32_t events, version, look;
    struct fs_mark mark;
    int edge, full, arms, there, late, more;
};

static int is_told_by(const struct fs_member *m, const struct fs_told *told) {
    return m->told_by == told->wait && told->events[m->told_at].data.u64 == m->data;
}

static void tell(struct fs_member *m, struct fs_told *told, uint32_t found, int64_t now) {
    if (m->events & EPOLLONESHOT && !fs_take_shot(m)) return;
    if (is_told_by(m, told)) {
        told->events[m->told_at].events |= found;
    } else if (told->adds) { /* another thread's wait has reported it meanwhile: the next one reports this */
        m->found = 0;
        fs_member_activate(m, 1);
        return;
    } else {
        m->told_by = told->wait;
        m->told_at = told->count;
        told->events[told->count++] = (struct epoll_event){.events = found, .data.u64 = m->data};
    }
    m->last_told = now;
    m->endings |= found & (FS_ENDINGS | (m->fresh ? (uint32_t)EPOLLPRI : 0));
    if (m->events & EPOLLONESHOT) m->enabled = 0;
}

static void put_last(struct fs_member *m) {
    struct fs_poller *p = m->poller;
    if (p->last == m) return;
    p->first = m->after;
    p->first->before = NULL;
    p->last->after = m;
    m->before = p->last;
    m->after = NULL;
    p->last = m;
}

/* The front one of the list. 1: it is claimed. 0: nothing is left to be done with it. */
static int take(struct fs_poller *p, struct claim *claim, struct fs_told *told, enum fs_purpose purpose, int64_t now) {
    struct fs_member *m = p->first;
    struct fs_connection *c = m->it ? fs_load_relaxed(&m->it->c) : NULL;
    uint32_t wanted = m->events & ~(uint32_t)FS_FLAGS;
    int edges = (m->events & EPOLLET) != 0, arms = edges || purpose != FS_TELL;
    if (fs_is_handed_over(m)) { /* it is dropped when this process hears that the connection is off the ring, or at its close */
        fs_member_deactivate(m);
        fs_note_parked(m, 0);
        return 0;
    }
    if (told->adds && !is_told_by(m, told)) {
        put_last(m);
        return 0;
    }
    if (!arms && m->enabled && c && !m->asks && !m->kernel && fs_is_attached(c)) {
        int glance = fs_level_peek(c, wanted);
        if (glance > 0) tell(m, told, wanted & FS_IN, now);
        arms = glance <= 0 && m->after && now - m->last_told > COOL && fs_is_settled(c);
        if (glance && !arms) {
            if (m->enabled) put_last(m);
            else fs_member_deactivate(m);
            return 0;
        }
    }
    fs_member_deactivate(m);
    if (!m->enabled || !c) return 0; /* (the change that enables it puts it back) */
    if (!fs_call_enter(c, &claim->call)) return 0;
    if (arms && m->slot_in == FS_OWN_SET && fs_is_attached(c)) fs_set_register(p->set, c);
    if (arms && m->slot_in == FS_COMMON_SET && fs_is_attached(c)) fs_common_slot_publish(c);
    claim->m = m;
    claim->level = (struct fs_level){.c = c, .wanted = wanted, .asks = m->asks, .told = p->alone, .kernel = m->kernel | EPOLLOUT};
    claim->events = m->events;
    claim->version = m->version;
    claim->edge = m->edge;
    claim->full = m->full;
    claim->arms = arms;
    claim->late = FS_ON_TIME;
    claim->mark = m->mark;
    claim->look = ++m->looks;
    m->edge = m->full = m->asks = 0;
    return 1;
}

/* Without the lock. */
static void look(struct claim *claim) {
    struct fs_level *l = &claim->level;
    int armed = claim->arms && fs_is_attached(l->c);
    if (armed && !fs_is_settled(l->c) && fs_poller_host.operate) fs_poller_host.operate(l->c);
    claim->there = claim->arms ? fs_level_arm(l, &claim->late) : 0;
    if (armed && (fs_may_miss_hints(l->c) || !fs_is_settled(l->c))) claim->late = FS_SHARED;
    fs_level_read(l);
    claim->more = claim->events & EPOLLET && fs_advance_mark(l->c, &claim->mark);
    /* (Told until it is drained: the peer need not report more.) */
    if (claim->arms && l->found & FS_IN && !(claim->events & EPOLLET) && fs_is_attached(l->c))
        fs_disarm_receiver(&l->c->ring, FS_SET_ASLEEP);
}

/* With the lock again. */
static void settle(struct claim *claim, struct fs_told *told, enum fs_purpose purpose, int64_t now) {
    struct fs_member *m = claim->m;
    uint32_t found = claim->level.found;
    int edges = (claim->events & EPOLLET) != 0;
    if (m->version != claim->version || !m->parked) { /* it was changed, and put back by that; or it has gone */
        m->asks = 1;                                  /* (what this look was to ask, or has found, is left to the next one) */
        return;
    }
    m->asks |= claim->level.asks;
    if (claim->level.no_room) fs_await_kernel_room(m);
    fs_note_late(m, claim->late);
    if (!m->enabled) return; /* another wait has told the single shot */
    /* (A hint may be for nothing, or for what was told already.) */
    int news = !edges || (claim->edge && (claim->more || found & ~m->found)) || (claim->full && found & FS_OUT_ROOM);
    if (!found || !news || purpose != FS_ARM) {
        /* (After a later look this one knows only what it has not found.) */
        int latest = claim->look == m->looks;
        /* (Nor does one that no hint has led to, and that reports nothing: the hint of what it has found is still to be taken.) */
        int knows = latest && (claim->edge || (found && news));
        m->found = knows ? found : m->found & found;
        if (knows) m->mark = claim->mark;
    }
    if (found && news && purpose != FS_ARM) {
        tell(m, told, found, now);
        if (!edges && m->enabled) fs_member_activate(m, 0);
        return;
    }
    if (found && news) {
        fs_member_activate(m, claim->edge);
        m->full |= claim->full;
        return;
    }
    if (edges) m->full |= claim->full && !(found & FS_OUT_ROOM);
    if (edges ? claim->there && !found && claim->edge : !claim->arms || claim->there) fs_member_activate(m, claim->edge);
}

void fs_members_check(struct fs_poller *p, struct fs_told *told, enum fs_purpose purpose) {
    uint32_t left = p->listed;
    int64_t now = told->now ? told->now : left ? fs_now() : 0;
    int room = purpose == FS_ARM || told->adds ? INT32_MAX : told->max;
    struct claim few[FEW], *claims = few; /* (the stack of a handler of the program may be small) */
    int most = FEW;
    if (left > FEW && (claims = fs_system.malloc(BATCH * sizeof *claims))) most = BATCH;
    if (!claims) claims = few;
    while (left && told->count < room) {
        int n = 0;
        for (; left && p->first && n < most && told->count + n < room; left--) n += take(p, &claims[n], told, purpose, now);
        if (!p->first) left = 0;
        if (!n) continue;
        fs_unlock_poller(p);
        for (int i = 0; i < n; i++) look(&claims[i]);
        for (int i = n; i-- > 0;) fs_end_poller_call(claims[i].level.c, &claims[i].call); /* (the last one begun first) */
        fs_lock_poller(p);
        for (int i = 0; i < n; i++) settle(&claims[i], told, purpose, now);
    }
    if (claims != few) fs_system.free(claims);
}

void fs_pass_to_sleepers(struct fs_poller *p, int64_t longest) {
    struct fs_told nothing = {0};
    if (!p->set || !(p->sleepers || p->exposed)) return;
    if (p->listed) fs_members_check(p, &nothing, FS_ARM);
    int64_t now = fs_longest_sleep(p);
    int sleep_too_long = p->sleepers && now >= 0 && (longest < 0 || now < longest);
    if (!fs_prepare_sleep(p->set) && !p->listed && !sleep_too_long) return;
    struct fs_event_set *set = p->set;
    fs_unlock_poller(p); /* (who wakes takes it at once) */
    fs_wake_owner(set);
    fs_lock_poller(p);
}

void fs_sort_events(struct fs_poller *p, struct fs_told *told, int count) {
    struct epoll_event *from = told->events + told->count;
    int i = 0;
    while (i < count && !fs_is_ours(from[i].data.u64)) i++; /* they lie where they are told */
    told->count += i;
    for (; i < count; i++) {
        uint64_t data = from[i].data.u64;
        if (!fs_is_ours(data)) {
            told->events[told->count++] = from[i];
            continue;
        }
        struct fs_member *m = fs_member_of_data(p, data);
        if (!m || fs_is_handed_over(m)) continue; /* the event set's; or of a registration that has gone */
        if (m->parked) {
            int news = fs_is_kernel_edge(m, from[i].events);
            m->asks = 1;
            m->fresh = 0;
            m->endings &= ~(uint32_t)EPOLLPRI; /* the next one is another byte */
            if (news) m->found = 0;
            fs_member_activate(m, news);
            told->changed = 1;
            continue;
        }
        told->events[told->count++] = (struct epoll_event){.events = from[i].events, .data.u64 = m->data};
        if (m->events & EPOLLONESHOT) m->enabled = 0, fs_take_shot(m);
    }
}
