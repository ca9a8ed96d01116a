/* A member of a poller: threads wait for it, a peer sends by the kernel and then by the ring, and the connection moves in the middle.
 *
 * Theory. The kernel's instance has a registration, with a generation. Before the move it is the program's own, told by the kernel. The move
 * parks it: a new generation, told of changes alone. From then on a list says that the member may be ready. A change of the registration, a
 * hint of the event set, and a kernel event of the present generation put it there. A wait takes it out of the list under the poller's lock,
 * arms it (the peer's next post is a hint), looks at what is unread, and tells the program under the lock again, unless the member was changed or
 * disabled meanwhile. Before a thread sleeps it says so in the set, and looks for hints. A thread that goes back to the program says so again if
 * others sleep, and wakes them if something stays in the list: a level that was told, or a member that a look found nothing of and did not arm. Steps in "atomic" are under the poller's lock, or are one step of the kernel.
 *
 * Checked: nobody sleeps for ever while the member is enabled and unread bytes are there (levels), of which nobody was told (EDGE); a single shot (SINGLE) is told to one thread until it is armed again. A thread may leave after it was told, without having read.
 *
 * Negative controls (-D):
 *   LOOK_FIRST            a wait looks before it arms
 *   EDGE ARM_DRAINED      it arms only where nothing is unread
 *   NO_PASS_ON            who goes back to the program does not say that others sleep
 *   TOLD_ALONE            it wakes them for what it has told, and not for what stays in the list
 *   QUIET_MOVE            the move does not put the member on the list
 *   QUIET_CHANGE          (SINGLE) arming again does not
 *   SINGLE KERNEL_TELLS   a kernel event of a parked member is told, and not looked after
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

byte kernel, ring;      /* unread, by either way */
byte arrived, told_of;  /* posts, and how many of them were there when the program was last told */
bool attached, parked, moved_on;
bool event;             /* the registration is on the instance's own list */
bool on = true;         /* before the move: the kernel's single shot */
byte generation;
bool eventfd, asleep, hint, armed; /* the event set, and what the region says of the connection */
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

/* The program is told. Then it goes back, and reads some or all, or leaves. */
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
    bool got, was_edge, level, tells, leaves;
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
            :: !IS_EDGE && live -> /* a look that does not arm: the member stays in the list */
                atomic {
                    if
                    :: UNREAD && live -> tells = true; told(arrived)
                    :: else
                    fi;
                    if
                    :: live -> hot = true
                    :: else
                    fi;
                    was_edge = false; ver = 0
                }
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
        :: atomic { !tells && gone == 0 && !IS_SINGLE -> gone = 1; leaves = true }; /* its time is over, and it leaves */
            goto look_again
        :: !tells ->
            /* The kernel is asked; with nothing anywhere the thread sleeps there. */
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
            :: atomic { attached && hint -> skip } /* (behind "I sleep") */
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
        :: tells || leaves ->
#ifndef NO_PASS_ON
            atomic {
                if
                :: sleepers > 0 && attached ->
                    if
#ifdef TOLD_ALONE
                    :: hint || (tells && !IS_EDGE && !IS_SINGLE) -> eventfd = true
#else
                    :: hint || hot -> eventfd = true
#endif
                    :: else -> asleep = true
                    fi
                :: else
                fi
            };
#endif
            if
            :: leaves -> goto over
            :: atomic { !leaves && gone == 0 && !IS_SINGLE -> gone = 1; goto over }
            :: !leaves
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
