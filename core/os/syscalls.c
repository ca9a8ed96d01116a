/* The real functions of the table (syscalls.h). */
#include "os/syscalls.h"

#include "os/memory.h"

#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* These numbers are the same on every architecture. The kernel's headers may be older than the kernel. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* Linux 5.11 */
#endif
#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9 */
#endif

/* Wrappers with the table's signatures: the C library's functions may be variadic or take a union. */
#define CALL(type, name, failure, parameters, arguments) \
    static type real_##name parameters { return name arguments; }
#define RAW(type, name, failure, parameters, arguments)
FS_SYSTEM_CALLS(CALL, RAW)
#undef RAW
#undef CALL

/* (Older kernels count in milliseconds. The kernel's signal sets have 64 bits.) */
static int real_epoll_pwait2(int epoll, struct epoll_event *events, int most, const struct timespec *time, const sigset_t *mask) {
    int got = (int)syscall(SYS_epoll_pwait2, epoll, events, most, time, mask, 8);
    if (got >= 0 || errno != ENOSYS) return got;
    int64_t rest = time ? time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000 : -1;
    return epoll_pwait(epoll, events, most, (int)FS_MIN(rest, (int64_t)INT32_MAX), mask);
}

/* (Newer C libraries alone have it.) */
static ssize_t real_getdents64(int fd, void *into, size_t room) { return syscall(SYS_getdents64, fd, into, room); }

static int real_memfd_create(const char *name, unsigned flags) { return (int)syscall(SYS_memfd_create, name, flags); }

static int real_close_range(unsigned first, unsigned last, int flags) {
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* (The C library's own emulates the call where the kernel lacks it, and that may block.) */
static int real_statx(int fd, const char *path, int flags, unsigned wanted, struct statx *into) {
    return (int)syscall(SYS_statx, fd, path, flags, wanted, into);
}

static int real_futex(void *word, int what, uint32_t value, const struct timespec *time) {
    return (int)syscall(SYS_futex, word, what, value, time, NULL, 0);
}

static int real_pidfd_open(pid_t process, unsigned flags) { return (int)syscall(SYS_pidfd_open, process, flags); }

/* Makes a child on a copy of this stack, like fork without its handlers. */
static pid_t real_clone(int flags) { return (pid_t)syscall(SYS_clone, (long)flags, 0L, 0L, 0L, 0L); }

static pid_t real_gettid(void) { return (pid_t)syscall(SYS_gettid); }

static int real_tgkill(pid_t process, pid_t thread, int number) { return (int)syscall(SYS_tgkill, process, thread, number); }

static int real_get_robust_list(pid_t thread, struct robust_list_head **list, size_t *size) {
    return (int)syscall(SYS_get_robust_list, thread, list, size);
}

static int real_set_robust_list(struct robust_list_head *list, size_t size) {
    return (int)syscall(SYS_set_robust_list, list, size);
}

/* ---- memory. (Not the C library's: memory.c.) ---------------------------------------------------------------- */

static void *map_pages(size_t size) {
    void *made = fs_system.mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return made == MAP_FAILED ? NULL : made;
}

static void unmap_pages(void *at, size_t size) { fs_system.munmap(at, size); }

static const struct fs_page_source pages = {map_pages, unmap_pages};

void *fs_allocate(size_t room) { return fs_block_take(&pages, room); }

void fs_release(void *memory) { fs_block_give(&pages, memory); }

static void *real_malloc(size_t size) { return fs_allocate(size); }

static void *real_calloc(size_t count, size_t size) {
    size_t room;
    if (__builtin_mul_overflow(count, size, &room)) return NULL;
    void *made = fs_allocate(room);
    return made ? memset(made, 0, room) : NULL;
}

static void *real_realloc(void *before, size_t size) {
    if (before && size <= fs_block_room(before)) return before;
    void *made = fs_allocate(size);
    if (made && before) {
        memcpy(made, before, fs_block_room(before));
        fs_release(before);
    }
    return made;
}

struct fs_system fs_system = {
#define REAL(type, name, failure, parameters, arguments) .name = real_##name,
    FS_SYSTEM_CALLS(REAL, REAL)
#undef REAL
    .free = fs_release,
};
