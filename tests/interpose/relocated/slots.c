/* Which slots are rewritten, and when: slots LIBRARY PLUGIN SETTINGS. Each line says what a slot means: "ours", "theirs" or neither. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

static ssize_t (*pointer)(int, void *, size_t, int) = recv; /* an absolute relocation */
static ssize_t (*copied)(int, void *, size_t, int);
static void *ours, *theirs;

static const char *meaning(void *function) { return function == ours ? "ours" : function == theirs ? "theirs" : "neither"; }
static void on_signal(int number) { (void)number; }
static int handler_is_seen(void) {
    struct sigaction how;
    return sigaction(SIGUSR1, NULL, &how) == 0 && how.sa_handler == on_signal;
}

/* On a connection, as many bytes as it has to have moved by. */
static void exchange(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char byte;
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, size) || listen(listener, 1) || getsockname(listener, (void *)&at, &size)) exit(3);
    if (connect(near, (void *)&at, size)) exit(3);
    int far = accept(listener, NULL, NULL);
    for (int i = 0; i < 50; i++) {
        if (write(near, "x", 1) != 1 || read(far, &byte, 1) != 1) exit(3);
        usleep(1000);
    }
    close(near), close(far), close(listener);
}

static void *sleeps(void *unused) { return pause(), unused; }

int main(int count, char **words) {
    char none;
    int pair[2];
    if (count != 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return 2;
    pthread_t thread; /* the loader may be in a first call of another one */
    if (pthread_create(&thread, NULL, sleeps, NULL)) return 2;
    signal(SIGUSR1, on_signal);
    void *library = dlopen(words[1], RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    const char *(*install)(const void *, int) = (const char *(*)(const void *, int))dlsym(library, "fs_libc_install");
    void (*uninstall)(void) = (void (*)(void))dlsym(library, "fs_libc_uninstall");
    ours = dlsym(library, "recv");
    theirs = dlsym(libc, "recv");
    copied = pointer;
    printf("before %s\n", meaning((void *)pointer));
    for (int round = 0; round < 2; round++) {
        const char *why = install(NULL, 1);
        printf("installed %s, handler %d\n", why ? why : "well", handler_is_seen());
        printf("pointer %s, copied %s\n", meaning((void *)pointer), meaning((void *)copied));
        printf("dlsym: program %s, libc %s, next %s\n", meaning(dlsym(RTLD_DEFAULT, "recv")), meaning(dlsym(libc, "recv")),
               meaning(dlsym(RTLD_NEXT, "recv")));
        printf("dlvsym: libc %s\n", meaning(dlvsym(libc, "recv", OLDEST)));
        void *plugin = dlopen(words[2], RTLD_LAZY);
        void *(*means)(void) = (void *(*)(void))dlsym(plugin, "plugin_means");
        printf("plugin %s\n", meaning(means()));
        *(void *volatile *)&pointer = theirs; /* as the loader does at the end of a first call that another thread has begun before */
        exchange(); /* before a connection moves */
        printf("filled again %s\n", meaning((void *)pointer));
        uninstall();
        printf("uninstalled %s, plugin %s, handler %d\n", meaning((void *)pointer), meaning(means()), handler_is_seen());
        dlclose(plugin);
    }
    printf("a call %ld\n", (long)recv(pair[0], &none, 1, MSG_DONTWAIT));
    return 0;
}
