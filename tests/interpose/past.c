/* What a program does past the library, by instructions of its own: on a connection that has moved it ends the connection at the peer, and
 * no byte is lost, doubled or made up. The words name the way, and whether others send meanwhile (busy), or
 * it happens while the peer sleeps (idle). What the peer gets is printed. */
#include "conformance.h"

#include <linux/io_uring.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

static long kernel(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long got;
    __asm__ volatile("syscall" : "=a"(got) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return got;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}

static long by_write(int fd, const char *data, long length) { return kernel(SYS_write, fd, (long)data, length, 0, 0, 0); }
static long by_sendto(int fd, const char *data, long length) { return kernel(SYS_sendto, fd, (long)data, length, MSG_NOSIGNAL, 0, 0); }
static long by_writev(int fd, const char *data, long length) {
    struct iovec v[2] = {{(char *)data, 1}, {(char *)data + 1, (size_t)length - 1}};
    return kernel(SYS_writev, fd, (long)v, 2, 0, 0, 0);
}

/* A ring of one entry: what liburing does. */
static long by_io_uring(int fd, const char *data, long length) {
    struct io_uring_params p = {0};
    int ring = (int)kernel(SYS_io_uring_setup, 1, (long)&p, 0, 0, 0, 0);
    if (ring < 0) return ring;
    size_t size = p.sq_off.array + p.sq_entries * sizeof(unsigned), all = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    char *memory = mmap(NULL, size > all ? size : all, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *completions =
        p.features & IORING_FEAT_SINGLE_MMAP ? memory : mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = fd, .addr = (unsigned long)data, .len = (unsigned)length};
    *(unsigned *)(memory + p.sq_off.array) = 0;
    __atomic_add_fetch((unsigned *)(memory + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    long done = kernel(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    if (done == 1) done = ((struct io_uring_cqe *)(void *)(completions + p.cq_off.cqes))->res;
    close(ring);
    return done;
}

/* A number that was closed so means what the kernel gives it to next. */
static int gives_file(void) { return open("/etc/passwd", O_RDONLY | O_CLOEXEC); }
static int gives_copy(void) { return dup(2); }
static int gives_copy_at(void) { return fcntl(2, F_DUPFD_CLOEXEC, 0); }
static int gives_counter(void) { return eventfd(1, EFD_CLOEXEC); }
static int gives_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static int gives_stream(void) { return stream_socket(0); }
static int gives_pipe(void) {
    int ends[2];
    if (pipe(ends)) abort();
    close(ends[1]);
    return ends[0];
}

void given_again(int a, int b) {
    static int (*const gives[])(void) = {gives_file, gives_copy, gives_copy_at, gives_counter, gives_socket, gives_stream, gives_pipe};
    char into[16];
    (void)a, (void)b;
    for (size_t i = 0; i < sizeof gives / sizeof *gives; i++) {
        int near, far;
        connect_pair(&near, &far);
        int below = open("/dev/null", O_RDONLY | O_CLOEXEC); /* so that a number that is closed is the lowest */
        for (int n = 0; n < 60; n++) {
            if (write(near, "x", 1) != 1 || read(far, into, 1) != 1 || write(far, "y", 1) != 1 || read(near, into, 1) != 1) abort();
            if (n < 30) nap(1);
        }
        kernel(SYS_close, near, 0, 0, 0, 0, 0);
        int next = gives[i]();
        SAY(next == near);
        SAY(poll(&(struct pollfd){.fd = next, .events = POLLIN}, 1, 0) >= 0);
        if (i != 1 && i != 2 && i != 6) SAY(read(next, into, 8)); /* (the standard error may be anything) */
        if (i != 1 && i != 2 && i != 5) SAY(write(next, "\1\0\0\0\0\0\0\0", 8));
        SAY(send(next, "none", 4, MSG_NOSIGNAL));
        SAY(read(far, into, sizeof into)); /* nothing of it has come */
        SAY(close(next));
        close(far), close(below);
    }
}

static const struct {
    const char *name;
    long (*writes)(int fd, const char *data, long length);
} WAYS[] = {{"write", by_write}, {"sendto", by_sendto}, {"writev", by_writev}, {"io_uring", by_io_uring}};

/* tcpi_bytes_sent, which the C library's struct tcp_info has not; of AF_UNIX what nobody has read. */
static uint64_t sent_by_kernel(int fd) {
    uint64_t told[26];
    int unread = 0;
    if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, told, &(socklen_t){sizeof told})) return told[25];
    if (kernel(SYS_ioctl, fd, TIOCOUTQ, (long)&unread, 0, 0, 0)) abort();
    return (uint64_t)unread;
}

/* Sends until the kernel does not see it any more. Returns 0 if that never happens. */
static int sends_on_ring(int a, int b) {
    char byte;
    for (int i = 0; i < 1000; i++) {
        uint64_t before = sent_by_kernel(a);
        if (write(a, "x", 1) != 1) abort();
        int unseen = sent_by_kernel(a) == before;
        if (read(b, &byte, 1) != 1) abort();
        if (unseen) return 1;
    }
    return 0;
}

static volatile int over;
static void *sends(void *fd) { /* meanwhile, as it should be done */
    while (!over && send((int)(long)fd, "right", 5, MSG_NOSIGNAL) == 5) nap(1);
    return NULL;
}

static long sent;
static int to;
static void *writes_later(void *way) {
    nap(50);
    sent = ((long (*)(int, const char *, long))way)(to, "past the library", 16);
    return NULL;
}

int past(int count, char **words) {
    int a, b, busy = count > 2 && !strcmp(words[2], "busy"), idle = count > 2 && !busy;
    char into[4096];
    long got, sum = 0, wrong = 0;
    pthread_t thread;
    for (size_t i = 0; count > 1 && i < sizeof WAYS / sizeof *WAYS; i++) {
        if (strcmp(words[1], WAYS[i].name)) continue;
        connect_pair(&a, &b);
        use(a, b);
        if (!sends_on_ring(a, b)) return puts("in the kernel") < 0;
        if (write(a, "right", 5) != 5) abort();
        if (busy) pthread_create(&thread, NULL, sends, (void *)(long)a), nap(5);
        to = a;
        if (idle) pthread_create(&thread, NULL, writes_later, (void *)WAYS[i].writes), sent = 16;
        else sent = WAYS[i].writes(a, "past the library", 16);
        if (sent == -ENOSYS || sent == -EPERM) return puts("none") < 0;
        if (sent != 16) abort();
        if (!busy && !idle) shutdown(a, SHUT_WR);
        for (int n = 0; (got = read(b, into + sum, sizeof into - (size_t)sum)) > 0 && n < 200; n++) sum += got;
        int error = errno;
        over = 1;
        if (busy || idle) pthread_join(thread, NULL);
        while (wrong < sum && into[wrong] == "right"[wrong % 5]) wrong++;
        printf("%ld %s %s\n", got, got < 0 ? strerrorname_np(error) : "", wrong == sum && sum % 5 == 0 ? "right" : "wrong");
        close(a), close(b);
        return 0;
    }
    return 1;
}
