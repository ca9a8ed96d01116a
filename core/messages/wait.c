/* Waiting for messages and for room. Theory: bells.c. */
#include "messages/group.h"

#include "events/futex.h"

#define LOOK_INTERVAL ((int64_t)20000000) /* ns that a writer sleeps at most: nobody wakes it when a reader dies */
#define CALLER_INTERVAL ((int64_t)100000000) /* that a reader does: a handler that ran before the sleep may have told its caller to end */
#define UNTRUSTED_INTERVAL ((int64_t)50000000)

/* Returns true if a message of the size could be sent for which there was no room. */
static int is_writable(struct fs_group *g) {
    struct fs_lent lent;
    struct fs_group_head *table = g->table;
    fs_advance_tail(g);
    if (fs_load_sc(&table->head) - fs_load_sc(&table->tail) >= g->geometry.slots) return 0;
    if (fs_group_reserve(g, fs_load_relaxed(&g->wanted), &lent)) return 0;
    fs_group_abandon(g, &lent);
    return 1;
}

static int is_ready(struct fs_group *g, int what) { return what == FS_RECEIVE ? fs_group_pending(g) : is_writable(g); }

static int spin(struct fs_group *g, int what, int64_t began, int64_t deadline) {
    struct fs_spin_stats *stats = what == FS_RECEIVE ? &g->receiving : &g->sending;
    int64_t budget = fs_spin_budget(stats, began, 0), until = began + budget, now;
    int ready = 0;
    if (deadline >= 0 && until > deadline) until = deadline;
    while (!ready && (now = fs_now()) < until)
        for (int i = 0; i < FS_SPIN_ROUNDS && !(ready = is_ready(g, what)); i++) fs_cpu_relax();
    fs_spin_stats_update(stats, &g->count, began, budget > 0, ready);
    return ready;
}

int fs_group_wait(struct fs_group *g, int what, int64_t deadline) {
    struct fs_bell *bell = what == FS_RECEIVE ? &g->table->readers : &g->table->writers;
    int64_t began = fs_now(), most = what == FS_SEND ? LOOK_INTERVAL : CALLER_INTERVAL;
    fs_serve_in_child(g);
    if (what == FS_RECEIVE && fs_group_pending(g)) { /* what another thread or process takes just now */
        fs_lock_wait(&fs_place(g)->taking);
        return 1;
    }
    if (spin(g, what, began, deadline)) return 1;
    uint32_t heard = fs_futex_load(&bell->futex);
    fs_add_sc(&bell->armed, 1);
    if (is_ready(g, what)) return 1;
    if (fs_load_relaxed(&fs_untrusted_wakeups)) most = FS_MIN(most, UNTRUSTED_INTERVAL);
    int64_t now = fs_now(), rest = deadline < 0 ? -1 : FS_MAX(deadline - now, (int64_t)0);
    int ends = rest >= 0 && rest <= most;
    int slept = fs_futex_wait(&bell->futex, heard, ends ? rest : most);
    return slept == 0 && !ends ? 1 : slept;
}
