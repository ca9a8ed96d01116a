/* One end of a connection whose other end is another process, perhaps of another version of the protocol (-DFS_VERSION):
 * `versions DESCRIPTOR ROLE NAME`, where a 0 seeks and a 1 publishes. It sends and receives blocks, checks what comes, and goes on
 * until both ends are decided. It says its version, its path, the number of its reason, and how many bytes have come. */
#pragma GCC diagnostic ignored "-Wunused-function" /* of frontend.h, which has more than this needs */
#include "frontend.h"

#include "rendezvous/connector.h"

enum { ROUNDS = 500, BLOCK = 1500, MOST_SECONDS = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct end end;
static struct fs_path path;

static void operate(void) {
    struct fs_step_result step;
    struct fs_call call;
    enter(&end);
    path.operations++;
    if (fs_has_step(&path) && path.operations >= path.next && fs_call_enter(&end.c, &call)) {
        fs_connector_step(&path, &end.c, NULL, &step);
        after_call(&end, &call);
        check(step.what != FS_STEP_BROKEN, "the peer broke the protocol: %s", step.violation);
    }
    leave();
}

/* All of a block, or what of it is the peer's. */
static void transfer(char *block, int what) {
    for (size_t done = 0; done < BLOCK;) {
        struct fs_call call;
        operate();
        check(begin_call(&end, &call), "it is closed");
        int64_t got = what == FS_SEND ? fs_try_send(&end.c, block + done, BLOCK - done, MSG_NOSIGNAL)
                                      : fs_try_recv(&end.c, block + done, BLOCK - done, 0, 1);
        if (got == -EAGAIN) wait_for(&end, what, fs_now() + 10000000, 0);
        else check(got > 0, "%s: %" PRId64, what == FS_SEND ? "sending" : "receiving", got);
        if (got > 0) done += (size_t)got;
        end_call(&end, &call);
    }
}

int main(int count, char **words) {
    static char block[BLOCK];
    check(count == 4, "versions DESCRIPTOR ROLE NAME");
    struct fs_upgrade_config config = {.window = 8, .chunk = 4096, .flow = {4, 1024, 1}, .memory_cap = 1 << 30,
                             .patience = INT64_C(20000000000), .waits = 1};
    int publishes = atoi(words[2]), both = 0;
    uint64_t bytes = 0;
    alarm(MOST_SECONDS);
    become_front_end();
    fs_set_upgrade_config(&config);
    end.lock = &lock;
    end.side = publishes;
    check(open_end(&end, atoi(words[1])) == 0, "opening");
    enter(&end);
    fs_count_opened(FS_REASON_FEW);
    fs_path_open(&path, &end.c, 0, FS_REASON_FEW);
    check(fs_path_event(&path, FS_PATH_START), "starting");
    check(fs_connector_begin(&path, words[3], publishes, NULL) == 0, "searching");
    leave();
    for (int round = 0; round < ROUNDS || !both; round++) {
        memset(block, round + publishes, sizeof block);
        int decided = block[0] = !fs_is_undecided(&path);
        transfer(block, FS_SEND);
        transfer(block, FS_RECEIVE);
        bytes += sizeof block;
        for (int i = 1; i < BLOCK; i++)
            check(block[i] == (char)(round + !publishes), "round %d: byte %d of the peer is %d", round, i, block[i]);
        both = decided && block[0];
    }
    printf("version %d, %s, reason %d, %" PRIu64 " bytes\n", FS_VERSION, fs_is_attached(&end.c) ? "ring" : "tcp",
           path.reason, bytes);
    fflush(stdout);
    _exit(0);
}
