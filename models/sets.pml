/* An event set: processes that post leave hints and wake it, it takes the hints and sleeps, and where a page is not there the
 * connection thread of the set's side leaves the hint.
 *
 * Theory. A connection has the number of its posts and a word that says that the set is to be told (FS_SET_ASLEEP). A page has a bit for
 * each connection, a summary, whether the set sleeps, and whether it is over. The owner says for each connection "tell me" and looks
 * once more at what was posted; for itself it writes "I sleep" into all pages, and looks once more at the hints. Who posts writes the
 * post, takes the word away, writes the hint, and looks for "I sleep". If it finds it, it wakes, and takes it away then. "I sleep" is a
 * number, another one each time, so that nobody takes away a later one. Who finds the page over, or has none, asks: the queue of
 * the connection thread has room for one request here, and who finds no room is seen to by the thread, which looks after all
 * connections behind a full queue.
 *
 * Checked: an owner that sleeps for ever has taken all posts (an end state in which it waits and something is untaken is an error).
 *
 * RETIRE: the owner gives the page up in the middle, and the posters have none after that.
 * KILLED: a process with the same page is killed while it wakes the set.
 *
 * Negative controls (-D):
 *   BLIND            the owner looks for hints before it says that it sleeps
 *   SUMMARY_FIRST    who posts writes the summary before the bit
 *   WAKE_FIRST       who posts looks whether the set sleeps before it writes the hint
 *   RETIRE TAKE_FIRST  the owner takes the page's last hints before it says that it is over
 *   RETIRE FORGETFUL the thread does not look after those who found no room
 *   KILLED SWAP_FIRST  who posts takes "I sleep" away before it wakes
 *   KILLED NO_NUMBER   who posts takes away whatever says "I sleep"
 */
#define POSTERS 2 /* each has a connection of its own */
#ifndef POSTS
#define POSTS 2
#endif

byte posted[POSTERS], taken[POSTERS];
bool armed[POSTERS];

/* The page [0], and the set's own, `home` [1]. */
typedef page { bool ready[POSTERS]; bool summary; byte asleep; bool over };
page pages[2];
bool event;               /* of the eventfd: the owner's epoll is readable */
bool has_page = true;     /* the posters have the page */
bool request[POSTERS];    /* in the queue of the connection thread */
byte requests;
bool no_room;                /* somebody has found no room */
byte ended;               /* posters */

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
        :: request[who]   /* one for this connection is there already */
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

/* The connection thread of the owner's process. */
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

/* Takes what a page has, and then of each connection that was hinted at all that was posted. */
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
/* A forked child of a poster, with the same page: it wakes for a connection of its own, and is killed at any step of that. */
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
