/* The proof of an address, and what was proven before.
 *
 * Responsible for: nobody is believed who does not receive what is sent to the address. Never: waits; passes a descriptor. */
#include "control/address_proof.h"

#include <sys/random.h>

#include "os/fd_reserve.h"

enum {
    LOOKS = 8,    /* datagrams at once: others may send here too */
    KEPT = 64,    /* for each role */
    HOLDS_S = 60, /* what was proven: an address may move to another namespace */
};

/* The address of an end with a port, in network order. Returns its size. */
static socklen_t fill(struct sockaddr_storage *into, const unsigned char address[16], uint16_t port) {
    struct sockaddr_in *four = (struct sockaddr_in *)into;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)into;
    memset(into, 0, sizeof *into);
    if (fs_is_mapped(address)) {
        four->sin_family = AF_INET;
        four->sin_port = port;
        memcpy(&four->sin_addr, address + 12, 4);
        return sizeof *four;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    memcpy(&six->sin6_addr, address, 16);
    return sizeof *six;
}

/* Returns true if a datagram came from this address. */
static int is_from(const struct sockaddr_storage *from, const unsigned char address[16]) {
    if (fs_is_mapped(address))
        return from->ss_family == AF_INET && memcmp(&((const struct sockaddr_in *)from)->sin_addr, address + 12, 4) == 0;
    return from->ss_family == AF_INET6 && memcmp(&((const struct sockaddr_in6 *)from)->sin6_addr, address, 16) == 0;
}

static int say(int control, uint32_t port, const unsigned char *nonce) {
    struct fs_proof_msg said = {.magic = FS_PROOF_MAGIC, .version = FS_VERSION, .port = port};
    if (nonce) memcpy(said.nonce, nonce, sizeof said.nonce);
    return fs_system.send(control, &said, sizeof said, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int fs_proof_begin(struct fs_address_proof *proof, int control, const struct fs_stream_identity *ends) {
    struct sockaddr_storage at;
    socklen_t size = fill(&at, ends->here.address, 0);
    *proof = (struct fs_address_proof){.udp = -1, .space = fs_netns_cookie(control)};
    if (!proof->space) return -EOPNOTSUPP;
    if (fs_system.getrandom(proof->nonce, sizeof proof->nonce, GRND_NONBLOCK) != (ssize_t)sizeof proof->nonce) return -EAGAIN;
    int udp = fs_reserve_fd(fs_system.socket(at.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), 1);
    if (udp < 0) return udp;
    int failed = 0;
    if (fs_system.bind(udp, (struct sockaddr *)&at, size) < 0 || fs_system.getsockname(udp, (struct sockaddr *)&at, &size) < 0)
        failed = -errno;
    /* (The port is in the same place of both kinds of address.) */
    if (!failed) failed = say(control, ((struct sockaddr_in *)&at)->sin_port, NULL);
    if (failed) fs_system.close(udp);
    else proof->udp = udp;
    return failed;
}

static void end_if_proven(struct fs_address_proof *proof) {
    if (!fs_is_proven(proof) || proof->udp < 0) return;
    fs_system.close(proof->udp);
    proof->udp = -1;
}

int fs_proof_hear(struct fs_address_proof *proof, const struct fs_stream_identity *ends, enum fs_proof_role role, const void *message,
                  size_t size) {
    struct fs_proof_msg said;
    struct sockaddr_storage there;
    if (size != sizeof said) return 0;
    memcpy(&said, message, sizeof said);
    if (said.magic != FS_PROOF_MAGIC || said.version != FS_VERSION) return 0;
    if (!said.port) {
        proof->proven |= proof->udp >= 0 && memcmp(said.nonce, proof->nonce, sizeof said.nonce) == 0;
    } else if (proof->udp >= 0 && !proof->asked) {
        struct fs_proof_datagram sent = {.magic = FS_PROOF_MAGIC, .version = FS_VERSION, .role = role, .space = proof->space};
        proof->asked = 1; /* (one datagram for each proof, whatever a peer says) */
        memcpy(sent.nonce, proof->nonce, sizeof sent.nonce);
        socklen_t length = fill(&there, ends->there.address, (uint16_t)said.port);
        fs_system.sendto(proof->udp, &sent, sizeof sent, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&there, length);
    }
    end_if_proven(proof);
    return 1;
}

void fs_proof_look(struct fs_address_proof *proof, int control, const struct fs_stream_identity *ends, enum fs_proof_role role) {
    struct fs_proof_datagram came;
    struct sockaddr_storage from;
    struct iovec iov = {&came, sizeof came};
    for (int i = 0; i < LOOKS && proof->udp >= 0 && !proof->answered; i++) {
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1};
        ssize_t got = fs_system.recvmsg(proof->udp, &message, MSG_DONTWAIT);
        if (got < 0 && errno != ECONNREFUSED) return; /* (that says a datagram of ours found nobody) */
        if (got != (ssize_t)sizeof came || message.msg_flags & MSG_TRUNC || !is_from(&from, ends->there.address)) continue;
        if (came.magic != FS_PROOF_MAGIC || came.version != FS_VERSION || came.role == (uint32_t)role || came.space != proof->space)
            continue;
        proof->answered = say(control, 0, came.nonce) == 0;
    }
    end_if_proven(proof);
}

void fs_proof_end(struct fs_address_proof *proof) {
    if (proof->udp >= 0) fs_system.close(proof->udp);
    *proof = (struct fs_address_proof){.udp = -1};
}

/* ---- what was proven ------------------------------------------------------------------------------------------------ */

static struct proven {
    unsigned char here[16], there[16];
    uint64_t who; /* 0: none */
    int64_t until;
} proven[2][KEPT];

static struct proven *find(enum fs_proof_role role, const struct fs_stream_identity *ends, uint64_t who) {
    for (int i = 0; who && i < KEPT; i++) {
        struct proven *it = &proven[role][i];
        if (it->who == who && memcmp(it->here, ends->here.address, 16) == 0 && memcmp(it->there, ends->there.address, 16) == 0) return it;
    }
    return NULL;
}

int fs_was_proven(enum fs_proof_role role, const struct fs_stream_identity *ends, uint64_t who) {
    struct proven *it = find(role, ends, who);
    return it && fs_now() < it->until;
}

void fs_note_proven(enum fs_proof_role role, const struct fs_stream_identity *ends, uint64_t who) {
    static uint32_t next[2];
    struct proven *it = find(role, ends, who);
    if (!who) return;
    if (!it) it = &proven[role][next[role]++ % KEPT];
    *it = (struct proven){.who = who, .until = fs_now() + (int64_t)HOLDS_S * 1000000000};
    memcpy(it->here, ends->here.address, 16);
    memcpy(it->there, ends->there.address, 16);
}

void fs_forget_proven(enum fs_proof_role role, uint64_t who) {
    for (int i = 0; i < KEPT; i++)
        if (proven[role][i].who == who) proven[role][i].who = 0;
}
