/* Whom the setting `trust` admits. Read by any thread, without a lock. */
#include "control/trust.h"

#include <stdio.h>
#include <unistd.h>

#include "events/futex.h"
#include "os/syscalls.h"

enum { OVERFLOW_USER = 65534 }; /* the kernel's default */

static struct {
    fs_word32 any, self, count, users[FS_TRUSTED_USERS];
    fs_word32 nameless; /* the number that stands for all users whom this user namespace has none for; UINT32_MAX: it has all */
} trust = {.self = 1, .nameless = UINT32_MAX};

/* Returns true if the file has text, and sets `*line` to it. */
static int read_line(const char *path, char line[64]) {
    int fd = fs_system.open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = fs_system.read(fd, line, 63);
    fs_system.close(fd);
    line[FS_MAX(length, (ssize_t)0)] = 0;
    return length > 0;
}

/* The kernel gives the users that a user namespace does not map one number (user_namespaces(7)), by which strangers look like each other,
 * like the user `nobody`, or even like this process. (Without /proc it is not known if there are such users.) */
static uint32_t nameless_user(void) {
    char line[64];
    unsigned inside, outside, count, user;
    if (read_line("/proc/self/uid_map", line) && sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 && count == UINT32_MAX)
        return UINT32_MAX;
    return read_line("/proc/sys/kernel/overflowuid", line) && sscanf(line, "%u", &user) == 1 ? user : OVERFLOW_USER;
}

void fs_set_trusted(const struct fs_trust *given) {
    int count = FS_MIN(given->count, (int)FS_TRUSTED_USERS);
    fs_store_relaxed(&fs_untrusted_wakeups, given->any || count > 0); /* before such a peer can come */
    fs_store_relaxed(&trust.nameless, nameless_user());
    fs_store_relaxed(&trust.any, given->any != 0);
    fs_store_relaxed(&trust.self, given->self != 0);
    for (int i = 0; i < count; i++) fs_store_relaxed(&trust.users[i], given->users[i]);
    /* SYNC: named users - pairs with fs_admits: a reader of this count finds the users. Meanwhile a reader of the former count finds some
     * of both lists, so it admits nobody who is on neither. */
    fs_store_release(&trust.count, (uint32_t)count);
}

void fs_users_changed(void) { fs_store_relaxed(&trust.nameless, nameless_user()); }

/* `own`: the user is one of those whom the word `user` means. */
static int admits(uint32_t user, int own) {
    /* SYNC: named users - pairs with fs_set_trusted. */
    uint32_t count = fs_load_acquire(&trust.count);
    if (user == fs_load_relaxed(&trust.nameless)) return 0;
    if (fs_load_relaxed(&trust.any) || (fs_load_relaxed(&trust.self) && own)) return 1;
    for (uint32_t i = 0; i < count; i++)
        if (fs_load_relaxed(&trust.users[i]) == user) return 1;
    return 0;
}

int fs_admits(uint32_t user) { return admits(user, fs_is_trusted(user)); }

int fs_admits_far(uint32_t user, int nameless_too) {
    if (user != fs_load_relaxed(&trust.nameless)) return admits(user, user == geteuid());
    return nameless_too && (fs_load_relaxed(&trust.any) || fs_load_relaxed(&trust.self));
}

int fs_admits_all(void) { return fs_load_relaxed(&trust.any) != 0; }

int fs_admits_others(void) { return fs_load_relaxed(&fs_untrusted_wakeups) != 0; }

int fs_is_trusted(uint32_t user) {
    return user != fs_load_relaxed(&trust.nameless) && (user == 0 || user == geteuid());
}
