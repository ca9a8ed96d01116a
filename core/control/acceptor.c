/* Incoming peers at published names: checks the peer and the region of its hello, and then puts the region into the accept queue or
 * refuses the peer. Runs in the control thread, without the host lock. Nothing that a peer sent is received, inspected or closed
 * under the table lock, as each of these may block. */
#include "control/control_recv.h"
#include "control/fd_reaper.h"
#include "control/link.h"
#include "control/named_socket.h"
#include "control/region_mmap.h"
#include "control/control_state.h"
#include "control/trust.h"
#include "ring/ring.h"

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

enum { DESCRIPTORS = 2 }; /* descriptors with a fresh region: its memfd and the TCP socket */

/* An incoming peer's message. */
struct hello_message {
    struct fs_hello hello;
    int size; /* bytes received, or -errno */
    struct fs_descriptors with;
    int count;  /* of its descriptors */
    int cut;    /* descriptors were sent that could not be received, for want of numbers */
    int proven; /* the last one is the other end of the connection */
    int sealed; /* the first one is sealed */
    int trusted; /* the sender is of this user, or root */
    struct fs_peer_process peer; /* the sender */
    /* where the name is found by other network namespaces: */
    int is_far, shown; /* the sender has proven its address */
    int has_way, own_way; /* its way is the last descriptor but one; this process's, which it gets; -1: none */
};

/* Receives a hello of any version. */
static void receive_hello(int fd, struct hello_message *it) {
    ssize_t got = fs_receive_descriptors(fd, &it->hello, sizeof it->hello, &it->with);
    it->size = got < 0 ? -errno : (int)got;
    it->count = it->with.count;
    /* With the maximum number of descriptors it was cut because there were more, which no hello has. */
    it->cut = got >= 0 && it->with.flags & MSG_CTRUNC && it->count < FS_HELLO_DESCRIPTORS;
    if (got >= 0 && (it->with.flags & (MSG_TRUNC | MSG_CTRUNC) || it->count > FS_HELLO_DESCRIPTORS)) it->size = (int)sizeof it->hello + 1;
}

/* Returns true for a memfd of huge pages: a punched-out page may be gone for good, and reading it kills the reader. */
static int has_huge_pages(int fd) {
    struct statfs where;
    return fs_system.fstatfs(fd, &where) == 0 && (uint32_t)where.f_type == HUGETLBFS_MAGIC;
}

static void drop_descriptors(const struct hello_message *it) {
    for (int i = 0; i < it->count; i++) {
        if (i == 0 && it->sealed) fs_system.close(it->with.fds[i]); /* a memfd's close never blocks */
        else if (i == it->count - 2 && it->has_way) fs_system.close(it->with.fds[i]); /* (fs_is_way) */
        else if (i == it->count - 1 && it->proven) fs_reap_tcp(it->with.fds[i], it->trusted);
        else fs_reap_fd(it->with.fds[i], it->trusted);
    }
}

/* Identifies the descriptors: compares the ends of the socket, and asks for the seals of the memfd. */
static void examine(struct hello_message *it, const struct fs_stream_identity *ends) {
    it->proven = it->count > 0 && ends->kind->is_other_end(ends, it->with.fds[it->count - 1]);
    it->sealed = it->count == DESCRIPTORS + it->is_far && fs_is_sealed(it->with.fds[0]);
    it->has_way = it->is_far && it->proven && it->shown && it->count > 1 && fs_is_way(it->with.fds[it->count - 2]);
    if (it->has_way) it->own_way = fs_make_way(fs_control_fds.token);
}

/* Receives the messages of a proof, and what comes after them. */
static void receive_far(int fd, struct hello_message *it, struct fs_address_proof *proof, const struct fs_stream_identity *tcp) {
    it->own_way = -1;
    for (;;) {
        receive_hello(fd, it);
        int begins = it->size == sizeof(struct fs_proof_msg) && proof->udp < 0 && !fs_is_proven(proof);
        if (begins && fs_proof_begin(proof, fd, tcp) < 0) it->size = -ENOMEM; /* (no descriptor, or no such address any more) */
        if (it->size < 0 || !fs_proof_hear(proof, tcp, FS_PROOF_PUBLISHER, &it->hello, (size_t)it->size)) break;
        fs_proof_look(proof, fd, tcp, FS_PROOF_PUBLISHER);
        drop_descriptors(it);
    }
    fs_proof_look(proof, fd, tcp, FS_PROOF_PUBLISHER);
    it->shown |= fs_is_proven(proof);
}

/* Sends the peer away, for a reason of enum fs_refusal_reason. 0: the peer has gone. */
static void refuse(struct fs_listing *m, int why) {
    m->unproven_came |= m->proof.udp >= 0;
    fs_proof_end(&m->proof);
    if (why) fs_refuse(m->control, (char)why, m->trusted);
    else fs_reap_control(m->control, m->trusted);
    m->control = -1;
}

/* No descriptors for an incoming peer. The connection stays on kernel TCP, and both ends know why. */
static void give_up_without_fds(struct fs_listing *m) {
    if (m->control >= 0) refuse(m, FS_WHY_DESCRIPTORS);
    fs_listing_close(m);
    fs_store_relaxed(&m->state, FS_LISTING_NO_DESCRIPTORS);
}

/* The hello breaks the protocol, as `wrong` says. */
static int violated(struct fs_listing *m, const char *wrong) {
    m->came.failure = wrong;
    return FS_WHY_VIOLATION;
}

/* Keeps the sender's way, and sends it ours. */
static int take_way(struct fs_listing *m, struct hello_message *it) {
    if (fs_hand_way(m->control, it->own_way) < 0) return -1;
    m->came.way = it->with.fds[it->count - 2];
    it->with.fds[it->count - 2] = it->with.fds[it->count - 1];
    it->count--;
    it->has_way = 0;
    return 0;
}

/* Maps the region that a hello brings. Returns 0 or a reason of enum fs_refusal_reason. */
static int map_region(struct fs_listing *m, const struct hello_message *it, struct fs_region_ref **made) {
    struct fs_ring_pair probe;
    size_t size = it->hello.size;
    int memfd = it->with.fds[0];
    if (it->count != DESCRIPTORS + it->is_far) return violated(m, "hello without its two descriptors");
    if (!it->sealed) return violated(m, "memfd not sealed");
    if (has_huge_pages(memfd)) return violated(m, "memfd of huge pages");
    if (size == 0 || size > fs_region_size(FS_WINDOW_MAX, FS_CHUNK_MAX) || fs_file_size(memfd) != (int64_t)size)
        return violated(m, "memfd of the wrong size");
    void *memory = fs_map_memfd(memfd, size);
    const char *wrong = memory ? fs_ring_pair_attach(&probe, memory, size, 1) : NULL;
    *made = memory && !wrong ? fs_region_of(memory, size, 1, it->hello.id) : NULL;
    if (*made) return 0;
    if (memory) fs_system.munmap(memory, size);
    return wrong ? violated(m, wrong) : FS_WHY_AGAIN; /* no address space, or no memory */
}

/* Checks a hello and takes its region; the descriptors stay the caller's. Returns 0 if taken, else a reason of enum fs_refusal_reason. */
static int judge(struct fs_listing *m, struct hello_message *it) {
    const struct fs_hello *hello = &it->hello;
    struct fs_region_ref *region_ref;
    /* The last descriptor is the seeker's end of the TCP connection. Without it the sender is not the peer. Then its hello is no
     * violation by the peer, unless its user could harm the peer anyway. */
    if (!it->proven && !it->trusted) return FS_WHY_UNTRUSTED;
    if (it->size < (int)FS_HELLO_HEAD || hello->magic != FS_MAGIC) return violated(m, "garbage instead of a hello");
    if (hello->version != FS_VERSION) return FS_WHY_OTHER_VERSION; /* other fields do not matter */
    if (it->size != (int)sizeof *hello) return violated(m, "garbage instead of a hello");
    if (!it->proven) return FS_WHY_UNTRUSTED;
    if (it->is_far && !it->shown) return FS_WHY_UNPROVEN;
    if (it->is_far && it->own_way < 0) return it->has_way ? FS_WHY_DESCRIPTORS : FS_WHY_AGAIN; /* (the kernel may have failed us) */
    if (fs_control_state.queued >= FS_MAX((int)fs_load_relaxed(&fs_control_state.backlog), FS_BACKLOG)) return FS_WHY_AGAIN;
    if (hello->reuse) region_ref = fs_region_find_parked(it->peer.key, hello->id);
    int why = hello->reuse ? region_ref ? 0 : FS_WHY_AGAIN : map_region(m, it, &region_ref);
    if (why) return why;
    m->came.peer = it->peer;
    m->came.is_far = it->is_far;
    m->came.way = -1;
    if (it->is_far && take_way(m, it) < 0) {
        if (!hello->reuse) fs_region_free(region_ref);
        return FS_WHY_AGAIN;
    }
    if (hello->reuse) fs_region_unpark(region_ref);
    m->came.region_ref = region_ref;
    /* SYNC: taken - pairs with fs_wakeup_seen. Packet WAKEUP. */
    fs_store_release(&((struct fs_region *)region_ref->memory)->wakeup, FS_TAKEN);
    fs_listing_close(m);
    fs_control_state.queued++;
    /* SYNC: arrived - by the table lock, under which fs_listing_result reads it. */
    fs_store_relaxed(&m->state, FS_LISTING_ACCEPTED);
    return 0;
}

enum visit { NOBODY, ACCEPTED, LATER };

/* Waits for the hello of a silent peer. (Usually the hello is there together with the peer, and the socket is closed before anybody
 * needs its number.) Needs the table lock. */
static void await_hello(struct fs_listing *m, uint64_t handle) {
    if (m->kept) return;
    int kept = fs_dup_reserved(m->control, 1);
    if (kept < 0) {
        give_up_without_fds(m);
        return;
    }
    fs_system.close(m->control); /* (the copy stays) */
    m->control = kept;
    m->kept = 1;
    fs_control_watch(fs_control_fds.epoll, kept, handle); /* (reports a hello that has come meanwhile) */
}

/* Accepts a peer at the name whose user is admitted. LATER: nothing more may be received from untrusted users now. Needs the table lock. */
static enum visit accept_peer(struct fs_listing *m) {
    if (!fs_reaper_has_room()) return LATER;
    while (m->control < 0) {
        int came = fs_system.accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (came < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return NOBODY;
        if (came < 0) {
            give_up_without_fds(m);
            return NOBODY;
        }
        m->control = came;
        m->kept = 0;
        m->who = fs_peer_credentials(m->control);
        /* (A process in another container has the number of a user, and not its rights.) */
        m->trusted = !m->file && fs_is_trusted(m->who.uid);
        if (m->file ? fs_dir_admits(m->who.uid) : fs_admits(m->who.uid)) continue;
        m->other_came = 1;
        refuse(m, FS_WHY_UNTRUSTED); /* nothing of an untrusted user is received */
        if (!fs_reaper_has_room()) return LATER;
    }
    if (fs_has_fd_room()) return ACCEPTED;
    give_up_without_fds(m); /* the hello's descriptors might be the program's last */
    return NOBODY;
}

/* Decides about a received hello. Needs the table lock, and the listing has its control socket again. */
static void answer(struct fs_listing *m, struct hello_message *it) {
    if (it->size < 0 && fs_is_transient(-it->size)) { /* the hello may be valid: want of memory is no violation */
        give_up_without_fds(m);
        return;
    }
    if (it->size < 0) {
        refuse(m, 0); /* the peer has gone */
        return;
    }
    if (it->size == 0 && it->count == 0 && !it->cut) {
        m->other_came |= m->who.uid != geteuid();
        refuse(m, 0); /* the peer left without a message */
        return;
    }
    int why = it->cut ? FS_WHY_DESCRIPTORS : judge(m, it);
    if (!why) return;
    if (why == FS_WHY_DESCRIPTORS) {
        give_up_without_fds(m);
        return;
    }
    refuse(m, why);
    if (why == FS_WHY_UNTRUSTED || why == FS_WHY_AGAIN || why == FS_WHY_UNPROVEN) return; /* the next one may be the peer */
    fs_listing_close(m);
    fs_store_relaxed(&m->state, why == FS_WHY_OTHER_VERSION ? FS_LISTING_OTHER_VERSION : FS_LISTING_FAILED);
}

static int is_waiting(const struct fs_listing *m, uint64_t handle) {
    return fs_load_relaxed(&m->state) == FS_LISTING_WAITING && m->generation == (uint32_t)(handle >> 32);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than=" /* the control thread's stack is our own */
int fs_accept_hello(uint64_t handle) {
    struct hello_message it;
    enum visit visit = NOBODY;
    uint32_t entry = (uint32_t)handle, generation = fs_control_thread_generation();
    if (entry >= FS_LISTINGS) return 0;
    struct fs_listing *m = &fs_control_state.listings[entry];
    fs_control_lock();
    while (is_waiting(m, handle) && generation == fs_control_thread_generation() && (visit = accept_peer(m)) == ACCEPTED) {
        /* Only this thread has the socket now: a thread that withdraws the name does not see it, and nobody else listens. */
        int control = m->control;
        struct fs_stream_identity ends = m->ends;
        struct fs_address_proof proof = m->proof;
        m->control = m->proof.udp = -1;
        it.trusted = m->trusted;
        it.is_far = m->file != 0;
        it.peer = (struct fs_peer_process){.pid = m->who.pid, .user = it.is_far ? (uid_t)-1 : m->who.uid};
        if (it.is_far) ends.network = fs_netns_cookie(control);
        it.shown = it.is_far && fs_was_proven(FS_PROOF_PUBLISHER, &ends, ends.network);
        fs_control_unlock();
        it.peer.key = it.is_far || !it.peer.pid ? fs_process_key(control) : (uint64_t)it.peer.pid;
        if (it.is_far) receive_far(control, &it, &proof, &ends);
        else receive_hello(control, &it);
        int silent = it.size == -EAGAIN;
        if (!silent) examine(&it, &ends);
        fs_control_lock();
        if (generation != fs_control_thread_generation()) break; /* the program may use the numbers by now */
        if (it.is_far && it.shown) fs_note_proven(FS_PROOF_PUBLISHER, &ends, ends.network);
        if (is_waiting(m, handle)) {
            m->control = control;
            m->proof = proof;
            if (silent && proof.udp >= 0) fs_control_watch(fs_control_fds.epoll, proof.udp, handle);
            if (silent) {
                await_hello(m, handle);
                break;
            }
            answer(m, &it);
        } else {
            fs_proof_end(&proof);
            fs_reap_control(control, it.trusted);
        }
        fs_control_unlock();
        drop_descriptors(&it);
        if (it.is_far && it.own_way >= 0) fs_system.close(it.own_way);
        fs_control_lock();
    }
    fs_control_unlock();
    return visit == LATER;
}
#pragma GCC diagnostic pop

int fs_accept_hellos(void) {
    int left = 0, more = 1;
    for (uint64_t i = 0; more; i++) {
        fs_control_lock();
        more = i < (uint64_t)fs_control_state.used;
        uint64_t handle = more ? (uint64_t)fs_control_state.listings[i].generation << 32 | i : 0;
        fs_control_unlock();
        if (more) left |= fs_accept_hello(handle);
    }
    return left;
}
