/* Event sets between two processes.
 *
 * The owner of a set sends an offer from its control socket to that of the peer process: a memfd of one page, and the eventfd. The
 * kernel vouches for the sending socket's name, so nobody can offer in the name of another process. An offer may be lost or refused.
 * Then the poster sends a request as for a doorbell byte (control_requests.h), and the set's own side notifies the set. The owner sees
 * that, and offers again, less and less often. */
#include "control/page_offers.h"

#include "control/region_memory.h"
#include "control/control_requests.h"
#include "control/control_state.h"
#include "control/control_thread.h"
#include "control/trust.h"

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
    struct msghdr message = {.msg_name = &address, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space};
    message.msg_namelen = fs_control_address(&address, page->token);
    memset(&control, 0, sizeof control);
    struct cmsghdr *next = fs_put_credentials(&message, &control.aligned);
    fs_put_cmsg(&message, next, SCM_RIGHTS, both, sizeof both);
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
    if (c->asked_here) fs_requests_announce_holder(c);
    fs_publish_slot(c);
    /* SYNC: token - pairs with fs_requests_announce. (The peer's process changes when a forked child takes over or its thread was given
     * up.) */
    uint64_t token = fs_load_acquire(&c->ring.region->asks[1 - c->ring.side]);
    struct fs_page_ref *page = set->places[place].page;
    if (!token || (page && page->token == token)) return;
    page = fs_page_of_process(set, place, token);
    if (!page) return;
    memcpy(page->region, c->region_id, sizeof page->region);
    page->side = (uint32_t)(1 - c->ring.side);
    if (!page->memory) offer(set, page);
}

void fs_reoffer_pages(struct fs_event_set *set) {
    if (!fs_load_relaxed(&set->asked) || !fs_event_set_is_own(set)) return;
    fs_store_relaxed(&set->asked, 0);
    for (struct fs_page_ref *page = set->pages; page; page = page->next)
        if (page->members && !is_known(page)) offer(set, page);
}

/* ---- the receiver of offers -------------------------------------------------------------------------------------- */

/* Returns the token of the control socket that a datagram came from, 0 if it came from another socket. */
static uint64_t token_of(const struct fs_requester *requester) {
    struct sockaddr_un same;
    unsigned long long token = 0;
    char name[sizeof same.sun_path + 1] = {0};
    if (requester->size <= offsetof(struct sockaddr_un, sun_path) + 1 || requester->size > sizeof same) return 0;
    memcpy(name, requester->address.sun_path + 1, requester->size - offsetof(struct sockaddr_un, sun_path) - 1);
    if (sscanf(name, FS_CONTROL_NAME, &token) != 1) return 0;
    socklen_t size = fs_control_address(&same, token);
    return size == requester->size && memcmp(&same, &requester->address, size) == 0 ? token : 0;
}

/* (Seals before size: a file that has them is the kernel's own.) */
static int is_sound(int memfd, int fd) {
    int flags = fs_system.fcntl(fd, F_GETFL, 0);
    return fs_is_sealed(memfd) && fs_file_size(memfd) == FS_PAGE_SIZE && flags >= 0 && flags & O_NONBLOCK &&
           fs_is_eventfd(fd, fs_control_eventfd());
}

/* Needs the table lock, so that a fork finds all of it done, or nothing. */
static int keep_offered(uint64_t token, const struct fs_requester *requester, const int descriptors[2]) {
    int fd = fs_dup_reserved(descriptors[1], 0);
    if (fd < 0) return 0;
    struct fs_event_page *page = fs_map_memfd(descriptors[0], FS_PAGE_SIZE);
    if (page && fs_remote_set_add(token, requester->offer.set, page, fd)) {
        fs_store_relaxed(&page->known, 1); /* tells the owner not to offer the page again */
        return 1;
    }
    if (page) fs_system.munmap(page, FS_PAGE_SIZE);
    fs_system.close(fd);
    return 0;
}

int fs_accept_page_offer(const struct fs_requester *requester, const int descriptors[2]) {
    uint64_t token = token_of(requester);
    if (!token || !is_sound(descriptors[0], descriptors[1])) return 0;
    fs_control_lock();
    int kept = keep_offered(token, requester, descriptors);
    fs_control_unlock();
    return kept;
}
