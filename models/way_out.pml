/* Fallback: one end or both ends take a connection from the ring back to the kernel, with bytes unread.
 *
 * Theory. The side that falls back writes LEFT and posts BACK after its last post. Its peer's control thread (or the peer's next
 * send) posts BACK too and is held. The side that falls back collects its unread data, and asks the peer's
 * control thread to resend the unread data through the kernel. `settled` is swapped from 0 once, so that each byte of the unread data
 * is either in the kernel's queue or with the side that falls back. If the peer cannot help, a bridge reads the bytes that the kernel
 * took (`returned`), then the rest of the unread data, then the bytes that follow. When both ends fall back, none may write raw before
 * it has resent the other's data, or has set TOO_LATE for the other.
 *
 * Side i sends direction i. Each side is a sending thread, a receiving thread, which may fall back at any time, and the connection
 * thread. The same two threads model the program's raw reads and writes after the fallback, and the bridge. Data bytes are numbers from
 * 1. Unread data is a run of numbers. Bytes in the kernel arrive at once.
 *
 * Checked: each reader gets 1, 2, 3, ... to the end, also when bytes were resent or went over a bridge; with deaths it gets all that was
 * handed over before; no byte is taken for a stray one; all processes end, and without a death no deadline is needed. With
 * -DEARLY deadlines pass at any moment, as with a peer that is stopped or slow, with -DEARLY_SETTLE only those of give_back and
 * let_peer_leave. BOTH: both ends may fall back, else only side 0. AT_ONCE: before they read anything. DEATH: one side may be killed at
 * any step.
 *
 * Negative controls (-D):
 *   SETTLED_TWICE       (EARLY) `settled` is looked at and then stored
 *   NO_TOO_LATE         (BOTH) an end writes raw without checking that the other one does not fall back
 *   NOT_HELD            the peer goes on before the unread data is settled
 *   HELD_BLIND          (DEATH) a held side does not look at the kernel connection, and has no deadline
 *   TOLD_FIRST          (DEATH, EARLY) the bridge looks at `returned` before it looks into the kernel's queue
 *   LEFT_UNSETTLED      (BOTH) a side that falls back does not wait for one that has half-closed, and settles nothing
 *   DEADLINE_WITHOUT_LOCK (BOTH, EARLY_SETTLE) a side that refuses to resend does not wait for a resend under way
 *   SENDS_WHILE_LEAVING (BOTH) the other thread of a side that falls back sends before the other side is settled
 */
#ifndef N0
#define N0 1                        /* bytes that side 0 sends, and side 1 */
#endif
#ifndef N1
#define N1 2
#endif
#define WINDOW 1
#define QUEUE 6
#define BYTES(i) (i == 0 -> N0 : N1)

mtype = { NONE, FIN, BACK, READY, LEFT, TOO_LATE, GO_ON, RETURNING, REFUSED }

/* The region: direction i. */
chan ring[2] = [WINDOW] of { byte };
mtype fin[2] = NONE, ready[2] = READY, settled[2] = NONE;
byte switch_at[2], returned[2];

/* The kernel connection. */
chan kern[2] = [QUEUE] of { byte }; /* sent by i, unread at the other side */
bool kernel_fin[2], closed[2];      /* of side i: its FIN has come; it is dead */
bool reset[2];                      /* RST has come to side i */
byte entered[2];                    /* bytes that side i gave to the kernel's stream */
#define peer_ended(i) (kernel_fin[1 - i] || reset[i])

/* Control threads: requests, with unread data or without. */
chan asks[2] = [3] of { bool };
byte parcel_first[2], parcel_size[2];

/* State of side i: memory that its threads share. */
bool locked[2];                     /* the send lock */
bool sending_moved[2], sending_back[2], sending_held[2], receiving_moved[2], receiving_back[2], out[2];
byte handed[2];                     /* bytes of stream i that the ring or the kernel has accepted */
bool dead[2];
byte ended[2];                      /* of the sending and the receiving thread */

/* A killed side takes no more steps. (Its three threads are the processes 1 to 3 or 4 to 6.) */
#ifdef DEATH
#define MORTAL provided (!dead[(_pid - 1) / 3])
#else
#define MORTAL
#endif

/* Deadlines of waits for the other end's step, and of waits until it is settled. */
#ifdef EARLY
#define DEADLINE true
#define SETTLE_DEADLINE true
#else
#ifdef DEATH
#define DEADLINE dead[0] || dead[1]
#define SETTLE_DEADLINE dead[0] || dead[1]
#else
#define DEADLINE false
#ifdef EARLY_SETTLE
#define SETTLE_DEADLINE true
#else
#define SETTLE_DEADLINE false
#endif
#endif
#endif

/* Taking a lock and the step behind it are one step, and so are giving it back and the step before: what others do in between
 * they could have done before, or can do later. */
#define LOCK(i) !locked[i] -> locked[i] = true
#define UNLOCK(i) locked[i] = false

/* One byte into the kernel's stream. `sent`: the kernel took it. */
inline kernel_send(i, b) {
    sent = !(reset[i] || kernel_fin[i]);
    if
    :: sent && closed[1 - i] -> reset[i] = true           /* data to a closed socket draws a RST */
    :: sent && !closed[1 - i] -> kern[i]!b; entered[i]++
    :: else
    fi
}

/* fs_send_fall_back, with the send lock: in answer to the other side's fallback, */
inline answer_leaver(i) {
    if
    :: ready[i] == LEFT && !sending_back[i] ->
        sending_back[i] = true;
        if
        :: fin[i] == NONE -> sending_held[i] = true; fin[i] = BACK
        :: else
        fi
    :: else
    fi
}

/* and by a side that falls back. */
inline go_back_sending(i) {
    if
    :: atomic { !sending_back[i] -> sending_back[i] = true };
        if
        :: fin[i] == NONE -> fin[i] = BACK
        :: else
        fi
    :: else
    fi
}

/* ---- sending ---- */

inline refuse(i) {
    if
    :: settled[i] == NONE -> settled[i] = REFUSED
    :: else
    fi
}

inline send_in_kernel(i) {
    kernel_send(i, next);
    if
    :: sent -> handed[i] = next; next++
    :: else -> failed = true
    fi
}

proctype sender(bit i) MORTAL {
    byte next = handed[i] + 1;
    bool sent, failed, lost;
        do
        :: next > BYTES(i) || failed -> break
        :: atomic { next <= BYTES(i) && !failed && out[i] -> send_in_kernel(i) }           /* raw */
        :: next <= BYTES(i) && !failed && !out[i] ->
            /* fs_try_send */
            atomic {
                LOCK(i);
                answer_leaver(i);
#ifndef SENDS_WHILE_LEAVING
                if                                         /* the own side is falling back, as in let_peer_leave */
                :: sending_back[i] && !out[i] && ready[i] == READY -> ready[i] = TOO_LATE
                :: sending_back[i] && !out[i] && ready[i] == LEFT && settled[i] == NONE -> sending_held[i] = true
                :: else
                fi;
#endif
                if
                :: ready[i] == READY && !sending_moved[i] && !sending_back[i] ->           /* fs_switch_sending */
                    switch_at[i] = entered[i] + 1;
                    sending_moved[i] = true
#ifndef BOTH
                :: ready[i] == READY && !sending_moved[i] && next == 1                     /* no POLLOUT */
#endif
                :: ready[i] != READY || sending_moved[i] || sending_back[i]
                fi };
#ifndef NOT_HELD
            /* held */
            if
            :: atomic { sending_held[i] && settled[i] == NONE ->
                    if
#ifndef HELD_BLIND
                    :: fin[1 - i] != FIN && peer_ended(i)
#endif
                    :: else -> UNLOCK(i); goto wait_for_leaver
                    fi };
                atomic { refuse(i); sending_held[i] = false }
            :: atomic { sending_held[i] && settled[i] != NONE -> sending_held[i] = false }
            :: !sending_held[i]
            fi;
#endif
            if
            :: atomic { !sending_moved[i] || sending_back[i] || lost ->
                    send_in_kernel(i);
                    UNLOCK(i) }
            :: atomic { sending_moved[i] && !sending_back[i] && !lost && len(ring[i]) < WINDOW ->
                    ring[i]!next; handed[i] = next; next++;
                    UNLOCK(i) }
            :: atomic { sending_moved[i] && !sending_back[i] && !lost && len(ring[i]) == WINDOW ->
                    UNLOCK(i) };
                /* sleep_for_credit */
                if
                :: len(ring[i]) < WINDOW || sending_back[i]
                :: reset[i] -> lost = true
                :: atomic { peer_ended(i) && fin[1 - i] == NONE -> lost = true }           /* half_close.pml */
                :: atomic { fin[1 - i] != NONE && closed[1 - i] -> lost = true }           /* fs_probe_peer */
                fi
            fi;
            if
            :: false ->
wait_for_leaver:
                if
                :: settled[i] != NONE || !sending_held[i]
#ifndef HELD_BLIND
                :: fin[1 - i] != FIN && peer_ended(i)
                :: atomic { DEADLINE -> refuse(i) }       /* HELD_TIME */
#endif
                fi
            :: true
            fi
        od;
        /* shutdown(SHUT_WR) */
        if
        :: failed || out[i]
        :: else ->
            atomic {
                LOCK(i);
                if
                :: fin[i] == NONE -> fin[i] = FIN
                :: else
                fi;
                UNLOCK(i) }
        fi;
    atomic { kernel_fin[i] = true; ended[i]++ }
}

/* ---- the control thread ---- */

proctype connection_thread(bit i) MORTAL {
    bool sent, may;
    byte n;
end:    do
        :: atomic { asks[i]?false -> !locked[i]; answer_leaver(i) }       /* fs_handle_request */
        :: atomic { asks[i]?true ->                                       /* fs_resend_unread */
                LOCK(i);
                answer_leaver(i);
                may = (sending_back[i] && ready[i] == LEFT && settled[i] == NONE);
#ifdef SETTLED_TWICE
            };
            atomic { skip;
#endif
                if
                :: may -> settled[i] = RETURNING
                :: else
                fi };
            if
            :: may ->
                atomic {                                  /* one system call, of which the kernel may take a part */
                    do
                    :: n < parcel_size[1 - i] -> kernel_send(i, parcel_first[1 - i] + n);
                        if
                        :: sent -> n++
                        :: else -> break
                        fi
                    :: break
                    od };
                returned[i] = 1 + n;                      /* SYNC: returned */
                atomic { sending_held[i] = false; UNLOCK(i); n = 0; may = false; sent = false }
            :: atomic { else -> UNLOCK(i) }
            fi
        od
}

/* ---- receiving ---- */

#include "way_out_receiving.pml"

proctype receiver(bit j) MORTAL {
    byte b, expected = 1, kernel_taken, count, told, to_read, crossed;
    bool over, waits, at_end, returns, unknown, bridged, left, sent;
    mtype outcome;
        do
        :: over -> break
#ifdef BOTH
        :: !over && !left -> left = true; waits = false; leave(j)
#else
        :: !over && !left && j == 0 -> left = true; waits = false; leave(j)
#endif
        :: !over && waits -> atomic {
            (unknown && (returned[1 - j] != 0 || len(kern[1 - j]) > 0 || peer_ended(j)) || !unknown && readable(j)) -> waits = false }
        :: !over && !waits && bridged -> next_inward(j)
#ifdef AT_ONCE
        :: !over && !waits && !bridged && left -> receive(j)
#else
        :: !over && !waits && !bridged -> receive(j)
#endif
        od;
        assert(expected == handed[1 - j] + 1);
        assert(dead[0] || dead[1] || expected == BYTES((1 - j)) + 1);
    ended[j]++
}

#ifdef DEATH
proctype killer() {
    bit i;
    atomic {
        if
        :: i = 0
        :: i = 1
        fi;
        dead[i] = true; closed[i] = true; kernel_fin[i] = true;
        if
        :: len(kern[1 - i]) > 0 -> reset[1 - i] = true
        :: else
        fi
    }
}
#endif

#ifdef DEATH
/* Nobody can take a step any more: all living processes have ended. (Spin's own check would want the dead to have ended too.) */
proctype watchdog() {
    timeout;
    assert((dead[0] || ended[0] == 2) && (dead[1] || ended[1] == 2))
}
#endif

init {
    atomic {
#ifdef BOTH
        /* Side 0 has moved, and its first byte lies unread in the ring. */
        switch_at[0] = 1; sending_moved[0] = true; receiving_moved[1] = true; ring[0]!1; handed[0] = 1;
#endif
        run sender(0); run receiver(0); run connection_thread(0);
        run sender(1); run receiver(1); run connection_thread(1);
#ifdef DEATH
        run killer();
        run watchdog()
#endif
    }
}
