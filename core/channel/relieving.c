/* Senders that wait for credits in no call of theirs.
 *
 * Who waits in a call looks at the time itself, as a loop with a backlog does (connection/relief.h). A program that
 * sends without waiting and polls its own descriptor sleeps in the kernel, where nobody tells it that the peer does not
 * read. So the connection thread looks for it. It finds such connections by a mark, for which nobody takes a lock.
 * While there is none it sleeps as ever.
 *
 * Responsible for: that each marked connection is looked at until there is room. Never: decides when it is time
 * (connection/relief.c), or waits for a turn. */
#include "channel/relieving.h"

#include "channel/table.h"
#include "channel/thread.h"
#include "connection/relief.h"

/* Some connection of the table may be marked. Whoever sets it pokes the thread, and a thread that starts finds it. So
 * it stays over a fork, with the marks: a child's thread looks after what the child has inherited. */
static fs_word32 wanted;

void fs_look_after(struct fs_connection *c) {
    /* SYNC: starves - pairs with fs_relieve_due. A mark that it does not see is set behind its look, so `wanted` is set
     * behind its taking back, and it looks again. */
    fs_store_sc(&c->starves, 1);
    if (fs_swap_if32(&wanted, 0, 1)) fs_poke_thread();
}

int fs_until_relief(int64_t *due) {
    int64_t now = fs_now();
    if (!fs_load_sc(&wanted)) return -1;
    if (!*due) *due = now + FS_STUCK;
    return (int)(FS_MAX(*due - now, 0) / 1000000 + 1);
}

static int is_marked(struct fs_asked *asked) {
    /* SYNC: starves - pairs with fs_look_after. It goes before the look: one that is set meanwhile stays. */
    return fs_load_sc(&asked->connection->starves) && fs_swap_if32(&asked->connection->starves, 1, 0);
}

void fs_relieve_due(int64_t *due) {
    struct fs_answerer answerer;
    struct fs_connection *c;
    int again = 0, left = FS_ALL_ON_RING;
    if (!*due || fs_now() < *due) return;
    *due = 0;
    fs_store_sc(&wanted, 0);
    while ((c = fs_hold_next(&answerer, &left, is_marked))) {
        if (fs_relieve_alone(c)) {
            fs_store_sc(&c->starves, 1);
            again = 1;
        }
        fs_forget_asked(&answerer);
    }
    if (again) fs_store_sc(&wanted, 1);
}
