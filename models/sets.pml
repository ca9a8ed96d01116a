/* An event set: posting processes leave hints and wake the set, the set takes the hints and sleeps, and without a page the connection
 * thread of the set's side leaves the hint.
 *
 * Theory. A connection has the number of its posts and a word that asks for a notification of the set (FS_SET_ASLEEP). A page has a bit
 * for each connection, a summary, the number of the set's sleep, and `over`. The owner sets the word of each connection and looks once
 * more at the posts; then it writes "I sleep" into all pages, and looks once more at the hints. A poster writes the post, clears the
 * word, writes the hint, and looks for "I sleep". If it finds that, it wakes the set, and clears it then. "I sleep" is a new number each
 * time, so that nobody clears a later one. A poster that finds the page over, or has none, sends a request: the queue of the connection
 * thread has room for one request here, and after a full queue the thread checks all connections.
 *
 * Checked: an owner that sleeps forever has taken all posts (an end state in which it waits and something is untaken is an error).
 *
 * RETIRE: the owner gives up the page in the middle, and the posters have none after that. KILLED: a process with the same page is
 * killed while it wakes the set.
 *
 * Negative controls (-D):
 *   BLIND            the owner looks for hints before it announces its sleep
 *   SUMMARY_FIRST    a poster writes the summary before the bit
 *   WAKE_FIRST       a poster looks if the set sleeps before it writes the hint
 *   RETIRE TAKE_FIRST  the owner takes the page's last hints before it sets `over`
 *   RETIRE FORGETFUL the thread does not check the connections after a full queue
 *   KILLED SWAP_FIRST  a poster clears "I sleep" before it wakes
 *   KILLED NO_NUMBER   a poster clears every "I sleep"
 */
#define POSTERS 2 /* each has a connection of its own */
#ifndef POSTS
#define POSTS 2
#endif

byte posted[POSTERS], taken[POSTERS];
bool armed[POSTERS];

/* The shared page [0], and the set's own, `home` [1]. */
typedef page { bool ready[POSTERS]; bool summary; byte asleep; bool over };
page pages[2];
bool event;               /* the eventfd is signalled: the owner's epoll is readable */
bool has_page = true;     /* the posters have the page */
bool request[POSTERS];    /* in the queue of the control thread */
byte requests;
bool no_room;                /* a poster has found no room */
byte ended;               /* posters that have ended */

inline look_asleep(p) {
#ifdef SWAP_FIRST
    if
    :: atomic { pages[p].asleep != 0 -> pages[p].asleep = 0 }; event = true
    :: else
    fi
#else
    seen = pages[p].asleep;
    if
    :: seen != 0 ->
        event = true;
#ifdef NO_NUMBER
        pages[p].asleep = 0
#else
        atomic {
            if
            :: pages[p].asleep == seen -> pages[p].asleep = 0
            :: else
            fi
        }
#endif
    :: else
    fi;
    seen = 0
#endif
}

inline hint(p, who) {
#ifdef WAKE_FIRST
    look_asleep(p);
#endif
#ifdef SUMMARY_FIRST
    pages[p].summary = true;
    pages[p].ready[who] = true;
#else
    pages[p].ready[who] = true;
    pages[p].summary = true;
#endif
#ifndef WAKE_FIRST
    look_asleep(p);
#endif
}

inline ask(who) {
    atomic {
        if
        :: requests < 1 && !request[who] -> request[who] = true; requests++
        :: request[who]   /* there is one for this connection already */
        :: else -> no_room = true
        fi
    }
}

proctype poster(byte who) {
    byte n, seen;
    bool told;
    for (n : 1 .. POSTS) {
        posted[who]++;
        if
        :: atomic { armed[who] -> armed[who] = false };
            told = false;
            if
            :: has_page ->
                hint(0, who);
                told = !pages[0].over
            :: else
            fi;
            if
            :: !told -> ask(who)
            :: else
            fi
        :: else
        fi
    };
    ended++
}

/* The control thread of the owner's process. */
proctype service() {
    byte i, seen;
    bool crowd;
end:
    do
    :: requests > 0 ->
        atomic {
            crowd = no_room;
            no_room = false;
            if
            :: request[0] -> i = 0
            :: else -> i = 1
            fi;
            request[i] = false;
            requests--
        };
        hint(1, i);
#ifndef FORGETFUL
        if
        :: crowd -> hint(1, 0); hint(1, 1)
        :: else
        fi
#endif
    od
}

/* Takes the hints of a page, and then all posts of each hinted connection. */
inline take_page(p) {
    if
    :: pages[p].summary ->
        pages[p].summary = false;
        for (i : 0 .. POSTERS - 1) {
            if
            :: atomic { pages[p].ready[i] -> pages[p].ready[i] = false }; hinted[i] = true
            :: else
            fi
        }
    :: else
    fi
}

inline take_and_arm(i) {
    armed[i] = false;
    do
    :: taken[i] = posted[i];
        armed[i] = true;
        if
        :: posted[i] == taken[i] -> break
        :: else -> armed[i] = false
        fi
    od
}

#define anything (pages[0].summary && !retired || pages[1].summary)

proctype owner() {
    byte i;
    byte number;
    bool hinted[POSTERS], retired, again;
    for (i : 0 .. POSTERS - 1) { take_and_arm(i) };
    do
    ::  event = false;
        pages[0].asleep = 0;
        pages[1].asleep = 0;
        if
        :: !retired -> take_page(0)
        :: else
        fi;
        take_page(1);
#ifdef RETIRE
        if
        :: !retired ->
            retired = true;
#ifdef TAKE_FIRST
            take_page(0);
            pages[0].over = true;
#else
            pages[0].over = true;
            take_page(0);
#endif
            has_page = false
        :: true
        fi;
#endif
        for (i : 0 .. POSTERS - 1) {
            if
            :: hinted[i] -> hinted[i] = false; take_and_arm(i)
            :: else
            fi
        };
#ifdef BLIND
        again = anything;
        if
        :: !again -> number++; pages[0].asleep = number; pages[1].asleep = number
        :: else
        fi;
#else
        number++;
        pages[0].asleep = number;
        pages[1].asleep = number;
        again = anything;
#endif
        if
        :: again
        :: else ->
            if
            :: event
            :: ended == POSTERS && requests == 0 && taken[0] == POSTS && taken[1] == POSTS -> break
            fi
        fi
    od
}

#ifdef KILLED
/* A forked child of a poster, with the same page: it wakes the set for its own connection, and is killed at any step of that. */
bool dies;

proctype victim() {
    byte seen;
    { look_asleep(0) } unless { dies }
}

proctype killer() { dies = true }
#endif

init {
    atomic {
        run owner();
        run service();
        run poster(0);
        run poster(1);
#ifdef KILLED
        run victim();
        run killer()
#endif
    }
}
