/* The life of a connection in one process: calls begin and end, the program closes it, a loop pins and unpins it.
 *
 * Theory. One word has the number of calls inside, FINISHING, FINISHED and KEPT. Each change is one step: it reads the word, and all
 * that follows depends on that read alone. No call begins once FINISHED is set, and the connection is not pinned again once it is left.
 * So the number only falls from then on, and one step leaves the connection: the thread that takes this step frees the memory. The
 * thread that takes the last call out of a FINISHING connection sets FINISHED in the same step, and stays inside to send FIN.
 *
 * Checked: nobody uses the memory when it is freed; FIN is sent once, and before that; with LATE no call is inside but the one that
 * sends FIN; the thread that ends the last call closes the spare descriptor, once; all end, and then the memory has been freed.
 *
 * LATE: both closers close with the last call. Without it one of them ends the connection at once, as if the number was closed behind
 * our back.
 *
 * Negative controls (-D):
 *   PLAIN            the read and the change are two steps, and nothing keeps the threads apart
 *   LOOK_BEHIND      a thread that ends a call, or unpins, takes the step, and then looks if it has left the connection
 *   TOLD_ONLY        the last call learns that it was the last, and ends the connection by a call of its own. (Between the two
 *                    another call may begin, and learn the same: it was like that, and only the host lock kept them apart.)
 */
#define CALLERS 3
#define TIMES 2                           /* calls of each */

byte calls;
bool finishing, finished, is_kept;

byte inside;                              /* the truth beside the word */
bool keeping, spare;
byte goodbyes, releases, spares_closed;

#define left (finished && calls == 0 && !is_kept)

/* The word is read and changed in one step, unless PLAIN. Then it is written whole, by the values read. */
#ifdef PLAIN
#define look atomic { was_calls = calls; was_finishing = finishing; was_finished = finished; was_kept = is_kept }
#define step
#define DECLARE byte was_calls; bool was_finishing, was_finished, was_kept, tells, leaves, ok
#else
#define look skip
#define step atomic
#define was_calls calls
#define was_finishing finishing
#define was_finished finished
#define was_kept is_kept
#define DECLARE bool tells, leaves, ok
#endif
#define change(n, closing, over, held) calls = n; finishing = closing; finished = over; is_kept = held

inline release() {
    atomic { assert(releases == 0); assert(goodbyes == 1); assert(inside == 0 && !keeping); releases++ }
}

/* fs_call_enter */
inline begin() {
    step {
        look;
        ok = !was_finished;
        if
        :: atomic { ok -> change(was_calls + 1, was_finishing, was_finished, was_kept); assert(releases == 0); inside++ }
        :: else
        fi
    }
}

/* fs_call_exit: `tells` that it is the last, `leaves` that the memory must be freed. */
inline take_out() {
    step {
        look;
        assert(was_calls > 0);
        tells = (was_finishing && !was_finished && was_calls == 1);
        leaves = (was_finished && was_calls == 1 && !was_kept);
        if
#ifndef TOLD_ONLY
        :: atomic { tells -> change(was_calls, was_finishing, true, was_kept) }
#endif
        :: atomic { else -> change(was_calls - 1, was_finishing, was_finished, was_kept); inside-- }
        fi
    };
#ifdef LOOK_BEHIND
    leaves = left
#endif
}

inline give_back() {
    if
    :: leaves -> leaves = false; release()
    :: else
    fi
}

/* Called by a thread that is inside. */
inline say_goodbye() {
    atomic { assert(goodbyes == 0); assert(releases == 0); goodbyes++ };
    take_out();
    assert(!tells);
    give_back()
}

#ifdef TOLD_ONLY
inline end_last() {                       /* a call of its own ends it, and then closes the spare descriptor */
    begin();
    if
    :: ok ->
        atomic { ok = !finished; finished = true };
        if
        :: ok -> say_goodbye()
        :: else -> take_out(); give_back()
        fi
    :: else
    fi
}
#else
#define end_last() atomic { assert(inside == 1) }; say_goodbye()
#endif

inline end_call() {
    take_out();
    if
    :: tells ->
        tells = false;
        end_last();
        atomic { spares_closed++; assert(spares_closed == 1) }
    :: else -> give_back()
    fi
}

proctype caller() {
    DECLARE;
    byte times;
    do
    :: times < TIMES ->
        begin();
        if
        :: ok -> end_call()
        :: else -> break
        fi;
        times++
    :: else -> break
    od
}

/* fs_note_ended_alone, else a spare descriptor and fs_note_closing. The program does so once. */
proctype closer() {
    DECLARE;
    begin();
    if
    :: ok ->
        step {                            /* fs_note_ended_alone */
            look;
            ok = (!was_finished && was_calls == 1);
            if
            :: atomic { ok -> change(was_calls, was_finishing, true, was_kept) }
            :: else
            fi
        };
        if
        :: ok -> atomic { assert(inside == 1) }; say_goodbye()
        :: else ->
            spare = true;
            step {                        /* fs_note_closing */
                look;
                atomic { ok = !was_finished; change(was_calls, true, was_finished, was_kept) }
            };
            if
            :: ok
            :: else -> atomic { spares_closed++; assert(spares_closed == 1) }    /* it had ended */
            fi;
            end_call()
        fi
    :: else
    fi
}

/* fs_note_ended, with any calls inside. */
proctype ender() {
    DECLARE;
    begin();
    if
    :: ok ->
        step {
            look;
            atomic { ok = !was_finished; change(was_calls, was_finishing, true, was_kept) }
        };
        if
        :: ok -> say_goodbye()
        :: else -> end_call()
        fi
    :: else
    fi
}

/* A loop's transport: fs_pin, fs_unpin. */
proctype keeper() {
    DECLARE;
    step {
        look;
        ok = !(was_finished && was_calls == 0 && !was_kept);
        if
        :: atomic { ok -> change(was_calls, was_finishing, was_finished, true); assert(releases == 0); keeping = true }
        :: else
        fi
    };
    if
    :: ok ->
        step {
            look;
            leaves = (was_finished && was_calls == 0 && was_kept);
            atomic { change(was_calls, was_finishing, was_finished, false); keeping = false }
        };
#ifdef LOOK_BEHIND
        leaves = left;
#endif
        give_back()
    :: else
    fi
}

init {
    byte i;
    atomic {
        for (i : 1 .. CALLERS) { run caller() };
        run closer();
        run keeper();
#ifndef LATE
        run ender()
#endif
    };
    _nr_pr == 1;
    assert(goodbyes == 1);
    assert(releases == 1);
    assert(inside == 0 && calls == 0)
#ifdef LATE
    assert(spares_closed == spare)
#endif
}
