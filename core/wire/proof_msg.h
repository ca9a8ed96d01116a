/* The messages of the proof by which two processes in different network namespaces show each other their addresses
 * (control/address_proof.h). */
#pragma once

#include "wire/region.h"

#define FS_PROOF_MAGIC UINT64_C(0x31657672702d7366) /* "fs-prve1", little endian */

enum { FS_NONCE_SIZE = 16 };
enum fs_proof_role { FS_PROOF_SEEKER = 0, FS_PROOF_PUBLISHER = 1 };

/* By the unix connection: where this side waits for the other's nonce, or that nonce. */
struct fs_proof_msg {
    uint64_t magic;
    uint32_t version;
    uint32_t port; /* in network order; 0: the answer */
    unsigned char nonce[FS_NONCE_SIZE];
};
_Static_assert(sizeof(struct fs_proof_msg) == 32, "no padding on the wire, and no hello is as long");
FS_ASSERT_OFFSET(fs_proof_msg, magic, 0);
FS_ASSERT_OFFSET(fs_proof_msg, version, 8);
FS_ASSERT_OFFSET(fs_proof_msg, port, 12);
FS_ASSERT_OFFSET(fs_proof_msg, nonce, 16);

/* By UDP, to the address of the TCP connection's other end. */
struct fs_proof_datagram {
    uint64_t magic;
    uint32_t version;
    uint32_t role; /* of the sender: enum fs_proof_role */
    uint64_t space; /* cookie of the namespace of the one that has connected, as the sender sees it */
    unsigned char nonce[FS_NONCE_SIZE];
};
_Static_assert(sizeof(struct fs_proof_datagram) == 40, "no padding on the wire");
FS_ASSERT_OFFSET(fs_proof_datagram, magic, 0);
FS_ASSERT_OFFSET(fs_proof_datagram, version, 8);
FS_ASSERT_OFFSET(fs_proof_datagram, role, 12);
FS_ASSERT_OFFSET(fs_proof_datagram, space, 16);
FS_ASSERT_OFFSET(fs_proof_datagram, nonce, 24);
