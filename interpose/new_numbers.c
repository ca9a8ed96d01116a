/* Calls that give the program a number, of a file, a pipe, a timer and the like.
 *
 * What closes a number past the library (an instruction of its own, a copied pointer) leaves the record of a connection there. These calls
 * see that the kernel has given the number out again.
 *
 * Responsible for: that such a number means nothing of ours, and is the lowest. Never: what these calls do, or calls that make sockets
 * (socket_calls.c). */
#include "interpose.h"
#include "own_numbers.h"

#define FS_ONE(name, parameters, arguments) \
    int ip_new_##name parameters { \
        uint32_t since = ip_between_moments(); \
        return ip_new_number(ip_lowest(real.name arguments, 0, since)); \
    }
#define FS_TWO(name, parameters, arguments) \
    int ip_new_##name parameters { \
        uint32_t since = ip_between_moments(); \
        int failed = real.name arguments; \
        for (int i = 0; !failed && i < 2; i++) made[i] = ip_new_number(ip_lowest(made[i], 0, since)); \
        return failed; \
    }
#pragma GCC visibility push(hidden)
FS_NEW_NUMBERS(FS_ONE, FS_TWO)
#pragma GCC visibility pop
