/* What the settings do in this process, and the statistics at its end.
 *
 * Responsible for: whether a preloaded program is served, and what the core is told. Never: what a value may be (setting_table.c). */
#include "interpose.h"
#include "libc_front.h"
#include "own_numbers.h"
#include "settings.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>

struct ip_settings ip_settings;
static char statistics[4096]; /* the file; programs write over their environment */
static pid_t statistics_of;   /* the process whose they are, and none that it starts */

/* A Python process below `fastsock run` is served by the package. */
static int is_python(void) {
    static char path[4096]; /* (once, before the program has threads) */
    const char *asked = getenv("FASTSOCK_RUN");
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (!asked || strcmp(asked, "1") != 0 || length < 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    return strncmp(name ? name + 1 : path, "python", 6) == 0;
}

void ip_keep_statistics(const char *file) {
    if (!file || strlen(file) >= sizeof statistics) return;
    statistics_of = getpid();
    strcpy(statistics, file);
}

int ip_is_preloaded(void) {
    static void *program;
    if (!program) program = dlopen(NULL, RTLD_LAZY); /* with all that every object finds */
    return dlsym(program, "fs_libc_sum_counters") == (void *)fs_libc_sum_counters;
}

int ip_is_asked_to_serve(void) {
    const char *file = getenv("FASTSOCK_RUN_LIBRARY_STATS");
    if (!ip_is_preloaded() || is_python()) return 0;
    if (file && strlen(file) < sizeof statistics) { /* "number of the process:file" */
        char *end;
        statistics_of = (pid_t)strtol(file, &end, 10);
        if (*end == ':') memcpy(statistics, end + 1, strlen(end));
    }
    return 1;
}

const char *ip_read_settings(struct fs_settings *settings) {
    static char line[FS_SETTING_LINE]; /* (with the lock, or before the program has threads) */
    static struct fs_setting_error error;
    if (!fs_settings_of_environment(settings, &error)) return NULL;
    fs_setting_say(&error, line);
    return line;
}

static void use_trust(const struct fs_settings *s) {
    static const char *said; /* of a folder that is not used there is one line */
    struct fs_trust trust = {s->trust.any, s->trust.self, s->trust.count, s->trust.items, s->rendezvous_dir.items, !s->tcpdump};
    const char *wrong = fs_set_trust(&trust);
    if (wrong && wrong != said)
        fprintf(stderr, "fastsock: rendezvous_dir (FASTSOCK_RENDEZVOUS_DIR) is %s, and is not used: %s\n", trust.rendezvous_dir, wrong);
    said = wrong;
}

void fs_libc_use_trust(const struct fs_settings *settings) {
    ip_lock();
    use_trust(settings);
    ip_unlock();
}

/* (Other threads may read the lists that were given before: those stay.) */
void ip_use_settings(const struct fs_settings *s) {
    struct fs_upgrade_config config = {
        .window = (int)s->window,
        .chunk = (int)s->chunk_size,
        .flow = {.ack_threshold = (uint32_t)s->ack_threshold,
                   .combine_limit = s->combine ? (uint32_t)s->combine_limit : 0,
                   .combine_when_full = (int)s->_combine_when_full},
        .memory_cap = s->memory_cap,
        .patience = s->_patience_ms * 1000000,
        .waits = s->_meeting_ms > 0,
    };
    struct fs_limits limits = {
        .ports_allowed = s->ports_allowed.items, .ports_allowed_count = s->ports_allowed.count,
        .ports_excluded = s->ports_excluded.items, .ports_excluded_count = s->ports_excluded.count,
        .addresses_allowed = s->addresses_allowed.items, .addresses_allowed_count = s->addresses_allowed.count,
        .addresses_excluded = s->addresses_excluded.items, .addresses_excluded_count = s->addresses_excluded.count,
        .paths_allowed = s->paths_allowed.items, .paths_allowed_count = s->paths_allowed.count,
        .paths_excluded = s->paths_excluded.items, .paths_excluded_count = s->paths_excluded.count,
        .unix_streams = (int)s->unix_streams,
    };
    use_trust(s);
    fs_set_upgrade_config(&config);
    fs_set_limits(&limits);
    fs_set_spin(s->poll_us * 1000);
    ip_settings = (struct ip_settings){.move_after = s->move_after,
                                       .meeting_ns = s->_meeting_ms * 1000000,
                                       .unix_streams = (int)s->unix_streams,
                                       .version = ip_settings.version + 1};
}

/* ---- statistics ------------------------------------------------------------------------------------------------------ */

void fs_libc_sum_counters(struct fs_counters *sum) {
    ip_lock();
    fs_sum_counters(NULL, sum);
    ip_unlock();
}

static uint64_t of(const fs_word64 *counter) { return ip_load_relaxed((fs_word64 *)counter); }

/* (A handler may call _exit(2) at any moment, also within malloc or stdio: none of them is used.) */
static __attribute__((format(printf, 2, 3))) void say(int fd, const char *format, ...) {
    char text[256];
    va_list more;
    va_start(more, format);
    int length = vsnprintf(text, sizeof text, format, more);
    va_end(more);
    for (int at = 0, part; at < length && (part = (int)ip_calls.write(fd, text + at, (size_t)(length - at))) > 0;) at += part;
}

/* (In this order: a forked child need not have the page of the name.) */
int ip_has_statistics(void) { return statistics_of && statistics_of == getpid() && statistics[0]; }

/* As fastsock.stats() has them (fastsock/statistics.py). */
void ip_write_statistics(void) {
    if (!ip_has_statistics()) return;
    int fd = (int)fs_call_kernel(SYS_openat, (long[6]){AT_FDCWD, (long)statistics, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666});
    if (fd < 0) return;
    struct fs_counters sum;
    int64_t tcp = 0;
    fs_libc_sum_counters(&sum);
    for (int i = 1; i < FS_REASONS; i++) tcp += fs_count_paths(i);
    say(fd, "{\"connections_ring\": %lld, \"connections_tcp\": %lld, \"fallback_reasons\": {", (long long)fs_count_paths(FS_REASON_NONE),
        (long long)tcp);
    for (int i = 1, n = 0; i < FS_REASONS; i++)
        if (fs_count_paths(i) > 0) say(fd, "%s\"%s\": %lld", n++ ? ", " : "", fs_reason_text(i), (long long)fs_count_paths(i));
    say(fd, "}");
#define FS_FIELD(name) say(fd, ", \"" #name "\": %llu", (unsigned long long)of(&sum.name));
    FS_COUNTERS(FS_FIELD)
#undef FS_FIELD
    say(fd, "}\n");
    real.close(fd);
}
