/* Forked processes that share a connection release it: the last one sends FIN for all (core/process/holder_count.c).
 *
 * Theory. The number of holders is in memory that the processes share, and so are the process ids of the children, so that others can
 * uncount one that is killed. A process that closes uncounts the dead, and then takes itself out of the number by one swap, unless it is
 * the last. The last one sends FIN and GONE in the ring, and only then takes itself out. Once the number is 0, the parent gives the
 * memory to another connection. A child removes its id before the swap, and restores it if the swap fails.
 *
 * Checked: nobody sends FIN while another process holds the connection; nobody touches the memory when another connection has it; all
 * processes end. Without a death somebody sends FIN. With -DDEATH any of them may be killed at any step. Then perhaps nobody is the
 * last, and the kernel's FIN alone ends the connection.
 *
 * Negative controls (-D):
 *   LOOK_THEN_LEAVE  each looks at the number, and takes itself out later
 *   OUT_FIRST        the last one takes itself out before it sends FIN
 *   NOTED_LONGER     (DEATH) a child removes its id after the swap
 */
#define HOLDERS 3                         /* 0 is the parent */

byte holders = HOLDERS;
bool noted[HOLDERS];
bool holds[HOLDERS] = true;               /* until the program closes it there */
bool dead[HOLDERS];
bool fin;
bool reused;                              /* another connection has the memory */
byte ended;

#define alone(who) ((who == 0 || !holds[0] || dead[0]) && (who == 1 || !holds[1] || dead[1]) \
                    && (who == 2 || !holds[2] || dead[2]))

/* fs_count_holders. A process may be killed between its two steps. */
inline strike_dead() {
    other = 1;
    do
    :: other < HOLDERS ->
        if
        :: atomic { noted[other] && dead[other] -> assert(!reused); noted[other] = false };
            holders--
        :: else
        fi;
        other++
    :: else -> break
    od
}

proctype holder(byte me) {
    byte other, seen;
    bool last, was_noted;
    {
        holds[me] = false;                /* fs_conn_close */
        strike_dead();
        do
        :: assert(!reused); seen = holders;
#ifdef LOOK_THEN_LEAVE
            last = (seen == 1);
            break
#else
            if
            :: seen <= 1 -> last = true; break
            :: else
            fi;
            was_noted = noted[me];
#ifndef NOTED_LONGER
            noted[me] = false;
#endif
            if
            :: atomic { holders == seen -> assert(!reused); holders-- }; break
            :: atomic { holders != seen -> noted[me] = was_noted }
            fi;
            strike_dead()
#endif
        od;
#ifdef OUT_FIRST
        if
        :: last -> noted[me] = false; holders--
        :: else
        fi;
#endif
        if
        :: atomic { last -> assert(!reused); assert(alone(me)); fin = true }
        :: else
        fi;
#ifdef LOOK_THEN_LEAVE
        noted[me] = false;
        holders--
#else
#ifdef NOTED_LONGER
        noted[me] = false;
#endif
#ifndef OUT_FIRST
        if
        :: last -> noted[me] = false; holders--           /* fs_unregister_holder */
        :: else
        fi
#endif
#endif
    } unless { dead[me] };
    atomic {
        ended++;
        if
        :: ended == HOLDERS && !dead[0] && !dead[1] && !dead[2] -> assert(fin)
        :: else
        fi
    };
    if
    :: me == 0 && !dead[0] ->             /* fs_side_free, reclaim */
        if
        :: holders == 0 -> reused = true
        :: true
        fi
    :: else
    fi
}

init {
    atomic {
        noted[1] = true;
        noted[2] = true;
        run holder(0);
        run holder(1);
        run holder(2)
    }
}

#ifdef DEATH
active proctype killer() {
    byte who;
    do
    :: who < HOLDERS ->
        if
        :: dead[who] = true
        :: true
        fi;
        who++
    :: else -> break
    od
}
#endif
