/* What a thread that sleeps on a descriptor's number is told when the number means something else from now on.
 *
 * ppoll waits on the file that it found behind the number, and takes the events of whatever is behind the number when
 * it is woken. If the number is closed and taken again meanwhile (dup2), ppoll is deaf: bytes of the old file wake it,
 * it finds none in the new one, and sleeps on. So where there are other threads, a sleeper polls a third descriptor
 * too, the *news* of the process. Who has changed what a number means shuts it down (`shutdown`). That wakes all who
 * sleep on it, and it stays readable, so nobody has to count who has heard, and nobody takes another one's wakeup. The
 * next sleeper makes another one. The old number is closed behind the last sleeper: ppoll would be deaf on that number
 * too.
 *
 * It is a socket, and not an eventfd, since the program may close our descriptors with all others (os.closerange) and
 * take the numbers for its own. A socket is known by its inode, so nothing is done to a file of the program.
 *
 * All of this happens with the front end's lock, but for `over`. No sleeper is left out. A sleeper joins first and
 * looks at the number then; who changes a number does that first and tells then. So the sleeper finds the new number,
 * or it is told.
 *
 * Responsible for: these sockets. Never: sleeps, or knows of a connection. */
#include "events/fd_change.h"

#include "os/fd_reserve.h"
#include "os/syscalls.h"

#define NEWS_INTERVAL ((int64_t)1000000000) /* ns between two attempts to make one near the descriptor limit */

static struct fs_fd_change *present;  /* the one that sleepers join */
static struct fs_fd_change *all_news; /* that one, and those that somebody still sleeps on */
static int64_t no_news_until;

/* One that nobody sleeps on yet. NULL: there is no memory or no descriptor for it. */
static struct fs_fd_change *make_news(void) {
    int64_t now = fs_now();
    if (now < no_news_until) return NULL;
    struct fs_fd_change *made = fs_system.malloc(sizeof *made);
    int fd = -1;
    if (made) fd = fs_reserve_fd(fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), 0);
    uint64_t inode = fd < 0 ? 0 : fs_inode(fd);
    if (!inode) { /* without it, it could never be known again, and closed */
        if (fd >= 0) fs_system.close(fd);
        fs_system.free(made);
        no_news_until = now + NEWS_INTERVAL;
        return NULL;
    }
    made->fd = fd;
    made->inode = inode;
    made->sleepers = 0;
    fs_store_relaxed(&made->over, 0);
    made->next = all_news;
    all_news = made;
    return made;
}

/* Nobody joins it any more. With its last sleeper it goes. */
static void end_news(struct fs_fd_change *ended) {
    struct fs_fd_change **at = &all_news;
    if (present == ended) present = NULL;
    if (ended->sleepers) return;
    while (*at != ended) at = &(*at)->next;
    *at = ended->next;
    if (fs_inode(ended->fd) == ended->inode) fs_system.close(ended->fd);
    fs_system.free(ended);
}

struct fs_fd_change *fs_fd_change_subscribe(void) {
    if (!present) present = make_news();
    if (present) present->sleepers += 1;
    return present;
}

void fs_fd_change_unsubscribe(struct fs_fd_change *joined) {
    joined->sleepers -= 1;
    if (fs_load_relaxed(&joined->over)) end_news(joined);
}

void fs_fd_change_notify(void) {
    if (!present || !present->sleepers) return;
    if (fs_inode(present->fd) == present->inode)
        fs_system.shutdown(present->fd, SHUT_RD); /* readable from now on: datagrams could still come, and never will */
    fs_store_relaxed(&present->over, 1);
    end_news(present);
}

void fs_fd_change_forget(void) {
    while (all_news) {
        all_news->sleepers = 0;
        end_news(all_news);
    }
}
