/* The cell of a region (core/control/cell.c): a seeker offers a region that both have mapped for its connection, and the publisher takes it.
 *
 * Theory. The state is a generation and whether the cell is posted. Only the seeker writes the rest, and only while it is not posted. The
 * publisher reads the state, then the rest, asks the kernel if its connection's other end is the socket that was posted, and swaps the
 * state that it has read for the next generation. The seeker withdraws by the same swap. So one of the two has the region; and what the
 * publisher has read was posted with the state that it has swapped.
 *
 * The seeker posts when it has finished with the region itself. The publisher looks at what it has finished with too. So the one that takes
 * the cell knows that nobody uses the region: it makes it ready, and then tells the seeker.
 *
 * A seeker posts for one connection after another. It may be killed between any two steps. Then its port may be another socket's, a
 * stranger's, whose connection the publisher accepts. The publisher looks for the connections that it has accepted, one after the other.
 *
 * Checked: who takes a region has accepted the connection that it was posted for, of the very socket; nobody has a region that another
 * has; a region is ready before its seeker learns that it was taken, and the seeker learns of no taking but that; no region is lost while
 * the seeker lives.
 *
 * DEATH: the seeker may be killed.
 *
 * Negative controls (-D):
 *   NO_PROOF      the publisher believes the ends alone, and does not ask for the socket
 *   LOOK_ONLY     it takes the cell by a store, not by a swap
 *   NO_GENERATION each post has the same state
 *   PROOF_ONLY    the publisher asks before it reads the cell
 *   TOLD_FIRST    it tells the seeker before the region is ready
 *   STALE_TOLD    the seeker posts with the word still there by which it learnt of the last taking */
#define ROUNDS 3 /* connections of the seeker */
#define PORTS 2

#define NOBODY 0
#define posted_of(word) (word & 1)

byte state;               /* twice the generation, plus 1 while posted */
byte port, socket_posted; /* what the cell says */
bool recycled;

byte at_port[PORTS];      /* the living socket with a port; NOBODY */
byte sockets = 1;         /* made so far: no number comes twice */
bool alive = true, over;

bool has_region;          /* the connection of the publisher has it; the seeker has it too, from when it is told until it has finished */
bool in_use;              /* the publisher uses it for a connection */
byte used_for;            /* the socket of that connection's other end */
bool told;                /* WAKEUP */

chan accepted = [ROUNDS + 1] of {byte, byte}; /* a port and the socket that was there as it was accepted */

#ifdef DEATH
#define step_or_die :: alive -> skip :: alive -> atomic { alive = false; goto dead }
#else
#define step_or_die :: alive -> skip
#endif
#define may_die if step_or_die fi

inline free_port(at) { if :: at_port[0] == NOBODY -> at = 0 :: at_port[1] == NOBODY -> at = 1 fi }

proctype seeker() {
    byte mine, here, n, before;
    do
    :: n < ROUNDS ->
        n++;
        /* another connection, of the same port or another one */
        atomic {
            free_port(here);
            mine = sockets;
            sockets++;
            at_port[here] = mine;
            accepted ! here, mine
        }
        may_die;
#ifndef STALE_TOLD
        told = false;
#endif
        may_die;
        port = here;
        may_die;
        socket_posted = mine;
        may_die;
        state = state | 1;
        may_die;
        if /* it waits for the publisher, or withdraws: it closes, or goes by a name */
        :: told -> assert(!posted_of(state) && recycled)
        :: skip
        fi;
        may_die;
        before = state;
        if
        :: atomic { posted_of(before) && state == before ->
#ifdef NO_GENERATION
            state = 0;
#else
            state = state + 1;
#endif
            skip }
        :: else -> /* taken: WAKEUP comes, and the connection ends some time later. (The publisher may still use the region then.) */
            do
            :: told -> assert(recycled); break
            :: over -> break
            od;
            may_die;
            atomic { has_region = false; recycled = false }
        fi;
        atomic { at_port[here] = NOBODY }
    :: else -> break
    od;
    goto end;
dead:
    atomic { at_port[here] = NOBODY }; /* the kernel ends its connection, and the port is free */
end:
    skip
}

/* A foreign process, which gets the port of a connection that has ended. */
proctype stranger() {
    byte here;
    atomic {
        free_port(here);
        at_port[here] = sockets;
        accepted ! here, sockets;
        sockets++
    }
}

proctype publisher() {
    byte here, other, before, posted_port, posted_socket;
    bool proven;
    do
    :: accepted ? here, other ->
        do /* the operations of the connection */
        ::
            proven = true;
#ifdef PROOF_ONLY
            proven = (at_port[here] == other);
#endif
            before = state;
            if :: !posted_of(before) -> goto next :: else fi;
            posted_port = port;
            posted_socket = socket_posted;
            if :: posted_port != here -> goto next :: else fi;
#ifndef PROOF_ONLY
#ifndef NO_PROOF
            proven = (at_port[here] == other && posted_socket == other); /* sock_diag: the other end's socket is there, and is this one */
#endif
#endif
            if :: !proven -> goto next :: else fi;
            if
#ifdef LOOK_ONLY
            :: true ->
                atomic {
#else
            :: atomic { state == before ->
#endif
                    assert(!in_use);
                    assert(!has_region); /* nor does the seeker */
#ifdef NO_GENERATION
                    state = 0;
#else
                    state = state + 1;
#endif
                    has_region = true;
                    in_use = true;
                    used_for = socket_posted;
                    assert(used_for == other && posted_socket == other); /* of this very connection */
                }
#ifdef TOLD_FIRST
                told = true;
#endif
                recycled = true;
#ifndef TOLD_FIRST
                told = true;
#endif
                in_use = false; /* it ends */
                break
#ifndef LOOK_ONLY
            :: else -> skip
#endif
            fi;
next:       if :: skip :: break fi
        od
    :: empty(accepted) && over -> break
    od
}

init {
    atomic { run publisher(); run seeker(); run stranger() }
    (_nr_pr <= 2 && empty(accepted));
    over = true
}
