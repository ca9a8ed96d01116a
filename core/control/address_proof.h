/* The proof that the process at the other end of a unix connection has the address of a TCP connection's other end, for two that meet in
 * the folder (rendezvous_dir.h), where anybody may hold a name. Mutual, and before any descriptor is passed.
 *
 *     seeker                          unix connection             publisher
 *       |--- port: my UDP socket's ------------------------------->|
 *       |<-- port: my UDP socket's --------------------------------|
 *       |<== UDP to the seeker's TCP address: nonce, namespace ====|
 *       |=== UDP to the publisher's TCP address: nonce, namespace =>|
 *       |--- answer: the publisher's nonce ----------------------->|
 *       |<-- answer: the seeker's nonce ---------------------------|
 *
 * A third process can hold the name, but receives nothing that is sent to the other one's address. Nor can it stand between two that prove
 * it to each other through it: `namespace` is the cookie of the network namespace of the one that has connected, as the kernel says it of
 * each end of a unix connection, and both have to see the same. The role in a datagram keeps a service that sends back what it receives
 * from answering for its host.
 *
 * What is proven is a network namespace: who shares it with the peer and is admitted by the setting `trust` is taken for the peer. */
#pragma once

#include "transport/stream.h"
#include "wire/proof_msg.h"

struct fs_address_proof {
    int udp; /* -1: not begun, or proven */
    int asked, answered, proven; /* a nonce was sent to the peer's address; the peer's nonce was sent back; this side's has come back */
    uint64_t space; /* cookie of the namespace of the one that has connected */
    unsigned char nonce[FS_NONCE_SIZE];
};

static inline int fs_is_proven(const struct fs_address_proof *proof) { return proof->answered && proof->proven; }

/* Begins at one end of `control`. Returns 0 or -errno. Never blocks, as the next ones. */
int fs_proof_begin(struct fs_address_proof *proof, int control, const struct fs_stream_identity *ends);

/* Returns true if a message that came by the unix connection is one of the proof's, and acts on it. */
int fs_proof_hear(struct fs_address_proof *proof, const struct fs_stream_identity *ends, enum fs_proof_role role, const void *message,
                  size_t size);

/* Looks for the peer's nonce, and sends it back by the unix connection. */
void fs_proof_look(struct fs_address_proof *proof, int control, const struct fs_stream_identity *ends, enum fs_proof_role role);

void fs_proof_end(struct fs_address_proof *proof); /* nothing is proven */

/* What was proven holds for a while, for other connections between the same addresses. `who`: the publisher knows the seeker by the cookie
 * of its namespace, the seeker the publisher by the key of its process (far_peer.h); 0: nobody. A seeker needs the host lock, a publisher
 * the table lock. */
void fs_note_proven(enum fs_proof_role role, const struct fs_stream_identity *ends, uint64_t who);
int fs_was_proven(enum fs_proof_role role, const struct fs_stream_identity *ends, uint64_t who);
void fs_forget_proven(enum fs_proof_role role, uint64_t who);
