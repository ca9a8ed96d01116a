/* Ways to the C library's functions beside their names: handles, versions, aliases, plugins. A call does the same by each of them. */
#include "conformance.h"
#include "relocated/ways.h"

#include <dlfcn.h>

#ifndef __GLIBC__ /* musl has no versions, and binds nothing deeply */
#define RTLD_DEEPBIND 0
#define dlvsym(handle, name, version) dlsym(handle, name)
#endif

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

static void *libc_s(void) { return dlopen("libc.so.6", RTLD_LAZY); }
static void *of_libc(const char *name) { return dlsym(libc_s(), name); }
static void *of_default(const char *name) { return dlsym(RTLD_DEFAULT, name); }
static void *of_next(const char *name) { return dlsym(RTLD_NEXT, name); }
static void *of_version(const char *name) { return dlvsym(RTLD_DEFAULT, name, OLDEST); }
static void *of_libc_s_version(const char *name) { return dlvsym(libc_s(), name, OLDEST); }

/* (Not all of them have one.) */
static void *of_alias(const char *name) {
    char alias[32];
    snprintf(alias, sizeof alias, "__%s", name);
    void *found = dlsym(RTLD_DEFAULT, alias);
    return found ? found : dlsym(libc_s(), name);
}

static void look_up(struct way *w, void *(*find)(const char *name)) {
    static const char *const names[] = {"read", "write", "recv", "send", "poll", "close", "dup2", "fcntl", "shutdown"};
    void *found[9];
    for (int i = 0; i < 9; i++)
        if (!(found[i] = find(names[i]))) abort();
    memcpy(w, found, sizeof *w);
}

static struct way plugin(int how, const char *table) {
    char path[4096], *slash;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length < 0) abort();
    path[length] = 0;
    if (!(slash = strrchr(path, '/'))) abort();
    strcpy(slash, RTLD_DEEPBIND && how & RTLD_DEEPBIND ? "/deep.so" : "/plugin.so");
    void *loaded = dlopen(path, how);
    if (!loaded) puts(dlerror()), abort();
    if (getenv("WAYS_FD")) printf("constructor %s\n", (char *)dlsym(loaded, "constructed"));
    return *(struct way *)dlsym(loaded, table);
}

/* As `use`, for connections of which there are many. */
static void use_some(int a, int b) {
    char byte;
    for (int i = 0; i < 40; i++) {
        if (write(a, "x", 1) != 1 || read(b, &byte, 1) != 1 || write(b, "y", 1) != 1 || read(a, &byte, 1) != 1) abort();
        if (i < 20) nap(1);
    }
}

static void walk(const char *name, const struct way *w) {
    int a, b, file = open("/dev/null", O_RDWR | O_CLOEXEC);
    char into[16];
    connect_pair(&a, &b);
    int below = open("/dev/null", O_RDWR | O_CLOEXEC); /* so that a number that is closed is the lowest */
    use_some(a, b);
    printf("-- %s\n", name);
    SAY(w->write(a, "written", 7));
    SAY(w->read(b, into, sizeof into));
    SAY(w->send(b, "sent", 4, MSG_NOSIGNAL));
    SAY(w->poll(&(struct pollfd){.fd = a, .events = POLLIN}, 1, 1000));
    SAY(w->recv(a, into, sizeof into, 0));
    SAY(w->poll(&(struct pollfd){.fd = a, .events = POLLIN}, 1, 0));
    SAY(w->fcntl(a, F_SETFL, O_NONBLOCK));
    SAY(w->read(a, into, sizeof into));
    SAY(w->fcntl(a, F_SETFL, 0));
    int copy = w->fcntl(a, F_DUPFD_CLOEXEC, 60);
    SAY(w->write(copy, "copied", 6));
    SAY(w->read(b, into, sizeof into));
    SAY(w->close(copy));
    SAY(w->write(a, "more", 4));
    SAY(w->shutdown(a, SHUT_WR));
    SAY(w->read(b, into, sizeof into));
    SAY(w->read(b, into, sizeof into));
    SAY(w->dup2(file, a) == a);
    SAY(write(a, "nowhere", 7)); /* it is a file now, and so is its number next, */
    SAY(w->read(a, into, sizeof into));
    SAY(w->close(b));
    int next = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    SAY(next == b);
    SAY(read(next, into, 4)); /* and this one */
    close(next), close(a), close(below), close(file);
}

void ways(int a, int b) {
    struct way w;
    static const struct { const char *name; void *(*find)(const char *name); } FINDS[] = {
        {"the C library's handle", of_libc}, {"default", of_default}, {"next", of_next}, {"a version", of_version},
        {"a version of the handle's", of_libc_s_version}, {"an alias", of_alias}};
    for (size_t i = 0; i < sizeof FINDS / sizeof *FINDS; i++) {
        look_up(&w, FINDS[i].find);
        walk(FINDS[i].name, &w);
    }
    char number[16];
    SAY(write(a, "first", 5));
    arrive(b, 5);
    snprintf(number, sizeof number, "%d", b);
    setenv("WAYS_FD", number, 1);
    w = plugin(RTLD_LAZY | RTLD_DEEPBIND, "called");
    unsetenv("WAYS_FD");
    walk("a plugin, bound deeply", &w);
    w = plugin(RTLD_NOW | RTLD_DEEPBIND, "pointed");
    walk("pointers of it", &w);
    w = plugin(RTLD_LAZY | RTLD_LOCAL, "called");
    walk("a plugin", &w);
    w = plugin(RTLD_NOW | RTLD_LOCAL, "pointed");
    walk("pointers of this one", &w);
}
