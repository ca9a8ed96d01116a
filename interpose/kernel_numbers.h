/* Numbers of system calls and flags that the headers of an older system lack: the kernel may be newer than they are. They are the same on
 * every architecture.
 *
 * Responsible for: that this front end compiles with the headers of glibc 2.28 and of musl. Never: whether the kernel has the call. */
#pragma once

#include <sys/syscall.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9 */
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2U
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4U /* Linux 5.11 */
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* Linux 5.11 */
#endif
