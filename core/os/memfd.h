/* Memory that two processes share: a sealed memfd, whose size cannot change while it is mapped. */
#ifndef FASTSOCK_MEMFD_H
#define FASTSOCK_MEMFD_H

#include "os/syscalls.h"

enum { FS_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW };

/* Makes a sealed memfd of `size` bytes. Returns the descriptor or -errno. `name` is shown in /proc. */
static inline int fs_memfd_sealed(const char *name, size_t size) {
    int memfd = fs_system.memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memfd < 0) return -errno;
    if (fs_system.ftruncate(memfd, (off_t)size) == 0 && fs_system.fcntl(memfd, F_ADD_SEALS, FS_SEALS) == 0) return memfd;
    int failed = -errno;
    fs_system.close(memfd);
    return failed;
}

/* Returns true if `fd`, from any process, is so sealed. */
static inline int fs_is_sealed(int fd) {
    int seals = fs_system.fcntl(fd, F_GET_SEALS, 0);
    return seals >= 0 && (seals & FS_SEALS) == FS_SEALS;
}

/* Maps a memfd. Returns NULL without address space. */
static inline void *fs_map_memfd(int memfd, size_t size) {
    void *memory = fs_system.mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

#endif
