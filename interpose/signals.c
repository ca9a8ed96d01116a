/* Signals: the program's handlers run when no lock of ours or of the core is held in their thread, and a call that a handler interrupts ends or
 * goes on as signal(7) says.
 *
 * The kernel has one handler of ours for each signal that the program has one for. While its thread is busy (ip_enter) it sends the signal to
 * the thread once more, as it was, and blocks it there; the end of the busy time unblocks it. So the kernel keeps what was put off, and each
 * handler gets its own context, mask and stack from it. What a fault of the thread itself raises is never put off.
 *
 * Responsible for: when a handler runs, and what a wait learns of it. Never: what a handler does, signals without a handler. */
#include "interpose.h"

#include <sys/syscall.h>
#include <ucontext.h>

enum { SIGNALS = 65 };

struct handler { /* as the program has set it */
    fs_word64 function; /* 0: none of ours */
    fs_word32 flags;
};

__thread struct ip_thread ip_thread __attribute__((tls_model("initial-exec")));
int ip_threaded;
fs_word32 ip_cancels;
static struct handler handlers[SIGNALS];
static __thread uint64_t put_off __attribute__((tls_model("initial-exec"))); /* bit of each signal that was put off */
static fs_word32 changing; /* a spin lock */
static fs_word32 interrupts[3]; /* siginterrupt(3): a bit for each signal */

/* ---- putting off ------------------------------------------------------------------------------------------------- */

/* The thread's own fault: to go on without the handler would raise it again. */
static int is_fault(int number, const siginfo_t *info) {
    return info->si_code > 0 && (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP || number == SIGSYS);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    struct ip_thread *t = &ip_thread;
    if (t->busy && !is_fault(number, info)) {
        int error = errno;
        sigset_t it;
        sigemptyset(&it);
        sigaddset(&it, number);
        pthread_sigmask(SIG_BLOCK, &it, NULL); /* (with SA_NODEFER it is not) */
        fs_call_kernel(SYS_rt_tgsigqueueinfo, (long[6]){getpid(), fs_call_kernel(SYS_gettid, (long[6]){0}), number, (long)info});
        put_off |= UINT64_C(1) << (number - 1);
        t->pending = 1;
        sigaddset(&((ucontext_t *)context)->uc_sigmask, number); /* in force when this returns */
        errno = error;
        return;
    }
    void (*function)(int, siginfo_t *, void *);
    uint64_t address = ip_load_relaxed(&handlers[number].function);
    uint32_t flags = ip_load_relaxed(&handlers[number].flags);
    if (flags & SA_RESETHAND) real.sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    t->ran++;
    if (!(flags & SA_RESTART)) t->ended++;
    memcpy(&function, &address, sizeof function);
    function(number, info, context);
}

void ip_run_handlers(void) {
    int error = errno;
    if (ip_thread.cancelled && !ip_thread.busy) {
        ip_thread.cancelled = 0;
        pthread_exit(PTHREAD_CANCELED);
    }
    while (ip_thread.pending && !ip_thread.busy) {
        sigset_t again;
        sigemptyset(&again);
        ip_thread.pending = 0;
        ip_compiler_barrier();
        uint64_t which = put_off;
        put_off = 0;
        for (int number = 1; number < SIGNALS; number++)
            if (which >> (number - 1) & 1) sigaddset(&again, number);
        pthread_sigmask(SIG_UNBLOCK, &again, NULL); /* each of them runs here */
    }
    errno = error;
}

/* ---- sleeping ------------------------------------------------------------------------------------------------------ */

/* (As <pthread.h> has it; its name there depends on the C library.) */
extern int set_jump(void *where, int mask) __asm__("__sigsetjmp") __attribute__((returns_twice));

/* The system call as a cancellation point. */
static long sleep_cancellable(long number, const long a[6]) {
    __pthread_unwind_buf_t here;
    int type;
    /* The C library unwinds a cancelled thread to this place, and the frames of the call that sleeps are as they were. So the call ends as one
     * that a signal ends, and gives back what it holds. Then the thread ends (ip_run_handlers). */
    if (set_jump(here.__cancel_jmp_buf, 0)) {
        __pthread_unregister_cancel(&here);
        ip_thread.cancelled = ip_thread.pending = 1;
        return -EINTR;
    }
    __pthread_register_cancel(&here);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    long got = fs_call_kernel(number, a);
    pthread_setcanceltype(type, NULL);
    __pthread_unregister_cancel(&here);
    return got;
}

/* A signal that comes before the kernel has begun the sleep does not end it, as with recv(2). */
long ip_sleep(long number, const long a[6]) {
    int busy = ip_thread.busy, may_sleep = ip_thread.may_sleep;
    uint32_t ran = ip_thread.ran;
    long got = -EINTR;
    ip_thread.busy = ip_thread.may_sleep = 0; /* (a handler may sleep too) */
    ip_compiler_barrier();
    if (ip_unlikely(ip_thread.pending)) ip_run_handlers();
    if (ip_thread.ran == ran) got = ip_threaded ? sleep_cancellable(number, a) : fs_call_kernel(number, a);
    ip_compiler_barrier();
    ip_thread.busy = busy;
    ip_thread.may_sleep = may_sleep;
    return got;
}

int ip_is_ended_by_signal(struct ip_socket *s, int what, uint32_t ran, uint32_t ended) {
    return ip_thread.cancelled || ip_thread.ended != ended || (ip_thread.ran != ran && fs_timeout_option(ip_conn(s), what) >= 0);
}

/* ---- what the program sets ---------------------------------------------------------------------------------------------- */

static int is_function(const struct sigaction *how) { return how->sa_handler != SIG_DFL && how->sa_handler != SIG_IGN; }

static void lock_handlers(void) {
    ip_enter(); /* no handler that would wait for the lock runs in who has it */
    while (ip_exchange(&changing, 1)) sched_yield();
}

static void unlock_handlers(void) {
    ip_exchange(&changing, 0);
    ip_leave();
}

/* What the kernel says of a signal, as the program has set it. */
static void show(const struct sigaction *old, uint64_t function, uint32_t flags, struct sigaction *before) {
    *before = *old;
    if (old->sa_sigaction != on_signal) return;
    before->sa_sigaction = (void (*)(int, siginfo_t *, void *))(uintptr_t)function;
    before->sa_flags = (old->sa_flags & ~(int)(SA_SIGINFO | SA_RESETHAND)) | (int)(flags & (SA_SIGINFO | SA_RESETHAND));
}

static int set_handler(int number, const struct sigaction *how, struct sigaction *before) {
    struct handler *h = &handlers[number];
    struct sigaction ours = *how, old;
    lock_handlers();
    uint64_t function = ip_load_relaxed(&h->function);
    uint32_t flags = ip_load_relaxed(&h->flags);
    ours.sa_sigaction = on_signal;
    ours.sa_flags = (how->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
    ip_store_relaxed(&h->flags, (uint32_t)how->sa_flags);
    ip_store_relaxed(&h->function, (uint64_t)(uintptr_t)how->sa_sigaction);
    int failed = real.sigaction(number, &ours, &old), error = errno;
    if (failed) {
        ip_store_relaxed(&h->flags, flags);
        ip_store_relaxed(&h->function, function);
    } else if (before) {
        show(&old, function, flags, before);
    }
    unlock_handlers();
    errno = error;
    return failed;
}

void ip_wrap_handlers(void) {
    struct sigaction how;
    for (int number = 1; number < SIGNALS; number++)
        if (real.sigaction(number, NULL, &how) == 0 && is_function(&how) && how.sa_sigaction != on_signal) sigaction(number, &how, NULL);
}

void ip_unwrap_handlers(void) {
    struct sigaction how;
    for (int number = 1; number < SIGNALS; number++)
        if (real.sigaction(number, NULL, &how) == 0 && how.sa_sigaction == on_signal && sigaction(number, NULL, &how) == 0)
            real.sigaction(number, &how, NULL);
}

/* (Programs ask, and ignore signals, around each call of theirs: that costs the kernel's call alone.) */
int sigaction(int number, const struct sigaction *how, struct sigaction *before) {
    struct sigaction old;
    if (!ip_is_active() || number < 1 || number >= SIGNALS) return real.sigaction(number, how, before);
    if (how && is_function(how)) return ip_is_own_process() ? set_handler(number, how, before) : real.sigaction(number, how, before);
    int failed = real.sigaction(number, how, &old);
    if (failed || !before) return failed;
    if (old.sa_sigaction != on_signal) {
        *before = old;
        return 0;
    }
    lock_handlers();
    show(&old, ip_load_relaxed(&handlers[number].function), ip_load_relaxed(&handlers[number].flags), before);
    unlock_handlers();
    return 0;
}

/* The C library's older functions call its own sigaction, and not this one. */
static sighandler_t set(int number, sighandler_t handler, int flags) {
    struct sigaction how = {.sa_handler = handler, .sa_flags = flags}, before;
    if (number < 1 || number >= SIGNALS || handler == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    sigemptyset(&how.sa_mask);
    if (!(flags & SA_NODEFER)) sigaddset(&how.sa_mask, number);
    return sigaction(number, &how, &before) < 0 ? SIG_ERR : before.sa_handler;
}

static int ends_calls(int number) { return (int)(ip_load_relaxed(&interrupts[number / 32]) >> number % 32 & 1); }

sighandler_t signal(int number, sighandler_t handler) {
    return set(number, handler, number > 0 && number < SIGNALS && ends_calls(number) ? 0 : SA_RESTART);
}
sighandler_t sysv_signal(int number, sighandler_t handler) { return set(number, handler, (int)(SA_RESETHAND | SA_NODEFER)); }

int siginterrupt(int number, int ends) {
    struct sigaction how;
    if (sigaction(number, NULL, &how) < 0) return -1;
    uint32_t bit = UINT32_C(1) << number % 32;
    if (ends) ip_or(&interrupts[number / 32], bit);
    else ip_and(&interrupts[number / 32], ~bit);
    how.sa_flags = ends ? how.sa_flags & ~SA_RESTART : how.sa_flags | SA_RESTART;
    return sigaction(number, &how, NULL);
}
