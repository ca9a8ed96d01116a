/* Wakes threads whose descriptor was closed or whose number was reused.
 *
 * ppoll waits on the file that it found behind the number, and when woken reads the events of the file that is there now. If the number
 * is closed and reused meanwhile (dup2), ppoll is deaf: bytes of the old file wake it, it finds none in the new one, and sleeps on. So
 * in a process with other threads, a sleeper polls a third descriptor too, one for the process. The thread that changes a number shuts
 * that descriptor down (`shutdown`), which wakes all sleepers. The descriptor stays readable, so nobody counts the woken and nobody
 * takes another's wakeup. The next sleeper makes a new one. The old one is closed after its last sleeper: ppoll would be deaf on its
 * number too.
 *
 * It is a socket, not an eventfd, since the program may close our descriptors (os.closerange) and reuse their numbers. A socket's inode
 * identifies it, so nothing is done to a file of the program.
 *
 * It has a lock of its own, so that a wait takes none of the front end's. No sleeper is missed: a sleeper subscribes and
 * then looks at the number; the other thread changes the number and then notifies. So the sleeper finds the new number, or is woken. */
#include "events/fd_change.h"

#include <pthread.h>

#include "os/fd_reserve.h"
#include "os/host.h"
#include "os/syscalls.h"

#define RETRY_INTERVAL ((int64_t)1000000000) /* ns between two attempts to make a socket near the descriptor limit */

static pthread_mutex_t FS_EACH_FORK lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows, and of each one's `sleepers` */
static struct fs_fd_change *present;  /* the one that sleepers join */
static struct fs_fd_change *all_changes; /* that one, and older ones with sleepers */
static int64_t no_retry_until;

/* Returns a new one without sleepers, or NULL without memory or descriptor. */
static struct fs_fd_change *make_change(void) {
    int64_t now = fs_now();
    if (now < no_retry_until) return NULL;
    struct fs_fd_change *made = fs_system.malloc(sizeof *made);
    int fd = -1;
    if (made) fd = fs_reserve_fd(fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), 0);
    uint64_t inode = fd < 0 ? 0 : fs_inode(fd);
    if (!inode) { /* it could not be identified later, and so not closed */
        if (fd >= 0) fs_system.close(fd);
        fs_system.free(made);
        no_retry_until = now + RETRY_INTERVAL;
        return NULL;
    }
    made->fd = fd;
    made->inode = inode;
    made->sleepers = 0;
    fs_store_relaxed(&made->over, 0);
    made->next = all_changes;
    all_changes = made;
    return made;
}

/* Ends it: nobody joins any more, and the last sleeper frees it. */
static void end_change(struct fs_fd_change *ended) {
    struct fs_fd_change **at = &all_changes;
    if (present == ended) present = NULL;
    if (ended->sleepers) return;
    while (*at != ended) at = &(*at)->next;
    *at = ended->next;
    if (fs_inode(ended->fd) == ended->inode) fs_system.close(ended->fd);
    fs_system.free(ended);
}

struct fs_fd_change *fs_fd_change_subscribe(void) {
    pthread_mutex_lock(&lock);
    if (!present) present = make_change();
    struct fs_fd_change *joined = present;
    if (joined) joined->sleepers += 1;
    pthread_mutex_unlock(&lock);
    return joined;
}

void fs_fd_change_unsubscribe(struct fs_fd_change *joined) {
    pthread_mutex_lock(&lock);
    joined->sleepers -= 1;
    if (fs_load_relaxed(&joined->over)) end_change(joined);
    pthread_mutex_unlock(&lock);
}

void fs_fd_change_notify(void) {
    pthread_mutex_lock(&lock);
    if (present && present->sleepers) {
        if (fs_inode(present->fd) == present->inode)
            fs_system.shutdown(present->fd, SHUT_RD); /* readable from now on, like a socket at its end */
        fs_store_relaxed(&present->over, 1);
        end_change(present);
    }
    pthread_mutex_unlock(&lock);
}

void FS_AT_FORK fs_fd_change_forget(void) {
    fs_renew_lock(&lock); /* (its holder may be a thread that is not here) */
    while (all_changes) {
        all_changes->sleepers = 0;
        end_change(all_changes);
    }
}
