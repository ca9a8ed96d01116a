/* The table of numbers, the records that it leads to, and the lock.
 *
 * Responsible for: that a number leads to one record at a time, and that a record's memory stays. Never: what a record means. */
#include "interpose.h"

#include <sys/mman.h>
#include <sys/syscall.h>

ip_atomic_ptr(struct ip_thing) ip_things[IP_NUMBERS]; /* 8 MiB of addresses: pages that nobody touches take no memory */
static fs_word32 IP_EACH_CALL reach; /* 1 + the highest one that ever led somewhere */

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void ip_take_mutex(void) {
    if (!ip_thread.has_lock++) pthread_mutex_lock(&lock);
}

void ip_give_mutex(void) {
    if (!--ip_thread.has_lock) pthread_mutex_unlock(&lock);
}

uint32_t ip_times_let_go;

/* While the core waits for others. What was let go is taken again as often as it was held. */
void *ip_let_go(void) {
    int held = ip_thread.has_lock;
    if (!held) return NULL;
    ip_thread.has_lock = 0;
    ip_times_let_go++;
    pthread_mutex_unlock(&lock);
    return (void *)(intptr_t)held;
}

void ip_take_again(void *held) {
    pthread_mutex_lock(&lock);
    ip_thread.has_lock = (int)(intptr_t)held;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* (The core's threads come here without the lock: neither of two threads may undo what the other has raised. Relaxed: nothing is read
 * after it, and a thread that is told of a number is told in a way that orders this too.) */
void ip_raise_highest(int fd) {
    uint32_t before = ip_load_relaxed(&reach);
    while (before <= (uint32_t)fd && !ip_replace(&reach, before, (uint32_t)fd + 1)) {}
}

static inline void set_number(int fd, struct ip_thing *thing) {
    if (ip_unlikely((uint32_t)fd >= ip_load_relaxed(&reach))) ip_raise_highest(fd);
    /* SYNC: number - pairs with ip_thing_at. */
    ip_store_release(&ip_things[fd], thing);
}

void ip_set_number(int fd, struct ip_thing *thing) {
    if ((unsigned)fd >= IP_NUMBERS) return;
    struct ip_thing *before = ip_load_relaxed(&ip_things[fd]);
    if (before == thing) return;
    if (before && !ip_is(before, IP_OURS)) before->numbers--;
    if (thing) thing->numbers++;
    set_number(fd, thing);
}

void ip_end_number(int fd, struct ip_socket *s) {
    s->thing.numbers = 0;
    ip_store_relaxed(&ip_things[fd], NULL); /* (nothing is read after it) */
    ip_free_socket(s);
}

int ip_numbers_of(const struct ip_thing *thing, int *numbers, int room) {
    int count = 0;
    for (int fd = 0; fd <= ip_highest() && count < thing->numbers; fd++)
        if (ip_load_relaxed(&ip_things[fd]) == thing) {
            if (count < room) numbers[count] = fd;
            count++;
        }
    return count;
}

int ip_highest(void) { return (int)ip_load_relaxed(&reach) - 1; }

/* ---- records ----------------------------------------------------------------------------------------------------- */

enum { CHUNK = 64 };

struct sockets {
    struct sockets *next;
    size_t size; /* of one of them, with its connection */
    int made; /* so many of CHUNK: a page without any takes no memory, and no time in a fork */
    _Alignas(64) char of[];
};
struct epolls {
    struct ip_epoll of[CHUNK];
    struct epolls *next;
};
static struct sockets *all_sockets;
static struct epolls *all_epolls;
static struct ip_socket IP_EACH_CALL *free_sockets;
static struct ip_socket *left_sockets; /* with calls inside when their last number was closed */
static struct ip_epoll *free_epolls;

static struct ip_socket *socket_of_chunk(struct sockets *chunk, int i) {
    return (struct ip_socket *)(void *)(chunk->of + (size_t)i * chunk->size);
}

/* (Not by malloc, which another thread may have been in when this process was forked.) */
static void *new_chunk(size_t size) {
    int error = errno;
    void *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = error;
    return made == MAP_FAILED ? NULL : made;
}

/* Records whose calls have ended since are free. A call that its thread has left without an end (longjmp, cancellation) never does: its
 * record stays where it is. */
static void collect_left(void) {
    struct ip_socket **at = &left_sockets;
    while (*at) {
        struct ip_socket *s = *at;
        if (ip_load_relaxed(&s->inside)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = free_sockets;
        free_sockets = s;
    }
}

/* Returns true if there is a free record, perhaps by more memory. */
static __attribute__((cold)) int more_sockets(void) {
    struct sockets *chunk = all_sockets;
    collect_left();
    if (free_sockets) return 1;
    if (!chunk || chunk->made == CHUNK) {
        size_t size = sizeof(struct ip_socket) + fs_conn_size();
        chunk = new_chunk(sizeof *chunk + CHUNK * size);
        if (!chunk) return 0;
        chunk->size = size;
        chunk->next = all_sockets;
        all_sockets = chunk;
    }
    struct ip_socket *s = socket_of_chunk(chunk, chunk->made++);
    fs_conn_init(ip_conn(s));
    ip_free_socket(s);
    return 1;
}

struct ip_socket *ip_new_socket(int fd, int nonblocking, int is_unix, uint32_t unset) {
    if (ip_unlikely(!free_sockets) && !more_sockets()) return NULL;
    struct ip_socket *s = free_sockets;
    free_sockets = s->next;
    ip_store_relaxed(&s->thing.kind, IP_SOCKET);
    ip_store_relaxed(&s->nonblocking, (uint32_t)nonblocking);
    ip_store_relaxed(&s->unset, unset);
    s->is_unix = (char)is_unix;
    ip_store_relaxed(&s->tells_left, IP_LEFT_NOT_ASKED);
    ip_store_relaxed(&s->left, 0);
    ip_store_relaxed(&s->pair, NULL);
    s->shared_with = NULL;
    s->prepared = s->opened = s->shut = s->owes_error = s->driven = s->waited_past = s->handed = 0;
    s->registered.in = NULL;
    s->thing.numbers = 1;
    set_number(fd, &s->thing); /* (which means nothing: ip_new_number) */
    return s;
}

void ip_free_socket(struct ip_socket *s) {
    struct ip_socket **list = ip_load_relaxed(&s->inside) ? &left_sockets : &free_sockets;
    ip_store_relaxed(&s->thing.kind, IP_NOTHING);
    s->next = *list;
    *list = s;
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
    ip_store_relaxed(&e->thing.kind, IP_EPOLL);
    return e;
}

void ip_free_epoll(struct ip_epoll *e) {
    ip_store_relaxed(&e->poller, NULL);
    ip_store_relaxed(&e->thing.kind, IP_NOTHING);
    e->version++;
    e->next = free_epolls;
    free_epolls = e;
}

void ip_each_socket(void (*body)(struct ip_socket *s, void *with), void *with) {
    for (struct sockets *chunk = all_sockets; chunk; chunk = chunk->next)
        for (int i = 0; i < chunk->made; i++)
            if (socket_of_chunk(chunk, i)->thing.numbers) body(socket_of_chunk(chunk, i), with);
}

void ip_each_epoll(void (*body)(struct ip_epoll *e, void *with), void *with) {
    for (struct epolls *chunk = all_epolls; chunk; chunk = chunk->next)
        for (int i = 0; i < CHUNK; i++)
            if (chunk->of[i].thing.numbers) body(&chunk->of[i], with);
}
