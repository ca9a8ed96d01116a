/* The setting `rendezvous_dir`: a folder that processes in several network namespaces see, a volume of containers. A connection to another
 * namespace has its published name there, and all members of groups have theirs, as path sockets with hashed names; all other names stay
 * abstract.
 *
 * Whoever may write to the folder can take or replace a name. So a name leads to somebody who is judged (trust.h) and who has to prove what
 * it is (address_proof.h; a group has no more to prove), and nothing else lies there. The socket of a process that was killed stays behind,
 * and the others sweep it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FS_DIR_CONNECTION "tcp-" /* the beginnings of names there */
#define FS_DIR_GROUP "grp-"
enum { FS_NAME_MAX = 107 }; /* bytes of a published name: the room in the address of a unix socket (unix(7)) */

/* Sets the folder; NULL or "": none. Looks if sockets can be made there, and if nobody may write there who is not to be trusted. Returns
 * NULL, or why it is not used. With the host lock, or before there are threads. */
const char *fs_set_rendezvous_dir(const char *path);

/* The folder, NULL if there is none. For any thread. */
const char *fs_rendezvous_dir(void);

/* Returns true if the setting `trust` admits processes of a user that are in another network namespace, and so were met in the folder. */
int fs_dir_admits(uint32_t user);

/* Makes the path of a socket of an abstract name, in `into` of FS_NAME_MAX + 1 bytes, which may be the name's. */
void fs_dir_path(char *into, const char *folder, const char *kind, const char *name);

/* Binds a socket to a path in the folder, takes the place of one whose owner has gone, and lets everybody connect who may enter the folder.
 * Returns 0 or -errno. Waits some milliseconds at most, for others that bind there. */
int fs_dir_bind(int fd, const struct sockaddr_un *address, socklen_t size);

/* The number of a path that fs_dir_path has made, and the end of its name in the folder, by that number. */
uint64_t fs_dir_number(const char *path, size_t length);
void fs_dir_unlink(uint64_t number);

/* Now and then removes names whose owners have gone. For the control thread, and for who joins a group. */
void fs_dir_sweep(void);
