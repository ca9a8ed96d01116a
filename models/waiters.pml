/* Sleeping on a futex word, and waking: no wakeup is lost when processes are killed, late or closed.
 *
 * Theory. Threads of one side sleep for data on the word `futex` of the region. A sleeper reads the word, sets ASLEEP, and then looks at
 * the ring and at the events counted for the kernel connection. Then it sleeps, and the kernel permits that only if the word still has
 * the value read (FUTEX_WAIT). A waker first makes its change, then increments the word, then wakes all sleepers. A poster does so only
 * if it finds ASLEEP, which it clears in the same step. All others do so always, and leave ASLEEP: the control thread, a thread that
 * closes the number, a holder that recovers a dead one's lock. So all sleepers wake and look for themselves, none has to pass a wakeup
 * on, and none that wakes clears ASLEEP, which may be another one's.
 *
 * The control thread watches the kernel connection, edge-triggered. It counts the event in the connection (`told`), and then wakes
 * the futex, if it finds a counted sleeper of its process. A sleeper counts itself before it reads `told`. A receiver looks at the
 * kernel only if that count differs from the one at its last look that found nothing. It joins the watch after that look, before its
 * first sleep. That is not too late: epoll_ctl reports events that are there already when a descriptor is added.
 *
 * The other direction, senders that sleep on `credit_futex` for credits, is the same with other names.
 *
 * Two threads receive, of one process or (TWO) of two. Two processes hold the posting side, and each posts once. Then each lives on and
 * is silent, or closes. The kernel connection ends when the last one has closed or is dead. A receiver may go on after a message, and
 * receiver 1 may give up whenever it sleeps (its time is up); receiver 0 never does. EVENTS: the kernel connection reports events that
 * mean nothing to a sleeper. DEATH: poster 0 may be killed at any step; ALL_DIE: then poster 1 too. RECEIVER_DIES: the process of
 * receiver 1 may. CLOSE: another thread closes the number in the first receiving process. LOST: the program closes the descriptors of
 * the control thread there, and events that the thread has not taken are lost (one poster only).
 *
 * Checked: no thread sleeps forever while there is something for it: a message, the end of the kernel connection, the end of its number.
 * One message may be left: its poster was killed before it woke anybody, another process holds the posting side, and none of that has
 * had the lock since. That send has neither happened nor failed, as when a process is killed in the kernel's send. The only fairness
 * assumed is that a process that can go on does so at some time.
 *
 * Negative controls (-D):
 *   BIT_AFTER_LOOK      ASLEEP is set after the look at the ring
 *   FUTEX_AFTER_LOOK     the word is read after the looks
 *   WAKE_BEFORE_BUMP    a waker wakes before it increments the word
 *   WAKE_ONE            one sleeper is woken, not all
 *   WOKEN_DISARMS       a sleeper that wakes, or whose time is up, clears ASLEEP
 *   NO_MEND             (DEATH) the next holder of a dead one's lock does not wake the sleepers
 *   TOLD_OUTSIDE        (DEATH) a poster releases the lock before it looks for ASLEEP
 *   EVENTS_AFTER_PEEK   (EVENTS) the count is read after the look at the kernel
 *   END_NOTED           a look at the kernel is noted also if it found something: the other sleeper does not find it
 *   NOTED_UNSEEN        the count is noted without a look at the kernel, since there was something in the ring
 *   WAKE_BEFORE_COUNT   the control thread wakes before it counts the event
 *   COUNTED_LATE        a sleeper counts itself after it has read `told`
 *   EDGES_ALONE         the watch reports changes only: the end came between the look at the kernel and the join
 *   CLOSE_UNCOUNTED     (CLOSE) the closing thread wakes the sleepers, and counts nothing
 *   QUIET_LOSS          (LOST) the watch ends without a wakeup
 *   LOSS_TOLD_FIRST     (LOST) the end of the watch wakes the sleepers before they can see that nobody watches
 */
#define SLEEPERS 2
#ifdef LOST
#define HOLDERS 1                         /* keeps the number of states low */
#else
#define HOLDERS 2
#endif

#ifdef TWO
#define HOMES 2
#define home me
#else
#define HOMES 1
#define home 0
#endif

/* The region. */
bool rung[SLEEPERS];                      /* the futex was incremented since this sleeper read it: all that a word can say */
bool asleep;                              /* FS_ASLEEP */
byte in_ring;                             /* descriptors posted and not consumed */

/* The kernel. */
bool queued[SLEEPERS];                    /* on the futex's queue */
bool lifeline_over;
bool watched[HOMES], due[HOMES];          /* in the thread's epoll; it has an event that the thread has not taken */

/* Each receiving process. */
byte told[HOMES], looked[HOMES];
byte sleepers[HOMES];                     /* recv_sleepers */
bool joined[HOMES];                       /* fs_is_watched: the connection has joined the present watcher */
bool no_watcher;                          /* in process 0: fs_watch_stop */
bool number_gone[HOMES];
bool home_dead[HOMES];

/* The posting side: the send lock, and which posters live. */
#define NOBODY 9
byte lock = NOBODY;
byte taker = NOBODY;                      /* holder of the receive lock */
byte open = HOLDERS;
bool closed[HOLDERS], dead[HOLDERS];

#define lock_is_dead_ones (lock != NOBODY && dead[lock])
#define something_for(it) (lifeline_over || number_gone[it] || (in_ring > 0 && !lock_is_dead_ones))

/* fs_futex_wake: FUTEX_WAKE. */
inline wake() {
#ifdef WAKE_ONE
    atomic {
        if
        :: queued[0] -> queued[0] = false
        :: queued[1] -> queued[1] = false
        :: else
        fi
    }
#else
    atomic { queued[0] = false; queued[1] = false }
#endif
}

inline wake_futex() {
#ifdef WAKE_BEFORE_BUMP
    wake();
    atomic { rung[0] = true; rung[1] = true }
#else
    atomic { rung[0] = true; rung[1] = true };
    wake()
#endif
}

/* fs_watch_add: EPOLL_CTL_ADD */
inline join_watch() {
    watched[home] = true;
    joined[home] = true;
#ifndef EDGES_ALONE
    due[home] = lifeline_over
#endif
}

inline end_lifeline() {
    lifeline_over = true;
    due[0] = watched[0];
#ifdef TWO
    due[1] = watched[1]
#endif
}

/* The kernel closes the descriptors of a process. Call in an atomic step. */
inline close_one(who) {
    closed[who] = true;
    open--;
    if
    :: open == 0 -> end_lifeline()
    :: else
    fi
}

/* The receive lock, of both sleepers. */
inline take_lock() {
    if
    :: atomic { taker == NOBODY -> taker = me }
#ifdef RECEIVER_DIES
    :: atomic { taker == 1 && home_dead[1] -> taker = me }
#endif
    fi
}

/* fs_is_watched, fs_watch_add */
inline join() {
    if
    :: atomic { !joined[home] && !no_watcher -> join_watch() }
    :: atomic { !joined[home] && no_watcher -> bounded = true }
    :: joined[home]
    fi
}

/* MSG_PEEK, if an event was counted since the last look that found nothing (FS_IF_TOLD). */
inline look_in_kernel() {
#ifdef EVENTS_AFTER_PEEK
    over = lifeline_over;
    count = told[home];
#else
    count = told[home];
    if
    :: count != looked[home] || !joined[home] -> over = lifeline_over
    :: else
    fi;
#endif
    atomic {
        if
#ifndef END_NOTED
        :: over
#endif
        :: else -> looked[home] = count
        fi;
        count = 0
    }
}

proctype sleeper(byte me) {
    byte count;
    bool over, ready, bounded;
    {
        do
        ::  take_lock();                  /* fs_try_recv */
            if
            :: number_gone[home] -> taker = NOBODY; break
            :: else
            fi;
            if
            :: atomic { in_ring > 0 -> in_ring--; ready = true }
            :: else ->
                look_in_kernel();
                if                        /* the end of the stream: checked after the kernel's */
                :: atomic { over -> over = false; ready = true };
                    if
                    :: atomic { in_ring == 0 -> taker = NOBODY; break }
                    :: atomic { in_ring > 0 -> in_ring-- }
                    fi
                :: atomic { !over }
                fi
            fi;
            if
            :: atomic { ready -> ready = false; taker = NOBODY };
                if
                :: break                  /* the program has enough */
                :: true
                fi
            :: atomic { !ready ->
                    taker = NOBODY
                };
                take_lock();              /* sleep_to_receive, sleep_for_bytes */
#ifndef COUNTED_LATE
                sleepers[home]++;
#endif
#ifndef FUTEX_AFTER_LOOK
                rung[me] = false;         /* fs_futex_load */
#endif
#ifdef BIT_AFTER_LOOK
                ready = in_ring > 0;
                asleep = true;
#else
                asleep = true;            /* fs_arm_receiver */
                ready = in_ring > 0;
#endif
                join();                   /* is_watched */
#ifdef NOTED_UNSEEN
                atomic {
                    if
                    :: ready -> looked[home] = told[home]
                    :: else
                    fi
                };
#endif
                ready = ready || told[home] != looked[home];
#ifdef COUNTED_LATE
                sleepers[home]++;
#endif
#ifdef FUTEX_AFTER_LOOK
                rung[me] = false;
#endif
                taker = NOBODY;
                if
                :: atomic { ready -> ready = false; bounded = false; sleepers[home]-- }
                :: atomic { !ready -> queued[me] = !rung[me] };           /* sleep_on_futex: FUTEX_WAIT */
                    if
                    :: atomic { !queued[me] -> bounded = false; sleepers[home]-- }
                    :: atomic { me == 1 -> queued[me] = false; sleepers[home]-- };        /* its time is up */
#ifdef WOKEN_DISARMS
                        asleep = false;
#endif
                        break
#ifdef LOST
                    :: atomic { bounded -> queued[me] = false; bounded = false; sleepers[home]-- }       /* nobody watches */
#endif
                    :: atomic { timeout && !something_for(home) -> queued[me] = false; sleepers[home]--; break }       /* forever */
                    fi;
#ifdef WOKEN_DISARMS
                    asleep = false
#endif
                fi
            fi
        od
    }
#ifdef RECEIVER_DIES
    unless { home_dead[home] }
#endif
    ;
    atomic { over = false; ready = false; bounded = false; count = 0; rung[me] = false; queued[me] = false }
}

proctype poster(byte me) {
    {
        /* fs_try_send: fs_lock_send_within; fs_recover_sending, which ends with fs_wake_peer_all */
        if
        :: atomic { lock == NOBODY -> lock = me }
        :: atomic { lock_is_dead_ones -> lock = me };
#ifndef NO_MEND
            wake_futex()
#endif
        fi;
        in_ring++;                        /* fs_post: the commit word */
#ifdef TOLD_OUTSIDE
        lock = NOBODY;
#endif
        if                                /* fs_peer_doorbell, fs_claim_receiver_wakeups */
        :: atomic { asleep -> asleep = false }; wake_futex()
        :: else
        fi;
#ifndef TOLD_OUTSIDE
        lock = NOBODY;
#endif
        if
        :: atomic { close_one(me) }       /* the program ends or closes; the ring's FIN, another message, is left out */
        :: true                           /* it lives on, and is silent */
        fi
    }
#ifdef DEATH
    unless { dead[me] }
#endif
}

/* connection_thread of control_thread.c; fs_watch_event, notify */
proctype connection_thread(byte me) {
end:
    {
end_idle:
        do
        :: atomic { due[me] -> due[me] = false };
#ifdef WAKE_BEFORE_COUNT
            wake_futex();
            told[me]++
#else
            told[me]++;
            if
            :: sleepers[me] > 0 -> wake_futex()
            :: else
            fi
#endif
        od
    }
#ifdef RECEIVER_DIES
    unless { home_dead[me] }
#endif
}

#ifdef CLOSE
active proctype closer() {
    atomic { taker == NOBODY -> number_gone[0] = true; joined[0] = false; watched[0] = false; due[0] = false };       /* fs_set_fd */
#ifndef CLOSE_UNCOUNTED
    told[0]++;                            /* fs_wake_local */
#endif
    wake_futex()
}
#endif

/* A byte on the kernel connection, perhaps urgent: an event with nothing for a sleeper. */
proctype stranger() {
    atomic {
        due[0] = due[0] || watched[0];
#ifdef TWO
        due[1] = due[1] || watched[1]
#endif
    }
}

/* The thread's epoll is gone, with its untaken events. The thread, or the one that gives it up, ends its watch; perhaps another begins. */
proctype loser() {
    atomic { watched[0] = false; due[0] = false };
#ifdef LOSS_TOLD_FIRST
    told[0]++;
    wake_futex();
    atomic { no_watcher = true; joined[0] = false };
#else
    atomic { no_watcher = true; joined[0] = false };        /* fs_watch_stop */
#ifndef QUIET_LOSS
    told[0]++;
    if
    :: sleepers[0] > 0 -> wake_futex()
    :: else
    fi;
#endif
#endif
    if
    :: no_watcher = false                 /* fs_watch_start */
    :: true
    fi
}

/* The posters are alike: 0 is the first that dies. */
proctype killer() {
    if
    :: atomic { !closed[0] -> dead[0] = true; close_one(0) }
    :: closed[0]
    fi;
#ifdef ALL_DIE
    if
    :: atomic { !closed[1] -> dead[1] = true; close_one(1) }
    :: closed[1]
    fi
#endif
}

proctype killer_of_receiver() {
    home_dead[1] = true
}

init {
    atomic {
        run sleeper(0);
        run sleeper(1);
        run poster(0);
#ifndef LOST
        run poster(1);
#endif
        run connection_thread(0);
#ifdef TWO
        run connection_thread(1);
#endif
#ifdef DEATH
        run killer();
#endif
#ifdef RECEIVER_DIES
        run killer_of_receiver();
#endif
#ifdef EVENTS
        run stranger();
#endif
#ifdef LOST
        run loser()
#endif
    }
}
