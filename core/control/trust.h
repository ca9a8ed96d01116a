/* The setting `trust`: the users whose processes may share memory with this one. */
#pragma once

#include <stdint.h>

#include "include/fastsock.h"

/* Applies the setting. With the host lock, or before there are threads. */
void fs_set_trusted(const struct fs_trust *given);

/* Returns true if the setting admits processes of a user. */
int fs_admits(uint32_t user);

/* The process may be in another user namespace: the numbers of users mean others. */
void fs_users_changed(void);

/* The same for processes in other network namespaces (fs_dir_admits): root in another container is not the root that could harm this
 * process anyway, so `user` means this process's own number there, and root has to be named. `nameless_too`: users whom this user namespace
 * has no number for count as this process's own. */
int fs_admits_far(uint32_t user, int nameless_too);

/* Returns true if it admits every user. */
int fs_admits_all(void);

/* Returns true if the setting admits users besides this process's own and root. */
int fs_admits_others(void);

/* Returns true for this process's own user and root, whatever the setting is: they could harm this process by other means. */
int fs_is_trusted(uint32_t user);
