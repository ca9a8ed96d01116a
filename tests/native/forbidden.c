/* An event that the table of states forbids, in a build without assertions: it changes nothing, and the connection is lost. */
#include <stdio.h>

#include "conn/state.h"

int main(void) {
    static struct fs_shared_side side;
    static struct fs_connection c;
    c.own = &side;
    fs_change_leaving(&c, &side.fallback, FS_EV_OUT); /* before any direction has gone back */
    printf("%u %d %d %s\n", fs_load_sc(&side.moved), c.own_fault, (int)fs_peer_is_lost(&c), c.ring.violation);
    return 0;
}
