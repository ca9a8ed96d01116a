/* Regions that are offered by their cells.
 *
 * Responsible for: each is taken, cached again, or unmapped. Never: when that is (connector.c), or who takes one (control/cell.c). */
#include "rendezvous/subsequent_contact.h"

#include "control/cell.h"

enum { TRIES = 4 };

int fs_contact_may_post(const struct fs_subsequent_contact *posts) { return posts->tries < TRIES; }

int fs_contact_post(struct fs_subsequent_contact *posts, int fd, const struct fs_stream_identity *ends, int window, int chunk) {
    struct fs_region_ref *region_ref;
    if (!fs_contact_may_post(posts)) return 0;
    posts->tries++;
    while (posts->count < FS_POSTS && (region_ref = fs_cached_region_to(&ends->service, posts->of, posts->count, window, chunk)) != NULL) {
        if (!fs_cell_post(region_ref->memory, fd, ends)) {
            fs_region_put_back(region_ref, 1);
            break;
        }
        posts->of[posts->count++] = region_ref;
    }
    if (posts->count) posts->tries = TRIES;
    return posts->count;
}

void fs_contact_withdraw(struct fs_subsequent_contact *posts, int in_vain) {
    while (posts->count) {
        struct fs_region_ref *region_ref = posts->of[--posts->count];
        if (fs_cell_withdraw(region_ref->memory)) fs_region_put_back(region_ref, in_vain);
        else fs_region_discard(region_ref); /* it was taken: the other end finds no consent, and stays in the kernel */
    }
}

struct fs_region_ref *fs_contact_taken(struct fs_subsequent_contact *posts) {
    for (int i = 0; i < posts->count; i++) {
        struct fs_region_ref *region_ref = posts->of[i];
        if (!fs_wakeup_seen(region_ref->memory)) continue;
        posts->of[i] = posts->of[--posts->count];
        fs_contact_withdraw(posts, 1);
        region_ref->in_vain = 0;
        return region_ref;
    }
    return NULL;
}

int fs_contact_take(const struct fs_stream_identity *ends, struct fs_region_ref **region_ref) {
    struct fs_accepted_region came;
    return fs_cell_take(ends, &came) ? fs_region_accept(&came, region_ref) : 0;
}

void fs_contact_forget(struct fs_subsequent_contact *posts) {
    while (posts->count) fs_region_discard(posts->of[--posts->count]);
}
