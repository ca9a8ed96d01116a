/* The setting `trust`: the users whose processes may share memory with this one. */
#ifndef FASTSOCK_TRUST_H
#define FASTSOCK_TRUST_H

#include <stdint.h>

enum { FS_TRUSTED_USERS = 64 }; /* named users at most; fastsock/config.py says so to the user */

struct fs_trust {
    int any;               /* every user whom this user namespace has a number for */
    int self;              /* this process's own user, and root */
    int count;             /* of `users`, which are trusted by name */
    const uint32_t *users; /* copied */
};

/* Applies the setting at once, to all connections. Needs the host lock. */
void fs_set_trust(const struct fs_trust *given);

/* Returns true if the setting admits processes of a user. */
int fs_admits(uint32_t user);

/* Returns true if the setting admits users besides this process's own and root. */
int fs_admits_others(void);

/* Returns true for this process's own user and root, whatever the setting is: they could harm this process by other means. */
int fs_is_trusted(uint32_t user);

#endif
