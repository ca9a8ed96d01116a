/* The event set of connections that several pollers have: a connection names one set, whose hints whoever wakes first hands to all.
 *
 * A process has one, with an epoll of its own that is a member of the epoll of each poller that has such a connection.
 *
 * Responsible for: that a hint reaches each poller. Never: looks at a connection. Its lock comes after a poller's. */
#include "ready/common_set.h"

#include "control/page_offers.h"
#include "conn/state.h"
#include "os/host.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fs_event_set *set; /* NULL: nobody has needed it */
static int sleepers, exposed;

int fs_join_common(struct fs_poller *p) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = fs_poller_data(FS_SET_SLOT, 1)};
    int failed = 0, epoll = p->epoll;
    if (p->common) return 0;
    /* (It needs one of its own too, by which its threads are woken for what is no hint.) */
    if (fs_set_of_poller(p, &failed) && epoll < 0) epoll = p->set->epoll;
    if (failed) return failed;
    pthread_mutex_lock(&lock);
    if (!set) set = fs_event_set_new_reserved(&failed);
    if (set && fs_system.epoll_ctl(epoll, EPOLL_CTL_ADD, set->epoll, &event) < 0 && errno != EEXIST) failed = -errno;
    pthread_mutex_unlock(&lock);
    p->common = !failed;
    return failed;
}

int fs_common_slot_alloc(struct fs_pollable *it, struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    int failed = fs_slot_alloc(c, set);
    if (!failed) fs_slot_put_member(set, fs_slot_of(c), it);
    pthread_mutex_unlock(&lock);
    return failed;
}

void fs_common_slot_free(struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    fs_slot_free(c, set);
    pthread_mutex_unlock(&lock);
}

void fs_common_slot_publish(struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    /* (It may have another slot by now.) */
    if (set && fs_slot_set(fs_load_relaxed(&c->slot)) == fs_load_relaxed(&set->id)) fs_set_register(set, c);
    pthread_mutex_unlock(&lock);
}

/* What a hint is at, inside a call: it stays until that ends. */
struct hinted {
    struct fs_pollable *it;
    struct fs_call call;
};

static void hand_on(struct fs_pollable *it) {
    pthread_mutex_lock(&it->lock);
    for (struct fs_member *m = fs_load_relaxed(&it->members); m; m = m->next) {
        fs_lock_poller(m->poller);
        fs_member_activate(m, 1);
        fs_wake_waiters(m->poller);
        fs_unlock_poller(m->poller);
    }
    pthread_mutex_unlock(&it->lock);
}

void fs_common_take_hints(void) {
    /* (Beyond the stack: a handler of the program may have little of it.) */
    struct {
        struct hinted hinted[FS_HINTS];
        uint32_t places[FS_HINTS];
    } *of = NULL;
    int count;
    for (int takes = 0; takes < 64; takes++) {
        int n = 0;
        pthread_mutex_lock(&lock);
        count = set && fs_has_hints(set) && (of || (of = fs_system.malloc(sizeof *of))) ? fs_take_hints(set, of->places, FS_HINTS) : 0;
        if (count) fs_reoffer_pages(set);
        for (int i = 0; i < count; i++) {
            /* (It leaves its place with this lock, before it ends.) */
            struct fs_pollable *it = fs_slot_member(set, of->places[i]);
            struct fs_connection *c = it ? fs_load_relaxed(&it->c) : NULL;
            of->hinted[n].it = it;
            if (c && fs_call_enter(c, &of->hinted[n].call)) n++;
        }
        pthread_mutex_unlock(&lock);
        if (!count) break;
        while (n-- > 0) {
            struct fs_connection *c = of->hinted[n].call.connection;
            hand_on(of->hinted[n].it);
            fs_end_poller_call(c, &of->hinted[n].call);
        }
    }
    fs_system.free(of);
}

void fs_common_sleep(void) {
    pthread_mutex_lock(&lock);
    sleepers++;
    int hints = set && fs_prepare_sleep(set);
    pthread_mutex_unlock(&lock);
    if (hints) fs_common_take_hints();
}

void fs_common_wake(void) {
    fs_common_take_hints();
    pthread_mutex_lock(&lock);
    sleepers -= sleepers > 0; /* (a handler may have forked within the sleep: the child has no set) */
    if (set && !sleepers && !exposed) fs_set_awake(set);
    else if (set && fs_prepare_sleep(set)) fs_wake_owner(set); /* others sleep on */
    pthread_mutex_unlock(&lock);
}

void fs_common_leave_asleep(void) {
    pthread_mutex_lock(&lock);
    exposed = 1;
    if (set && fs_prepare_sleep(set)) fs_wake_owner(set);
    pthread_mutex_unlock(&lock);
}

void fs_forget_common(void) {
    fs_renew_lock(&lock);
    set = NULL;
    sleepers = exposed = 0;
}
