/* An event that a table of states forbids, in a build without assertions: the connection is lost, and says why. `forbidden` prints what
 * each event of the path does in each state: a letter for the next state, `.` if it changes nothing, `!` if it is forbidden. */
#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than this needs */
#include "frontend.h"

#include "rendezvous/connector.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void walk(void) {
    for (int event = 0; event < FS_PATH_EVENTS; event++) {
        for (uint32_t state = 0; state < FS_PATH_STATES; state++) {
            struct fs_path path = {.state = state};
            int changed = fs_path_event(&path, (enum fs_path_events)event);
            check(changed || path.state == state || (path.state == FS_FAULTED && path.fault), "event %d in state %u", event, state);
            putchar(changed ? (int)('a' + path.state) : path.fault ? '!' : '.');
        }
        putchar('\n');
    }
}

/* The step after such an event resets the connection. */
static void break_path(void) {
    struct end end = {.lock = &lock};
    struct fs_path path = {0};
    struct fs_step_result step;
    struct fs_call call;
    char byte;
    int fds[2];
    connect_pair(fds);
    check(open_end(&end, fds[0]) == 0, "opening");
    enter(&end);
    fs_count_opened(FS_REASON_FEW);
    fs_path_open(&path, &end.c, 100, FS_REASON_FEW);
    check(!fs_path_event(&path, FS_PATH_NAMED) && fs_has_step(&path) && path.operations >= path.next, "it waits");
    check(fs_call_enter(&end.c, &call), "it has ended");
    fs_connector_step(&path, &end.c, NULL, &step);
    after_call(&end, &call);
    leave();
    check(step.what == FS_STEP_BROKEN && end.c.own_fault && fs_is_broken(&end.c) && path.reason == FS_REASON_VIOLATION, "not broken");
    check(recv(fds[1], &byte, 1, 0) < 0 && errno == ECONNRESET, "no reset");
    printf("%s\n", step.violation);
}

int main(void) {
    static struct fs_shared_side side;
    static struct fs_connection c;
    become_front_end();
    c.own = &side;
    fs_change_leaving(&c, &side.fallback, FS_EV_OUT); /* before any direction has gone back */
    printf("%u %d %d %s\n", fs_load_sc(&side.moved), c.own_fault, (int)fs_peer_is_lost(&c), c.ring.violation);
    break_path();
    walk();
    fflush(stdout);
    _exit(0);
}
