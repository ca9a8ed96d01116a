/* What is known of services: of ports that the process listens on, or connects to.
 *
 * Responsible for: that forked processes learn from each other's sessions (a server may have a child for each). Never: what is learned. */
#include "interpose.h"

#include <sys/mman.h>

enum {
    SERVICES = 256,
    HAND_OVERS = 1024, /* of which a child still learns that its parent has closed its copy */
    NEW = 3, /* connections to a port: the first ones count as those to any new port. (FTP has another port for each file.) */
};

/* Shared with forked children. (Services share places in it: what is known is a hint.) */
static struct known {
    fs_word32 listeners; /* so many have got a place */
    struct fs_session_stats of_listener[SERVICES], new_ports;
    struct at_port { int port, connections; struct fs_session_stats stats; } at_port[SERVICES];
    fs_word32 handed_over, closed[HAND_OVERS]; /* so many were, and the last one of each place that its parent has closed */
} *known;

static struct fs_service listeners[SERVICES], ports[SERVICES], new_ports;
/* A bit for each listener that was closed. (Its connections go on with its service.) A forked child that closes its copy writes there. */
static uint64_t IP_EACH_CALL forgotten[SERVICES / 64];

static __attribute__((noinline)) int share(void) {
    int error = errno;
    void *made = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    errno = error;
    if (made == MAP_FAILED) return 0;
    known = made;
    new_ports.stats = &known->new_ports;
    return 1;
}

int ip_share_services(void) { return ip_likely(known != NULL) || share(); }

/* (The statistics stay: where this process is a forked child that only closes its copy of the number, others have the listener.) */
void ip_forget_listener(int fd) { forgotten[(unsigned)fd % SERVICES / 64] |= UINT64_C(1) << (unsigned)fd % 64; }

struct fs_service *ip_service_of(int listener) {
    unsigned place = (unsigned)listener % SERVICES;
    if (ip_unlikely(!ip_share_services())) return NULL;
    if (!listeners[place].stats || forgotten[place / 64] >> place % 64 & 1) {
        struct fs_session_stats *stats = &known->of_listener[ip_add(&known->listeners, 1) % SERVICES];
        *stats = (struct fs_session_stats){0};
        listeners[place] = (struct fs_service){.stats = stats};
        forgotten[place / 64] &= ~(UINT64_C(1) << place % 64);
    }
    return &listeners[place];
}

struct fs_service *ip_service_at(int port) {
    unsigned place = (unsigned)port % SERVICES;
    if (ip_unlikely(!ip_share_services())) return NULL;
    struct at_port *at = &known->at_port[place];
    if (at->port != port) {
        *at = (struct at_port){.port = port};
        ports[place] = (struct fs_service){.stats = &at->stats};
    }
    if (at->connections++ < NEW) return &new_ports;
    ports[place].stats = &at->stats; /* (the first process to connect there may be another one) */
    return &ports[place];
}

uint32_t ip_next_hand_over(void) { return ip_share_services() ? ip_add(&known->handed_over, 1) + 1 : 0; }

/* (Relaxed: nothing is read after it. What matters is what the parent has not done.) */
void ip_tell_closed(uint32_t number) { ip_store_relaxed(&known->closed[number % HAND_OVERS], number); }
int ip_is_told_closed(uint32_t number) { return ip_load_relaxed(&known->closed[number % HAND_OVERS]) == number; }
