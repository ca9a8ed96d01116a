/* The event set of connections that several pollers have: a connection names one set, whose hints whoever wakes first hands to all.
 *
 * A process has one, with an epoll of its own that is a member of the epoll of each poller that has such a connection.
 *
 * Responsible for: that a hint reaches each poller. Never: looks at a connection. Its lock comes behind a poller's. */
#include "ready/common.h"

#include "channel/sets.h"
#include "connection/state.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fs_set *set; /* NULL: nobody has needed it */
static int sleepers, exposed;

int fs_join_common(struct fs_poller *p) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = fs_poller_data(FS_SET_SLOT, 1)};
    int failed = 0, epoll = p->epoll;
    if (p->common) return 0;
    if (epoll < 0 && fs_set_of_poller(p, &failed)) epoll = p->set->epoll;
    if (failed) return failed;
    pthread_mutex_lock(&lock);
    if (!set) set = fs_new_set(&failed);
    if (set && fs_system.epoll_ctl(epoll, EPOLL_CTL_ADD, set->epoll, &event) < 0 && errno != EEXIST) failed = -errno;
    pthread_mutex_unlock(&lock);
    p->common = !failed;
    return failed;
}

int fs_take_common_seat(struct fs_pollable *it, struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    int failed = fs_take_seat(c, set);
    if (!failed) fs_put_member(set, fs_seat_of(c), it);
    pthread_mutex_unlock(&lock);
    return failed;
}

void fs_leave_common_seat(struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    fs_leave_seat(c, set);
    pthread_mutex_unlock(&lock);
}

void fs_say_common_seat(struct fs_connection *c) {
    pthread_mutex_lock(&lock);
    /* (It may have another seat by now.) */
    if (set && fs_set_of(fs_load_relaxed(&c->seat)) == fs_load_relaxed(&set->id)) fs_seat(set, c);
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
        fs_heat_member(m, 1);
        fs_wake_waiters(m->poller);
        fs_unlock_poller(m->poller);
    }
    pthread_mutex_unlock(&it->lock);
}

void fs_take_common_hints(void) {
    struct hinted hinted[FS_HINTS];
    uint32_t places[FS_HINTS];
    int count;
    for (int takes = 0; takes < 64; takes++) {
        int n = 0;
        pthread_mutex_lock(&lock);
        count = set && fs_is_hinted(set) ? fs_take_hints(set, places, FS_HINTS) : 0;
        if (count) fs_tend(set);
        for (int i = 0; i < count; i++) {
            /* (It leaves its place with this lock, before it ends.) */
            struct fs_pollable *it = fs_member_at(set, places[i]);
            struct fs_connection *c = it ? fs_load_relaxed(&it->c) : NULL;
            hinted[n].it = it;
            if (c && fs_begin(c, &hinted[n].call)) n++;
        }
        pthread_mutex_unlock(&lock);
        if (!count) return;
        while (n-- > 0) {
            struct fs_connection *c = hinted[n].call.connection;
            hand_on(hinted[n].it);
            fs_end_poller_call(c, &hinted[n].call);
        }
    }
}

void fs_sleep_on_common(void) {
    pthread_mutex_lock(&lock);
    sleepers++;
    int hints = set && fs_fall_asleep(set);
    pthread_mutex_unlock(&lock);
    if (hints) fs_take_common_hints();
}

void fs_rise_from_common(void) {
    fs_take_common_hints();
    pthread_mutex_lock(&lock);
    sleepers--;
    if (!sleepers && !exposed) fs_rise(set);
    else if (fs_fall_asleep(set)) fs_rouse(set); /* others sleep on */
    pthread_mutex_unlock(&lock);
}

void fs_leave_common_asleep(void) {
    pthread_mutex_lock(&lock);
    exposed = 1;
    if (set && fs_fall_asleep(set)) fs_rouse(set);
    pthread_mutex_unlock(&lock);
}

void fs_forget_common(void) {
    pthread_mutex_init(&lock, NULL);
    set = NULL;
    sleepers = exposed = 0;
}
