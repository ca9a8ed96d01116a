/* Reasons: why a connection is on kernel TCP. fastsock.h includes this file; docs/reasons.md says what to do about each. */
#ifndef FASTSOCK_REASONS_H
#define FASTSOCK_REASONS_H

/* The only list of the reasons and their texts. Processes exchange the numbers (connection table,
 * introspection), so new reasons go last. X(name, text for people) */
#define FS_REASON_TABLE(X) \
    X(NONE, "") /* on the ring, or nothing decided yet */ \
    X(FEW, "too few operations") \
    X(SEEKING, "looking for the peer") /* the search for the peer is going on */ \
    X(EXCLUDED, "address or port excluded") /* by the settings */ \
    X(REMOTE, "peer on another host") \
    X(PEER, "peer does not use fastsock") \
    X(UNTRUSTED, "peer belongs to another user") \
    X(NAME, "name taken by another process") \
    X(REFUSED, "peer refused") \
    X(OPTION, "unsupported socket option") /* asks for what only the kernel's stream can do */ \
    X(DETACHED, "descriptor detached") /* it was given away */ \
    X(BACK, "returned to the kernel, or nothing sent yet") \
    X(FORKED, "shared with another process") /* another process holds it too */ \
    X(MEMORY_CAP, "memory cap reached") /* no room for another region */ \
    X(RESOURCES, "out of memory or descriptors") \
    X(ENDING, "ended before it could move") \
    X(VIOLATION, "protocol violation") /* by the peer */ \
    X(VERSION, "peer speaks another version of the protocol") \
    X(UNPAID, "sessions too short to pay") /* too few operations for a service where moves did not pay */ \
    X(ABSENT, "peer not found in the rendezvous folder") /* of another network namespace, or of another host */ \
    X(UNPROVEN, "peer's address not proven") /* by UDP */

#define FS_REASON_NUMBER(name, text) FS_REASON_##name,
enum fs_reason { FS_REASON_TABLE(FS_REASON_NUMBER) FS_REASONS };
#undef FS_REASON_NUMBER

#endif
