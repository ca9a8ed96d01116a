/* The settings: one table of their names, kinds, defaults and ranges, for the library, the launcher and the Python package, and what is
 * read by it. docs/settings.md says what they mean. */
#pragma once

#include <stdint.h>

#include "fastsock.h"

/* Name, default; of a number its range; of a list what it is of. A name that begins with an underscore is for measurements and tests. */
#define FS_SETTINGS(FLAG, NUMBER, LIST) \
    FLAG(enabled, "1") \
    NUMBER(poll_us, "50", 0, 1000000) \
    NUMBER(move_after, "8", 0, 1000000) \
    NUMBER(_meeting_ms, "0", 0, 10000) \
    NUMBER(_patience_ms, "2000", 1, 10000) \
    NUMBER(window, "32", 1, 1024) \
    NUMBER(ack_threshold, "16", 1, 1023) \
    NUMBER(chunk_size, "32768", 1024, 32768) \
    FLAG(combine, "1") \
    NUMBER(combine_limit, "2048", 1, 32768) \
    FLAG(_combine_when_full, "1") \
    FLAG(unix_streams, "1") \
    LIST(trust, FS_USERS, "user") \
    LIST(rendezvous_dir, FS_FOLDER, "") \
    LIST(ports_allowed, FS_PORTS, "") \
    LIST(ports_excluded, FS_PORTS, "") \
    LIST(addresses_allowed, FS_NETWORKS, "") \
    LIST(addresses_excluded, FS_NETWORKS, "") \
    LIST(paths_allowed, FS_PATHS, "") \
    LIST(paths_excluded, FS_PATHS, "") \
    NUMBER(memory_cap, "4294967296", 0, INT64_C(1) << 46)

/* Of numbers of users, struct fs_port_range, struct fs_network, or struct fs_path_pattern; or the characters of a path, with a zero behind them. */
struct fs_list {
    void *items;
    int count;
    int any, self; /* of users: every user; this process's own user, and root */
};

struct fs_settings {
#define FS_NUMBER_FIELD(name, ...) int64_t name;
#define FS_LIST_FIELD(name, ...) struct fs_list name;
    FS_SETTINGS(FS_NUMBER_FIELD, FS_NUMBER_FIELD, FS_LIST_FIELD)
#undef FS_NUMBER_FIELD
#undef FS_LIST_FIELD
};

enum fs_setting_kind { FS_FLAG, FS_NUMBER, FS_USERS, FS_PORTS, FS_NETWORKS, FS_PATHS, FS_FOLDER };

extern const struct fs_setting {
    const char *name, *initial;
    int64_t low, high;
    enum fs_setting_kind kind;
    uint32_t at; /* its place in struct fs_settings: an int64_t, or a struct fs_list */
} fs_setting_table[]; /* a name NULL ends it */

/* Why a value is none of a setting's. */
struct fs_setting_error {
    const char *setting;
    const char *word; /* the wrong part of the text, */
    int length, is_number;
    char own[24]; /* or a number */
    char permitted[192];
};

enum { FS_SETTING_LINE = 512 }; /* bytes that a text of these has */

/* All defaults. */
void fs_settings_begin(struct fs_settings *s);

/* Reads the value of one. Returns 0, or -1 and why. */
int fs_setting_read(struct fs_settings *s, const struct fs_setting *it, const char *text, struct fs_setting_error *e);

/* Checks what holds between several of them. Returns 0, or -1 and why. */
int fs_settings_check(const struct fs_settings *s, struct fs_setting_error *e);

/* Reads all FASTSOCK_* variables. One that is empty counts as not set. Returns 0, or -1 and why. */
int fs_settings_of_environment(struct fs_settings *s, struct fs_setting_error *e);

/* Frees the lists. */
void fs_settings_free(struct fs_settings *s);

/* The error as a line of text. */
void fs_setting_say(const struct fs_setting_error *e, char line[FS_SETTING_LINE]);

/* The users of `trust` as its value, with numbers for names, and with the user namespace in which they have those: elsewhere they are
 * others. */
void fs_users_text(const struct fs_list *users, char *text, size_t size);

/* The variable of a setting, in `into` of 64 bytes. */
const char *fs_setting_variable(const struct fs_setting *it, char *into);

/* True if the variable begins with FASTSOCK_ and is no setting, nor a variable of `fastsock run`. `*nearest`: the setting that is spelled
 * most like it, or NULL. */
int fs_setting_is_unknown(const char *variable, const struct fs_setting **nearest);

/* Writes a warning of each such variable to stderr, unless somebody has done so already (FASTSOCK_RUN_TOLD). Returns how many there are. */
int fs_settings_warn(void);
