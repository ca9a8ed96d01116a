/* The names of a member's sockets. */
#include "messages/group.h"

#include <stdio.h>

size_t fs_group_name(char *into, const struct fs_group *g, uint32_t place, const char *what) {
    snprintf(into, FS_NAME_MAX + 1, "fastsock/group/%s/%s%u", g->key, what, place);
    if (g->folder) fs_dir_path(into, g->folder, FS_DIR_GROUP, into);
    return strlen(into);
}

void fs_group_unname(const struct fs_group *g, uint32_t place, const char *what) {
    char name[FS_NAME_MAX + 1];
    if (!g->folder) return;
    fs_group_name(name, g, place, what);
    fs_system.unlink(name);
}
