/* What the files of this room share: the front end's functions, and what its ended connections have counted. */
#include "api/whole.h"

struct fs_front_end fs_front;
struct fs_counters fs_totals;
