/* What the core knows of the process that it runs in. */
#include "os/host.h"

struct fs_host fs_host;
uint32_t fs_own_pid, fs_own_pid_ns;
