/* The front end's functions and the identity of this process. */
#include "os/host.h"

struct fs_host fs_host;
uint32_t fs_own_pid, fs_own_pid_ns;
