/* One parser of settings, for variables, for the arguments of the launcher, and for the keyword arguments of the Python package.
 *
 * Responsible for: the table, what a value may be, and what is said of a wrong one. Never: what a setting does (settings.c). The launcher
 * has this file too, without the library. */
#include "settings.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FLAG(name, initial) {#name, initial, 0, 1, FS_FLAG, offsetof(struct fs_settings, name)},
#define NUMBER(name, initial, low, high) {#name, initial, low, high, FS_NUMBER, offsetof(struct fs_settings, name)},
#define LIST(name, of, initial) {#name, initial, 0, 0, of, offsetof(struct fs_settings, name)},
const struct fs_setting fs_setting_table[] = {FS_SETTINGS(FLAG, NUMBER, LIST){NULL, NULL, 0, 0, FS_FLAG, 0}};

static const char prefix[] = "FASTSOCK_";
static const char of_users[] = "user, any, or users by name or number, such as user,redis,999";

/* A part of a text, without the space around it. */
struct word { const char *at; int length; };

static struct word trimmed(const char *at, size_t length) {
    while (length && isspace((unsigned char)*at)) at++, length--;
    while (length && isspace((unsigned char)at[length - 1])) length--;
    return (struct word){at, (int)length};
}

static int is(struct word w, const char *text) { return strlen(text) == (size_t)w.length && !memcmp(w.at, text, (size_t)w.length); }

static int wrong(struct fs_setting_error *e, struct word w, const char *permitted) {
    e->word = w.at;
    e->length = w.length;
    e->is_number = 0;
    snprintf(e->permitted, sizeof e->permitted, "%s", permitted);
    return -1;
}

static int wrong_number(struct fs_setting_error *e, const char *setting, int64_t number) {
    e->setting = setting;
    e->length = snprintf(e->own, sizeof e->own, "%lld", (long long)number);
    e->word = e->own;
    e->is_number = 1;
    return -1;
}

/* Returns 1, or 0: the word is no whole number. One that is too large for any setting comes out too large. */
static int read_number(struct word w, int64_t *number) {
    int sign = w.length && (*w.at == '-' || *w.at == '+'), at = sign;
    for (*number = 0; at < w.length && isdigit((unsigned char)w.at[at]); at++)
        if (*number < INT64_MAX / 16) *number = *number * 10 + (w.at[at] - '0');
    if (sign && *w.at == '-') *number = -*number;
    return at == w.length && at > sign;
}

static int read_flag(struct word w, int64_t *flag, struct fs_setting_error *e) {
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (strlen(words[i]) == (size_t)w.length && !strncasecmp(w.at, words[i], (size_t)w.length)) return *flag = i % 2, 0;
    return wrong(e, w, "0 or 1");
}

/* Makes room for one more, at the end. NULL without memory. */
static void *one_more(struct fs_list *list, size_t size) {
    char *more = realloc(list->items, (size_t)(list->count + 1) * size);
    if (!more) return NULL;
    list->items = more;
    return memset(more + (size_t)list->count++ * size, 0, size);
}

static int read_ports(struct word w, struct fs_list *list, struct fs_setting_error *e) {
    const char *dash = w.length > 1 ? memchr(w.at + 1, '-', (size_t)w.length - 1) : NULL;
    struct word first = trimmed(w.at, dash ? (size_t)(dash - w.at) : (size_t)w.length);
    struct word last = dash ? trimmed(dash + 1, (size_t)(w.at + w.length - dash - 1)) : first;
    int64_t low, high;
    if (!read_number(first, &low) || !read_number(last, &high) || low < 0 || low > high || high > 65535)
        return wrong(e, w, "ports 0 to 65535, such as 80,8000-8100");
    struct fs_port_range *range = one_more(list, sizeof *range);
    if (range) range->first = (uint16_t)low, range->last = (uint16_t)high;
    return 0;
}

static int read_network(struct word w, struct fs_list *list, struct fs_setting_error *e) {
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff}; /* the prefix of an IPv4-mapped IPv6 address */
    char text[INET6_ADDRSTRLEN] = "";
    const char *slash = memchr(w.at, '/', (size_t)w.length);
    size_t length = slash ? (size_t)(slash - w.at) : (size_t)w.length;
    struct fs_network made = {{0}, 0};
    int64_t bits = 0;
    if (length < sizeof text) memcpy(text, w.at, length);
    int most = inet_pton(AF_INET, text, made.address + 12) == 1 ? 32 : inet_pton(AF_INET6, text, made.address) == 1 ? 128 : -1;
    if (most < 0 || (slash && (!read_number((struct word){slash + 1, w.length - (int)length - 1}, &bits) || bits < 0 || bits > most)))
        return wrong(e, w, "addresses or networks, such as 127.0.0.0/8,::1");
    if (most == 32) memcpy(made.address, mapped, sizeof mapped);
    made.bits = (slash ? (int)bits : most) + 128 - most;
    for (int i = made.bits; i < 128; i++) made.address[i / 8] &= (unsigned char)~(0x80 >> i % 8);
    struct fs_network *network = one_more(list, sizeof *network);
    if (network) *network = made;
    return 0;
}

static int read_path(struct word w, struct fs_list *list, struct fs_setting_error *e) {
    struct fs_path_pattern *pattern;
    if (w.length >= (int)sizeof pattern->text)
        return wrong(e, w, "paths, folders or abstract names, such as /run/postgresql,@name, at most 107 bytes long");
    if (!(pattern = one_more(list, sizeof *pattern))) return 0;
    memcpy(pattern->text, w.at, (size_t)w.length);
    pattern->length = w.length;
    return 0;
}

/* The number of this process's user namespace, in which users have their numbers; 0 if it is unknown. */
static uint64_t own_namespace(void) {
    struct stat space;
    return stat("/proc/self/ns/user", &space) == 0 ? (uint64_t)space.st_ino : 0;
}

/* "user", "name", "999", or "999@4026531837": that number in one user namespace. */
static int read_user(struct word w, struct fs_list *list, struct fs_setting_error *e) {
    char name[256] = "";
    const char *at = memchr(w.at, '@', (size_t)w.length);
    int64_t number, space;
    if (is(w, "user")) return list->self = 1, 0;
    if (at && read_number((struct word){w.at, (int)(at - w.at)}, &number) &&
        read_number((struct word){at + 1, w.length - (int)(at - w.at) - 1}, &space)) {
        if ((uint64_t)space != own_namespace()) return 0; /* somebody else, here */
        w.length = (int)(at - w.at);
    }
    if (w.length && strspn(w.at, "0123456789") >= (size_t)w.length) {
        if (!read_number(w, &number) || number >= UINT32_MAX) return wrong(e, w, of_users);
    } else {
        if (!w.length || is(w, "any")) return wrong(e, w, of_users);
        if ((size_t)w.length < sizeof name) memcpy(name, w.at, (size_t)w.length);
        struct passwd *found = getpwnam(name);
        if (!found) {
            wrong(e, w, of_users);
            size_t length = strlen(e->permitted);
            snprintf(e->permitted + length, sizeof e->permitted - length, "; this host has no user '%.64s'", name);
            return -1;
        }
        number = found->pw_uid;
    }
    const uint32_t *users = list->items;
    for (int i = 0; i < list->count; i++)
        if (users[i] == (uint32_t)number) return 0;
    uint32_t *user = one_more(list, sizeof *user);
    if (user) *user = (uint32_t)number;
    return 0;
}

static int read_folder(struct word w, struct fs_list *list, struct fs_setting_error *e) {
    if (!w.length) return 0;
    if (*w.at != '/' || w.length > FS_RENDEZVOUS_DIR_MAX) {
        wrong(e, w, "");
        snprintf(e->permitted, sizeof e->permitted, "the path of a folder from / on, at most %d bytes long", FS_RENDEZVOUS_DIR_MAX);
        return -1;
    }
    list->items = strndup(w.at, (size_t)w.length);
    list->count = list->items ? w.length : 0;
    return 0;
}

static int read_list(const struct fs_setting *it, const char *text, struct fs_list *list, struct fs_setting_error *e) {
    int (*read_item)(struct word, struct fs_list *, struct fs_setting_error *) =
        it->kind == FS_PORTS ? read_ports : it->kind == FS_NETWORKS ? read_network : it->kind == FS_PATHS ? read_path : read_user;
    struct word whole = trimmed(text, strlen(text));
    if (it->kind == FS_FOLDER) return read_folder(whole, list, e);
    if (it->kind == FS_USERS && is(whole, "any")) return list->any = 1, 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        struct word w = trimmed(at, length);
        if ((w.length || it->kind == FS_USERS) && read_item(w, list, e)) return -1;
        if (!*(at += length)) break;
    }
    if (it->kind != FS_USERS || list->count <= FS_TRUSTED_USERS) return 0;
    wrong(e, whole, of_users);
    size_t length = strlen(e->permitted);
    snprintf(e->permitted + length, sizeof e->permitted - length, "; at most %d users", FS_TRUSTED_USERS);
    return -1;
}

int fs_setting_read(struct fs_settings *s, const struct fs_setting *it, const char *text, struct fs_setting_error *e) {
    void *place = (char *)s + it->at;
    int64_t number;
    e->setting = it->name;
    if (it->kind == FS_FLAG) return read_flag(trimmed(text, strlen(text)), place, e);
    if (it->kind == FS_NUMBER) {
        struct word w = trimmed(text, strlen(text));
        if (!read_number(w, &number)) return wrong(e, w, "a whole number");
        *(int64_t *)place = number;
        if (it->low <= number && number <= it->high) return 0;
        wrong(e, w, "");
        e->is_number = 1;
        snprintf(e->permitted, sizeof e->permitted, "%lld to %lld", (long long)it->low, (long long)it->high);
        return -1;
    }
    struct fs_list read = {NULL, 0, 0, 0}, *list = place;
    if (read_list(it, text, &read, e)) return free(read.items), -1;
    free(list->items);
    *list = read;
    return 0;
}

void fs_settings_begin(struct fs_settings *s) {
    struct fs_setting_error none;
    memset(s, 0, sizeof *s);
    for (const struct fs_setting *it = fs_setting_table; it->name; it++) fs_setting_read(s, it, it->initial, &none);
}

int fs_settings_check(const struct fs_settings *s, struct fs_setting_error *e) {
    if (s->ack_threshold >= (s->window > 2 ? s->window : 2)) {
        if (s->window > 1) snprintf(e->permitted, sizeof e->permitted, "1 to %d (less than window)", (int)s->window - 1);
        else snprintf(e->permitted, sizeof e->permitted, "1 (with a window of 1)");
        return wrong_number(e, "ack_threshold", s->ack_threshold);
    }
    if (!(s->chunk_size % 64)) return 0;
    snprintf(e->permitted, sizeof e->permitted, "a multiple of 64 from 1024 to 32768");
    return wrong_number(e, "chunk_size", s->chunk_size);
}

const char *fs_setting_variable(const struct fs_setting *it, char *into) {
    char *to = into + sprintf(into, "%s", prefix);
    for (const char *from = it->name; *from; from++) *to++ = (char)toupper((unsigned char)*from);
    *to = 0;
    return into;
}

int fs_settings_of_environment(struct fs_settings *s, struct fs_setting_error *e) {
    char variable[64];
    fs_settings_begin(s);
    for (const struct fs_setting *it = fs_setting_table; it->name; it++) {
        const char *text = getenv(fs_setting_variable(it, variable));
        if (text && trimmed(text, strlen(text)).length && fs_setting_read(s, it, text, e)) return -1;
    }
    return fs_settings_check(s, e);
}

void fs_settings_free(struct fs_settings *s) {
    for (const struct fs_setting *it = fs_setting_table; it->name; it++)
        if (it->kind >= FS_USERS) free(((struct fs_list *)(void *)((char *)s + it->at))->items);
}

void fs_setting_say(const struct fs_setting_error *e, char line[FS_SETTING_LINE]) {
    const struct fs_setting it = {.name = e->setting};
    char variable[64];
    const char *quote = e->is_number ? "" : "'";
    snprintf(line, FS_SETTING_LINE, "%s (%s) is %s%.*s%s, but must be %s", e->setting, fs_setting_variable(&it, variable), quote,
        e->length < 128 ? e->length : 128, e->word, quote, e->permitted);
}

void fs_users_text(const struct fs_list *users, char *text, size_t size) {
    size_t length = (size_t)snprintf(text, size, "%s", users->any ? "any" : users->self ? "user" : "");
    uint64_t space = users->count ? own_namespace() : 0;
    for (int i = 0; i < users->count && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%u@%llu", length ? "," : "", ((uint32_t *)users->items)[i],
            (unsigned long long)space);
}

/* ---- variables that are no settings -------------------------------------------------------------------------------------- */

/* The number of letters to change, to put in or to leave out between two names. */
static int distance_between(const char *a, const char *b) {
    unsigned char row[64];
    int length = (int)strlen(b);
    if (length > 63) return length;
    for (int j = 0; j <= length; j++) row[j] = (unsigned char)j;
    for (int i = 0; a[i] && i < 63; i++) {
        int corner = row[0];
        row[0] = (unsigned char)(i + 1);
        for (int j = 0; j < length; j++) {
            int most = corner + (a[i] != b[j]);
            corner = row[j + 1];
            if (row[j] + 1 < most) most = row[j] + 1;
            row[j + 1] = (unsigned char)(corner + 1 < most ? corner + 1 : most);
        }
    }
    return row[length];
}

int fs_setting_is_unknown(const char *variable, const struct fs_setting **nearest) {
    char known[64];
    size_t length = strcspn(variable, "=");
    *nearest = NULL;
    if (strncmp(variable, prefix, strlen(prefix)) != 0 || length >= sizeof known) return 0;
    char name[64] = "";
    memcpy(name, variable, length);
    if (!strcmp(name, "FASTSOCK_DEBUG") || !strcmp(name, "FASTSOCK_MUSL") || !strcmp(name, "FASTSOCK_RUN")) return 0;
    if (!strncmp(name, "FASTSOCK_RUN_", 13)) return 0;
    int least = (int)(length - strlen(prefix)) * 2 / 5 + 1; /* three of five letters are the same */
    for (const struct fs_setting *it = fs_setting_table; it->name; it++) {
        int distance = distance_between(name + strlen(prefix), fs_setting_variable(it, known) + strlen(prefix));
        if (!distance) return 0;
        if (distance < least && *it->name != '_') least = distance, *nearest = it;
    }
    return 1;
}

int fs_settings_warn(void) {
    extern char **environ;
    const struct fs_setting *nearest;
    int count = 0;
    char known[64];
    for (char **variable = environ; variable && *variable && !getenv("FASTSOCK_RUN_TOLD"); variable++) {
        const char *value = strchr(*variable, '=');
        if (!value || !trimmed(value + 1, strlen(value + 1)).length || !fs_setting_is_unknown(*variable, &nearest)) continue;
        fprintf(stderr, "fastsock: warning: no such setting: %.*s%s%s%s\n", (int)(value - *variable), *variable,
            nearest ? "; did you mean " : "", nearest ? fs_setting_variable(nearest, known) : "", nearest ? "?" : "");
        count++;
    }
    return count;
}
