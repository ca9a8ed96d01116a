/* The system call of a sleep, where a signal comes before the kernel has begun it: a fault at its loads stands for that signal. With
 * interpose/sleep_call.c. */
#include "interpose.h"
#include "sleep_call.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int sleeps, during;
static enum ip_place place;

static void on(int number, siginfo_t *info, void *context) {
    during = sleeps;
    place = ip_place_in_sleep(context);
    if (number != SIGSEGV || !info || place != IP_NOT_BEGUN) _exit(1);
    ip_end_sleep(context);
}

static void try(const char *what, const int *ends, const long *arguments) {
    during = -1;
    place = IP_OUTSIDE;
    long got = ip_call_asleep(&sleeps, IP_ASLEEP, ends, SYS_getpid, arguments);
    printf("%s: %s, begun %d, asleep %d, then %d\n", what,
           got == getpid() ? "called"
           : got == -EINTR ? "EINTR"
                           : "?",
           place != IP_NOT_BEGUN, during, sleeps);
}

int main(void) {
    static const int no = 0, yes = 1;
    static const long none[6];
    void *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = on, .sa_flags = SA_SIGINFO}, NULL);
    try("nothing comes", &no, none);
    try("something was put off", &yes, none);
    try("at the check", bad, none);
    try("after the check", &no, bad);
    return 0;
}
