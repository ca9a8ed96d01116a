/* What the Python package in this process gets: events of its connections, for the program's log.
 *
 * Responsible for: that nothing is waited for. Events lie in a queue, and whoever listens is asked to take them later, by a thread that has
 * no lock of this library. Never: which of them the program wants. */
#include "interpose.h"
#include "report.h"

#include <arpa/inet.h>
#include <sys/un.h>

/* ---- addresses --------------------------------------------------------------------------------------------------------- */

/* The name of an end of a unix stream, as netstat shows it; without one "-". */
static int unix_text_of(char *text, int fd, int (*ask)(int fd, struct sockaddr *end, socklen_t *size)) {
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    if (ask(fd, (struct sockaddr *)&name, &size) < 0) return 0;
    int length = (int)size - (int)offsetof(struct sockaddr_un, sun_path), is_abstract = length > 0 && !name.sun_path[0];
    if (length <= 0) snprintf(text, IP_ADDRESS, "-");
    else snprintf(text, IP_ADDRESS, "%s%.*s", is_abstract ? "@" : "", length - is_abstract, name.sun_path + is_abstract);
    for (char *at = text; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
    return 1;
}

/* One end's address as text. 0: it is not known. */
static int text_of(char *text, int fd, int (*ask)(int fd, struct sockaddr *end, socklen_t *size)) {
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    char host[INET6_ADDRSTRLEN];
    socklen_t size = sizeof six;
    text[0] = 0;
    if (ask(fd, (struct sockaddr *)&six, &size) < 0) return 0;
    memcpy(&four, &six, sizeof four);
    if (six.sin6_family == AF_UNIX) return unix_text_of(text, fd, ask);
    int mapped = six.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr), is_four = six.sin6_family == AF_INET;
    const void *address = is_four ? (const void *)&four.sin_addr : mapped ? &six.sin6_addr.s6_addr[12] : (const void *)&six.sin6_addr;
    int in_brackets = !is_four && !mapped;
    if (!inet_ntop(in_brackets ? AF_INET6 : AF_INET, address, host, sizeof host)) return 0;
    snprintf(text, IP_ADDRESS, in_brackets ? "[%s]:%d" : "%s:%d", host, ntohs(is_four ? four.sin_port : six.sin6_port));
    return 1;
}

int ip_ends(struct ip_socket *s, char *local, char *peer) {
    int fd = fs_fd(ip_conn(s)), known = text_of(local, fd, getsockname);
    return text_of(peer, fd, getpeername) && known;
}

/* ---- events ------------------------------------------------------------------------------------------------------------ */

enum { ROOM = 256, FOR_DETAILS = 192 }; /* the rest is for events that everybody wants to know */

/* With the lock. */
static struct fs_libc_event queue[ROOM];
static int first, waiting, lost;
static pid_t telling; /* the process whose listener was told, and has not taken all yet; a forked child's has heard of nothing */
static int (*tell)(void);

/* Those that nobody wants who does not ask for them (fastsock/observability.py). */
static int is_detail(const struct fs_libc_event *e) {
    return !strcmp(e->event, "fastsock.path") || !strcmp(e->event, "fastsock.rendezvous_failed");
}

void ip_tell_program(struct ip_socket *s, const char *event, const char *name, const char *value, const char *reason) {
    if (ip_likely(!tell)) return;
    struct fs_libc_event e = {.event = event, .name = name, .reason = reason, .fd = fs_fd(ip_conn(s)), .of = getpid()};
    snprintf(e.value, sizeof e.value, "%s", value);
    ip_lock();
    if (waiting < (is_detail(&e) ? FOR_DETAILS : ROOM)) {
        e.lost = lost;
        lost = 0;
        queue[(first + waiting++) % ROOM] = e;
    } else {
        lost++;
    }
    int (*told)(void) = telling == e.of ? NULL : tell;
    if (told) telling = e.of;
    if (told && told()) telling = 0; /* the next event tries again */
    ip_unlock();
}

void fs_libc_listen(int (*listener)(void)) {
    ip_lock();
    tell = listener;
    ip_unlock();
}

/* Those of the process that this one was forked from are told there. */
static void forget(int details) {
    int kept = 0, process = getpid();
    for (int i = 0; i < waiting; i++) {
        struct fs_libc_event e = queue[(first + i) % ROOM];
        if (e.of == process && (details || !is_detail(&e))) queue[(first + kept++) % ROOM] = e;
    }
    waiting = kept;
    if (!waiting) telling = 0;
}

int fs_libc_events(int details) {
    ip_lock();
    forget(details);
    int count = waiting;
    ip_unlock();
    return count;
}

int fs_libc_take_event(struct fs_libc_event *taken) {
    ip_lock();
    forget(1);
    int any = waiting > 0;
    if (any) {
        *taken = queue[first];
        first = (first + 1) % ROOM;
        waiting--;
    }
    ip_unlock();
    return any;
}
