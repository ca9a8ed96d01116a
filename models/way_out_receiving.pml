/* Part of way_out.pml: how a side receives, falls back, and reads over a bridge. Each step is one that others can tell apart. */

inline deliver(b) {
    assert(b == expected);
    expected++
}

/* settle_with_peer */
inline settle_with_peer(j) {
    atomic {
        if
        :: ready[1 - j] == LEFT && settled[1 - j] == NONE -> settled[1 - j] = GO_ON   /* (LEFT is the own side's word) */
        :: else
        fi
    }
}

inline go_back_receiving(j) {
    receiving_back[j] = true;
    settle_with_peer(j)
}

/* fs_try_recv: one attempt to receive one byte. (After the last byte before BACK the code falls back at once; here the next attempt
 * does.) */
inline receive(j) {
    if
    :: atomic { receiving_back[j] && len(kern[1 - j]) > 0 -> kern[1 - j]?b; deliver(b); b = 0 }
    :: atomic { receiving_back[j] && len(kern[1 - j]) == 0 ->
            if
            :: peer_ended(j) -> over = true
            :: else -> waits = true
            fi }
    :: atomic { !receiving_back[j] && !receiving_moved[j] -> count = len(kern[1 - j]) };
        /* fs_recv_kernel: the count, then the switch */
        if
        :: atomic { switch_at[1 - j] && switch_at[1 - j] - 1 == kernel_taken -> receiving_moved[j] = true; count = 0 }
        :: atomic { switch_at[1 - j] && switch_at[1 - j] - 1 != kernel_taken || !switch_at[1 - j] && count > 0 ->
                kern[1 - j]?b; kernel_taken++; deliver(b); b = 0; count = 0 }
        :: atomic { !switch_at[1 - j] && count == 0 ->
                if
                :: len(kern[1 - j]) == 0 && peer_ended(j) -> at_end = true
                :: len(kern[1 - j]) == 0 && !peer_ended(j) -> waits = true
                :: len(kern[1 - j]) > 0
                fi };
            if
            :: atomic { at_end -> at_end = false; if :: !switch_at[1 - j] -> over = true :: else fi }
            :: !at_end
            fi
        fi
    :: atomic { !receiving_back[j] && receiving_moved[j] && len(ring[1 - j]) > 0 -> ring[1 - j]?b; deliver(b); b = 0 }
    :: !receiving_back[j] && receiving_moved[j] && len(ring[1 - j]) == 0 ->
        if
        :: atomic { fin[1 - j] == FIN && len(ring[1 - j]) == 0 -> over = true }
        :: fin[1 - j] == BACK && len(ring[1 - j]) == 0 -> go_back_receiving(j)
        :: else ->
            /* check_liveness, then another look */
            if
            :: atomic { len(kern[1 - j]) == 0 && peer_ended(j) -> at_end = true }
            :: atomic { len(kern[1 - j]) == 0 && !peer_ended(j) -> waits = true }
            :: len(kern[1 - j]) > 0 -> assert(fin[1 - j] == BACK)           /* fs_has_stray_bytes */
            fi;
            if
            :: atomic { at_end -> at_end = false; if :: len(ring[1 - j]) == 0 -> over = true :: else fi }
            :: !at_end
            fi
        fi
    fi
}

/* The events that a sleeping reader waits for. */
#define readable(j) (receiving_back[j] && len(kern[1 - j]) > 0 || peer_ended(j) \
    || !receiving_back[j] && !receiving_moved[j] && (len(kern[1 - j]) > 0 || switch_at[1 - j] && switch_at[1 - j] - 1 == kernel_taken) \
    || !receiving_back[j] && receiving_moved[j] && (len(ring[1 - j]) > 0 || fin[1 - j] != NONE))

mtype = { IN_KERNEL, NEEDS_BRIDGE }

/* Nobody else posts or receives here any more, so this is one step. */
inline collect(j) {
    do
    :: switch_at[1 - j] && !receiving_moved[j] && switch_at[1 - j] - 1 == kernel_taken -> receiving_moved[j] = true
    :: switch_at[1 - j] && !receiving_moved[j] && switch_at[1 - j] - 1 != kernel_taken ->
        kern[1 - j]?b; kernel_taken++;
        assert(b == expected + parcel_size[j]); parcel_size[j]++
    :: receiving_moved[j] && len(ring[1 - j]) > 0 ->
        ring[1 - j]?b;
        assert(b == expected + parcel_size[j]); parcel_size[j]++
    :: (!switch_at[1 - j] || receiving_moved[j]) && len(ring[1 - j]) == 0 -> break
    od;
    b = 0;
    parcel_first[j] = expected;
    receiving_back[j] = true
}

/* Asks the peer to resend the unread data, and learns how much of it the kernel took. */
inline give_back(j) {
    outcome = 0;
    asks[1 - j]!true;
    if
    :: returned[1 - j] != 0
    :: settled[1 - j] == REFUSED
    :: peer_ended(j)
    :: SETTLE_DEADLINE
    fi;
    if
    :: returned[1 - j] != 0
    :: atomic { else -> returns = (settled[1 - j] == NONE)
#ifdef SETTLED_TWICE
            };
        atomic { skip;
#endif
            if
            :: returns -> settled[1 - j] = GO_ON; outcome = NEEDS_BRIDGE
            :: !returns && settled[1 - j] != RETURNING -> outcome = NEEDS_BRIDGE
            :: else
            fi }
    fi;
    atomic {
        if
        :: outcome == NEEDS_BRIDGE
        :: else ->
            if
            :: returned[1 - j] != 0 ->
                to_read = returned[1 - j] - 1;
                assert(to_read <= parcel_size[j]);
                outcome = (to_read == parcel_size[j] -> IN_KERNEL : NEEDS_BRIDGE);
                crossed = to_read
            :: else -> unknown = true; outcome = NEEDS_BRIDGE
            fi
        fi
    }
}

/* Before anybody writes raw: the other end may be falling back too. */
inline let_peer_leave(j) {
#ifndef NO_TOO_LATE
    if
    :: atomic { ready[j] == READY || ready[j] == TOO_LATE -> ready[j] = TOO_LATE }
    :: atomic { ready[j] == LEFT -> skip };
        if
        :: settled[j] != NONE
#ifdef LEFT_UNSETTLED
        :: settled[j] == NONE && peer_ended(j)
#else
        :: settled[j] == NONE && (fin[1 - j] != FIN && peer_ended(j) || reset[j]) -> atomic { refuse(j) }
#endif
#ifdef DEADLINE_WITHOUT_LOCK
        :: SETTLE_DEADLINE -> atomic { refuse(j); goto refused }
#else
        :: SETTLE_DEADLINE -> atomic { refuse(j) }
#endif
        fi;
        atomic { LOCK(j); UNLOCK(j) };                    /* the unread data is resent with the send lock held */
refused: skip
    fi
#else
    skip
#endif
}

inline leave(j) {
    /* take_back */
    atomic { returns = (ready[1 - j] == READY); if :: returns -> ready[1 - j] = LEFT :: else fi };
    atomic { LOCK(j) };
    go_back_sending(j);
    UNLOCK(j);
    if
    :: receiving_back[j] -> settle_with_peer(j); outcome = IN_KERNEL
    :: else ->
        /* await_end_of_ring */
        asks[1 - j]!false;
        if
        :: atomic { fin[1 - j] != NONE || peer_ended(j) ->
                returns = (returns && fin[1 - j] == BACK && !peer_ended(j));
                if
                :: !returns && (len(ring[1 - j]) > 0 || switch_at[1 - j] && !receiving_moved[j] && switch_at[1 - j] - 1 != kernel_taken) ->
                    outcome = NEEDS_BRIDGE
                :: else -> collect(j)
                fi };
            if
            :: outcome == NEEDS_BRIDGE -> settle_with_peer(j)
            :: else ->
                if
                :: parcel_size[j] > 0 -> give_back(j)
                :: else -> settle_with_peer(j); outcome = IN_KERNEL
                fi
            fi
        :: DEADLINE -> outcome = NEEDS_BRIDGE; settle_with_peer(j)
        fi
    fi;
    let_peer_leave(j);
    atomic {
        returns = false;
        if
        :: outcome == IN_KERNEL -> out[j] = true
        :: else -> bridged = true
        fi;
        outcome = 0
    }
}

/* The bridge: the bytes that the peer's kernel took again, then the rest of the unread data, then the bytes that follow. */
inline next_inward(j) {
    if
    :: unknown ->
#ifdef TOLD_FIRST
        told = returned[1 - j];
#endif
        atomic {
            if
            :: crossed == parcel_size[j] || len(kern[1 - j]) == 0 && peer_ended(j) -> at_end = true
            :: crossed < parcel_size[j] && len(kern[1 - j]) > 0 -> b = 1
            :: else
            fi };
#ifndef TOLD_FIRST
        told = returned[1 - j];
#endif
        if
        :: atomic { told != 0 -> to_read = told - 1 - crossed; crossed = told - 1; unknown = false }
        :: atomic { told == 0 && b == 1 -> kern[1 - j]?b; deliver(b); crossed++ }
        :: atomic { told == 0 && at_end -> unknown = false }
        :: atomic { told == 0 && !at_end && b == 0 -> waits = true }
        fi;
        atomic { b = 0; told = 0; at_end = false }
    :: !unknown && to_read > 0 -> atomic { kern[1 - j]?b; deliver(b); b = 0; to_read-- }
    :: !unknown && to_read == 0 && crossed < parcel_size[j] -> atomic { deliver(parcel_first[j] + crossed); crossed++ }
    :: else -> receive(j)
    fi
}
