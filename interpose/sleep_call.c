/* The system call of a sleep, at addresses that are known.
 *
 * A signal that comes before the kernel has begun the sleep has to end it, as one that comes later does: what its handler has heard may
 * be what the thread sleeps for. No check before the call can see to that, since the signal may come right after the check. So the handler
 * of all signals (signals.c) looks where the thread is, as those of the C libraries do that cancel threads. Between `begins` and `calls`
 * nothing has happened yet: it has the thread go on at `over`, where the call has ended. At `called` the result says whether the signal has
 * ended the call.
 *
 * Responsible for: that no signal is lost between the check and the sleep. Never: which handlers run (signals.c). */
#include "interpose.h"
#include "sleep_call.h"

#include <ucontext.h>

#pragma GCC visibility push(hidden)
extern const char ip_sleep_begins[], ip_sleep_calls[], ip_sleep_called[], ip_sleep_over[], ip_sleep_end[];
#pragma GCC visibility pop

_Static_assert(sizeof(int) == 4 && EINTR == 4, "the instructions below say so");

/* (A thread that is cancelled is unwound from here: the frame is described, and the end of the sleep is the front end's to note.) */
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
        ".hidden ip_call_asleep\n"
        ".globl ip_call_asleep\n"
        ".type ip_call_asleep, @function\n"
        ".p2align 4\n"
        "ip_call_asleep:\n"
        "    .cfi_startproc\n"
        "    pushq %rbx\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbx, -16\n"
        "    movq %rdi, %rbx\n"
        "    movl %esi, (%rbx)\n"
        "    movq %rcx, %rax\n"
        "    movq %r8, %r11\n"
        "ip_sleep_begins:\n"
        "    cmpl $0, (%rdx)\n"
        "    jne ip_sleep_over\n"
        "    movq (%r11), %rdi\n"
        "    movq 8(%r11), %rsi\n"
        "    movq 16(%r11), %rdx\n"
        "    movq 24(%r11), %r10\n"
        "    movq 32(%r11), %r8\n"
        "    movq 40(%r11), %r9\n"
        "ip_sleep_calls:\n"
        "    syscall\n"
        "ip_sleep_called:\n"
        "    movl $0, (%rbx)\n"
        "    popq %rbx\n"
        "    .cfi_remember_state\n"
        "    .cfi_def_cfa_offset 8\n"
        "    .cfi_restore %rbx\n"
        "    ret\n"
        "    .cfi_restore_state\n"
        "ip_sleep_over:\n"
        "    movq $-4, %rax\n"
        "    jmp ip_sleep_called\n"
        "ip_sleep_end:\n"
        "    .cfi_endproc\n"
        ".size ip_call_asleep, . - ip_call_asleep\n"
        ".popsection\n");

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.gregs[REG_RIP]; }
static void set_place(ucontext_t *c, uintptr_t at) { c->uc_mcontext.gregs[REG_RIP] = (greg_t)at; }
static long result_of(const ucontext_t *c) { return (long)c->uc_mcontext.gregs[REG_RAX]; }
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
        ".hidden ip_call_asleep\n"
        ".globl ip_call_asleep\n"
        ".type ip_call_asleep, %function\n"
        ".p2align 4\n"
        "ip_call_asleep:\n"
        "    .cfi_startproc\n"
        "    stp x19, x30, [sp, #-16]!\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset x19, -16\n"
        "    .cfi_offset x30, -8\n"
        "    mov x19, x0\n"
        "    str w1, [x19]\n"
        "    mov x8, x3\n"
        "    mov x9, x4\n"
        "ip_sleep_begins:\n"
        "    ldr w10, [x2]\n"
        "    cbnz w10, ip_sleep_over\n"
        "    ldp x0, x1, [x9]\n"
        "    ldp x2, x3, [x9, #16]\n"
        "    ldp x4, x5, [x9, #32]\n"
        "ip_sleep_calls:\n"
        "    svc #0\n"
        "ip_sleep_called:\n"
        "    str wzr, [x19]\n"
        "    ldp x19, x30, [sp], #16\n"
        "    .cfi_remember_state\n"
        "    .cfi_def_cfa_offset 0\n"
        "    .cfi_restore x19\n"
        "    .cfi_restore x30\n"
        "    ret\n"
        "    .cfi_restore_state\n"
        "ip_sleep_over:\n"
        "    mov x0, #-4\n"
        "    b ip_sleep_called\n"
        "ip_sleep_end:\n"
        "    .cfi_endproc\n"
        ".size ip_call_asleep, . - ip_call_asleep\n"
        ".popsection\n");

static uintptr_t place_of(const ucontext_t *c) { return (uintptr_t)c->uc_mcontext.pc; }
static void set_place(ucontext_t *c, uintptr_t at) { c->uc_mcontext.pc = at; }
static long result_of(const ucontext_t *c) { return (long)c->uc_mcontext.regs[0]; }
#else
#error "this architecture's system calls are not known here"
#endif

enum ip_place ip_place_in_sleep(const void *context) {
    uintptr_t at = place_of(context);
    if (at >= (uintptr_t)ip_sleep_begins && at <= (uintptr_t)ip_sleep_calls) return IP_NOT_BEGUN;
    if (at == (uintptr_t)ip_sleep_called && result_of(context) == -EINTR) return IP_ENDED;
    return at >= (uintptr_t)ip_call_asleep && at < (uintptr_t)ip_sleep_end ? IP_IN_SLEEP : IP_OUTSIDE;
}

void ip_end_sleep(void *context) { set_place(context, (uintptr_t)ip_sleep_over); }
