/* The settings that `fastsock run` has worked out for the processes below it, and the statistics at the end.
 *
 * Responsible for: one variable in, one file out. Never: what a setting means, or its default (fastsock/config.py). */
#include "interpose.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct ip_settings ip_settings;
static char statistics[4096]; /* the file; programs write over their environment */
static pid_t statistics_of;   /* the process whose they are, and none that it starts */

/* The value of `name` in "a=1 b=2", or NULL. It ends with a space or the text. */
static const char *value_of(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; at; at = strchr(at, ' '), at = at ? at + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == '=') return at + length + 1;
    return NULL;
}

static int64_t number(const char *text, const char *name) {
    const char *value = value_of(text, name);
    return value ? strtoll(value, NULL, 10) : 0;
}

/* "80-80,8000-8100": allocated at each call, and never freed, as other threads may read the former ones. */
static const struct fs_port_range *ports(const char *text, const char *name, int *count) {
    const char *at = value_of(text, name);
    struct fs_port_range *ranges = NULL;
    *count = 0;
    while (at && *at >= '0' && *at <= '9') {
        char *end;
        struct fs_port_range *more = realloc(ranges, (size_t)(*count + 1) * sizeof *ranges);
        if (!more) break;
        ranges = more;
        ranges[*count].first = (uint16_t)strtol(at, &end, 10);
        ranges[*count].last = (uint16_t)strtol(end + 1, &end, 10);
        ++*count;
        at = *end == ',' ? end + 1 : NULL;
    }
    return ranges;
}

/* "32 digits of an address/bits,...". */
static const struct fs_network *networks(const char *text, const char *name, int *count) {
    const char *at = value_of(text, name);
    struct fs_network *found = NULL;
    *count = 0;
    while (at && strcspn(at, " ,") > 32 && at[32] == '/') {
        char *end, pair[3] = "";
        struct fs_network *more = realloc(found, (size_t)(*count + 1) * sizeof *found);
        if (!more) break;
        found = more;
        for (int i = 0; i < 16; i++) {
            memcpy(pair, at + 2 * i, 2);
            found[*count].address[i] = (unsigned char)strtol(pair, NULL, 16);
        }
        found[*count].bits = (int)strtol(at + 33, &end, 10);
        ++*count;
        at = *end == ',' ? end + 1 : NULL;
    }
    return found;
}

/* The numbers of users are those of the user namespace that `fastsock run` was called in. In another one they mean others, and nobody is
 * trusted by name. */
static void trust(const char *text) {
    struct stat space;
    static uint32_t users[FS_TRUSTED_USERS]; /* (with the lock, or before the program has threads) */
    struct fs_trust given = {.any = (int)number(text, "trusts_any"), .self = (int)number(text, "trusts_self"), .users = users};
    const char *at = value_of(text, "trusted");
    uint64_t own = stat("/proc/self/ns/user", &space) == 0 ? (uint64_t)space.st_ino : 0;
    while (at && *at >= '0' && *at <= '9' && given.count < FS_TRUSTED_USERS && own == (uint64_t)number(text, "user_namespace")) {
        char *end;
        users[given.count++] = (uint32_t)strtoul(at, &end, 10);
        at = *end == ',' ? end + 1 : NULL;
    }
    fs_set_trust(&given);
}

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

const char *ip_given_settings(void) {
    const char *text = getenv("FASTSOCK_RUN_SETTINGS"), *file = getenv("FASTSOCK_RUN_LIBRARY_STATS");
    if (!text || !number(text, "enabled") || is_python()) return NULL;
    if (file && strlen(file) < sizeof statistics) { /* "number of the process:file" */
        char *end;
        statistics_of = (pid_t)strtol(file, &end, 10);
        if (*end == ':') memcpy(statistics, end + 1, strlen(end));
    }
    return text;
}

void ip_read_settings(const char *text) {
    struct fs_upgrade_config config = {
        .window = (int)number(text, "window"),
        .chunk = (int)number(text, "chunk_size"),
        .flow = {.ack_threshold = (uint32_t)number(text, "ack_threshold"), .combine_limit = (uint32_t)number(text, "combine_limit"),
                   .combine_when_full = (int)number(text, "combine_when_full")},
        .memory_cap = number(text, "memory_cap"),
        .patience = number(text, "patience_ms") * 1000000,
        .waits = number(text, "meeting_ms") > 0,
    };
    struct fs_limits limits;
    limits.ports_allowed = ports(text, "ports_allowed", &limits.ports_allowed_count);
    limits.ports_excluded = ports(text, "ports_excluded", &limits.ports_excluded_count);
    limits.addresses_allowed = networks(text, "addresses_allowed", &limits.addresses_allowed_count);
    limits.addresses_excluded = networks(text, "addresses_excluded", &limits.addresses_excluded_count);
    fs_set_upgrade_config(&config);
    trust(text);
    fs_set_limits(&limits);
    fs_set_spin(number(text, "poll_us") * 1000);
    ip_settings = (struct ip_settings){
        .move_after = number(text, "move_after"), .meeting_ns = number(text, "meeting_ms") * 1000000};
}

/* ---- statistics ------------------------------------------------------------------------------------------------------ */

void fs_libc_sum_counters(struct fs_counters *sum) {
    ip_lock();
    fs_sum_counters(sum);
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

/* As fastsock.stats() has them (fastsock/statistics.py). */
void ip_write_statistics(void) {
    if (!statistics[0] || statistics_of != getpid()) return;
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
