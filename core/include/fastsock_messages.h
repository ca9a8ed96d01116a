/* Messages in shared memory: groups of processes that join by name. docs/messages.md says what is guaranteed.
 *
 *     fs_group_join(&options, &group)                      joins, or makes the group
 *     fs_group_send(group, data, length, 0)                copies, or
 *     fs_group_reserve(group, length, &lent)               lends memory of the group, which the caller fills,
 *     fs_group_publish(group, &lent, length, 0)            and sends as it is
 *     fs_group_take(group, &message)                       lends the oldest message that this member has not had, until
 *     fs_group_release(group, &message)
 *     fs_group_leave(group); fs_group_free(group);
 *
 * Any thread may call these at any time; a forked child shares its parent's membership, as it shares a socket. None of them blocks but
 * fs_group_join and fs_group_wait. Results are 0, a number, or -errno;
 * "Errors" lists the values. EPROTO: a member has written what no member writes, and the group is of no use any more. No signal handler may
 * call them. What is given by a pointer is copied, or used during the call only. */
#ifndef FASTSOCK_MESSAGES_H
#define FASTSOCK_MESSAGES_H

#include "fastsock_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fs_group; /* a membership */

enum {
    FS_GROUP_NAME_MAX = 200, /* bytes */
    FS_GROUP_MEMBERS = 64,   /* at a time */
    FS_GROUP_SLOTS_MAX = 65536,
};

enum fs_group_how { FS_GROUP_ANY, FS_GROUP_NEW, FS_GROUP_EXISTING };

struct fs_group_options {
    const char *name;
    size_t length;
    uint32_t owner;    /* the user whom the name belongs to */
    uint32_t how;      /* enum fs_group_how */
    uint32_t reads;    /* this member takes messages */
    uint32_t blocking; /* of a new group: a slow member holds the writers, and loses nothing */
    uint32_t slots;    /* of a new group: messages kept at most */
    uint64_t size;     /* of a new group: bytes kept at most */
    uint64_t largest;  /* of a new group: the longest message */
    uint32_t far;      /* its members meet in the rendezvous_dir, if there is one: also those in other network namespaces */
};

/* Memory of the group that this process fills. */
struct fs_lent {
    void *at;
    uint32_t block, process; /* the process that it is lent to */
};

struct fs_message {
    const void *data; /* NULL: none */
    uint64_t length, sequence;
    uint64_t lost; /* messages between the last one that was taken and this one, which this member has lost */
    uint32_t block, process; /* the process that it is lent to */
    uint32_t kind, sender;
    uint32_t keeps; /* it may be kept for long: this member keeps few. Else the caller copies, and releases it at once */
};

struct fs_group_info {
    uint64_t sent, received, lost; /* of this member */
    uint64_t head, unread;         /* messages of the group so far; those that this member has not had */
    uint64_t bytes;                /* of memory that the group has touched */
    uint64_t size, largest;
    uint32_t members, slots, blocking, place;
};

/* Joins a group, or makes it. Returns 0 with `*made` set, or -errno. Blocks for members that are slow to answer.
 * Errors: ENOENT, EEXIST (`how` excludes it), EINVAL (the group is of the other kind of `blocking`, or the options are nonsense), EACCES
 * (the name is held by a user who is not trusted), EUSERS (all places are taken), EPROTONOSUPPORT (the group speaks
 * another version), ETIMEDOUT (the members refuse this process), EAGAIN (they have not answered for a second, and may yet; or no random
 * bytes), EPROTO, EMFILE, ENFILE, ENOMEM. [any] */
int fs_group_join(const struct fs_group_options *options, struct fs_group **made);

/* Ends the membership, at once or as soon as nothing of the group is lent to this process any more. [any] */
void fs_group_leave(struct fs_group *group);

/* Frees what is left of a membership that has been left, and unmaps its memory. [any] */
void fs_group_free(struct fs_group *group);

/* Lends memory for a message of `length` bytes at most. Returns 0 or -errno.
 * Errors: EMSGSIZE, EAGAIN (the readers of a blocking group have to read first), EBADF (another thread leaves), ENOMEM. [any] */
int fs_group_reserve(struct fs_group *group, uint64_t length, struct fs_lent *lent);

/* Sends it, with `length` bytes at most as many as were asked for; or gives it back (fs_group_abandon). Returns 0 or -errno.
 * Errors: EAGAIN (as above, and it is still lent), EPERM (it is lent to the parent of this process), EMSGSIZE, EPROTO. [any] */
int fs_group_publish(struct fs_group *group, const struct fs_lent *lent, uint64_t length, uint32_t kind);
void fs_group_abandon(struct fs_group *group, const struct fs_lent *lent);

/* Both with a copy. Errors: those of both. [any] */
int fs_group_send(struct fs_group *group, const void *data, uint64_t length, uint32_t kind);

/* Takes the next message. Returns 1, 0 if there is none, or -errno.
 * Errors: EAGAIN (another process of this membership is stopped in a call), EPROTO. [any] */
int fs_group_take(struct fs_group *group, struct fs_message *message);

/* Gives it back. In a forked child: no effect on what its parent has taken. [any] */
void fs_group_release(struct fs_group *group, const struct fs_message *message);

/* Waits for a message (FS_RECEIVE), or for room for one (FS_SEND), until `deadline` (monotonic ns; negative: no limit). Returns 1:
 * look again, at least after a tenth of a second; 0: the time is over; or -errno.
 * Errors: EINTR (a signal). [any] */
int fs_group_wait(struct fs_group *group, int what, int64_t deadline);

/* Returns true if there is a message, or some have been lost. [any] */
int fs_group_pending(struct fs_group *group);

/* Returns a descriptor that is readable while there is a message; -1 after fs_group_leave. From the first call on fs_group_take keeps it
 * so, until fs_group_fd_unused. The group closes it. [any] */
int fs_group_fd(struct fs_group *group);

/* Nobody looks at the descriptor until fs_group_fd is called again: taking and sending make no system calls for it. [any] */
void fs_group_fd_unused(struct fs_group *group);

/* Returns what is known of the group and this member. [any] */
void fs_group_get_info(struct fs_group *group, struct fs_group_info *info);

/* Reads the state of the group that a member's socket belongs to, by its abstract name without the leading zero, or its path, without
 * joining: the sums of all members. `name` receives the group's name. Returns 0 or -errno. Blocks for the member.
 * Errors: ECONNREFUSED (nobody is there), EACCES, ETIMEDOUT, EPROTO, EPROTONOSUPPORT, EMFILE, ENFILE, ENOMEM. [any] */
int fs_group_inspect(const char *socket_name, struct fs_group_info *info, char name[FS_GROUP_NAME_MAX + 1]);

#ifdef __cplusplus
}
#endif

#endif
