/* The switch of one direction, from the kernel's stream to the ring, and its sender's way back.
 *
 * Theory. The receiver gives its consent once (`ready`) and has counted the bytes it took of the kernel's stream until then. The sender,
 * when it sees the consent, stores how many bytes it has ever given to the kernel (`switch_at`) and posts the rest in the ring. It may go
 * back (an urgent byte): it posts BACK, and what follows goes through the kernel. The receiver reads exactly switch_at - 1 bytes of the
 * kernel's stream, then the ring to BACK, then the kernel's stream. So it counts first and then looks at switch_at: bytes counted before an
 * unset switch_at are of the first part. A byte behind the switch and in front of BACK would be taken for one that somebody wrote past us.
 *
 * Data bytes are the numbers 1 to BYTES. The kernel is two queues with a wire between them: bytes that the sender's kernel has taken
 * (bytes_sent + notsent_bytes of TCP_INFO) and bytes in the receiver's queue (FIONREAD).
 *
 * Checked: the receiver gets 1, 2, 3, ... and nothing else, and takes no byte for a stray one; at the end of the stream it has got all that
 * the sender handed over, also from a sender that died; both end. With -DDEATH either end may be killed between any two steps.
 *
 * Negative controls (-D):
 *   LOOK_BEFORE_COUNTING   fs_recv_kernel looks at switch_at before it counts
 *   COUNT_DELIVERED        the sender counts the bytes that the peer's kernel has, not those that its own kernel took
 *   ATTACH_WITH_ONE_LOOK   attach does not check that nothing came between its two counts
 *   BACK_LATE              the sender posts BACK behind the first byte that follows it in the kernel
 *   SENDER_BLIND           (DEATH) a sender that waits for credit does not look at the kernel connection
 *   NO_SECOND_LOOK         (DEATH) the reader believes the end of the kernel connection without another look at the ring
 */
#define BYTES 3
#define WINDOW 2
#define QUEUE 8

mtype = { NONE, FIN, BACK }

chan wire = [QUEUE] of { byte };    /* in the sender's kernel, not yet in the receiver's */
chan queue = [QUEUE] of { byte };   /* the receiver's kernel queue */
byte entered, received;             /* bytes that ever entered each */
bool kernel_fin;                    /* the sender's FIN, behind all of `wire` */
chan ring = [WINDOW] of { byte };
byte switch_at;
mtype fin = NONE;
bool ready;
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
    bool moved, back, lost;
    {
        do
        :: next > BYTES -> break
        :: else ->
            /* fs_try_send, with the send lock */
            if
            :: moved && !back ->                                /* fs_send_fall_back */
                back = true;
#ifndef BACK_LATE
                fin = BACK
#endif
            :: !moved && ready ->                               /* SYNC: consent; fs_switch_sending */
#ifdef COUNT_DELIVERED
                switch_at = received + 1;
#else
                switch_at = entered + 1;
#endif
                moved = true
            :: moved || !ready
            fi;
            if
            :: atomic { lost ->
                next = BYTES + 1 }                        /* fs_send_kernel gets EPIPE */
            :: atomic { !lost && (!moved || back) && !receiver_dead && len(wire) < QUEUE ->
                wire!next; entered++; handed = next; next++ };
#ifdef BACK_LATE
                if
                :: back -> fin = BACK
                :: else
                fi
#endif
            :: atomic { !lost && (!moved || back) && receiver_dead ->
                lost = true }
            :: atomic { !lost && moved && !back && len(ring) == WINDOW ->   /* EAGAIN: sleep_for_credit */
                if
                :: len(ring) < WINDOW
#ifndef SENDER_BLIND
                :: peer_ended_at_sender -> lost = true
#endif
                fi }
            :: atomic { !lost && moved && !back && len(ring) < WINDOW ->
                ring!next; handed = next; next++ }        /* fs_post */
            fi
        od;
        if
        :: !back -> fin = FIN                             /* fs_post_fin */
        :: else -> fin = BACK
        fi;
        kernel_fin = true                                 /* shutdown or close */
    } unless { sender_dead }
}

byte expected = 1;
bool over;

inline deliver(b) {
    assert(b == expected);                                /* nothing lost, doubled or out of order */
    expected++
}

active proctype receiver() {
    byte b, before, left, kernel_taken, looked;
    bool moved, back, at_end, waits;
    {
        /* Before the attachment: the kernel's stream, uncounted. */
        do
        :: atomic { len(queue) > 0 -> queue?b; deliver(b) }
        :: break
        od;
        /* attach: count_taken */
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
        ready = true;                                     /* SYNC: consent */
        do
        :: over -> break
        :: !over && waits ->
            /* EAGAIN. sleep_for_bytes: waits for the kernel's queue and its end, and for the futex of the ring */
            (len(queue) > 0 || peer_ended_at_receiver
             || !back && (moved || switch_at && switch_at - 1 == kernel_taken) && (len(ring) > 0 || fin != NONE));
            waits = false
        :: !over && !waits && back ->
            /* fs_recv_locked, behind BACK */
            if
            :: atomic { len(queue) > 0 -> queue?b; deliver(b); b = 0 }
            :: atomic { len(queue) == 0 && peer_ended_at_receiver -> over = true }
            :: atomic { len(queue) == 0 && !peer_ended_at_receiver -> waits = true }
            fi
        :: !over && !waits && !moved && !back ->
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
                :: left == 0 -> moved = true              /* FS_EV_RECEIVE_SWITCHED */
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
        :: !over && !waits && moved && !back ->
            /* fs_recv_locked */
            if
            :: atomic { len(ring) > 0 -> ring?b; deliver(b); b = 0 }      /* fs_ring_recv */
            :: else ->
                if
                :: atomic { fin == FIN && len(ring) == 0 -> over = true }   /* fs_stream_end */
                :: atomic { fin == BACK && len(ring) == 0 -> back = true }  /* fs_recv_fall_back */
                :: else ->
                    /* check_liveness, then another look */
                    if
                    :: atomic { len(queue) == 0 && peer_ended_at_receiver -> at_end = true }
                    :: atomic { len(queue) == 0 && !peer_ended_at_receiver -> waits = true }
                    :: len(queue) > 0 -> assert(fin == BACK)                /* fs_has_stray_bytes */
                    fi;
                    if
#ifdef NO_SECOND_LOOK
                    :: at_end -> over = true
#else
                    :: at_end && len(ring) == 0 && fin != BACK -> over = true
#endif
                    :: else
                    fi
                fi
            fi;
            at_end = false
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
