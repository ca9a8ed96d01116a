/* Regions that are offered by their cells.
 *
 * Responsible for: each is taken, parked again, or unmapped. Never: when that is (connector.c), or who takes one (control/cell.c). */
#include "rendezvous/subsequent_contact.h"

#include "control/cell.h"
#include "control/region_mmap.h"

enum { TRIES = 4 };

int fs_contact_may_post(const struct fs_subsequent_contact *posts) { return posts->tries < TRIES; }

int fs_contact_post(struct fs_subsequent_contact *posts, int fd, const struct fs_stream_identity *ends, int window, int chunk) {
    uint64_t cookie = 0;
    if (!fs_contact_may_post(posts)) return 0;
    posts->tries++;
    posts->count = fs_regions_take_to(ends->services, window, chunk, posts->of, FS_POSTS);
    if (posts->count && !(cookie = fs_cookie(fd))) {
        while (posts->count) fs_region_park(posts->of[--posts->count]);
        return 0;
    }
    for (int i = 0; i < posts->count; i++) fs_cell_post(posts->of[i]->memory, cookie, ends);
    if (posts->count) posts->tries = TRIES;
    return posts->count;
}

void fs_contact_withdraw(struct fs_subsequent_contact *posts, int in_vain) {
    while (posts->count) {
        struct fs_region_ref *region_ref = posts->of[--posts->count];
        if (!fs_cell_withdraw(region_ref->memory)) {
            fs_region_discard(region_ref); /* it was taken: the other end finds no consent, and stays in the kernel */
            continue;
        }
        if (in_vain) fs_region_park_last(region_ref);
        else fs_region_park(region_ref);
    }
}

struct fs_region_ref *fs_contact_taken(struct fs_subsequent_contact *posts) {
    for (int i = 0; i < posts->count; i++) {
        struct fs_region_ref *region_ref = posts->of[i];
        if (!fs_wakeup_seen(region_ref->memory)) continue;
        posts->of[i] = posts->of[--posts->count];
        fs_contact_withdraw(posts, 1);
        return region_ref;
    }
    return NULL;
}

void fs_contact_forget(struct fs_subsequent_contact *posts) {
    while (posts->count) fs_region_discard(posts->of[--posts->count]);
}
