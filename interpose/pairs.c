/* The two ends of a socketpair: the kernel's within one process, and on the ring from the fork on that shares them.
 *
 * Responsible for: which pairs a fork shares. Never: what the two processes do with them. */
#include "pairs.h"

#include "report.h"

/* ---- pairs that were shared in vain ------------------------------------------------------------------------------------ */

/* To share a pair costs some hundred microseconds. In vain, where the child starts another program with an end of it as standard streams:
 * the pair goes back to the kernel. So a process that has done this twice shares no more, but for one in so many, which says if it does
 * something else by now. With the lock. */
static uint32_t settings_then; /* ip_settings.version: with other settings it begins anew */
static int in_vain, left_out;
enum {
    IN_VAIN_MOST = 2,
    LEFT_OUT_MOST = 15,
    OF_USE = 16, /* messages */
};

/* The end's pair has carried enough to be of use, or has left the ring before: that counts once. */
static void judge(struct ip_socket *s) {
    struct fs_counters sum;
    struct ip_socket *other = s->shared_with;
    if (!other) return;
    fs_sum_counters(ip_conn(s), &sum);
    int is_of_use = sum.messages_sent + sum.messages_received >= OF_USE;
    if (!is_of_use && !fs_is(ip_conn(s), FS_IS_BACK)) return;
    in_vain = is_of_use ? 0 : in_vain + 1;
    s->shared_with = other->shared_with = NULL;
}

static void judge_each(struct ip_socket *s, void *with) {
    (void)with;
    judge(s);
}

void ip_judge_pairs(void) {
    ip_each_socket(judge_each, NULL);
    if (settings_then != ip_settings.version) in_vain = left_out = 0;
    settings_then = ip_settings.version;
}

/* True for a pair that the fork leaves to the kernel. (Without `move_after` all that can moves: for tests.) */
static int is_left_out(void) {
    if (in_vain < IN_VAIN_MOST || !ip_settings.move_after) return 0;
    if (left_out++ < LEFT_OUT_MOST) return 1;
    left_out = 0;
    return 0;
}

/* ---- the pair -------------------------------------------------------------------------------------------------------- */

#define NEVER (INT64_MAX / 4)

static void begin_end(struct ip_socket *s, int fd, struct ip_socket *other) {
    ip_store_relaxed(&s->pair, other);
    ip_become_early(s, fd, NEVER, NULL, 1); /* (it counts as a connection once bytes have gone through) */
}

void ip_begin_pair(struct ip_socket *one, int fd, struct ip_socket *other, int other_fd) {
    if (fd <= 2 || other_fd <= 2) return; /* (the standard streams: ip_connected) */
    begin_end(one, fd, other);
    begin_end(other, other_fd, one);
}

/* Returns the other end; they are no pair any more. */
static struct ip_socket *part_pair(struct ip_socket *s) {
    struct ip_socket *other = ip_load_relaxed(&s->pair);
    if (other) ip_store_relaxed(&other->pair, NULL);
    ip_store_relaxed(&s->pair, NULL);
    return other;
}

static void forget_end(struct ip_socket *s) {
    if (s->opened) { /* it has two numbers, or has sent much */
        fs_stay_on_tcp(ip_conn(s), FS_REASON_FEW, 0);
        ip_settle(s);
        return;
    }
    int fd = ip_early_fd(s);
    fs_early_end(&s->early, ip_made_early(s));
    ip_set_number(fd, NULL);
    ip_free_socket(s);
}

void ip_forget_pair(struct ip_socket *s) {
    if (ip_likely(!ip_load_relaxed(&s->pair)) || !ip_is_own_process()) return;
    ip_lock();
    struct ip_socket *other = part_pair(s);
    if (other) forget_end(s), forget_end(other);
    ip_unlock();
}

static int is_ready_to_share(struct ip_socket *s) {
    ip_store_relaxed(&s->under_way, 0);
    ip_open(s);
    if (!s->opened) return 0;
    fs_path_connected(ip_conn(s));
    /* SYNC: early - pairs with ip_begins_early, as in ip_take_step. */
    return fs_path_is_undecided(ip_conn(s)) && !ip_load_sc(&s->inside);
}

void ip_share_pair(struct ip_socket *s) {
    struct ip_socket *ends[2] = {s, part_pair(s)};
    struct fs_call calls[2];
    int ready = 0, held = 0;
    if (!ends[1]) return;
    if (is_left_out()) {
        forget_end(ends[0]), forget_end(ends[1]);
        return;
    }
    for (int i = 0; i < 2; i++) ready += is_ready_to_share(ends[i]);
    while (held < 2 && ready == 2 && ip_may_use_libc() && ip_hold(ends[held], &calls[held])) held++;
    if (held == 2) fs_join_pair(ip_conn(ends[0]), ip_conn(ends[1]));
    for (int i = 1; i >= 0; i--) { /* (calls end in the order that is opposite to that of their beginnings) */
        fs_stay_on_tcp(ip_conn(ends[i]), FS_REASON_FORKED, 0);
        ip_settle(ends[i]);
        if (i < held) ip_report_path(ends[i]);
        if (i < held) ip_end(ends[i], &calls[i]);
    }
    if (!fs_is(ip_conn(s), FS_IS_ATTACHED)) return;
    for (int i = 0; i < 2; i++) ends[i]->shared_with = ends[1 - i];
}

void ip_end_of_pair(struct ip_socket *s) {
    part_pair(s);
    judge(s);
    struct ip_socket *other = s->shared_with;
    s->shared_with = NULL;
    if (other && other != s) other->shared_with = other; /* it speaks for both */
}
