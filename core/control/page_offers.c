/* Event sets between two processes.
 *
 * The owner of a set sends an offer from its control socket to that of the peer process: a memfd of one page, and the eventfd. The
 * kernel vouches for the sending socket's name, so nobody can offer in the name of another process. One that comes by a way (far_peer.h)
 * has no such name, and counts for the process at the other end of the connection whose region it names. An offer may be lost or refused.
 * Then the poster sends a request (control_requests.h), and the set's own side notifies the set. The owner sees
 * that, and offers again, less and less often. */
#include "control/page_offers.h"

#include "control/control_requests.h"
#include "control/control_state.h"
#include "control/trust.h"
#include "conn/request.h"

#define OFFER_NS ((int64_t)10000000) /* between the first two offers of a page; doubled each time */

/* ---- the owner ------------------------------------------------------------------------------------------------ */

/* Returns 0 or -errno. Never blocks. */
static int send_offer(const struct fs_page_ref *page, uint32_t set, int memfd, int fd) {
    struct sockaddr_un address;
    struct fs_page_offer offer = {
        .magic = FS_PAGE_OFFER_MAGIC, .version = FS_VERSION, .side = page->side, .set = set};
    union {
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    int own = fs_request_socket(), both[2] = {memfd, fd};
    if (own < 0) return -EBADF;
    memcpy(offer.id, page->region, sizeof offer.id);
    struct iovec iov = {&offer, sizeof offer};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space};
    if (!page->far) {
        message.msg_name = &address;
        message.msg_namelen = fs_control_address(&address, page->token);
    } else if (page->far->key != page->token) {
        return -ENOTCONN; /* (by now it is another one) */
    }
    memset(&control, 0, sizeof control);
    struct cmsghdr *next = fs_put_credentials(&message, &control.aligned);
    fs_put_cmsg(&message, next, SCM_RIGHTS, both, sizeof both);
    if (page->far) return fs_send_far(page->far, &message);
    return fs_system.sendmsg(own, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* (With an eventfd of its own if the peer may be another user: a holder of an eventfd may read it, and so steal another one's wakeup.) */
static void offer(struct fs_event_set *set, struct fs_page_ref *page) {
    int64_t now = fs_now();
    if (page->offers >= FS_PAGE_OFFERS || now < page->next_offer || !fs_has_fd_room()) return;
    page->next_offer = now + (OFFER_NS << page->offers);
    page->offers++;
    fs_retire_page(set, page);
    int memfd = fs_page_init(set, page, fs_admits_others());
    if (memfd < 0) return;
    int fd = fs_page_eventfd(set, page);
    if (fd < 0 || send_offer(page, fs_load_relaxed(&set->id), memfd, fd) < 0) fs_retire_page(set, page);
    fs_system.close(memfd);
}

static int is_known(const struct fs_page_ref *page) { return page->memory && fs_load_relaxed(&page->memory->known); }

void fs_set_register(struct fs_event_set *set, struct fs_connection *c) {
    uint32_t place = fs_slot_of(c);
    if (!fs_event_set_is_own(set)) return;
    /* Only this process knows its set ids, so it must get the requests itself: a forked child may have taken them over, and have ended. */
    if (fs_load_relaxed(&c->asked_here)) fs_requests_announce_holder(c);
    fs_publish_slot(c);
    uint64_t token = fs_peer_token(c);
    struct fs_page_ref *page = set->places[place].page;
    if (!token || (page && page->token == token)) return;
    page = fs_page_of_process(set, place, token);
    if (!page) return;
    memcpy(page->region, c->region_id, sizeof page->region);
    page->side = (uint32_t)(1 - c->ring.side);
    page->far = fs_far_of(c);
    if (!page->memory) offer(set, page);
}

void fs_reoffer_pages(struct fs_event_set *set) {
    if (!fs_load_relaxed(&set->asked) || !fs_event_set_is_own(set)) return;
    fs_store_relaxed(&set->asked, 0);
    for (struct fs_page_ref *page = set->pages; page; page = page->next)
        if (page->members && !is_known(page)) offer(set, page);
}
