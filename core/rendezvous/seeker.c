/* The seeker's steps of a search: it offers a region that both have, or looks the name up and sends one.
 *
 * Responsible for: what the seeker says, and to whom. Never: the publisher's steps, or their order (connector.c). As there, another thread
 * may decide while the host lock is unlocked. */
#include "rendezvous/search.h"

#include "control/descriptors.h"
#include "control/fd_reaper.h"
#include "control/region_mmap.h"
#include "control/rendezvous_dir.h"
#include "control/trust.h"
#include "transport/stream.h"
#include "wire/control_msg.h"

enum { FIRST_CHECK = 4, CHECK_DOUBLINGS = 4 }; /* steps before the socket is first checked for an answer; doubled so many times */

/* Sends HELLO with `count` descriptors. Returns 0 or -errno. */
static int send_hello(struct fs_connector *s, const int *descriptors, int count) {
    struct fs_hello hello = {.magic = FS_MAGIC, .version = FS_VERSION, .reuse = count == 1, .size = s->region_ref->size};
    memcpy(hello.id, s->region_ref->id, sizeof hello.id);
    if (fs_search_is_far(s)) return fs_meeting_hello(s->control, &hello, descriptors, count);
    return fs_send_descriptors(s->control, &hello, sizeof hello, descriptors, count);
}

/* Returns the reason that a refusal means. A later version may have reasons that this one does not know. */
static enum fs_reason reason_of(char why) {
    switch (why) {
    case FS_WHY_UNTRUSTED: return FS_REASON_UNTRUSTED;
    case FS_WHY_DESCRIPTORS: return FS_REASON_RESOURCES;
    case FS_WHY_UNPROVEN: return FS_REASON_UNPROVEN;
    case FS_WHY_OTHER_VERSION: return FS_REASON_VERSION;
    default: return FS_REASON_REFUSED;
    }
}

/* Takes the publisher's refusal, or its silent end. Returns 0 if it has not answered yet. */
static int take_answer(struct fs_step *at) {
    struct fs_connector *s = at->search;
    char answer;
    int is_far = fs_search_is_far(s);
    ssize_t got = is_far ? fs_meeting_answer(&s->far, s->control, &answer) : fs_system.recv(s->control, &answer, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (fs_wakeup_seen(s->region_ref->memory)) return 1; /* the next step takes it */
    if (got <= 0) fs_search_again(at, FS_REASON_PEER);
    /* the publisher does not know the old region any more, or its queue is full */
    else if (answer == FS_WHY_AGAIN) fs_search_again(at, FS_REASON_REFUSED);
    else if (answer == FS_WHY_UNPROVEN && is_far) fs_search_again(at, FS_REASON_UNPROVEN); /* what was proven there is too old */
    else fs_search_stay_on_tcp(at, reason_of(answer));
    return 1;
}

/* Returns true if the other end of a socket has gone. */
static int is_gone(int failed) {
    return failed == -EPIPE || failed == -ESHUTDOWN || failed == -ECONNRESET || failed == -ECONNABORTED || failed == -ECONNREFUSED;
}

/* Sends the connection's own descriptor along: it proves this end's identity to the publisher. */
static int offer_region(struct fs_step *at, uint32_t user) {
    struct fs_connector *s = at->search;
    int memfd = -1, failed = 0;
    int window = fs_search_config.window, chunk = fs_search_config.chunk;
    struct fs_peer_process peer = {.pid = s->peer, .user = user};
    peer.key = fs_search_is_far(s) ? s->far.key : s->peer ? (uint64_t)s->peer : fs_process_key(s->control);
    struct fs_region_ref *region_ref = s->reused ? NULL : fs_region_take(peer.key, window, chunk);
    if (region_ref) s->reused = 1;
    else failed = fs_region_new(&peer, window, chunk, &region_ref, &memfd);
    if (failed) return failed;
    memcpy(region_ref->services, s->ends.services, sizeof region_ref->services);
    s->region_ref = region_ref;
    if (memfd >= 0) failed = send_hello(s, (int[]){memfd, fs_fd(at->c)}, 2);
    else failed = send_hello(s, (int[]){fs_fd(at->c)}, 1);
    if (memfd >= 0) fs_system.close(memfd);
    if (is_gone(failed) && !take_answer(at)) fs_search_again(at, FS_REASON_PEER); /* (it may be refused before it says a word) */
    if (failed) return is_gone(failed) ? 0 : failed;
    if (!fs_search_is_over(at)) fs_path_event(at->path, FS_PATH_HELLO);
    s->checks = 0;
    s->next_check = FIRST_CHECK;
    return 0;
}

/* Returns true if the socket at the other end is this user's, as the kernel says. */
static int has_other_end(const struct fs_step *at, uint32_t user) {
    struct fs_peer_socket peer;
    return fs_search_finds_peer(at, &peer) && peer.user == user;
}

/* Somebody listens at a name of another network namespace: nothing is said before it is proven that the other end's address is its own. */
static int meet(struct fs_step *at) {
    struct fs_connector *s = at->search;
    int stands = s->far.runs ? fs_meeting_step(&s->far, s->control, &s->ends) : fs_meeting_begin(&s->far, s->control, &s->ends);
    if (stands == -EAGAIN || stands == -EMFILE || stands == -ENFILE) return stands;
    if (stands == FS_MEETING_READY) return offer_region(at, (uint32_t)-1); /* (of another namespace's users) */
    if (stands > 0) fs_search_stay_on_tcp(at, reason_of((char)stands));
    else if (stands < 0 || fs_now() >= s->until) fs_search_stay_on_tcp(at, FS_REASON_UNPROVEN);
    return 0;
}

int fs_search_look_up(struct fs_step *at) {
    struct fs_connector *s = at->search;
    if (fs_operations(at->path) < at->path->first_contact) {
        int posted = s->ends_known && fs_contact_post(&s->posts, fs_fd(at->c), &s->ends, fs_search_config.window, fs_search_config.chunk);
        if (fs_search_is_over(at)) return 0;
        if (posted) fs_path_event(at->path, FS_PATH_HELLO);
        else if (!fs_contact_may_post(&s->posts)) at->path->next = at->path->first_contact;
        return 0;
    }
    if (s->far.runs) return meet(at);
    /* This is usually the end that connected, because it has the larger port. It reaches the number of operations before the other end,
     * which publishes when the next message has come: a look-up now would be in vain. */
    if (!s->began && !fs_search_config.waits) {
        s->began = 1;
        return 0;
    }
    if (!fs_reaper_has_room()) { /* nobody could close the socket to an untrusted holder of the name */
        fs_search_retry_soon(at);
        return 0;
    }
    int64_t next = fs_next_step(at->path);
    fs_search_name(s);
    int found = fs_lookup_try(&s->lookup, fs_operations(at->path), &next);
    at->path->next = next;
    if (found == -EAGAIN) {
        fs_search_retry_soon(at);
        return 0;
    }
    if (found < 0) return found;
    if (!found) {
        if (s->lookup.over) fs_search_stay_on_tcp(at, FS_REASON_PEER);
        return 0;
    }
    struct ucred who;
    socklen_t size = sizeof who;
    s->control = fs_lookup_take(&s->lookup);
    s->until = fs_now() + fs_search_config.patience;
    if (fs_system.getsockopt(s->control, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0) return -errno;
    s->peer = who.pid;
    /* Anybody may hold the name. A hello carries descriptors that are for the other end only: of the users who are admitted, those who
     * could not harm this process anyway get one if the other end is theirs. */
    if (fs_search_is_far(s) && fs_dir_admits(who.uid)) return meet(at);
    s->trusted = !fs_search_is_far(s) && fs_is_trusted(who.uid);
    if (fs_search_is_far(s)) who.uid = (uid_t)-1;
    if (fs_admits(who.uid) && (s->trusted || has_other_end(at, who.uid))) return offer_region(at, who.uid);
    fs_search_stay_on_tcp(at, FS_REASON_UNTRUSTED);
    return 0;
}

int fs_search_await_wakeup(struct fs_step *at) {
    struct fs_connector *s = at->search;
    if (s->posts.count) {
        struct fs_region_ref *taken = fs_contact_taken(&s->posts);
        if (taken) return fs_search_move(at, taken);
        if (fs_operations(at->path) < at->path->first_contact) return 0;
        fs_contact_withdraw(&s->posts, 1);
        if (!fs_search_is_over(at)) fs_path_event(at->path, FS_PATH_AGAIN);
        return 0;
    }
    if (fs_wakeup_seen(s->region_ref->memory)) {
        struct fs_region_ref *region_ref = s->region_ref;
        if (fs_search_is_far(s) && !region_ref->far && !(region_ref->far = fs_meeting_join(&s->far, s->control))) return -EMFILE;
        s->region_ref = NULL;
        return fs_search_move(at, region_ref);
    }
    if (++s->checks < s->next_check) return 0;
    s->next_check += FS_MIN(s->checks, FIRST_CHECK << CHECK_DOUBLINGS);
    if (!take_answer(at) && fs_now() >= s->until) fs_search_stay_on_tcp(at, FS_REASON_PEER);
    return 0;
}
