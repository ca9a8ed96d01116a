/* A member of a poller: threads wait for it, a peer sends through the kernel and then through the ring, and the connection moves in the
 * middle.
 *
 * Theory. The kernel's instance has a registration with a generation. Before the move the registration is the program's own, and the
 * kernel reports its events. The move parks it: a new generation, which reports changes only. From then on a list says that the member
 * may be ready. A change of the registration, a hint of the event set, and a kernel event of the present generation put it there. A wait
 * takes the member out of the list under the poller's lock, arms it (the peer's next post is a hint), looks for unread data, and reports
 * it to the program under the lock again, unless the member was changed or disabled meanwhile. Before a thread sleeps it announces that
 * in the set, and looks for hints. A thread that returns to the program announces it again if others sleep. A level stays in the list,
 * and wakes the others. Steps in "atomic" are under the poller's lock, or are one step of the kernel.
 *
 * Checked: nobody sleeps forever while the member is enabled and there are unread bytes (levels), or unreported ones (EDGE); a single
 * shot (SINGLE) is reported to one thread until it is armed again. A thread may leave after a report without having read.
 *
 * Negative controls (-D):
 *   LOOK_FIRST            a wait looks before it arms
 *   EDGE ARM_DRAINED      it arms only if nothing is unread
 *   NO_PASS_ON            a thread that returns to the program does not announce that others sleep
 *   QUIET_MOVE            the move does not put the member on the list
 *   QUIET_CHANGE          (SINGLE) arming again does not
 *   SINGLE KERNEL_TELLS   a kernel event of a parked member is reported without a check
 *   SINGLE OLD_EVENTS     an event from before a change counts
 */
#ifndef POSTS
#define POSTS 3
#endif
#define WAITERS 2
#ifdef EDGE
#define IS_EDGE true
#else
#define IS_EDGE false
#endif
#ifdef SINGLE
#define IS_SINGLE true
#else
#define IS_SINGLE false
#endif

byte kernel, ring;      /* unread in each */
byte arrived, told_of;  /* posts, and how many of them were there at the last report to the program */
bool attached, parked, moved_on;
bool event;             /* the registration is on the instance's own list */
bool on = true;         /* before the move: the kernel's single shot */
byte generation;
bool eventfd, asleep, hint, armed; /* the event set, and the region's word about the connection */
bool hot, edge, live = true;
byte version, sleepers, inside, gone;
bool posted_all;

#define UNREAD (kernel + ring > 0)
#define DUE (live && UNREAD && (!IS_EDGE || told_of < arrived))
#define KERNEL_READY (event && (parked || (on && kernel > 0)))

inline wake_sleepers() {
    if
    :: sleepers > 0 && attached -> eventfd = true
    :: else
    fi
}

/* Reports to the program, which reads some or all, or leaves. */
inline told(seen) {
    if
    :: told_of < seen -> told_of = seen
    :: else
    fi;
    if
    :: IS_SINGLE -> live = false; inside++; assert(inside == 1)
    :: else
    fi
}

active [WAITERS] proctype waiter() {
    byte gen, ver, seen;
    bool got, was_edge, level, tells;
    do
    ::  tells = false;
        atomic {
            if
            :: hint -> hint = false;
                if
                :: parked -> hot = true; edge = true
                :: else
                fi
            :: else
            fi
        };
        if
        :: atomic { hot -> hot = false; was_edge = edge; edge = false; ver = version };
            if
            :: live ->
#ifdef LOOK_FIRST
                atomic { level = UNREAD; seen = arrived };
                armed = true;
#else
#ifdef ARM_DRAINED
                if
                :: UNREAD
                :: else -> armed = true
                fi;
#else
                armed = true;
#endif
                atomic { level = UNREAD; seen = arrived };
#endif
                atomic {
                    if
                    :: ver == version && live && level && (!IS_EDGE || was_edge) ->
                        tells = true;
                        told(seen);
                        if
                        :: !IS_EDGE && !IS_SINGLE -> hot = true
                        :: else
                        fi
                    :: else
                    fi;
                    level = false; was_edge = false; seen = 0; ver = 0
                }
            :: else
            fi
        :: atomic { !hot -> skip }
        fi;
        if
        :: !tells ->
            /* Asks the kernel; with nothing anywhere the thread sleeps there. */
            atomic {
                if
                :: hot || hint -> goto look_again
                :: else
                fi;
                if
                :: attached -> asleep = true
                :: else
                fi;
                sleepers++
            };
            if
            :: atomic { attached && hint -> skip } /* (after "I sleep") */
            :: atomic { KERNEL_READY || eventfd ->
                    got = KERNEL_READY;
                    eventfd = false;
                    gen = generation;
                    seen = arrived;
                    if
                    :: got && !parked && IS_SINGLE -> on = false; event = false
                    :: got && (parked || (IS_EDGE && !IS_SINGLE)) -> event = false
                    :: else
                    fi }
            :: atomic { posted_all && moved_on && !DUE && inside == 0 -> sleepers--; goto over }
            fi;
            atomic {
                sleepers--;
                if
                :: sleepers == 0 -> asleep = false
                :: else
                fi;
                if
#ifdef OLD_EVENTS
                :: !got
#else
                :: !got || gen != generation
#endif
#ifdef KERNEL_TELLS
                :: else -> tells = true; told(seen)
#else
                :: got && (gen == generation) && parked -> hot = true; edge = true
                :: else -> tells = true; told(seen)
#endif
                fi;
                got = false; gen = 0; seen = 0
            }
        :: else
        fi;
look_again:
        if
        :: tells ->
#ifndef NO_PASS_ON
            atomic {
                if
                :: sleepers > 0 && attached ->
                    if
                    :: hint || (!IS_EDGE && !IS_SINGLE) -> eventfd = true
                    :: else -> asleep = true
                    fi
                :: else
                fi
            };
#endif
            if
            :: atomic { gone == 0 && !IS_SINGLE -> gone = 1; goto over }
            :: skip
            fi;
            do
            :: atomic { kernel > 0 -> kernel-- }
            :: atomic { kernel == 0 && ring > 0 -> ring-- }
            :: !UNREAD || (IS_EDGE && !IS_SINGLE) -> break
            od;
            if
            :: IS_SINGLE ->
                atomic {
                    inside--;
                    live = true;
                    version++;
                    if
                    :: parked ->
#ifdef QUIET_CHANGE
                        skip
#else
                        hot = true; edge = true; wake_sleepers()
#endif
                    :: else -> generation++; on = true; event = kernel > 0
                    fi
                }
            :: else
            fi
        :: else
        fi
    od;
over:
    skip
}

active proctype peer() {
    byte n;
    do
    :: n < POSTS ->
        if
        :: atomic { !attached -> kernel++; arrived++; event = true }
        :: atomic { attached -> ring++; arrived++ };
            if
            :: atomic { armed -> armed = false };
                hint = true;
                if
                :: atomic { asleep -> asleep = false; eventfd = true }
                :: !asleep
                fi
            :: !armed
            fi
        fi;
        n++
    :: else -> break
    od;
    posted_all = true
}

active proctype mover() {
    atomic {
        attached = true;
        if
        :: sleepers > 0 -> asleep = true
        :: else
        fi
    };
    atomic {
        parked = true;
        generation++;
        version++;
        event = kernel > 0;
#ifndef QUIET_MOVE
        hot = true;
        edge = true;
        wake_sleepers();
#endif
        moved_on = true
    }
}
