/* The order of a group's messages: writers claim blocks, publish and make room, readers hold and take, members join, leave and die
 * (core/messages/order.c, members.c, join.c).
 *
 * Theory. A message exists from one swap on, of its number and its block into the slot of that number. Messages before `tail` are no more.
 * A reader sets its bit in the block's holders, and then looks at `tail`; a writer counts `tail` up, and then looks at the holders. It
 * notes the number in the block before the swap, so that who cleans up for a dead one can see whether the block has become a message.
 *
 * Checked: who has taken a message finds in its block, until it gives it back, what was published at that number: so all readers see one
 * order, whole messages, and no block is written while it is held. No reader meets a `tail` beyond `head`. A reader has had or lost each
 * message from its first on; with BLOCK it has lost none. All end: nobody waits for a member that died or stopped. With DEATH one of the
 * members may be killed at any step.
 *
 * Left out: sleeping and waking (orders.cpp, `bell`), classes of blocks, processes that share a membership.
 *
 * BLOCK: a slow reader holds the writers (else: it loses the oldest). JOIN: the last reader joins in the middle. LEAVE: it may leave.
 *
 * Negative controls (-D):
 *   TAIL_FIRST             a reader looks at `tail` before it sets its bit
 *   HOLDERS_FIRST          a writer looks at the holders before it counts `tail` up
 *   EARLY_CURSOR BLOCK     a reader counts its cursor up before it holds the message
 *   HEAD_LAST BLOCK JOIN   how far `tail` may go is read behind the look at the members
 *   JOIN_ONCE BLOCK JOIN   who joins reads where it begins only before it says that it has joined
 *   NO_HELP DEATH          only the writer itself counts `head` up
 *   NUMBER_LATE DEATH      the number is noted behind the swap
 *   BLIND_CLEANER DEATH    the block of a dead writer is free, whatever it has become
 *   NO_SWEEP BLOCK DEATH   nobody cleans up for the dead
 */
#ifndef READERS
#define READERS 1
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef LAST_POSTS /* the last writer's */
#define LAST_POSTS 1
#endif
#define WRITERS 2
#define SLOTS 2
#define MEMBERS (READERS + WRITERS) /* readers come first */
#define MOST (WRITERS * POSTS)
#define posts_of(who) (who == MEMBERS - 1 -> LAST_POSTS : POSTS)

#define FREE 0
#define CLAIMED(who) (1 + (who))
#define MESSAGE(n) (16 + (n))
#define is_message(state) (state >= 16)
#define number_of(state) (state - 16)
#define NOTHING 255

typedef place { byte number, block }; /* a slot; numbers are SLOTS more, as before the first message there was a lap */
place slot[SLOTS];
byte state[BLOCKS], holders[BLOCKS], noted[BLOCKS], bytes[BLOCKS];
byte head, tail;
byte cursor[READERS];
bool joined[READERS];
bool dead[MEMBERS], cleaned[MEMBERS];
byte published[MOST];     /* what was published at each number */
byte count;               /* of them */
byte ended;               /* writers that have ended or are dead */

#define has(n) (slot[(n) % SLOTS].number == (n) + SLOTS)
#define is_past(i, n) (!joined[i] || cursor[i] > (n))
#if READERS == 1
#define all_past(n) (is_past(0, n))
#else
#define all_past(n) (is_past(0, n) && is_past(1, n))
#endif
#ifdef BLOCK
#define may_go(n) (n < tail || (n < count && all_past(n)))
#else
#define may_go(n) (true)
#endif
#define has_room(b) (holders[b] == 0 && (state[b] == FREE || (is_message(state[b]) && may_go(number_of(state[b])))))
#if BLOCKS == 2
#define some_room (has_room(0) || has_room(1))
#else
#define some_room (has_room(0) || has_room(1) || has_room(2))
#endif
#ifdef NO_SWEEP
#define some_dead false
#elif READERS == 1
#define some_dead ((dead[0] && !cleaned[0]) || (dead[1] && !cleaned[1]) || (dead[2] && !cleaned[2]))
#else
#define some_dead ((dead[0] && !cleaned[0]) || (dead[1] && !cleaned[1]) || (dead[2] && !cleaned[2]) || (dead[3] && !cleaned[3]))
#endif

inline raise_tail(to) {
    atomic {
        if
        :: tail < to -> tail = to
        :: else
        fi
    }
}

inline help_head(n) {
    atomic {
        if
        :: head == n -> head = n + 1
        :: else
        fi
    }
}

/* fs_advance_tail */
inline advance_tail() {
#ifndef HEAD_LAST
    to = head;
#else
    to = NOTHING;
#endif
    do
    :: atomic { i < READERS && joined[i] ->
        if
        :: cursor[i] < to -> to = cursor[i]
        :: else
        fi;
        i++ }
    :: atomic { i < READERS && !joined[i] -> i++ }
    :: else -> break
    od;
#ifdef HEAD_LAST
    if
    :: head < to -> to = head
    :: else
    fi;
#endif
    atomic {
        raise_tail(to);
        to = 0;
        i = 0
    }
}

/* claim: `mine` is the block, or NOTHING */
inline claim(b) {
    seen = state[b];
    if
    :: seen == FREE || (is_message(seen) && number_of(seen) < tail) ->
#ifdef HOLDERS_FIRST
        if
        :: atomic { state[b] == seen -> state[b] = CLAIMED(me) }; mine = b
        :: else
        fi
#else
        if
        :: holders[b] == 0 ->
            if
            :: atomic { state[b] == seen -> state[b] = CLAIMED(me) }; mine = b
            :: else
            fi
        :: else
        fi
#endif
    :: else
    fi;
    seen = 0
}

/* What a member has is given back (clean); only one process does it: the kernel's lock. */
inline clean(who) {
    do
    :: atomic { k < BLOCKS ->
        if
        :: who < READERS -> holders[k] = holders[k] & ~(1 << who)
        :: who >= READERS && state[k] == CLAIMED(who) ->
            if
#ifdef BLIND_CLEANER
            :: state[k] = FREE
#else
            :: slot[noted[k] % SLOTS].number == noted[k] + SLOTS && slot[noted[k] % SLOTS].block == k ->
                state[k] = MESSAGE(noted[k])
            :: else -> state[k] = FREE
#endif
            fi
        :: else
        fi;
        k++ }
    :: else -> break
    od;
    k = 0;
    if
    :: who < READERS -> joined[who] = false
    :: else
    fi
}

/* fs_sweep */
inline sweep() {
    j = 0;
    do
#ifndef NO_SWEEP
    :: j < MEMBERS ->
        if
        :: atomic { dead[j] && !cleaned[j] -> cleaned[j] = true }; clean(j)
        :: else
        fi;
        j++
#endif
    :: else -> break
    od;
    j = 0
}

/* claim_of: any block, as the search may begin anywhere; for want of a free one a message gives way that nobody holds. */
inline reserve() {
    do
    :: mine != NOTHING -> break
    :: else ->
        some_room || some_dead; /* fs_group_wait */
#ifdef BLOCK
        advance_tail();
#endif
        atomic {
            b = 0;
            do
            :: b < BLOCKS - 1 -> b++
            :: break
            od
        };
        claim(b);
#ifndef BLOCK
        if
        :: mine == NOTHING ->
            oldest = state[b];
            if
            :: is_message(oldest) && holders[b] == 0 ->
                oldest = number_of(oldest);
                help_head(oldest);
                if
                :: oldest < head -> raise_tail(oldest + 1)
                :: else
                fi;
                claim(b)
            :: else
            fi;
            oldest = 0
        :: else
        fi;
#endif
        if
        :: mine == NOTHING -> sweep()
        :: else
        fi
    od
}

/* fs_group_publish */
inline publish(what) {
    do
    :: number = head;
        atomic { there = slot[number % SLOTS].number; old = slot[number % SLOTS].block };
        if
        :: there == number + SLOTS ->
#ifdef NO_HELP
            head != number
#else
            help_head(number)
#endif
        :: there != number && there != number + SLOTS /* `head` has moved */
        :: there == number ->
            if
            :: number >= tail + SLOTS ->
#ifdef BLOCK
                all_past(number - SLOTS) || some_dead || head != number;
                advance_tail();
                sweep()
#else
                raise_tail(number + 1 - SLOTS)
#endif
            :: else ->
#ifndef NUMBER_LATE
                noted[mine] = number;
#endif
                if
                :: atomic { slot[number % SLOTS].number == there && slot[number % SLOTS].block == old ->
                        slot[number % SLOTS].number = number + SLOTS; slot[number % SLOTS].block = mine;
                        published[number] = what; count++ };
                    break
                :: else
                fi
            fi
        fi
    od;
#ifdef NUMBER_LATE
    noted[mine] = number;
#endif
    help_head(number);
    state[mine] = MESSAGE(number)
}

proctype writer(byte me) {
    byte mine = NOTHING, sent, seen, b, oldest, number, there, old, to, i, j, k;
    {
        do
        :: sent < posts_of(me) ->
            reserve();
            bytes[mine] = 0;              /* in the middle of writing */
            bytes[mine] = 1 + me * POSTS + sent;
            publish(1 + me * POSTS + sent);
            atomic { mine = NOTHING; number = 0; there = 0; old = 0; b = 0; sent++ }
        :: else -> break
        od
    } unless { dead[me] };
    ended++
}

#define BIT (1 << me)

inline hold() {
    if
    :: is_there -> holders[block] = holders[block] | BIT
    :: else
    fi
}

proctype reader(byte me; bool late) {
    byte seen_tail, block, had, lost, first, k;
    bool is_there;
    {
        if
        :: late ->                        /* begin */
            cursor[me] = head;
            joined[me] = true;
#ifndef JOIN_ONCE
            cursor[me] = head;
#endif
            first = cursor[me]
        :: else
        fi;
        do
        :: has(cursor[me]) || tail > cursor[me] -> /* take */
            atomic { is_there = has(cursor[me]); block = slot[cursor[me] % SLOTS].block };
#ifdef TAIL_FIRST
            seen_tail = tail;
            hold();
#else
#ifdef EARLY_CURSOR
            if
            :: is_there -> cursor[me]++
            :: else
            fi;
            hold();
            if
            :: is_there -> cursor[me]--
            :: else
            fi;
#else
            hold();
#endif
            seen_tail = tail;
#endif
            if
            :: seen_tail > cursor[me] ->
                if
                :: is_there -> holders[block] = holders[block] & ~BIT
                :: else
                fi;
                assert(seen_tail <= head);
                atomic { lost = lost + seen_tail - cursor[me]; cursor[me] = seen_tail }
            :: seen_tail <= cursor[me] && is_there ->
                assert(bytes[block] == published[cursor[me]]);
                atomic { had++; cursor[me]++ };
                assert(bytes[block] == published[cursor[me] - 1]);
                holders[block] = holders[block] & ~BIT
            :: else
            fi;
            atomic { seen_tail = 0; block = 0; is_there = false }
        :: ended == WRITERS && !has(cursor[me]) && tail <= cursor[me] ->
            assert(first + had + lost == count);
            break
#ifdef LEAVE
        :: me == READERS - 1 -> break
#endif
        od;
#ifdef BLOCK
        assert(lost == 0);
#endif
        clean(me)                         /* fs_group_leave */
    } unless { dead[me] }
}

init {
    atomic {
        byte at = 0;
        do
        :: at < SLOTS -> slot[at].number = at; slot[at].block = NOTHING; at++
        :: else -> break
        od;
        at = 0;
        do
        :: at < READERS ->
#ifdef JOIN
            joined[at] = at < READERS - 1;
            run reader(at, at == READERS - 1);
#else
            joined[at] = true;
            run reader(at, false);
#endif
            at++
        :: else -> break
        od;
        do
        :: at < MEMBERS -> run writer(at); at++
        :: else -> break
        od
    }
}

#ifdef DEATH
active proctype killer() {
    if
    :: dead[0] = true
    :: dead[1] = true
    :: dead[2] = true
#if READERS == 2
    :: dead[3] = true
#endif
    fi
}
#endif
