/* The clock: the kernel's own, whatever stands in front of the C library's functions. (A library that shows a program another time, such as
 * libfaketime, may let it stand still: a wait with a time limit would never end.)
 *
 * The kernel maps a shared object, the vDSO, into each process, with a function that reads the clock without a system call (vdso(7)). The C
 * library's clock_gettime calls that one. Here it is called directly, which costs no more.
 *
 * Responsible for: fs_now. Never: sleeps. Nothing here takes a lock or allocates. */
#include "os/atomics.h"
#include "os/syscalls.h"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#if defined(__aarch64__)
#define CLOCK_NAME "__kernel_clock_gettime"
#else
#define CLOCK_NAME "__vdso_clock_gettime"
#endif

typedef int read_clock(clockid_t which, struct timespec *into);

static int read_by_call(clockid_t which, struct timespec *into) { return (int)syscall(SYS_clock_gettime, which, into); }

/* The function of that name in a shared object of the kernel's, which is mapped whole, or NULL. */
static uintptr_t find(const char *object, const char *name) {
    const ElfW(Ehdr) *header = (const void *)object;
    const ElfW(Phdr) *part = (const void *)(object + header->e_phoff);
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hash = NULL; /* DT_HASH: the number of buckets, of symbols */
    uintptr_t moved = 0;
    size_t count = 0;
    for (int i = 0; i < header->e_phnum; i++) {
        if (part[i].p_type == PT_LOAD && !moved) moved = (uintptr_t)object + part[i].p_offset - part[i].p_vaddr;
        if (part[i].p_type == PT_DYNAMIC) entry = (const void *)(object + part[i].p_offset);
    }
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (const void *)(moved + entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) names = (const void *)(moved + entry->d_un.d_ptr);
        if (entry->d_tag == DT_HASH) hash = (const void *)(moved + entry->d_un.d_ptr);
    }
    if (!symbols || !names) return 0;
    /* (Newer kernels have no DT_HASH; there, as in all that linkers make, the names follow the symbols.) */
    count = hash ? hash[1] : ((uintptr_t)names - (uintptr_t)symbols) / sizeof *symbols;
    for (size_t i = 0; i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && strcmp(names + symbols[i].st_name, name) == 0) return moved + symbols[i].st_value;
    return 0;
}

static fs_word64 chosen; /* read_clock *; 0: not yet. Relaxed: each thread that looks finds the same */

static int read_first(clockid_t which, struct timespec *into) {
    const char *object = (const char *)getauxval(AT_SYSINFO_EHDR);
    uintptr_t found = object ? find(object, CLOCK_NAME) : 0;
    read_clock *by = found ? (read_clock *)found : read_by_call;
    fs_store_relaxed(&chosen, (uint64_t)(uintptr_t)by);
    return by(which, into);
}

int64_t fs_now(void) {
    struct timespec t;
    uint64_t by = fs_load_relaxed(&chosen);
    if (__builtin_expect(by != 0, 1)) ((read_clock *)(uintptr_t)by)(CLOCK_MONOTONIC, &t);
    else read_first(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
