/* A small front end in C, of fastsock.h and the C library alone: one thread has both ends of a TCP connection, passes messages to and fro
 * until both are on the ring, and takes one end back to kernel TCP. It tells what went where. */
#include <fastsock.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 200000, OPERATIONS = 8 };

static struct fs_connection *ends[2]; /* NULL: its memory is ours again */
static int numbers[2];

static void each(void (*body)(struct fs_connection *c, void *with), void *with) {
    for (int i = 0; i < 2; i++)
        if (ends[i]) body(ends[i], with);
}

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

static void connect_both(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 1), "listen");
    getsockname(listener, (struct sockaddr *)&at, &size);
    numbers[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(!connect(numbers[0], (struct sockaddr *)&at, size), "connect");
    numbers[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) {
        ends[i] = fs_conn_init(aligned_alloc(64, fs_conn_size()));
        check(!fs_conn_begin(ends[i], numbers[i], 0), "fs_conn_begin");
        fs_path_begin(ends[i], OPERATIONS, NULL, 0);
    }
}

/* Ends a call, and gives the memory back once nobody has it. */
static void leave(int i, struct fs_call *call) {
    enum fs_exit_action after = fs_call_exit(ends[i], call);
    if (after == FS_EXIT_NOTHING || !fs_after_exit(ends[i], call, after)) return;
    free(ends[i]);
    ends[i] = NULL;
}

/* A call of the program: sends the message, or receives it whole. */
static void transfer(int i, char *bytes, size_t length, int sends) {
    struct fs_connection *c = ends[i];
    struct fs_step_result result;
    struct fs_call call;
    size_t done = 0;
    check(fs_call_enter(c, &call), "fs_call_enter");
    if (fs_operate(c)) fs_step(c, NULL, &result);
    while (done < length) {
        int64_t part = sends ? fs_try_send(c, bytes + done, length - done, MSG_NOSIGNAL) : fs_try_recv(c, bytes + done, length - done, 0, FS_FINAL);
        check(part > 0 || part == -EAGAIN, sends ? "send" : "receive");
        if (part > 0) done += (size_t)part;
        else if (!fs_spin(c, sends ? FS_SEND : FS_RECEIVE)) check(fs_sleep(c, sends ? FS_SEND : FS_RECEIVE, -1, NULL) == 1, "fs_sleep");
    }
    leave(i, &call);
}

static void pass_message(int round) {
    char sent[64], got[64];
    memset(sent, round, sizeof sent);
    for (int i = 0; i < 2; i++) {
        transfer(i, sent, sizeof sent, 1);
        transfer(!i, got, sizeof got, 0);
        check(!memcmp(sent, got, sizeof got), "comparison");
    }
}

static int list_numbers(void *whose, int *into, int room) {
    if (room) *into = *(int *)whose;
    return 1;
}

int main(void) {
    struct fs_front_end front = {.each = each};
    struct fs_upgrade_config config = {.window = 64, .chunk = 4096, .flow = {4, 512, 1}, .memory_cap = 1 << 30, .patience = 1000000000};
    struct fs_limits everything = {0};
    struct fs_counters sum;
    struct fs_call call;
    int64_t bridge;
    int moved = 0, left;
    check(!fs_begin(&front), "fs_begin");
    fs_set_upgrade_config(&config);
    fs_set_limits(&everything);
    fs_set_spin(20000);
    connect_both();
    for (int round = 0; round < ROUNDS && !moved; round++) {
        pass_message(round);
        moved = fs_is(ends[0], FS_IS_SENDING_RING) && fs_is(ends[1], FS_IS_SENDING_RING);
    }
    check(moved, "the move");
    for (int round = 0; round < 100; round++) pass_message(round);
    check(fs_call_enter(ends[0], &call), "fs_call_enter");
    while ((left = fs_fall_back(ends[0], &(struct fs_fallback_hooks){list_numbers, NULL, &numbers[0]}, &bridge)) == -EINTR) {}
    check(left == FS_NOW_IN_KERNEL && fs_is(ends[0], FS_IS_OUT), "the fallback");
    leave(0, &call);
    pass_message(1);
    fs_sum_counters(NULL, &sum);
    printf("%d on the ring, %d messages there\n", (int)fs_count_paths(FS_REASON_NONE), (int)sum.messages_sent);
    for (int i = 0; i < 2; i++) {
        check(fs_call_enter(ends[i], &call), "fs_call_enter");
        if (fs_close_last_fd(ends[i], numbers[i])) fs_finish(ends[i]);
        leave(i, &call);
        check(!ends[i], "the end");
        close(numbers[i]);
    }
    return 0;
}
