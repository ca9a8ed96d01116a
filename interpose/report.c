/* The report of this process for `fastsock doctor -- PROGRAM`: a file of JSON lines, as fastsock/run_report.py writes it.
 *
 * Responsible for: what the doctor reads. Never: advice, or sums over processes. Nothing here allocates, and only
 * the end takes a lock: a handler of the program may have made the call. No descriptor stays open. */
#include "interpose.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>

static char folder[2048], command[1024]; /* the command's words as the inside of a JSON list */
static pid_t begun;                      /* the process that has begun the report, and none that it forks */

struct line { char text[4096]; size_t length; };

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...) {
    va_list more;
    va_start(more, format);
    int n = vsnprintf(l->text + l->length, sizeof l->text - l->length, format, more);
    va_end(more);
    if (n > 0) l->length = IP_MIN(l->length + (size_t)n, sizeof l->text - 1);
}

static void begin(struct line *l, const char *event) {
    struct timespec now;
    l->length = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    add(l, "{\"time\": %lld.%06ld, \"argv\": [%s], \"event\": \"%s\"", (long long)now.tv_sec, now.tv_nsec / 1000, command, event);
}

static void end(struct line *l) {
    char path[sizeof folder + 32];
    add(l, "}\n");
    snprintf(path, sizeof path, "%s/%d.jsonl", folder, (int)getpid());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return; /* no descriptor is left, or the doctor has ended: the program goes on */
    ssize_t written = real.write(fd, l->text, l->length);
    (void)written;
    real.close(fd);
}

/* Adds one end of a connection, IPv4-mapped addresses as IPv4, so that both ends give the same text. Returns 0 if it is not known. */
static int add_end(struct line *l, const char *name, int fd, int (*ask)(int fd, struct sockaddr *end, socklen_t *size)) {
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    char text[INET6_ADDRSTRLEN];
    socklen_t size = sizeof six;
    if (ask(fd, (struct sockaddr *)&six, &size) < 0) return 0;
    memcpy(&four, &six, sizeof four);
    int mapped = six.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr), short_ = six.sin6_family == AF_INET;
    const void *address = short_ ? (const void *)&four.sin_addr : mapped ? &six.sin6_addr.s6_addr[12] : (const void *)&six.sin6_addr;
    if (!inet_ntop(short_ || mapped ? AF_INET : AF_INET6, address, text, sizeof text)) return 0;
    add(l, "\"%s\": \"%s:%d\"", name, text, ntohs(short_ ? four.sin_port : six.sin6_port));
    return 1;
}

static int add_ends(struct line *l, struct ip_socket *s) {
    int fd = fs_fd(ip_conn(s));
    return add_end(l, "local", fd, getsockname) && (add(l, ", "), add_end(l, "peer", fd, getpeername));
}

void ip_report(struct ip_socket *s, const char *event, const char *name, const char *value) {
    struct line l;
    if (ip_likely(!folder[0])) return;
    begin(&l, event);
    add(&l, ", \"fd\": %d, \"%s\": \"%s\", ", fs_fd(ip_conn(s)), name, value);
    if (!add_ends(&l, s)) add(&l, "\"local\": \"?\", \"peer\": \"?\"");
    end(&l);
}

void ip_report_error(struct ip_socket *s, const char *event, int failed) {
    char text[32];
    snprintf(text, sizeof text, "errno %d", -failed);
    ip_report(s, event, "error", text);
}

void ip_report_broken(struct ip_socket *s) {
    int own;
    const char *what = fs_violation_of(ip_conn(s), &own);
    if (own) ip_report(s, "fastsock.fault", "fault", what);
    else ip_report(s, "fastsock.violation", "violation", what);
}

void ip_report_path(struct ip_socket *s) {
    struct line l;
    if (ip_likely(!folder[0])) return;
    begin(&l, "fastsock.path");
    add(&l, ", \"path\": \"%s\", \"reason\": \"%s\"", fs_is(ip_conn(s), FS_IS_ATTACHED) ? "ring" : "tcp", fs_reason_text(fs_reason_of(ip_conn(s))));
    size_t before = l.length;
    add(&l, ", ");
    if (!add_ends(&l, s)) l.length = before; /* it is reset, or closed */
    end(&l);
}

/* The words of the command line, so that no character needs more than itself. */
static void read_command(void) {
    char raw[sizeof command / 4];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : real.read(fd, raw, sizeof raw - 1);
    char *to = command;
    if (fd >= 0) real.close(fd);
    for (ssize_t i = 0, first = 1; i < length; i++) {
        if (first) to += sprintf(to, "%s\"", i ? ", " : "");
        first = raw[i] == 0 || i == length - 1;
        if (raw[i]) *to++ = raw[i] < ' ' || raw[i] == '"' || raw[i] == '\\' || raw[i] & 0x80 ? '?' : raw[i];
        if (first) *to++ = '"';
    }
    *to = 0;
}

void ip_begin_report(void) {
    const char *asked = getenv("FASTSOCK_RUN_REPORT");
    struct line l;
    if (!asked || strlen(asked) >= sizeof folder) return;
    read_command();
    strcpy(folder, asked);
    begun = getpid();
    begin(&l, "start");
    add(&l, ", \"origins\": {}");
    end(&l);
}

static struct line ended;
static int listed;

static void list_open(struct ip_socket *s) {
    if (!s->opened || fs_is(ip_conn(s), FS_IS_CLOSED) || ended.length > sizeof ended.text - 512) return;
    size_t before = ended.length;
    add(&ended, "%s{", listed ? ", " : "");
    if (add_ends(&ended, s)) {
        int ring = fs_is(ip_conn(s), FS_IS_ATTACHED) && !fs_is(ip_conn(s), FS_IS_OUT);
        add(&ended, ", \"path\": \"%s\", \"reason\": \"%s\"}", ring ? "ring" : "tcp", fs_reason_text(fs_reason_of(ip_conn(s))));
        listed = 1;
    } else {
        ended.length = before;
    }
}

void ip_end_report(void) {
    if (!folder[0] || begun != getpid()) return;
    begin(&ended, "end");
    add(&ended, ", \"loops\": [], \"stats\": {\"fallback_reasons\": {");
    for (int i = 1, n = 0; i < FS_REASONS; i++)
        if (fs_count_paths(i) > 0) add(&ended, "%s\"%s\": %lld", n++ ? ", " : "", fs_reason_text(i), (long long)fs_count_paths(i));
    add(&ended, "}}, \"open\": [");
    ip_lock();
    ip_each_socket(list_open);
    ip_unlock();
    add(&ended, "]");
    end(&ended);
}
