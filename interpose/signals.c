/* Signals: the program's handlers run when no lock of ours or of the core is held in their thread, and a call that a handler interrupts
 * ends or goes on as signal(7) says.
 *
 * The kernel has one handler of ours for each signal that the program has one for. While its thread is busy (ip_enter) it sends the signal
 * to the thread once more, as it was, and blocks it there; the end of the busy time unblocks it. So the kernel keeps what was put off, and
 * each handler gets its own context, mask and stack from it. What a fault of the thread itself raises is never put off.
 *
 * A sleep is one system call (sleep_call.c), and the thread is busy around it. A handler runs in it only if the call then returns -EINTR:
 * what was put off before, what comes before the kernel has begun it, and what the kernel ends it for. What comes when it has returned
 * anything else is put off. So a call that waits is told of each handler that has run. A call with a mask of its own (ppoll) leaves it to
 * the kernel, which knows the mask: what was put off waits there like any signal that the program blocks.
 *
 * Responsible for: when a handler runs, and what a wait learns of it. Never: what a handler does, signals without a handler. */
#include "interpose.h"
#include "signals.h"
#include "sleep_call.h"

#include <setjmp.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { SIGNALS = 65 };

struct handler { /* as the program has set it */
    fs_word64 function; /* 0: none of ours */
    fs_word32 flags;
};

static struct handler handlers[SIGNALS];
static __thread uint64_t put_off __attribute__((tls_model("initial-exec"))); /* bit of each signal that was put off; */
static __thread uint64_t beside __attribute__((tls_model("initial-exec")));  /* of each that came with the one which ends a sleep */
static fs_word32 changing; /* a spin lock */
static fs_word32 interrupts[3]; /* siginterrupt(3): a bit for each signal */

/* ---- putting off ------------------------------------------------------------------------------------------------- */

/* The thread's own fault: to go on without the handler would raise it again. */
static int is_fault(int number, const siginfo_t *info) {
    if (info->si_code <= 0) return 0;
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP || number == SIGSYS;
}

static void put_signal_off(int number, siginfo_t *info, ucontext_t *context, enum ip_place place) {
    int error = errno;
    uint64_t bit = UINT64_C(1) << (number - 1);
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, number);
    pthread_sigmask(SIG_BLOCK, &it, NULL); /* (with SA_NODEFER it is not) */
    fs_call_kernel(SYS_rt_tgsigqueueinfo, (long[6]){getpid(), fs_call_kernel(SYS_gettid, (long[6]){0}), number, (long)info});
    sigaddset(&context->uc_sigmask, number); /* in force when this returns */
    if (place == IP_OUTSIDE) { /* on top of one that has interrupted a sleep */
        beside |= bit;
    } else {
        beside = 0; /* (of those the kernel tells again, when this one has returned) */
        put_off |= bit;
        ip_thread.pending = 1;
    }
    errno = error;
}

/* Whether the handler of a signal that has come to a sleep runs now, and the sleep ends. */
static int ends_sleep(ucontext_t *context, enum ip_place place) {
    struct ip_thread *t = &ip_thread;
    if (place == IP_NOT_BEGUN && t->sleeps == IP_ASLEEP) ip_end_sleep(context);
    else if (place != IP_ENDED) return 0;
    t->busy = t->may_sleep = 0; /* (ip_sleep sets them again. The handler may sleep too, and need not come back) */
    t->sleeps = IP_AWAKE;
    return 1;
}

static void run_signals(uint64_t *which) {
    sigset_t again;
    sigemptyset(&again);
    for (int number = 1; number < SIGNALS; number++)
        if (*which >> (number - 1) & 1) sigaddset(&again, number);
    *which = 0;
    ip_compiler_barrier();
    pthread_sigmask(SIG_UNBLOCK, &again, NULL); /* each of them runs here */
}

static void on_signal(int number, siginfo_t *info, void *context) {
    struct ip_thread *t = &ip_thread;
    if (t->busy && !is_fault(number, info)) {
        enum ip_place place = t->sleeps == IP_AWAKE ? IP_IN_SLEEP : ip_place_in_sleep(context);
        if (!ends_sleep(context, place)) {
            put_signal_off(number, info, context, place);
            return;
        }
        if (beside) run_signals(&beside); /* (what returns from here has the mask of before) */
    }
    void (*function)(int, siginfo_t *, void *);
    uint64_t address = ip_load_relaxed(&handlers[number].function);
    uint32_t flags = ip_load_relaxed(&handlers[number].flags);
    if (flags & SA_RESETHAND) real.sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    t->ran++;
    if (!(flags & SA_RESTART)) t->ended++;
    memcpy(&function, &address, sizeof function);
    uintptr_t outer = t->handler;
    t->handler = (uintptr_t)__builtin_frame_address(0);
    function(number, info, context);
    t->handler = outer;
}

void ip_run_handlers(void) {
    int error = errno;
    if (ip_thread.cancelled && !ip_thread.busy) {
        ip_thread.cancelled = 0;
        pthread_exit(PTHREAD_CANCELED);
    }
    while (ip_thread.pending && !ip_thread.busy) {
        ip_thread.pending = 0;
        run_signals(&put_off);
    }
    errno = error;
}

/* ---- sleeping ------------------------------------------------------------------------------------------------------ */

#ifdef __GLIBC__
/* (As <pthread.h> has it; its name there depends on the C library.) */
extern int set_jump(void *where, int mask) __asm__("__sigsetjmp") __attribute__((returns_twice));
typedef __pthread_unwind_buf_t place;
#pragma weak __pthread_register_cancel   /* (libc_functions.h) */
#pragma weak __pthread_unregister_cancel
#define SET_JUMP(here) set_jump((here).__cancel_jmp_buf, 0)
#define REGISTER(here) __pthread_register_cancel(&(here))
#define UNREGISTER(here) __pthread_unregister_cancel(&(here))
#else
/* musl calls the handlers of a cancelled thread in its own frame, from which one may jump. */
typedef struct { struct __ptcb handler; jmp_buf before; } place;
static void jump(void *before) { longjmp(*(jmp_buf *)before, 1); }
#define SET_JUMP(here) setjmp((here).before)
#define REGISTER(here) _pthread_cleanup_push(&(here).handler, jump, &(here).before)
#define UNREGISTER(here) _pthread_cleanup_pop(&(here).handler, 0)
#endif

/* The system call as a cancellation point. */
static long call_cancellable(int how, const int *ends, long number, const long a[6]) {
    place here;
    int type;
    /* The C library unwinds a cancelled thread to this place, and the frames of the call that sleeps are as they were. So the call ends as
     * one that a signal ends, and gives back what it holds. Then the thread ends (ip_run_handlers). */
    if (SET_JUMP(here)) {
#ifdef __GLIBC__
        UNREGISTER(here);
#endif
        ip_thread.sleeps = IP_AWAKE;
        ip_thread.cancelled = ip_thread.pending = 1;
        return -EINTR;
    }
    REGISTER(here);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
    long got = ip_call_asleep(&ip_thread.sleeps, how, ends, number, a);
    pthread_setcanceltype(type, NULL);
    UNREGISTER(here);
    return got;
}

long ip_sleep(long number, const long a[6], int masked) {
    static const int never = 0;
    struct ip_thread *t = &ip_thread;
    int busy = t->busy, may_sleep = t->may_sleep, how = masked ? IP_ASLEEP_MASKED : IP_ASLEEP;
    const int *ends = masked ? &never : &t->pending;
    long got = ip_has_threads() ? call_cancellable(how, ends, number, a) : ip_call_asleep(&t->sleeps, how, ends, number, a);
    if (got == -EINTR && !masked && !t->cancelled) { /* the handlers that were put off before: they may end the call */
        t->busy = t->may_sleep = 0;
        ip_compiler_barrier();
        if (t->pending) ip_run_handlers();
        ip_compiler_barrier();
    }
    t->may_sleep = may_sleep;
    ip_compiler_barrier();
    t->busy = busy;
    return got;
}

int ip_is_ended_by_signal(struct ip_socket *s, int what, uint32_t ran, uint32_t ended) {
    return ip_thread.cancelled || ip_thread.ended != ended || (ip_thread.ran != ran && fs_wait_setting(ip_conn(s), what) >= 0);
}

/* ---- what the program sets ---------------------------------------------------------------------------------------------- */

/* (Who has asked the kernel past us may give it back what it had: that stays as it was.) */
static int is_function(const struct sigaction *how) {
    return how->sa_handler != SIG_DFL && how->sa_handler != SIG_IGN && how->sa_sigaction != on_signal;
}

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

/* With the lock. */
static int put_ours_before(int number, const struct sigaction *how, struct sigaction *before) {
    struct handler *h = &handlers[number];
    struct sigaction ours = *how, old;
    uint64_t function = ip_load_relaxed(&h->function);
    uint32_t flags = ip_load_relaxed(&h->flags);
    ours.sa_sigaction = on_signal;
    ours.sa_flags = (how->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
    ip_store_relaxed(&h->flags, (uint32_t)how->sa_flags);
    ip_store_relaxed(&h->function, (uint64_t)(uintptr_t)how->sa_sigaction);
    int failed = real.sigaction(number, &ours, &old);
    if (failed) {
        ip_store_relaxed(&h->flags, flags);
        ip_store_relaxed(&h->function, function);
    } else if (before) {
        show(&old, function, flags, before);
    }
    return failed;
}

static int set_handler(int number, const struct sigaction *how, struct sigaction *before) {
    lock_handlers();
    int failed = put_ours_before(number, how, before), error = errno;
    unlock_handlers();
    errno = error;
    return failed;
}

void ip_wrap_handlers(void) {
    struct sigaction how;
    int error = errno;
    if (!ip_is_own_process()) return;
    lock_handlers();
    for (int number = 1; number < SIGNALS; number++)
        if (real.sigaction(number, NULL, &how) == 0 && is_function(&how)) put_ours_before(number, &how, NULL);
    unlock_handlers();
    errno = error;
}

enum { LOOKS_APART = 1000000000 }; /* ns: a look costs 64 system calls */

void ip_wrap_later_handlers(void) {
    static fs_word64 looked;
    uint64_t now = (uint64_t)fs_now();
    if (ip_load_relaxed(&looked) && now - ip_load_relaxed(&looked) < LOOKS_APART) return;
    ip_store_relaxed(&looked, now);
    ip_wrap_handlers();
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

enum { KERNEL_SET = 8 }; /* bytes of the kernel's set of signals */

enum { FIRST_OWN = 32 }; /* of the C library's signals */

struct kernel_action { /* as rt_sigaction(2) has it */
    void (*function)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

int ip_sigaction_by_number(const long a[6], long *got) {
    int number = (int)a[0];
    const struct kernel_action *given = (const struct kernel_action *)a[1];
    struct kernel_action *old = (struct kernel_action *)a[2];
    struct sigaction how = {0}, before;
    /* (The C library's own signals are not for its sigaction.) */
    if (number < 1 || number >= SIGNALS || (number >= FIRST_OWN && number < SIGRTMIN) || a[3] != KERNEL_SET) return 0;
    if (given) {
        how.sa_sigaction = given->function;
        how.sa_flags = (int)given->flags;
        memcpy(&how.sa_mask, &given->mask, sizeof given->mask);
    }
    *got = sigaction(number, given ? &how : NULL, old ? &before : NULL);
    if (*got == 0 && old) {
        *old = (struct kernel_action){before.sa_sigaction, (unsigned long)(unsigned)before.sa_flags, before.sa_restorer, 0};
        memcpy(&old->mask, &before.sa_mask, sizeof old->mask);
    }
    return 1;
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

sighandler_t sigset(int number, sighandler_t handler) {
    struct sigaction how = {.sa_handler = handler}, before;
    sigset_t it, *blocked = &how.sa_mask; /* (set by then, and little of the stack is left to a handler) */
    sigemptyset(&it);
    if (sigaddset(&it, number) < 0) return SIG_ERR;
    if (sigaction(number, handler == SIG_HOLD ? NULL : &how, &before) < 0) return SIG_ERR;
    if (pthread_sigmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &it, blocked)) return SIG_ERR;
    return sigismember(blocked, number) ? SIG_HOLD : before.sa_handler;
}

int siginterrupt(int number, int ends) {
    struct sigaction how;
    if (sigaction(number, NULL, &how) < 0) return -1;
    uint32_t bit = UINT32_C(1) << number % 32;
    if (ends) ip_or(&interrupts[number / 32], bit);
    else ip_and(&interrupts[number / 32], ~bit);
    how.sa_flags = ends ? how.sa_flags & ~SA_RESTART : how.sa_flags | SA_RESTART;
    return sigaction(number, &how, NULL);
}
