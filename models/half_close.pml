/* Half-close with a blocked sender, and how the end of a peer is decided.
 *
 * Theory. Server and client are both on the ring. The client sends a little, half-closes (packet FIN in the ring, then the kernel's FIN)
 * and reads the answer. The answer is larger than the window, so the server sleeps for credit. The kernel's FIN reaches the server in
 * that sleep and must not be taken for the client's end. Later the client may read to the end, close early, close with bytes unread (a
 * reset), or be killed between any two steps; in all of these the server must end.
 *
 * The end of a direction is decided in this order:
 *     receiving is lost  if the kernel connection has ended, then: the ring holds no FIN, then: the ring is drained
 *     sending is lost    if the kernel connection has ended, then: the ring holds no FIN; or the kernel connection was reset
 * A peer posts its FIN before its kernel sends one. So a side that sees the end of the kernel connection first and no FIN then knows
 * that there will be none. The other order would take a half-close between the two looks for a death. A sender must not wait until the
 * ring from its peer is drained: perhaps nobody drains it before the sender has ended.
 *
 * After a FIN the end of the kernel connection says nothing new. Then a sender asks now and then, also in its sleep, if some process has
 * the client's socket (the probe).
 *
 * Data bytes are numbers from 1. Bytes in the kernel arrive at once (switch.pml models their way).
 *
 * Checked: data goes into the kernel's stream only when the client has gone; a client that reads to the end gets all; a reader gets the
 * beginning of what was posted, and all of it if the poster was killed or ended without a reset; all processes end. With -DDEATH the
 * client or the server may be killed at any step.
 *
 * Negative controls (-D):
 *   RDHUP_IS_DEATH      fault 1 of the first release: the poll's POLLRDHUP means a lost direction
 *   FIN_BEFORE_LIFELINE the two looks in the wrong order
 *   UNTIL_DRAINED       (DEATH) sending is lost only when the ring from the peer is drained
 *   NO_PROBE            (DEATH) a sender after a half-close does not check that the peer lives
 *   GONE_AFTER_LOOK     close looks for unread bytes before it sets FS_GONE
 *   LIFELINE_FIRST      (DEATH) a reader that sees the end of the kernel connection does not look at the ring again
 */
#define ANSWER 2
#define REQUEST 1
#define WINDOW 1

#define SERVER 0
#define CLIENT 1
mtype = { NONE, FIN, RESET }

/* Direction SERVER is from the server, direction CLIENT from the client. */
chan answer = [WINDOW] of { byte };
chan request = [WINDOW] of { byte };
mtype fin_of_server = NONE, fin_of_client = NONE;
bool client_gone;                         /* FS_GONE in direction SERVER */
byte handed;                              /* bytes of the answer that the ring has accepted */
byte asked;                               /* bytes of the request that the ring has accepted */

/* The kernel connection. */
byte at_client;                           /* bytes in the client's queue, which nobody reads */
bool server_fin, client_fin;              /* the kernel's FIN of each has come */
bool server_closed, client_closed;        /* nobody has the socket open any more */
bool server_reset;                        /* RST has come there */

bool client_dead, server_dead;
bool server_sends = true;

inline kernel_close_client(abortive) {
    client_closed = true;
    client_fin = true;
    if
    :: abortive || at_client > 0 -> server_reset = true
    :: else
    fi
}

/* A byte from the server's kernel: to a closed socket it draws a RST. */
inline kernel_send() {
    if
    :: client_closed -> server_reset = true
    :: else -> at_client++
    fi
}

/* fs_probe_peer, of a peer whose stream has ended. */
inline probe() {
    if
    :: client_closed -> lost = true
    :: else
    fi
}

#define client_ended (client_fin || server_reset)      /* peer_ended at the server */

/* Is sending lost? First the kernel connection, then the FIN. */
inline look_at_peer() {
#ifdef FIN_BEFORE_LIFELINE
    seen_fin = fin_of_client;
    if
    :: seen_fin == NONE && client_ended -> lost = true
    :: else
    fi;
#else
    if
    :: client_ended ->
        if
#ifdef UNTIL_DRAINED
        :: fin_of_client == NONE && len(request) == 0 -> lost = true
#else
        :: fin_of_client == NONE -> lost = true
#endif
        :: else
        fi
    :: else
    fi;
#endif
    seen_fin = NONE
}

active proctype server_sender() {
    byte next = 1;
    bool lost, waits_for_rdhup, failed;
    mtype seen_fin = NONE;
    {
        do
        :: next > ANSWER || failed -> break
        :: else ->
            /* fs_try_send, with the send lock */
            if
            :: atomic { lost || client_gone || fin_of_client != NONE && server_reset ->
                    lost = true;
                    if
                    :: server_reset -> failed = true      /* EPIPE, ECONNRESET */
                    :: else ->
                        /* Data in the kernel's stream: only if nobody is left to read it. */
                        assert(client_gone || client_closed);
                        kernel_send();
                        next++
                    fi
                }
            :: else ->
                if
                :: len(answer) < WINDOW ->
                    atomic { answer!next; handed = next; next++ };   /* fs_post */
                    if
                    :: client_gone -> lost = true; atomic { kernel_send() }   /* fs_draw_reset */
                    :: else
                    fi;
                    if
                    :: fin_of_client == NONE -> look_at_peer()                /* watch_liveness, now and then */
                    :: fin_of_client != NONE -> probe()
                    :: true
                    fi
                :: else ->
                    /* sleep_for_credit */
                    waits_for_rdhup = (fin_of_client == NONE);
                    if
                    :: atomic { len(answer) < WINDOW || client_gone -> waits_for_rdhup = false }
                    :: atomic { server_reset -> lost = true; waits_for_rdhup = false }   /* POLLERR */
                    :: atomic { waits_for_rdhup && client_fin -> waits_for_rdhup = false };
#ifdef RDHUP_IS_DEATH
                        lost = true
#else
                        look_at_peer()
#endif
#ifndef NO_PROBE
                    :: atomic { !waits_for_rdhup && client_closed -> lost = true }   /* the probe, after PROBE_INTERVAL */
#endif
                    fi
                fi
            fi
        od;
        server_sends = false;
        if
        :: failed
        :: else ->
            fin_of_server = FIN;                          /* shutdown: fs_post_fin, then the kernel's */
            server_fin = true
        fi
    } unless { server_dead }
}

/* The server's reader: another thread, or the same one when it has sent all. */
active proctype server_reader() {
    byte b, expected = 1;
    bool over, at_end, waits;
    {
        if
        :: true
        :: !server_sends
        fi;
        do
        :: over -> break
        :: !over && waits ->
            atomic {
                (len(request) > 0 || fin_of_client == FIN || client_ended);  /* (behind a RESET: until the kernel's RST) */
                waits = false
            }
        :: !over && !waits ->
            /* fs_try_recv */
            if
            :: atomic { len(request) > 0 -> request?b; assert(b == expected); expected++; b = 0 }
            :: else ->
                if
                :: atomic { fin_of_client == FIN && len(request) == 0 -> over = true }
                :: atomic { else ->
                    if                                    /* check_liveness */
                    :: client_ended -> at_end = true
                    :: else -> waits = true
                    fi };
                    if
                    :: !at_end
#ifdef LIFELINE_FIRST
                    :: at_end -> over = true
#else
                    :: atomic { at_end && len(request) == 0 -> over = true }
#endif
                    :: atomic { at_end && len(request) > 0 -> at_end = false }
                    fi
                fi
            fi
        od;
        assert(expected == asked + 1)
    } unless { server_dead }
}

active proctype client() {
    byte b, expected = 1, next = 1;
    bool over, at_end, waits, unread, closes, shut;
    {
        do
        :: next <= REQUEST ->
            if
            :: atomic { len(request) < WINDOW -> request!next; asked = next; next++ }
            :: server_fin -> break
            fi
        :: next > REQUEST -> break
        od;
        if                                                /* shutdown(SHUT_WR), or not */
        :: fin_of_client = FIN; shut = true;              /* fs_post_fin, also before the switch */
            client_fin = true                             /* the kernel's */
        :: skip
        fi;
        do
        :: over || closes -> break
        :: !over && !closes && waits ->
            atomic {
                (len(answer) > 0 || fin_of_server != NONE || server_fin);
                waits = false
            }
        :: !over && !closes && !waits ->
            if
            :: closes = true                              /* has enough */
            :: atomic { len(answer) > 0 -> answer?b; assert(b == expected); expected++; b = 0 }
            :: else ->
                if
                :: atomic { fin_of_server == FIN && len(answer) == 0 -> over = true }
                :: atomic { else -> at_end = server_fin };
                    if
                    :: atomic { at_end && len(answer) == 0 -> over = true }
                    :: atomic { else -> waits = true; at_end = false }
                    fi
                fi
            fi
        od;
        if
        :: over -> assert(expected == handed + 1); assert(server_dead || handed == ANSWER)
        :: else
        fi;
        /* close: fs_conn_close */
#ifndef GONE_AFTER_LOOK
        client_gone = true;
#endif
        unread = len(answer) > 0;
#ifdef GONE_AFTER_LOOK
        client_gone = true;
#endif
        if
        :: fin_of_client == NONE -> fin_of_client = (unread -> RESET : FIN)
        :: else
        fi;
        atomic { kernel_close_client(unread) };
        (!server_sends || server_dead);
        assert(len(answer) == 0 || server_reset || server_dead)      /* a RST announces unread bytes */
    } unless { client_dead }
}

#ifdef DEATH
active proctype killer() {
    if
    :: atomic { !client_closed -> client_dead = true; kernel_close_client(false) }
    :: atomic { !server_dead -> server_dead = true; server_fin = true }
    :: true
    fi
}
#endif
