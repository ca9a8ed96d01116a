/* The switch of one direction, from the kernel's stream to the ring.
 *
 * Theory. The receiver gives its consent once (`ready`) and has counted the bytes it took of the kernel's stream until then. The sender,
 * when it sees the consent, stores how many bytes it has ever given to the kernel (`switch_at`) and posts the rest in the ring. From
 * then on its kernel stream carries doorbell bytes only. The receiver reads exactly switch_at - 1 bytes of the kernel's stream and then
 * the ring. A byte of the kernel's queue must never be taken for the wrong kind, so the receiver counts first and then looks at
 * switch_at. Bytes counted before an unset switch_at are the program's.
 *
 * Data bytes are the numbers 1 to BYTES, a doorbell byte is 0. The kernel is two queues with a wire between them: bytes that the
 * sender's kernel has taken (bytes_sent + notsent_bytes of TCP_INFO) and bytes in the receiver's queue (FIONREAD).
 *
 * Checked: the receiver gets 1, 2, 3, ... and nothing else; at the end of the stream it has got all that the sender handed over, also
 * from a sender that died; both end. With -DDEATH either end may be killed between any two steps.
 *
 * Negative controls (-D):
 *   LOOK_BEFORE_COUNTING   fs_recv_kernel looks at switch_at before it counts
 *   COUNT_DELIVERED        the sender counts the bytes that the peer's kernel has, not those that its own kernel took
 *   ATTACH_WITH_ONE_LOOK   attach does not check that nothing came between its two counts
 *   SENDER_BLIND           (DEATH) a sender that waits for credit does not look at the kernel connection
 *   NO_SECOND_LOOK         (DEATH) the reader believes the end of the kernel connection without another look at the ring
 *   COUNT_AFTER_RINGING    (DEATH) a doorbell byte is counted after it was sent
 */
#define BYTES 3
#define WINDOW 2
#define EDGES 2                     /* FS_EDGES: doorbell bytes that may be undrained */
#define QUEUE 8

chan wire = [QUEUE] of { byte };    /* in the sender's kernel, not yet in the receiver's */
chan queue = [QUEUE] of { byte };   /* the receiver's kernel queue */
byte entered, received;             /* data and doorbell bytes that ever entered each */
bool kernel_fin;                    /* the sender's FIN, behind all of `wire` */
chan ring = [WINDOW] of { byte };
byte switch_at, rung, heard;
bool ready, exposed, ringing, fin;
byte handed;                        /* bytes of the stream that the kernel or the ring has accepted */
bool sender_dead, receiver_dead;

/* The kernel connection as each end sees it. */
#define peer_ended_at_sender receiver_dead
#define peer_ended_at_receiver (kernel_fin && len(wire) == 0)

active proctype kernel() {
    byte b;
end: do
    :: atomic { len(wire) > 0 && len(queue) < QUEUE -> wire?b; queue!b; received++ }
    od
}

active proctype sender() {
    byte next = 1;
    bool moved, lost, rings;
    {
        do
        :: next > BYTES -> break
        :: else ->
            /* fs_try_send, with the send lock */
            if
            :: !moved && ready && len(wire) < QUEUE ->          /* SYNC: consent; POLLOUT */
                /* fs_switch_sending */
#ifdef COUNT_DELIVERED
                switch_at = received + 1;
#else
                switch_at = entered + 1;
#endif
                moved = true
            :: else
            fi;
            if
            :: atomic { lost ->
                next = BYTES + 1 }                        /* fs_send_kernel gets EPIPE */
            :: atomic { !lost && !moved && !receiver_dead && len(wire) < QUEUE ->
                wire!next; entered++; handed = next; next++ }
            :: atomic { !lost && !moved && receiver_dead ->
                lost = true }
            :: atomic { !lost && moved && len(ring) == WINDOW ->   /* EAGAIN: sleep_for_credit */
                if
                :: len(ring) < WINDOW
#ifndef SENDER_BLIND
                :: peer_ended_at_sender -> lost = true
#endif
                fi }
            :: else ->
                if
                :: moved && len(ring) < WINDOW ->
                    rings = exposed;
                    if
                    :: rings -> ringing = true            /* fs_begin_notify */
                    :: else
                    fi;
                    atomic { ring!next; handed = next; next++ }       /* fs_post */
                    if
                    :: exposed && rung - heard < EDGES -> /* fs_notify_receiver, fs_count_ring: counted, then sent */
#ifndef COUNT_AFTER_RINGING
                        rung++;
#endif
                        atomic { len(wire) < QUEUE || receiver_dead ->
                            if
                            :: receiver_dead
                            :: else -> wire!0; entered++
                            fi };
#ifdef COUNT_AFTER_RINGING
                        rung++;
#endif
                    :: else
                    fi;
                    if
                    :: rings -> ringing = false           /* fs_end_notify */
                    :: else
                    fi
                :: else
                fi
            fi
        od;
        fin = true;                                       /* fs_post_fin */
        kernel_fin = true                                 /* shutdown or close */
    } unless { sender_dead }
}

byte expected = 1, debt;
bool over;

inline deliver(b) {
    assert(b == expected);                                /* nothing lost, doubled or out of order; no doorbell byte */
    expected++
}

/* swallow: takes `debt` bytes of the kernel's queue, as far as they have come. The rest is deferred. */
inline swallow() {
    do
    :: atomic { debt > 0 && len(queue) > 0 -> queue?taken; assert(taken == 0); debt-- }
    :: atomic { debt == 0 || len(queue) == 0 -> break }
    od
}

#define readable (len(ring) > 0 || fin)

/* fs_doorbell_bytes_to_drain. Waits for a sender that is in the middle of it, but not forever. */
inline quiet() {
    if
    :: !ringing
    :: ringing                                            /* fs_peer_is_notifying */
    fi;
    count = rung;
    if
    :: count != heard ->
        if
        :: !readable ->
            before = heard;
            heard = count;
            if
            :: !readable -> debt = debt + count - before
            :: else -> heard = count - 1; debt = debt + count - 1 - before
            fi
        :: else -> debt = debt + count - 1 - heard; heard = count - 1
        fi;
        swallow()
    :: else -> swallow()
    fi
}

active proctype receiver() {
    byte b, taken, before, count, left, kernel_taken, looked;
    bool moved, at_end, waits;
    {
        /* Before the attachment: the kernel's stream, uncounted. */
        do
        :: atomic { len(queue) > 0 -> queue?b; deliver(b) }
        :: break
        od;
        /* attach: fs_count_received */
        do
        :: before = received;
            left = len(queue);
#ifndef ATTACH_WITH_ONE_LOOK
            if
            :: before == received -> break
            :: else
            fi
#else
            break
#endif
        od;
        kernel_taken = before - left;
        before = 0; left = 0;
        if
        :: exposed = true
        :: skip
        fi;
        ready = true;                                     /* SYNC: consent */
        do
        :: over -> break
        :: !over && waits ->
            /* EAGAIN. sleep_for_bytes: waits for the kernel's queue and its end, and for the futex of the ring */
            (len(queue) > 0 && !moved || peer_ended_at_receiver
             || (moved || switch_at && switch_at - 1 == kernel_taken) && (len(ring) > 0 || fin));
            waits = false
        :: !over && !waits && !moved ->
            /* fs_recv_kernel */
#ifdef LOOK_BEFORE_COUNTING
            looked = switch_at;                           /* SYNC: switch */
            left = len(queue);
#else
            left = len(queue);
            looked = switch_at;                           /* SYNC: switch */
#endif
            if
            :: looked ->
                assert(looked - 1 >= kernel_taken);       /* else a violation */
                left = looked - 1 - kernel_taken;
                if
                :: left == 0 -> moved = true              /* move_receiving */
                :: else
                fi
            :: !looked && left == 0 ->
                if                                        /* the peek: one system call */
                :: atomic { len(queue) == 0 && peer_ended_at_receiver -> at_end = true }
                :: else -> waits = (len(queue) == 0)
                fi;
                if
                :: at_end && !switch_at -> over = true
                :: else
                fi
            :: else
            fi;
            if
            :: left > 0 ->
                if
                :: atomic { len(queue) > 0 ->             /* recv of at most `left` */
                    do
                    :: queue?b; deliver(b); kernel_taken++; left--;
                        if
                        :: left > 0 && len(queue) > 0
                        :: break                          /* also if the program's buffer is smaller */
                        fi
                    od }
                :: else -> waits = true
                fi
            :: else
            fi;
            left = 0; looked = 0; at_end = false; b = 0
        :: !over && !waits && moved ->
            /* fs_try_recv */
            if
            :: atomic { len(ring) > 0 -> ring?b; deliver(b) }     /* fs_ring_recv */
                if
                :: exposed && len(ring) == 0 -> quiet()
                :: else
                fi
            :: else ->
                if
                :: fin && len(ring) == 0 -> over = true   /* fs_stream_end */
                :: else ->
                    /* check_liveness, then another look */
                    if
                    :: atomic { len(queue) == 0 && peer_ended_at_receiver -> at_end = true }
                    :: else -> quiet()
                    fi;
                    if
#ifdef NO_SECOND_LOOK
                    :: at_end -> over = true
#else
                    :: at_end && len(ring) == 0 -> over = true
#endif
                    :: else -> waits = true
                    fi
                fi
            fi;
            at_end = false; before = 0; count = 0; taken = 0; b = 0
        od;
        assert(expected == handed + 1);                   /* all that was handed over, and no more */
        assert(sender_dead || handed == BYTES)
    } unless { receiver_dead }
}

#ifdef DEATH
active proctype killer() {
    if
    :: atomic { !kernel_fin -> sender_dead = true; kernel_fin = true }
    :: atomic { !over -> receiver_dead = true }
    :: true
    fi
}
#endif
