/* What comes between two steps of one call of the core: `moments [seconds]`; one look at each is enough.
 *
 * Both ends are in this process. What comes in between is done by the functions that stand in the core's table of calls. */
#include "pair.h"

/* ---- urgent bytes ------------------------------------------------------------------------------------------------------ */

/* The direction goes to the kernel, behind what lies in the ring; the other one stays. */
static void send_urgent_on_ring(void) {
    char bytes[8];
    open_ends();
    move_ends();
    check(fs_try_send(&ends[0].c, "ab", 2, MSG_NOSIGNAL) == 2, "sending");
    check(fs_try_send(&ends[0].c, "cd!", 3, MSG_NOSIGNAL | MSG_OOB) == 3 && !fs_sends_on_ring(&ends[0].c), "sending an urgent byte");
    check(fs_try_send(&ends[0].c, "ef", 2, MSG_NOSIGNAL) == 2, "sending behind it");
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == 4 && !memcmp(bytes, "abcd", 4), "what comes before it");
    check(recv(ends[1].number, bytes, sizeof bytes, MSG_OOB) == 1 && bytes[0] == '!', "the urgent byte: %m");
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == 2 && !memcmp(bytes, "ef", 2), "what comes behind it");
    check(fs_try_send(&ends[1].c, "gh", 2, MSG_NOSIGNAL) == 2 && fs_sends_on_ring(&ends[1].c), "the other direction");
    check(fs_try_recv(&ends[0].c, bytes, sizeof bytes, 0, 1) == 2 && !memcmp(bytes, "gh", 2), "receiving there");
    check(leave_end(&ends[1], 0) == FS_FELL_BACK && leave_end(&ends[0], 0) == FS_FELL_BACK, "the rest of the way");
    close_ends();
}

/* A connection that has sent one does not attach any more. */
static void send_urgent_in_kernel(void) {
    static const struct fs_flow_options flow = {.ack_threshold = 4};
    char bytes[8];
    open_ends();
    check(fs_try_send(&ends[0].c, "ab!", 3, MSG_NOSIGNAL | MSG_OOB) == 3, "sending");
    check(attach_end(&ends[1], &flow) == 0 && attach_end(&ends[0], &flow) == -ENOTCONN, "attaching");
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == 2 && !memcmp(bytes, "ab", 2), "what comes before the urgent byte");
    check(recv(ends[1].number, bytes, sizeof bytes, MSG_OOB) == 1 && bytes[0] == '!', "the urgent byte: %m");
    close_ends();
}

/* ---- bytes of the kernel's part that somebody reads past us ------------------------------------------------------------- */

static void read_past(void) {
    char bytes[8];
    open_ends();
    check(send(ends[0].number, "abc", 3, MSG_NOSIGNAL) == 3, "sending: %m");
    attach_ends();
    check(fs_try_send(&ends[0].c, "d", 1, MSG_NOSIGNAL) == 1 && fs_sends_on_ring(&ends[0].c), "sending");
    check(recv(ends[1].number, bytes, 1, 0) == 1, "reading past: %m");
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == 2 && !memcmp(bytes, "bc", 2), "what is left");
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == FS_VIOLATED, "a byte is missing, and nobody says so");
    fs_conn_reset(&ends[1].c);
    close_ends();
}

/* ---- a sender that polls for credits ---------------------------------------------------------------------------------- */

/* They come between the send that found none and the wait, in a descriptor: the wait sees that there is room. */
static void poll_for_credits(void) {
    char bytes[CHUNK] = {0};
    open_ends();
    move_ends();
    ends[1].c.ring.ack_threshold = WINDOW + 1; /* no ACK is alone, */
    ends[1].c.ring.window = 2 * WINDOW;        /* not even a late one */
    while (fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) > 0) {}
    check(fs_try_recv(&ends[1].c, bytes, sizeof bytes, 0, 1) == WINDOW, "receiving");
    ends[1].c.ring.window = WINDOW;
    check(fs_try_send(&ends[1].c, "y", 1, MSG_NOSIGNAL) == 1, "sending");
    check(fs_try_recv(&ends[0].c, bytes, 1, 0, 1) == 1, "receiving");
    int ready = fs_spin(&ends[0].c, FS_SEND);
    check(ready || !fs_load_relaxed(&ends[0].c.spun), "there is room, and it polls for it in vain");
    check(fs_load_relaxed(&ends[0].c.spun), "it does not poll");
    close_ends();
}

/* ---- a signal handler within a call that leaves -------------------------------------------------------------------- */

static void leave_while_leaving(void) {
    open_ends();
    attach_ends();
    check(!fs_fallback_is_running(&ends[0].c), "nobody leaves");
    struct fs_fallback_lock *fallback = fs_fallback_begin(&ends[0].c);
    check(fallback, "another one leaves");
    check(fs_fallback_is_running(&ends[0].c), "this thread leaves, and does not know");
    check(!fs_fallback_begin(&ends[0].c), "it leaves twice"); /* (nor does another thread wait for ever) */
    fs_fallback_end(&ends[0].c, fallback, 1);
    check(!fs_fallback_is_running(&ends[0].c), "it leaves no more");
    close_ends();
}

/* ---- a way out without memory ----------------------------------------------------------------------------------------- */

static void *(*plain_malloc)(size_t size);
static __thread int no_memory;

static void *find_no_memory(size_t size) { return no_memory ? NULL : plain_malloc(size); }

static void leave_without_memory(void) {
    char bytes[3 * CHUNK] = {0};
    open_ends();
    move_ends();
    check(fs_try_send(&ends[0].c, bytes, sizeof bytes, MSG_NOSIGNAL) == sizeof bytes, "sending");
    no_memory = 1;
    enum fs_fallback_result outcome = leave_end(&ends[1], 0);
    no_memory = 0;
    check(outcome == FS_FELL_BACK, "it does not leave: %d", outcome);
    check(recv(ends[1].number, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes, "what lay unread: %m");
    close_ends();
}

/* ---- a number that is given up while a call uses it ---------------------------------------------------------------------- */

static fs_word32 receives, given_up;

/* With a lock. */
static ssize_t receive_slowly(int fd, void *into, size_t room, int flags) {
    if (fs_load_sc(&receives) == 1) {
        fs_store_sc(&receives, 2);
        usleep(50000);
        check(!fs_load_sc(&given_up), "the number is given up while a call reads it");
    }
    return recv(fd, into, room, flags);
}

static void *receive_once(void *argument) {
    char byte;
    struct fs_call call;
    check(begin_call(&ends[0], &call), "it has ended");
    fs_store_sc(&receives, 1);
    check(fs_try_recv(&ends[0].c, &byte, 1, 0, 1) == 1, "receiving");
    end_call(&ends[0], &call);
    return argument;
}

static void give_up_number(void) {
    pthread_t thread;
    double until = seconds_now() + PATIENCE;
    open_ends();
    fs_store_sc(&given_up, 0);
    check(send(ends[1].number, "x", 1, MSG_NOSIGNAL) == 1, "sending: %m");
    check(pthread_create(&thread, NULL, receive_once, NULL) == 0, "no thread");
    while (fs_load_sc(&receives) != 2) check(seconds_now() < until, "nobody receives");
    enter(&ends[0]);
    fs_forget_fd(&ends[0].c);
    leave();
    fs_store_sc(&given_up, 1);
    fs_store_sc(&receives, 0);
    pthread_join(thread, NULL);
    check(fs_fd(&ends[0].c) == -1, "it is not given up");
    enter(&ends[0]);
    fs_set_fd(&ends[0].c, ends[0].number); /* for the end */
    leave();
    close_ends();
}

/* ---- what comes by the ring to a bridge ---------------------------------------------------------------------------------- */

/* The peer posts what it was about to, and nobody tells the bridge: it hears of it all the same. */
static void post_to_bridge(void) {
    char bytes[8];
    open_ends();
    move_ends();
    struct fs_shared_side *own = fs_own(&ends[1].c);
    fs_add_sc(&own->holders, 1); /* there is another holder */
    fs_control_thread_stop();            /* and a peer that does not help */
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == 1, "sending");
    check(leave_end(&ends[1], 1) == FS_FELL_BACK && ends[1].bridged, "there is no bridge");
    check(recv(ends[1].number, bytes, sizeof bytes, 0) == 1 && bytes[0] == 'x', "what lay unread: %m");
    double until = seconds_now() + PATIENCE;
    while (fs_try_send(&ends[0].c, "y", 1, MSG_NOSIGNAL) != 1) check(seconds_now() < until, "sending");
    struct pollfd polled = {ends[1].number, POLLIN, 0};
    check(poll(&polled, 1, (int)(PATIENCE * 1000)) == 1, "the bridge hears of nothing");
    check(recv(ends[1].number, bytes, sizeof bytes, 0) == 1 && bytes[0] == 'y', "what came: %m");
    fs_control_thread_after_fork();
    check(fs_control_thread_restart() == 0, "no thread");
    close_ends();
}

/* ---- a reset that comes before one is drawn ------------------------------------------------------------------------------ */

static int resets_first;

/* The peer ends before this byte of ours, which is to draw its reset, is sent. */
static ssize_t send_behind_reset(int fd, const void *data, size_t size, int flags) {
    struct linger at_once = {1, 0};
    if (resets_first) {
        resets_first = 0;
        int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        check(other >= 0 && setsockopt(ends[1].number, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "no reset: %m");
        check(dup2(other, ends[1].number) >= 0 && close(other) == 0, "closing: %m");
    }
    return send(fd, data, size, flags);
}

static void draw_behind_reset(void) {
    open_ends();
    move_ends();
    check(fs_try_send(&ends[0].c, "unread", 6, MSG_NOSIGNAL) == 6, "sending");
    fs_publish_gone(&ends[1].c);
    resets_first = 1;
    int64_t told = fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL);
    check(!resets_first && told == -ECONNRESET, "the error of the reset is lost: %lld", (long long)told);
    check(fs_try_send(&ends[0].c, "x", 1, MSG_NOSIGNAL) == -EPIPE, "it is told twice");
    close_ends();
}

/* ---- a step that moves, and a call that sleeps in the kernel ------------------------------------------------------------- */

static int naps;

static int nap(const struct timespec *time, struct timespec *rest) {
    naps++;
    return nanosleep(time, rest);
}

/* Two threads may take steps at once: one lets go of the front end's lock as it attaches. The end of the other's is not the end of its. */
static void sleep_beside_steps(void) {
    int (*plain_nanosleep)(const struct timespec *, struct timespec *) = fs_system.nanosleep;
    open_ends();
    struct fs_connection *c = &ends[0].c;
    fs_system.nanosleep = nap;
    naps = 0;
    check(fs_begin_step(c) && fs_begin_step(c), "two steps");
    fs_end_step(c);
    check(!fs_note_in_kernel(c, 1), "a call sleeps in the kernel beside a step");
    check(naps == 1, "a call that finds a step does not nap until it is over");
    fs_end_step(c);
    fs_system.nanosleep = plain_nanosleep;
    check(fs_note_in_kernel(c, 1), "a call sleeps in the kernel");
    check(!fs_begin_step(c), "a step begins beside a call in the kernel");
    fs_note_in_kernel(c, -1);
    check(fs_begin_step(c), "a step after it");
    fs_end_step(c);
    attach_ends();
    check(!fs_note_in_kernel(c, 1), "a call sleeps in the kernel after the move");
    close_ends();
}

int main(int count, char **arguments) {
    struct rounds rounds = begin_rounds(count, arguments);
    uint64_t random;
    become_front_end();
    alarm(60);
    plain_malloc = fs_system.malloc;
    fs_system.malloc = find_no_memory;
    fs_system.recv = receive_slowly;
    fs_system.send = send_behind_reset;
    have_processors_to_spare();
    post_to_bridge(); /* once: it takes seconds */
    while (next_round(&rounds, &random)) {
        send_urgent_on_ring();
        read_past();
        leave_while_leaving();
        send_urgent_in_kernel();
        poll_for_credits();
        leave_without_memory();
        give_up_number();
        draw_behind_reset();
        sleep_beside_steps();
    }
    printf("%u rounds, %u moments\n", rounds.done, 9 * rounds.done);
    return 0;
}
