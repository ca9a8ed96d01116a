/* What the core knows of the process that it runs in. */
#include "base/front.h"

struct fs_front fs_front;
uint32_t fs_own_pid, fs_own_pid_space;
