/* The folder for names that other network namespaces find.
 *
 * Responsible for: who may use it, what a name is called there, and that none stays for ever. Never: believes a name. */
#include "control/rendezvous_dir.h"

#include <stdio.h>
#include <time.h>

#include "transport/stream.h"
#include "control/trust.h"
#include "os/atomics.h"
#include "os/syscalls.h"

enum {
    KIND = 4, FILE_NAME = KIND + 16, /* bytes */
    TURNS = 8, TURN_NS = 500000, /* tries to have the folder alone */
    SWEEP_S = 10,  /* between two sweeps */
    OLD_S = 5,     /* a name has been withdrawn by then, if its owner lives */
};

_Static_assert(sizeof FS_DIR_CONNECTION == KIND + 1 && sizeof FS_DIR_GROUP == KIND + 1, "one length for all");
_Static_assert(FS_RENDEZVOUS_DIR_MAX + 1 + FILE_NAME == FS_NAME_MAX, "a path of a name just fits");

struct folder {
    uint32_t owner, mode;
    char path[FS_RENDEZVOUS_DIR_MAX + 1];
};
static fs_atomic_ptr(struct folder) folder; /* never freed: a thread may read the former one */

static struct folder *current(void) {
    /* SYNC: folder - pairs with fs_set_rendezvous_dir: its path before its place. */
    return fs_load_acquire(&folder);
}

const char *fs_rendezvous_dir(void) {
    struct folder *of = current();
    return of ? of->path : NULL;
}

/* (Two user namespaces have no numbers for each other's users. Where this user alone may enter the folder, it has let the other one in.) */
int fs_dir_admits(uint32_t user) {
    struct folder *of = current();
    return of && fs_admits_far(user, of->owner == geteuid() && !(of->mode & (S_IRWXG | S_IRWXO)));
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static void write_path(char *into, const char *path, const char *kind, uint64_t number) {
    snprintf(into, FS_NAME_MAX + 1, "%s/%s%016llx", path, kind, (unsigned long long)number);
}

void fs_dir_path(char *into, const char *path, const char *kind, const char *name) {
    uint64_t number = UINT64_C(0xcbf29ce484222325); /* FNV-1a. Who comes under a wrong name is found out (address_proof.h) */
    while (*name) number = (number ^ (unsigned char)*name++) * UINT64_C(0x100000001b3);
    write_path(into, path, kind, number ^ number >> 32);
}

uint64_t fs_dir_number(const char *path, size_t length) {
    unsigned long long number = 0;
    char digits[17] = "";
    if (*path == '/' && length > FILE_NAME) memcpy(digits, path + length - 16, 16);
    return sscanf(digits, "%llx", &number) == 1 ? number : 0;
}

void fs_dir_unlink(uint64_t number) {
    char path[FS_NAME_MAX + 1];
    struct folder *of = current();
    if (!number || !of) return; /* (a name of a folder that is none any more is swept) */
    write_path(path, of->path, FS_DIR_CONNECTION, number);
    fs_system.unlink(path);
}

/* Returns true if no socket has this name any more. (One of another kind than is asked for answers otherwise, also before it listens.) */
static int is_deserted(const struct sockaddr_un *address, socklen_t size) {
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int deserted = fd >= 0 && fs_system.connect(fd, (const struct sockaddr *)address, size) < 0 && errno == ECONNREFUSED;
    if (fd >= 0) fs_system.close(fd);
    return deserted;
}

/* Takes turns with others that bind or sweep there: none removes a name that another has taken since it looked. Returns a descriptor to
 * close, or -1. (Whoever may read the folder can keep the turn; then it goes without, as it did, and two that come at once may both take a
 * name.) */
static int have_turn(const struct sockaddr_un *address) {
    char path[sizeof address->sun_path];
    struct timespec nap = {0, TURN_NS};
    memcpy(path, address->sun_path, sizeof path);
    const char *end = memchr(path, 0, sizeof path);
    path[FS_MAX(end ? (size_t)(end - path) : sizeof path, (size_t)FILE_NAME + 1) - FILE_NAME - 1] = 0;
    int fd = fs_system.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; fd >= 0 && fs_system.flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (tries < TURNS) {
            fs_system.nanosleep(&nap, NULL);
            continue;
        }
        fs_system.close(fd);
        fd = -1;
    }
    return fd;
}

static int bind_in_turn(int fd, const struct sockaddr_un *address, socklen_t size) {
    int failed = fs_system.bind(fd, (const struct sockaddr *)address, size) < 0 ? -errno : 0;
    if (failed == -EADDRINUSE && is_deserted(address, size)) {
        fs_system.unlink(address->sun_path);
        failed = fs_system.bind(fd, (const struct sockaddr *)address, size) < 0 ? -errno : 0;
    }
    if (failed) return failed;
    /* (The mask of the program would let in its own user alone. Who comes is judged by its user.) */
    return fs_system.chmod(address->sun_path, 0666) < 0 ? -errno : 0;
}

int fs_dir_bind(int fd, const struct sockaddr_un *address, socklen_t size) {
    int turn = have_turn(address), failed = bind_in_turn(fd, address, size);
    if (turn >= 0) fs_system.close(turn);
    return failed;
}

/* ---- the folder ------------------------------------------------------------------------------------------------ */

/* Returns true if a socket can be made there. */
static int makes_sockets(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    /* (Of another kind than the names, so a sweep leaves it alone.) */
    snprintf(address.sun_path, sizeof address.sun_path, "%s/try-%x", path, (unsigned)getpid());
    fs_system.unlink(address.sun_path); /* of a process that had this number and was killed */
    int made = fs_system.bind(fd, (struct sockaddr *)&address, sizeof address) == 0, error = errno;
    if (made) fs_system.unlink(address.sun_path);
    fs_system.close(fd);
    errno = error;
    return made;
}

/* Returns NULL, or what is wrong with the folder. */
static const char *judge(const char *path, struct folder *into) {
    struct stat status;
    if (strlen(path) > FS_RENDEZVOUS_DIR_MAX) return "its path is too long";
    if (fs_system.stat(path, &status) < 0) return errno == ENOENT ? "it does not exist" : "it cannot be entered";
    if (!S_ISDIR(status.st_mode)) return "it is no folder";
    if (status.st_mode & S_IWOTH && !fs_admits_all()) return "every user may write to it, and trust is not any";
    if (status.st_uid && status.st_uid != geteuid() && !fs_admits(status.st_uid))
        return "it belongs to another user, whom trust does not name";
    int fd = fs_system.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int told = fd >= 0 && fs_netns_cookie(fd);
    if (fd >= 0) fs_system.close(fd);
    if (!told) return "this kernel does not tell network namespaces apart (Linux 5.14 does)";
    if (!makes_sockets(path)) return errno == EACCES || errno == EROFS ? "this user may not write to it" : "its file system has no sockets";
    *into = (struct folder){.owner = status.st_uid, .mode = status.st_mode};
    memcpy(into->path, path, strlen(path) + 1);
    return NULL;
}

const char *fs_set_rendezvous_dir(const char *path) {
    struct folder *made = NULL, *before = current();
    const char *wrong = NULL;
    if (before && path && !strcmp(before->path, path)) return NULL;
    if (path && *path) {
        made = fs_system.malloc(sizeof *made);
        wrong = made ? judge(path, made) : "out of memory";
        if (wrong) {
            fs_system.free(made);
            made = NULL;
        }
    }
    /* SYNC: folder - pairs with current. */
    fs_store_release(&folder, made);
    return wrong;
}

/* ---- what killed processes left --------------------------------------------------------------------------------------- */

/* An entry as the kernel writes it (getdents64(2)). */
struct entry {
    uint64_t inode, offset;
    uint16_t size;
    unsigned char kind;
    char name[];
};

static void look_at(const char *path, const char *name, time_t now) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;
    if (strlen(name) != FILE_NAME || (memcmp(name, FS_DIR_CONNECTION, KIND) != 0 && memcmp(name, FS_DIR_GROUP, KIND) != 0)) return;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", path, name);
    /* (One that was bound just now need not listen yet.) */
    if (fs_system.stat(address.sun_path, &status) < 0 || !S_ISSOCK(status.st_mode) || now - status.st_mtime < OLD_S) return;
    if (!is_deserted(&address, sizeof address)) return;
    int turn = have_turn(&address);
    if (turn < 0) return;
    if (is_deserted(&address, sizeof address)) fs_system.unlink(address.sun_path);
    fs_system.close(turn);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than=" /* the control thread's stack is our own */
void fs_dir_sweep(void) {
    static fs_word64 next; /* monotonic ns */
    _Alignas(struct entry) char entries[2048];
    struct folder *of = current();
    int64_t now = fs_now();
    struct timespec of_day;
    if (!of || now < (int64_t)fs_load_relaxed(&next)) return;
    clock_gettime(CLOCK_REALTIME, &of_day); /* (a file has no other time) */
    fs_store_relaxed(&next, (uint64_t)(now + (int64_t)SWEEP_S * 1000000000)); /* (two threads that come at once both sweep) */
    int fd = fs_system.open(of->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t got = fs_system.getdents64(fd, entries, sizeof entries);
    for (; got > 0; got = fs_system.getdents64(fd, entries, sizeof entries)) {
        struct entry *it;
        for (ssize_t at = 0; at < got; at += it->size) {
            it = (struct entry *)(void *)(entries + at);
            look_at(of->path, it->name, (time_t)(of_day.tv_sec));
        }
    }
    fs_system.close(fd);
}
#pragma GCC diagnostic pop
