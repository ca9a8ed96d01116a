/* Calls that give the program a number, of a file, a pipe, a timer and the like.
 *
 * What closes a number past the library (an instruction of its own, a copied pointer) leaves the record of a connection there. These calls
 * see that the kernel has given the number out again.
 *
 * Responsible for: that such a number means nothing of ours. Never: what these calls do, or calls that make sockets (socket_calls.c). */
#include "interpose.h"

#define FS_ONE(name, parameters, arguments) \
    int ip_new_##name parameters { return ip_new_number(real.name arguments); }
#define FS_TWO(name, parameters, arguments) \
    int ip_new_##name parameters { \
        int failed = real.name arguments; \
        if (!failed) ip_new_number(made[0]), ip_new_number(made[1]); \
        return failed; \
    }
#pragma GCC visibility push(hidden)
FS_NEW_NUMBERS(FS_ONE, FS_TWO)
#pragma GCC visibility pop
