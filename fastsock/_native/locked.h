/* Functions of the core that the event loops' layer calls with the host lock, whichever front end has it. */
#ifndef FASTSOCK_LOCKED_H
#define FASTSOCK_LOCKED_H

#include "api/whole.h"
#include "conn/event_slot.h"
#include "control/page_offers.h"
#include "events/event_set.h"
#include "libc_front.h"
#include "rendezvous/connector.h"

#define FS_LOCKED(type, name, parameters, arguments) \
    static inline type fs_locked_##name parameters { \
        fs_libc_lock(); \
        type done = fs_##name arguments; \
        fs_libc_unlock(); \
        return done; \
    }
#define FS_LOCKED_VOID(name, parameters, arguments) \
    static inline void fs_locked_##name parameters { \
        fs_libc_lock(); \
        fs_##name arguments; \
        fs_libc_unlock(); \
    }
FS_LOCKED_VOID(slot_free, (struct fs_connection *c, struct fs_event_set *set), (c, set))
FS_LOCKED(struct fs_event_set *, event_set_new, (int *failed), (failed))
FS_LOCKED_VOID(event_set_end, (struct fs_event_set *set), (set))
FS_LOCKED_VOID(set_register, (struct fs_event_set *set, struct fs_connection *c), (set, c))
FS_LOCKED_VOID(reoffer_pages, (struct fs_event_set *set), (set))


static inline int fs_locked_watch(void *set, struct fs_connection *c) { return fs_slot_alloc(c, set); }
static inline void fs_locked_ignore(void *set, struct fs_connection *c) { fs_slot_free(c, set); }

/* fs_libc_step of a connection that gets a slot in the set if it attaches. */
static inline void fs_libc_step_in(struct fs_connection *c, struct fs_event_set *set, struct fs_step_result *result) {
    struct fs_attach_hooks hooks = {fs_locked_watch, fs_locked_ignore, set};
    fs_libc_step(c, &hooks, result);
}

static inline struct fs_path *fs_path_of(struct fs_connection *c) { return &fs_whole_of(c)->path; }

#endif
