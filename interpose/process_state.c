/* What this front end knows of its process and its threads: words that every other file may look at.
 *
 * Responsible for: whether the memory is this process's own. Never: changes of the rest, which belong to the files that its header
 * names. */
#include "interpose.h"

#include <sys/mman.h>

fs_word32 IP_EACH_CALL ip_activity;
fs_word32 ip_is_serving, ip_sandboxed, ip_copied_past, ip_cancels, ip_thread_due;
struct ip_above ip_above;
__thread struct ip_thread ip_thread __attribute__((tls_model("initial-exec")));

int fs_libc_serves(void) { return ip_load_relaxed(&ip_is_serving) != 0; }

/* ---- threads --------------------------------------------------------------------------------------------------------- */

extern char __libc_single_threaded __attribute__((weak, visibility("default"))); /* the C library's, if it is new enough */
static const char no;
static int by_hand;
ip_atomic_ptr(const char) IP_EACH_CALL ip_is_single = &no;

void ip_note_threads(void) {
    by_hand = 1;
    ip_store_relaxed(&ip_is_single, &no);
}

/* ---- whose memory this is ------------------------------------------------------------------------------------------ */

static pid_t IP_EACH_FORK own_process;
static fs_word32 no_mark;
fs_word32 IP_EACH_CALL *ip_original_mark = &no_mark;
fs_word32 IP_EACH_CALL ip_memory_shared;

static void make_mark(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *made = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return;
    if (madvise(made, page, MADV_WIPEONFORK) == 0) ip_original_mark = made;
    else munmap(made, page);
}

/* (A word is enough: a copy of the memory has 0 there, and of memory that is shared the kernel is asked.) */
void ip_claim_memory(void) {
    if (ip_original_mark == &no_mark) make_mark();
    own_process = getpid();
    if (&__libc_single_threaded && !by_hand) ip_store_relaxed(&ip_is_single, &__libc_single_threaded);
    ip_store_relaxed(&ip_memory_shared, ip_original_mark == &no_mark);
    ip_store_relaxed(ip_original_mark, 1);
}

int ip_ask_process(void) { return !ip_is_active() || (ip_load_relaxed(&ip_memory_shared) && getpid() == own_process); }
