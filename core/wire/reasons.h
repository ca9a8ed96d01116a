/* Why a connection is on kernel TCP. Processes exchange these numbers (connection table, control/introspection.h), so new reasons go
 * last. The front end has the texts. */
#ifndef FASTSOCK_REASONS_H
#define FASTSOCK_REASONS_H

enum fs_reason {
    FS_REASON_NONE = 0,   /* on the ring, or nothing decided yet */
    FS_REASON_FEW,        /* too few operations */
    FS_REASON_SEEKING,    /* the search for the peer is going on */
    FS_REASON_EXCLUDED,   /* by the settings: an address or a port */
    FS_REASON_REMOTE,     /* the peer is on another host */
    FS_REASON_PEER,       /* the peer does not use fastsock */
    FS_REASON_UNTRUSTED,  /* the peer is another user's */
    FS_REASON_NAME,       /* another process holds the name */
    FS_REASON_REFUSED,    /* by the peer */
    FS_REASON_OPTION,     /* a socket option asks for what only the kernel's stream can do */
    FS_REASON_POLLED,     /* somebody may poll the descriptor */
    FS_REASON_DETACHED,   /* the descriptor was given away */
    FS_REASON_BACK,       /* taken back to the kernel, or not moved yet */
    FS_REASON_OVERRIDDEN, /* socket subclass overrides recv or send */
    FS_REASON_HANDED_OUT, /* the descriptor was handed out */
    FS_REASON_FORKED,     /* another process holds it too */
    FS_REASON_MEMORY_CAP, /* no room for another region */
    FS_REASON_RESOURCES,  /* no memory or descriptors */
    FS_REASON_ENDING,     /* it ended before it could move */
    FS_REASON_VIOLATION,  /* the peer broke the protocol */
    FS_REASON_VERSION,    /* the peer uses another protocol version */
    FS_REASON_UNPAID,     /* too few operations for a service where moves did not pay */
    FS_REASONS
};

#endif
