/* The table of numbers, the records that it leads to, and the lock.
 *
 * Responsible for: that a number leads to one record at a time, and that a record's memory stays. Never: what a record means. */
#include "interpose.h"

fs_atomic_ptr(struct ip_thing) ip_things[IP_NUMBERS]; /* 8 MiB of addresses: pages that nobody touches take no memory */
fs_word32 ip_activity;
static int highest = -1; /* number that ever led somewhere */

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void ip_lock(void) {
    ip_enter(); /* a handler that would wait for the lock does not run in who has it */
    if (ip_thread.has_lock++) return;
    pthread_mutex_lock(&lock);
}

void ip_unlock(void) {
    if (--ip_thread.has_lock == 0) pthread_mutex_unlock(&lock);
    ip_leave();
}

/* While the core waits for others. What was let go is taken again as often as it was held. */
static void *let_go(void) {
    int held = ip_thread.has_lock;
    if (!held) return NULL;
    ip_thread.has_lock = 0;
    pthread_mutex_unlock(&lock);
    return (void *)(intptr_t)held;
}

static void take_again(void *held) {
    pthread_mutex_lock(&lock);
    ip_thread.has_lock = (int)(intptr_t)held;
}

void ip_begin_lock(void) { fs_host = (struct fs_host){.unlock = let_go, .lock = take_again}; }

/* ---- the table --------------------------------------------------------------------------------------------------- */

void ip_set_number(int fd, struct ip_thing *thing) {
    if ((unsigned)fd >= IP_NUMBERS) return;
    struct ip_thing *before = fs_load_relaxed(&ip_things[fd]);
    if (before == thing) return;
    if (before) before->numbers--;
    if (thing) thing->numbers++;
    if (fd > highest) highest = fd;
    /* SYNC: number - pairs with ip_thing_at. */
    fs_store_release(&ip_things[fd], thing);
}

int ip_numbers_of(const struct ip_thing *thing, int *numbers, int room) {
    int count = 0;
    for (int fd = 0; fd <= highest && count < thing->numbers; fd++)
        if (fs_load_relaxed(&ip_things[fd]) == thing) {
            if (count < room) numbers[count] = fd;
            count++;
        }
    return count;
}

int ip_highest(void) { return highest; }

/* ---- numbers of the core's ------------------------------------------------------------------------------------------ */

/* A program that closes all numbers that it does not know would take the core's descriptors away, and a file of its own may get the number
 * next. The core makes each one that it keeps by F_DUPFD_CLOEXEC (core/os/fd_reserve.h). */
static struct ip_thing ours = {.kind = IP_OURS};
static int (*plain_fcntl)(int fd, int what, long argument);
static int (*plain_close)(int fd);

static int make_own(int fd, int what, long argument) {
    int made = plain_fcntl(fd, what, argument);
    if (what == F_DUPFD_CLOEXEC && 0 <= made && made < IP_NUMBERS && !fs_load_relaxed(&ip_things[made])) {
        fs_store_relaxed(&ip_things[made], &ours); /* (nothing is read behind it) */
        if (made > highest) highest = made;
    }
    return made;
}

static int close_own(int fd) {
    if ((unsigned)fd < IP_NUMBERS && fs_load_relaxed(&ip_things[fd]) == &ours) fs_store_relaxed(&ip_things[fd], NULL);
    return plain_close(fd);
}

void ip_begin_own_numbers(void) {
    plain_fcntl = fs_system.fcntl;
    plain_close = fs_system.close;
    fs_system.fcntl = make_own;
    fs_system.close = close_own;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

enum { CHUNK = 64 };

struct sockets {
    struct ip_socket of[CHUNK];
    struct sockets *next;
};
struct epolls {
    struct ip_epoll of[CHUNK];
    struct epolls *next;
};
static struct sockets *all_sockets;
static struct epolls *all_epolls;
static struct ip_socket *free_sockets;
static struct ip_epoll *free_epolls;

/* (Not by malloc, which another thread may have been in when this process was forked.) */
static void *new_chunk(size_t size) {
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

struct ip_socket *ip_new_socket(void) {
    if (!free_sockets) {
        struct sockets *chunk = new_chunk(sizeof *chunk);
        if (!chunk) return NULL;
        chunk->next = all_sockets;
        all_sockets = chunk;
        for (int i = 0; i < CHUNK; i++) ip_free_socket(&chunk->of[i]);
    }
    struct ip_socket *s = free_sockets;
    free_sockets = s->next;
    fs_store_relaxed(&s->thing.kind, IP_SOCKET);
    fs_store_relaxed(&s->nonblocking, 0);
    memset(&s->path, 0, sizeof s->path);
    memset(&s->pollable, 0, sizeof s->pollable);
    s->service = NULL;
    s->opened = 0;
    return s;
}

void ip_free_socket(struct ip_socket *s) {
    fs_note_not_open(&s->c);
    fs_store_relaxed(&s->thing.kind, IP_NOTHING);
    s->next = free_sockets;
    free_sockets = s;
}

struct ip_epoll *ip_new_epoll(void) {
    if (!free_epolls) {
        struct epolls *chunk = new_chunk(sizeof *chunk);
        if (!chunk) return NULL;
        chunk->next = all_epolls;
        all_epolls = chunk;
        for (int i = 0; i < CHUNK; i++) ip_free_epoll(&chunk->of[i]);
    }
    struct ip_epoll *e = free_epolls;
    free_epolls = e->next;
    fs_store_relaxed(&e->thing.kind, IP_EPOLL);
    return e;
}

void ip_free_epoll(struct ip_epoll *e) {
    fs_store_relaxed(&e->poller, NULL);
    fs_store_relaxed(&e->thing.kind, IP_NOTHING);
    e->next = free_epolls;
    free_epolls = e;
}

void ip_each_socket(void (*body)(struct ip_socket *s)) {
    for (struct sockets *chunk = all_sockets; chunk; chunk = chunk->next)
        for (int i = 0; i < CHUNK; i++)
            if (chunk->of[i].thing.numbers) body(&chunk->of[i]);
}

void ip_each_epoll(void (*body)(struct ip_epoll *e)) {
    for (struct epolls *chunk = all_epolls; chunk; chunk = chunk->next)
        for (int i = 0; i < CHUNK; i++)
            if (chunk->of[i].thing.numbers) body(&chunk->of[i]);
}
