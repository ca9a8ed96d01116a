/* One thread drops what untrusted users sent (core/control/fd_reaper.c): nothing is forgotten, and no lock is needed.
 *
 * Theory. To drop a thing, a thread stores it in a free slot and counts it as pending. Who counts the first one starts the reaper. The
 * reaper searches for a filled slot, drops what is there, and counts it out; it ends when that was the last one. Each thing was stored
 * before it was counted, so there is one for each count. If the system makes no thread, that is noted, and who comes later tries again. If
 * all slots are taken, the thread drops the thing itself.
 *
 * Checked: each thing is dropped once; there is one reaper at most; nobody searches forever for a slot that is not filled yet (circles);
 * all end.
 *
 * Negative controls (-D):
 *   COUNT_FIRST  (circles) a thing is counted before it is stored: the reaper waits for the storing thread
 *   LOOK_FIRST   the reaper looks at the count before it counts out
 *   FORGOTTEN    nobody tries again to start it
 */
#define THINGS 3
#define SLOTS 2

byte slots[SLOTS];                        /* a thing's number + 1; 0: free */
byte pending, reapers;
bool unstarted;
byte put;                                 /* who has put its thing */
byte failures = 1;                        /* threads that the system will not make, at most */
bool dropped[THINGS];

inline drop(it) {
    assert(!dropped[it - 1]);
    dropped[it - 1] = true
}

/* drop_all */
proctype reaper() {
    byte it, i = 0;
    bool last = false;
    do
    :: !last ->
        do
        :: atomic { slots[i] != 0 -> it = slots[i]; slots[i] = 0 }; break
        :: slots[i] == 0 -> i = (i + 1) % SLOTS
        od;
        drop(it);
#ifdef LOOK_FIRST
        last = (pending == 1);
        atomic { pending--; reapers = reapers - last }
#else
        atomic { pending--; last = (pending == 0); reapers = reapers - last }
#endif
    :: else -> break
    od
}

/* start_thread */
inline start() {
    if
    :: atomic { failures > 0 -> failures-- }; unstarted = true
    :: atomic { assert(reapers == 0); reapers++; run reaper() }
    fi
}

/* fs_reaper_has_room */
inline try_again() {
    if
    :: atomic { unstarted -> unstarted = false }; start()
    :: else
    fi
}

/* leave_to_reaper */
proctype putter(byte it) {
    byte i = 0;
    bool first, room = false;
#ifdef COUNT_FIRST
    atomic { first = (pending == 0); pending++ };
    if
    :: first -> start()
    :: else
    fi;
#endif
    do
    :: i < SLOTS ->
        if
        :: atomic { slots[i] == 0 -> slots[i] = it }; room = true; break
        :: slots[i] != 0 -> i++
        fi
    :: else -> break
    od;
    if
    :: room ->
#ifndef COUNT_FIRST
        atomic { first = (pending == 0); pending++ };
        if
        :: first -> start()
        :: else
#ifndef FORGOTTEN
            -> try_again()
#endif
        fi
#endif
    :: else -> drop(it)
    fi;
    put++
}

/* Who comes later: the control thread. */
proctype later() {
    put == THINGS;
#ifndef FORGOTTEN
    do
    :: unstarted -> try_again()
    :: !unstarted -> break
    od
#endif
}

init {
    atomic { run putter(1); run putter(2); run putter(3); run later() };
    put == THINGS && pending == 0 && reapers == 0;
    assert(dropped[0] && dropped[1] && dropped[2]);
    assert(slots[0] == 0 && slots[1] == 0)
}
