/* Memory that two processes share: a sealed memfd, whose size cannot change while it is mapped. */
#pragma once

#include "os/syscalls.h"

enum { FS_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW };

/* Returns true if this process may make a file of so many bytes. (A larger one would bring SIGXFSZ, which ends a program.) */
static inline int fs_may_make_file(size_t size) {
    struct rlimit limit;
    return fs_system.getrlimit(RLIMIT_FSIZE, &limit) < 0 || size <= limit.rlim_cur;
}

/* Makes a sealed memfd of `size` bytes. Returns the descriptor or -errno. `name` is shown in /proc. */
static inline int fs_memfd_sealed(const char *name, size_t size) {
    if (!fs_may_make_file(size)) return -EFBIG;
    int memfd = fs_system.memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memfd < 0) return -errno;
    if (fs_system.ftruncate(memfd, (off_t)size) == 0 && fs_system.fcntl(memfd, F_ADD_SEALS, FS_SEALS) == 0) return memfd;
    int failed = -errno;
    fs_system.close(memfd);
    return failed;
}

/* Returns the size of a descriptor's file, -1 if there is none. */
static inline int64_t fs_file_size(int fd) {
    struct stat st;
    return fs_system.fstat(fd, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* Returns true if `fd`, from any process, is so sealed. */
static inline int fs_is_sealed(int fd) {
    int seals = fs_system.fcntl(fd, F_GET_SEALS, 0);
    return seals >= 0 && (seals & FS_SEALS) == FS_SEALS;
}

/* Maps a memfd. Returns NULL without address space, and where the program may lock no more memory.
 *
 * A program that locks its memory (mlockall(2)) locks what is mapped later too: all pages would be made at once, most of which nobody
 * touches. Of memory without access none are made, and it is unlocked before it gets access. (A filter of system calls may refuse that:
 * then the memory is locked.) */
static inline void *fs_map_memfd(int memfd, size_t size) {
    void *memory = fs_system.mmap(NULL, size, PROT_NONE, MAP_SHARED, memfd, 0);
    if (memory == MAP_FAILED) return NULL;
    fs_system.munlock(memory, size);
    if (fs_system.mprotect(memory, size, PROT_READ | PROT_WRITE) == 0) return memory;
    fs_system.munmap(memory, size);
    return NULL;
}
