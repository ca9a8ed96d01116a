/* The library put in place in this process while it runs (interpose/libc_front.h), if CONFORMANCE_LIBRARY names it. */
#include "conformance.h"

#include <dlfcn.h>

static void *library;

void install(void) {
    const char *path = getenv("CONFORMANCE_LIBRARY"), *why;
    if (!path) return;
    library = dlopen(path, RTLD_NOW);
    const char *(*put_in_place)(const void *, int) = (const char *(*)(const void *, int))dlsym(library, "fs_libc_install");
    if (!(why = put_in_place(NULL, 1))) return;
    fprintf(stderr, "%s\n", why);
    exit(2);
}

void *library_function(const char *name) { return dlsym(library ? library : RTLD_DEFAULT, name); }

/* Whether both ends send and receive on the ring. */
void tell_path(int a, int b) {
    struct { int sends, receives, attached, reason; } path[2] = {{0}};
    if (!library) return;
    int (*path_of)(int, void *) = (int (*)(int, void *))dlsym(library, "fs_libc_path");
    path_of(a, &path[0]), path_of(b, &path[1]);
    fprintf(stderr, "%s\n", path[0].sends && path[0].receives && path[1].sends && path[1].receives ? "ring" : "tcp");
}
