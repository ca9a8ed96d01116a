/* Reaper threads drop what untrusted users sent (core/control/fd_reaper.c): nothing is forgotten, and no lock is needed.
 *
 * Theory. To drop a thing, a thread stores it in a free slot, counts it as waiting, and starts a reaper unless there are enough. A
 * reaper claims one waiting thing, by the count, and then searches for a filled slot: each thing was stored before it was counted, so
 * there is one for each claim. A reaper that finds none waiting takes itself out of the number of reapers, and then looks at the count
 * again. If all slots are taken, the thread drops the thing itself.
 *
 * Checked: each thing is dropped once; nobody searches forever for a slot that is not filled yet (circles); all end. With -DTWO there
 * may be two reapers.
 *
 * Negative controls (-D):
 *   COUNT_FIRST  (circles) a thing is counted before it is stored: a claim waits for the storing thread
 *   LOOK_FIRST   a reaper that ends looks at the count before it takes itself out
 */
#define THINGS 3
#define SLOTS 2
#ifdef TWO
#define MOST 2
#else
#define MOST 1
#endif

byte slots[SLOTS];                        /* a thing's number + 1; 0: free */
byte waiting, droppers;
byte put, ended;                          /* who has put its thing; threads that are over */
byte started;
bool dropped[THINGS];

inline drop(it) {
    assert(!dropped[it - 1]);
    dropped[it - 1] = true
}

/* count_dropper */
inline count_dropper(may) {
    atomic {
        if
        :: droppers < MOST -> droppers++; may = true
        :: else -> may = false
        fi
    }
}

/* drop_all */
proctype dropper() {
    byte it, i;
    bool may = true;
    do
    :: may ->
        do
        :: atomic { waiting > 0 -> waiting-- };    /* take_unwanted: the claim, */
            i = 0;
            do
            :: atomic { slots[i] != 0 -> it = slots[i]; slots[i] = 0 }; break /* and what was claimed */
            :: slots[i] == 0 -> i = (i + 1) % SLOTS
            od;
            drop(it)
        :: waiting == 0 -> break
        od;
#ifdef LOOK_FIRST
        may = (waiting > 0);
        droppers--;
        if
        :: may -> count_dropper(may)
        :: else
        fi
#else
        droppers--;
        if
        :: waiting > 0 -> count_dropper(may)
        :: else -> may = false
        fi
#endif
    :: else -> break
    od;
    ended++
}

/* leave_to_dropper */
proctype putter(byte it) {
    byte i = 0;
    bool may = false, room = false;
#ifdef COUNT_FIRST
    waiting++;
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
        waiting++;
#endif
        if
        :: waiting > 0 -> count_dropper(may)
        :: else                           /* what is claimed by now needs no thread */
        fi;
        if
        :: may -> atomic { started++; run dropper() }
        :: else
        fi
    :: else ->
#ifdef COUNT_FIRST
        waiting--;
#endif
        drop(it)
    fi;
    put++
}

init {
    atomic { run putter(1); run putter(2); run putter(3) };
    put == THINGS && ended == started;
    assert(dropped[0] && dropped[1] && dropped[2]);
    assert(waiting == 0 && droppers == 0 && slots[0] == 0 && slots[1] == 0)
}
