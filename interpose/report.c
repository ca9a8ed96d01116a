/* The events of this process's connections: for the program's own log (program_log.c), and for `fastsock doctor -- PROGRAM` a file of JSON
 * lines, as fastsock/run_report.py writes it.
 *
 * Responsible for: what the doctor reads. Never: advice, or sums over processes. Nothing here allocates: a handler of the program may have
 * made the call. No descriptor stays open. */
#include "interpose.h"
#include "report.h"

#include <stdlib.h>
#include <time.h>

static char folder[2048], command[1024]; /* the command's words as the inside of a JSON list */
static pid_t begun;                      /* the process that has begun the report, and none that it forks */

/* (Beyond the stack: a handler of the program may have little of it.) */
struct line { size_t length; char text[4096], path[sizeof folder + 32]; };

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...) {
    va_list more;
    va_start(more, format);
    int n = vsnprintf(l->text + l->length, sizeof l->text - l->length, format, more);
    va_end(more);
    if (n > 0) l->length = IP_MIN(l->length + (size_t)n, sizeof l->text - 1);
}

/* NULL without memory. */
static struct line *begin(const char *event) {
    struct timespec now;
    struct line *l = fs_allocate(sizeof *l);
    if (!l) return NULL;
    l->length = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    add(l, "{\"time\": %lld.%06ld, \"argv\": [%s], \"event\": \"%s\"", (long long)now.tv_sec, now.tv_nsec / 1000, command, event);
    return l;
}

static void end(struct line *l) {
    add(l, "}\n");
    snprintf(l->path, sizeof l->path, "%s/%d-%u.jsonl", folder, (int)getpid(), (unsigned)geteuid()); /* nobody else may write to it */
    int fd = open(l->path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) { /* (else no descriptor is left, or the doctor has ended: the program goes on) */
        ssize_t written = real.write(fd, l->text, l->length);
        (void)written;
        real.close(fd);
    }
    fs_release(l);
}

static int add_ends(struct line *l, struct ip_socket *s) {
    char local[IP_ADDRESS], peer[IP_ADDRESS];
    if (!ip_ends(s, local, peer)) return 0;
    add(l, "\"local\": \"%s\", \"peer\": \"%s\"", local, peer);
    return 1;
}

/* Of a unix stream the user of its other end, if that is another one: /proc does not tell. */
static void add_user(struct line *l, struct ip_socket *s) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (real.getsockopt(fs_fd(ip_conn(s)), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid != (uid_t)-1 && who.uid != geteuid())
        add(l, ", \"user\": %u", (unsigned)who.uid);
}

static void report(struct ip_socket *s, const char *event, const char *name, const char *value, const char *reason) {
    ip_tell_program(s, event, name, value, reason);
    struct line *l = ip_likely(!folder[0]) ? NULL : begin(event);
    if (!l) return;
    add(l, ", \"fd\": %d, \"%s\": \"%s\"", fs_fd(ip_conn(s)), name, value);
    if (reason) add(l, ", \"reason\": \"%s\"", reason);
    if (reason) add_user(l, s);
    size_t before = l->length;
    add(l, ", ");
    if (!add_ends(l, s)) l->length = before; /* it is reset, or closed */
    end(l);
}

void ip_report_error(struct ip_socket *s, const char *event, int failed) {
    char text[64];
    snprintf(text, sizeof text, "errno %d", -failed);
    if (failed == -EAGAIN || failed == -EMFILE) strcpy(text, "no descriptor is free (ulimit -n)"); /* (EAGAIN: in the reserved range) */
    if (failed == -ENFILE) strcpy(text, "no descriptor is free on this host (fs.file-max)");
    if (failed == -ENOMEM) strcpy(text, "out of memory");
    report(s, event, "error", text, NULL);
}

void ip_report_broken(struct ip_socket *s) {
    int own;
    const char *what = fs_violation_of(ip_conn(s), &own);
    if (own) report(s, "fastsock.fault", "fault", what, NULL);
    else report(s, "fastsock.violation", "violation", what, NULL);
}

void ip_report_fallback(struct ip_socket *s, int left, int64_t bridge) {
    char process[24];
    snprintf(process, sizeof process, "%lld", (long long)bridge);
    if (bridge) report(s, "fastsock.bridge", "process", process, NULL);
    if (left == FS_CANNOT_FALL_BACK)
        report(s, "fastsock.stays_on_ring", "why", "no descriptor or process is left, or the peer is another user's", NULL);
    if (left == FS_FELL_BACK_BROKEN) ip_report_broken(s);
}

void ip_report_path(struct ip_socket *s) {
    if (fs_is(ip_conn(s), FS_IS_ATTACHED)) report(s, "fastsock.path", "path", "ring", NULL);
    else report(s, "fastsock.path", "path", "tcp", fs_reason_text(fs_reason_of(ip_conn(s))));
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

void fs_libc_report_to(const char *asked) {
    if (strlen(asked) >= sizeof folder) return;
    read_command();
    strcpy(folder, asked);
}

void ip_begin_report(void) {
    const char *asked = getenv("FASTSOCK_RUN_REPORT");
    if (asked) fs_libc_report_to(asked);
    struct line *l = folder[0] ? begin("start") : NULL;
    if (!l) return;
    begun = getpid();
    add(l, ", \"origins\": {}");
    end(l);
}

static struct line *ended;

static void list_open(struct ip_socket *s, void *listed) {
    if (!s->opened || fs_is(ip_conn(s), FS_IS_CLOSED) || ended->length > sizeof ended->text - 512) return;
    size_t before = ended->length;
    add(ended, "%s{", *(int *)listed ? ", " : "");
    if (add_ends(ended, s)) {
        int ring = fs_is(ip_conn(s), FS_IS_ATTACHED) && !fs_is(ip_conn(s), FS_IS_OUT);
        add(ended, ", \"path\": \"%s\", \"reason\": \"%s\"}", ring ? "ring" : "tcp", fs_reason_text(fs_reason_of(ip_conn(s))));
        *(int *)listed = 1;
    } else {
        ended->length = before;
    }
}

int ip_has_report(void) { return folder[0] && begun == getpid(); }

void ip_end_report(void) {
    if (!ip_has_report() || !(ended = begin("end"))) return;
    add(ended, ", \"loops\": [], \"stats\": {\"fallback_reasons\": {");
    for (int i = 1, n = 0; i < FS_REASONS; i++)
        if (fs_count_paths(i) > 0) add(ended, "%s\"%s\": %lld", n++ ? ", " : "", fs_reason_text(i), (long long)fs_count_paths(i));
    add(ended, "}}, \"open\": [");
    int listed = 0;
    ip_lock();
    ip_each_socket(list_open, &listed);
    ip_unlock();
    add(ended, "]");
    end(ended);
}
