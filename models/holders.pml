/* Forked processes that share a connection let go of it: who is the last, and says goodbye for all.
 *
 * Theory. The number of holders lies in memory that the processes share. A child's process id is noted next to it, so that
 * others can strike it out if it is killed. A process that closes strikes out the dead, and then takes itself out of the number
 * by one swap, unless it is alone. If it is alone it says goodbye (FIN and GONE in the ring), and only then takes itself out. Once
 * the number is 0, the parent gives the memory to another connection. A child takes back its note before the swap, and
 * makes it again if the swap fails.
 *
 * Checked: nobody says goodbye while another process holds the connection; nobody touches the memory when it is another
 * connection's; all processes end. Without a death somebody says goodbye. With -DDEATH any of them may be killed at any step.
 * Then perhaps nobody is the last, and the kernel's FIN alone ends the connection.
 *
 * Negative controls (-D):
 *   LOOK_THEN_LEAVE  each looks at the number, and takes itself out later
 *   OUT_FIRST        the last one takes itself out before it says goodbye
 *   NOTED_LONGER     (DEATH) a child takes back its note behind the swap
 */
#define HOLDERS 3                         /* 0 is the parent */

byte holders = HOLDERS;
bool noted[HOLDERS];
bool holds[HOLDERS] = true;               /* until the program closes it there */
bool dead[HOLDERS];
bool fin;
bool reused;                              /* the memory is another connection's */
byte ended;

#define alone(who) ((who == 0 || !holds[0] || dead[0]) && (who == 1 || !holds[1] || dead[1]) \
                    && (who == 2 || !holds[2] || dead[2]))

/* count_holders. A striker may be killed between its two steps. */
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
        holds[me] = false;                /* say_goodbye */
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
        :: last -> noted[me] = false; holders--           /* count_out */
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
    :: me == 0 && !dead[0] ->             /* free_side, reclaim */
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
