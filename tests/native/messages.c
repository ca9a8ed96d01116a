/* Groups: who joins, sends, takes, polls, waits, forks, dies and leaves. How the scenarios run, and fail by place: runs.h.
 *
 * What has to hold behind a failure: whoever cannot join is told so; a message that was sent comes, whole and in its place; nobody waits
 * for ever; and the group, its memory and its names end with its members: the scenario is done again, at the same names. */
#include "runs.h"

#include "messages/group.h"

enum { LARGE_MESSAGE = 300000, LOOKS_MS = 50 };

static char large[LARGE_MESSAGE], folder[32];
static uint32_t is_far; /* the group's names are in the folder */

/* Not to be told at once is no fault where calls fail: tries, until the time is over. */
static int is_transient(int64_t result) {
    return result == -EAGAIN || result == -EINTR || result == -ENOMEM || result == -ETIMEDOUT;
}

static int try_to_join(const char *what, enum fs_group_how how, int reads, int blocking, struct fs_group **made) {
    char name[64];
    snprintf(name, sizeof name, "native %d %s", home, what);
    const struct fs_group_options options = {.name = name, .length = strlen(name), .owner = geteuid(), .how = how, .reads = reads != 0,
                                             .blocking = blocking != 0, .slots = blocking ? 2 : 64, .size = 1 << 16,
                                             .largest = LARGE_MESSAGE, .far = is_far};
    *made = NULL;
    return fs_group_join(&options, made);
}

static struct fs_group *join_as(const char *what, enum fs_group_how how, int reads, int blocking) {
    struct fs_group *g;
    step("joining %s", what);
    return goes_on(try_to_join(what, how, reads, blocking, &g)) ? g : NULL;
}

static void leave_group(struct fs_group *g) {
    if (!g) return;
    fs_group_leave(g);
    fs_group_free(g);
}

static void send_to(struct fs_group *g, const char *data, size_t length) {
    int64_t sent = -EAGAIN;
    for (double until = seconds_now() + PATIENCE; !lost && is_transient(sent);) {
        sent = fs_group_send(g, data, length, 7);
        if (sent == -EAGAIN) fs_group_wait(g, FS_SEND, fs_now() + 5000000);
        if (seconds_now() > until) violate("nothing can be sent");
    }
    if (!lost) goes_on(sent);
}

static void take_from(struct fs_group *g, const char *data, size_t length) {
    struct fs_message message;
    int64_t got = 0;
    for (double until = seconds_now() + PATIENCE; !lost && (!got || is_transient(got));) {
        got = fs_group_take(g, &message);
        if (!got) fs_group_wait(g, FS_RECEIVE, fs_now() + 5000000);
        if (seconds_now() > until) violate("the message is lost");
    }
    if (lost || !goes_on(got)) return;
    if (message.length != length || memcmp(message.data, data, length) || message.kind != 7 || message.lost) violate("another message");
    fs_group_release(g, &message);
}

/* Looks at the descriptor as a loop does. Only where calls fail may it be silent: then the next look finds the message. */
static void poll_for(struct fs_group *g) {
    struct pollfd fd = {.fd = fs_group_fd(g), .events = POLLIN};
    if (!goes_on(fd.fd)) return;
    for (double until = seconds_now() + PATIENCE; poll(&fd, 1, LOOKS_MS) < 1 || !fs_group_pending(g);) {
        if (fs_group_pending(g) && !strict) return;
        if (seconds_now() > until) violate("the descriptor says nothing");
    }
}

/* ---- scenarios ------------------------------------------------------------------------------------------------- */

static void *send_later(void *g) {
    is_program = 1;
    usleep(3000);
    send_to(g, "late", 4);
    return NULL;
}

static void run_members(void) {
    struct fs_group *b = NULL, *c = NULL, *a = join_as("members", FS_GROUP_NEW, 1, 0);
    pthread_t thread;
    step("the second joins");
    if (a) b = join_as("members", FS_GROUP_EXISTING, 1, 0);
    if (b) {
        step("messages");
        send_to(a, "one", 3);
        send_to(b, large, sizeof large);
        for (int i = 0; i < 2; i++) take_from(i ? a : b, "one", 3);
        for (int i = 0; i < 2; i++) take_from(i ? a : b, large, sizeof large);
        step("a loop waits");
        if (!lost && goes_on(fs_group_fd(b))) {
            send_to(a, "two", 3);
            poll_for(b);
            take_from(b, "two", 3);
            take_from(a, "two", 3);
            send_to(b, "three", 5);
            take_from(a, "three", 5);
            poll_for(b);
            take_from(b, "three", 5);
            fs_group_fd_unused(b);
        }
        step("a thread waits");
        if (!lost && pthread_create(&thread, NULL, send_later, a) == 0) {
            take_from(b, "late", 4);
            pthread_join(thread, NULL);
        }
    }
    if (b && !lost) {
        step("a third is left alone");
        c = join_as("members", FS_GROUP_ANY, 1, 0);
    }
    leave_group(a);
    leave_group(b);
    if (c) {
        lost = 0;
        send_to(c, "self", 4);
        take_from(c, "self", 4);
    }
    leave_group(c);
}

/* The memory of what has passed is given to what comes: messages of all sizes in a group that may have little. */
static void run_little_memory(void) {
    struct fs_group *a = join_as("memory", FS_GROUP_ANY, 1, 0);
    struct fs_message message;
    uint64_t last = 0;
    step("messages of all sizes");
    for (size_t length = LARGE_MESSAGE; a && !lost && length > 20000; length /= 2)
        for (int i = 0; i < 12; i++) send_to(a, large, length);
    if (!lost) send_to(a, "last", 4);
    for (int64_t got = 1; a && !lost && got;) { /* (the oldest are lost) */
        got = fs_group_take(a, &message);
        if (got != 1) {
            if (!is_transient(got)) goes_on(got);
            continue;
        }
        last = message.length;
        if (memcmp(message.data, last == 4 ? "last" : large, last)) violate("another message");
        fs_group_release(a, &message);
    }
    if (a && !lost && last != 4) violate("the last one is lost");
    leave_group(a);
}

static void run_dead_reader(void) {
    struct fs_group *a = join_as("dead", FS_GROUP_ANY, 0, 1);
    int ready[2];
    char byte;
    if (!a) return;
    step("a reader in another process");
    check(pipe(ready) == 0, "pipe: %m");
    fflush(stdout);
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (!child) {
        armed = 0;
        struct fs_group *b = join_as("dead", FS_GROUP_EXISTING, 1, 1);
        if (write(ready[1], b ? "y" : "n", 1) == 1)
            for (;;) pause();
        _exit(0);
    }
    close(ready[1]);
    int joined = read(ready[0], &byte, 1) == 1 && byte == 'y';
    close(ready[0]);
    if (strict && !joined) violate("the reader cannot join");
    step("it holds the writer");
    for (int i = 0; i < 2; i++) send_to(a, "held", 4);
    if (joined && !lost) {
        if (fs_group_send(a, "more", 4, 7) != -EAGAIN) violate("nobody holds the writer");
        if (fs_group_wait(a, FS_SEND, fs_now() + 1000000) > 0) { /* (time to look again) */
            if (fs_group_send(a, "more", 4, 7) != -EAGAIN) violate("nobody holds the writer");
        }
    }
    kill(child, SIGKILL);
    check(waitpid(child, NULL, 0) == child, "waitpid: %m");
    step("it was killed");
    send_to(a, "free", 4);
    leave_group(a);
}

/* The child has its parent's membership alone in the end, and is found. */
static void run_child(void) {
    struct fs_group *a = join_as("child", FS_GROUP_ANY, 1, 0), *b = NULL;
    int ready[2];
    char byte;
    if (!a) return;
    step("a child has the membership");
    send_to(a, "to the child", 12);
    check(pipe(ready) == 0, "pipe: %m");
    fflush(stdout);
    pid_t child = fork();
    check(child >= 0, "fork: %m");
    if (!child) {
        if (lost) _exit(0);
        take_from(a, "to the child", 12);
        if (write(ready[1], "y", 1) == 1)
            for (;;) pause();
        _exit(0);
    }
    close(ready[1]);
    int took = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (strict && !took) violate("the child takes nothing");
    leave_group(a);
    step("the parent has left");
    /* (The child's thread tries for the name each half second. Behind a failure it may be without.) */
    for (double until = seconds_now() + 3; took && !lost && !b && (strict || seconds_now() < until);) {
        int failed = try_to_join("child", FS_GROUP_EXISTING, 1, 0, &b);
        if (failed && failed != -ENOENT && !is_transient(failed)) goes_on(failed);
        if (failed) usleep(10000);
        if (strict && seconds_now() > until + PATIENCE) violate("nobody finds the child");
    }
    if (b) {
        send_to(b, "found", 5);
        take_from(b, "found", 5);
    }
    leave_group(b);
    kill(child, SIGKILL);
    check(waitpid(child, NULL, 0) == child, "waitpid: %m");
}

static void run_looks(void) {
    struct fs_group *a = join_as("looks", FS_GROUP_ANY, 1, 0);
    struct fs_group_info info;
    char socket_name[FS_NAME_MAX + 1], name[FS_GROUP_NAME_MAX + 1];
    if (!a) return;
    send_to(a, "seen", 4);
    fs_group_name(socket_name, a, a->place, FS_LISTENS);
    step("somebody looks");
    if (goes_on(fs_group_inspect(socket_name, &info, name)) && (info.members != 1 || info.head != 1 || !strstr(name, "looks")))
        violate("it has seen something else");
    if (!lost && strict && fs_group_inspect("fastsock/group/nobody", &info, name) != -ENOENT) violate("it sees what is not there");
    leave_group(a);
}

/* Members meet in a folder, where those that were killed have left their names. */
static void run_far(void) {
    void (*const all[])(void) = {run_members, run_dead_reader, run_looks};
    is_far = 1;
    for (int i = 0; i < 3; i++) {
        lost = 0;
        all[i]();
    }
    is_far = 0;
}

int main(void) {
    static const struct scenario all[] = {
        {"members", run_members},
        {"little memory", run_little_memory},
        {"a dead reader", run_dead_reader},
        {"a child", run_child},
        {"a look", run_looks},
        {"members in a folder", run_far},
    };
    strcpy(folder, "/tmp/fs-groups-XXXXXX");
    check(mkdtemp(folder) && !fs_set_rendezvous_dir(folder), "the folder");
    for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 2654435761u >> 24);
    int status = run_all(all, sizeof all / sizeof *all);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 1 : status;
}
