/* A system call as it is, past the C library.
 *
 * Responsible for: the result as the kernel gives it. Never: errno, cancellation. */
#include "libc_functions.h"

#pragma GCC visibility push(hidden)

/* (The kernel is called as it is: memory allocators come here before anything can be looked up.) */
long fs_call_kernel(long number, const long a[6]) {
    /* (Loaded before a register has a value that must stay: a sanitizer makes a call of each load.) */
    long first = a[0], second = a[1], third = a[2], fourth = a[3], fifth = a[4], sixth = a[5];
#if defined(__x86_64__)
    register long r10 __asm__("r10") = fourth, r8 __asm__("r8") = fifth, r9 __asm__("r9") = sixth;
    long got;
    __asm__ volatile("syscall"
                     : "=a"(got)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return got;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = first, x1 __asm__("x1") = second, x2 __asm__("x2") = third;
    register long x3 __asm__("x3") = fourth, x4 __asm__("x4") = fifth, x5 __asm__("x5") = sixth;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "this architecture's system calls are not known here"
#endif
}

#pragma GCC visibility pop
