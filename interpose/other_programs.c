/* The environment of programs that cannot have this library and are started by one that has it: the loader of another C library does not
 * start a program with it, and a sanitizer's runtime wants to be first. LD_PRELOAD does not name it there.
 *
 * Responsible for: that environment. Never: what a program is (program_file.c). Nothing here allocates by malloc, or uses much stack: the
 * caller may be a signal handler, or the child of vfork. */
#include "interpose.h"
#include "process.h"
#include "program_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <sys/mman.h>

static const char preload[] = "LD_PRELOAD=";

static const char *own_name = ""; /* as LD_PRELOAD has it */

__attribute__((constructor)) static void find_own_name(void) {
    Dl_info info;
    if (dladdr((void *)&own_name, &info) && info.dli_fname) own_name = info.dli_fname;
}

/* True if the loader, or a runtime of the program's, does not go with our library. */
static int is_harmed(const char *path) {
    struct fs_program_scratch *scratch = path ? fs_allocate(sizeof *scratch) : NULL;
    if (!scratch) return 0;
    enum fs_program_kind kind = fs_program_kind_of(path, scratch, 0);
    fs_release(scratch);
    return kind == FS_PROGRAM_FOREIGN || kind == FS_OTHER_LIBC || kind == FS_PROGRAM_SANITIZED;
}

/* Copies the value of LD_PRELOAD without our name. */
static void copy_without_own(char *into, const char *value) {
    strcpy(into, preload);
    into += strlen(preload);
    for (const char *at = value; *at;) {
        size_t length = strcspn(at, ": ");
        if (length && (length != strlen(own_name) || memcmp(at, own_name, length) != 0)) {
            if (into[-1] != '=') *into++ = ':';
            memcpy(into, at, length);
            into += length;
        }
        at += length + (at[length] != 0);
    }
    *into = 0;
}

char *const *ip_environment_for(const char *file, char *const *environment, struct ip_own_environment *own) {
    size_t count = 0, at = SIZE_MAX;
    own->memory = NULL;
    if (!file || !environment) return environment;
    for (; environment[count]; count++)
        if (!strncmp(environment[count], preload, strlen(preload))) at = count;
    if (at == SIZE_MAX || !*own_name || !strstr(environment[at], own_name)) return environment;
    int error = errno;
    own->size = (count + 1) * sizeof *environment + strlen(environment[at]) + 1 + PATH_MAX;
    void *memory = mmap(NULL, own->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        char **copy = own->memory = memory, *text = (char *)(copy + count + 1);
        if (is_harmed(fs_program_on_path(file, text))) {
            memcpy(copy, environment, (count + 1) * sizeof *copy);
            copy_without_own(copy[at] = text, environment[at] + strlen(preload));
            environment = copy;
        } else {
            ip_forget_environment(own);
        }
    }
    errno = error;
    return environment;
}

void ip_forget_environment(struct ip_own_environment *own) {
    int error = errno;
    if (own->memory) munmap(own->memory, own->size);
    own->memory = NULL;
    errno = error;
}
