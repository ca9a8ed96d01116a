# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False
"""The front end at the C library's calls, which serves the sockets of this process: its beginning and end, the path of a connection, and
counters. interpose/libc_front.h documents the functions."""

from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport strcmp

from fastsock._native.core cimport *

cdef extern from "Python.h":
    int Py_AddPendingCall(int (*call)(void *) noexcept, void *argument) nogil

cdef extern from *:
    const char *FS_BUILD

# LD_PRELOAD may name the library of another installation: the loader takes that for ours.
if strcmp(fs_build, FS_BUILD) != 0:
    raise ImportError("another build of libfastsock.so is loaded in this process: use the fastsock that LD_PRELOAD names")

cdef list reason_texts = [fs_reason_text(number).decode() for number in range(FS_REASONS)]  # by their numbers

REASONS = {fs_reason_name(number).decode(): reason_texts[number] for number in range(1, FS_REASONS)}


cdef fs_program sought


def find_program(bytes name not None):
    """Returns true if `fastsock-run` starts the program of this name, or says why that is not possible; false if `python NAME` is to be run."""
    return fs_find_program(name, &sought) != 0


# ---- settings ------------------------------------------------------------------------------------------------


cdef list setting_names():
    """Returns the names of all settings."""
    cdef int at = 0
    names = []
    while fs_setting_table[at].name != NULL:
        names.append(fs_setting_table[at].name.decode())
        at += 1
    return names


NAMES = tuple(setting_names())


def unknown(bytes variable not None):
    """Returns the most similar setting's name, or "", for a variable that is no setting; None if it is one."""
    cdef const fs_setting *nearest
    if not fs_setting_is_unknown(variable, &nearest):
        return None
    return nearest.name.decode() if nearest != NULL else ""


cdef class Given:
    """All settings, as the core takes them."""
    cdef fs_settings settings
    cdef bint used  # the core has the lists: they stay

    def __dealloc__(self):
        if not self.used:
            fs_settings_free(&self.settings)

    def apply_trust(self):
        """Applies the settings `trust` and `rendezvous_dir` alone, for groups and channels, which need no `install`."""
        self.used = True
        with nogil:
            fs_libc_use_trust(&self.settings)

    cdef object value(self, const fs_setting *it):
        cdef void *place = <char *>&self.settings + it.at
        cdef fs_list *found = <fs_list *>place
        cdef fs_port_range *ports
        cdef fs_network *networks
        cdef fs_path_pattern *paths
        cdef char users[64 * 32]
        cdef int at
        if it.kind == FS_FLAG:
            return (<int64_t *>place)[0] != 0
        if it.kind == FS_NUMBER:
            return (<int64_t *>place)[0]
        if it.kind == FS_USERS:
            fs_users_text(found, users, sizeof(users))
            return users.decode()
        if it.kind == FS_FOLDER:
            return (<bytes><const char *>found.items).decode(errors="surrogateescape") if found.count else ""
        if it.kind == FS_PORTS:
            ports = <fs_port_range *>found.items
            return tuple([(ports[at].first, ports[at].last) for at in range(found.count)])
        if it.kind == FS_PATHS:
            paths = <fs_path_pattern *>found.items
            return tuple([paths[at].text[:paths[at].length].decode(errors="surrogateescape") for at in range(found.count)])
        networks = <fs_network *>found.items
        return tuple([(networks[at].address[:16], networks[at].bits) for at in range(found.count)])


def read_settings(dict texts not None):
    """Reads the given values, and defaults for all others: {name: bytes}. Returns what `install` takes, and the values by name. Raises
    ValueError with the arguments of SettingError."""
    cdef Given given = Given.__new__(Given)
    cdef fs_setting_error error
    cdef const fs_setting *it = fs_setting_table
    cdef int wrong = 0
    fs_settings_begin(&given.settings)
    values = {}
    while it.name != NULL and not wrong:
        text = texts.get(it.name.decode())
        if text is not None:
            wrong = fs_setting_read(&given.settings, it, <bytes>text, &error)
        if not wrong:
            values[it.name.decode()] = given.value(it)
        it += 1
    if wrong or fs_settings_check(&given.settings, &error):
        word = error.word[:error.length].decode(errors="replace")
        raise ValueError(error.setting.decode(), int(word) if error.is_number else word, error.permitted.decode(errors="replace"))
    return given, values


# ---- beginning and end ---------------------------------------------------------------------------------------


def install(Given given not None, bint everything):
    """Puts the functions in place, with these settings. They serve every TCP socket that is made from now on, or only those that are claimed.
    Returns None, or why that is not possible."""
    cdef const char *why
    given.used = True
    with nogil:
        why = fs_libc_install(&given.settings, everything)
    return None if why == NULL else (<bytes>why).decode()


def uninstall():
    """Serves no new sockets but claimed ones. If there were none, the functions are taken out when the last connection has ended."""
    with nogil:
        fs_libc_uninstall()


def serves():
    """Returns true if the functions are in place."""
    return fs_libc_serves()


def say_goodbye():
    """Ends all connections, as the end of the process does, while other threads may be in calls: for tests."""
    with nogil:
        fs_libc_say_goodbye()


def configure(Given given not None):
    """Applies other settings."""
    given.used = True
    with nogil:
        fs_libc_configure(&given.settings)


def claim(int fd, bint made):
    """Lets a TCP socket that the program has `made`, or was given, be served. Does nothing for other descriptors."""
    with nogil:
        fs_libc_claim(fd, made)


# ---- connections ---------------------------------------------------------------------------------------------


cdef class Connection:
    """One end of a connection (libc_front.pyi explains the attributes)."""
    cdef readonly int fd
    cdef readonly tuple standing
    cdef readonly str local, peer
    cdef readonly dict counters


cdef inline tuple standing_of(fs_libc_path_ *path):
    return path.sends != 0, path.receives != 0, path.attached != 0, reason_texts[path.reason]


def standing(int fd):
    """Returns what `path_events.path_from` takes, or None if the descriptor is no connection that is served."""
    cdef fs_libc_path_ path
    cdef bint known
    with nogil:
        known = fs_libc_path(fd, &path)
    return standing_of(&path) if known else None


def connections():
    """Returns the open connections."""
    cdef fs_libc_connection *found = NULL
    cdef int count = 0, room = -1, place
    cdef Connection one
    while count > room:  # others may have been opened meanwhile
        room = count + 16
        free(found)
        found = <fs_libc_connection *>malloc(room * sizeof(fs_libc_connection))
        if found == NULL:
            raise MemoryError
        with nogil:
            count = fs_libc_connections(found, room)
    made = []
    try:
        for place in range(count):
            one = Connection.__new__(Connection)
            one.fd, one.standing = found[place].fd, standing_of(&found[place].path)
            one.local, one.peer = (<bytes>found[place].local).decode(), (<bytes>found[place].peer).decode()
            one.counters = counts(&found[place].count)
            made.append(one)
    finally:
        free(found)
    return made


def describe(int fd):
    """Returns the state of a number's connection, for tests and for reports of faults; or None. Other threads may change it meanwhile."""
    cdef fs_connection *c = fs_libc_look(fd)
    if c == NULL:
        return None
    cdef fs_description d
    fs_describe(c, &d)
    state = dict(stage=d.stage.decode(), operations=d.operations, ended=d.ended, broken=d.broken, attached=d.attached, driven=d.driven,
                 lost=d.lost, holders=d.holders, side=d.side)
    if d.attached and not d.ended:
        state.update(
            window=d.window, peer_consents=d.peer_consents, switched_at=d.switched_at, peer_switched_at=d.peer_switched_at,
            acked=d.acked, doorbell=d.doorbell, peer_doorbell=d.peer_doorbell, fin=d.fin)
    return state


def is_local_address(bytes packed not None):
    """Returns true if an address (16 bytes, IPv4 as ::ffff:...) belongs to this host."""
    if len(packed) != 16:
        raise ValueError("the address must have 16 bytes (IPv4 as ::ffff:...)")
    return fs_is_local_address(<const unsigned char *><const char *>packed)


# ---- counters ------------------------------------------------------------------------------------------------


cdef dict counts(fs_counters *count):
    """Returns the counters by name."""
    return dict(
        bytes_sent=fs_counted(&count.bytes_sent), bytes_received=fs_counted(&count.bytes_received),
        messages_sent=fs_counted(&count.messages_sent),
        messages_received=fs_counted(&count.messages_received),
        acks_alone=fs_counted(&count.acks_alone), acks_piggybacked=fs_counted(&count.acks_piggybacked),
        sends_combined=fs_counted(&count.sends_combined),
        doorbells_rung=fs_counted(&count.doorbells_rung),
        polls_paid=fs_counted(&count.polls_paid), polls_unpaid=fs_counted(&count.polls_unpaid),
        poll_ns=fs_counted(&count.poll_ns), poll_unpaid_ns=fs_counted(&count.poll_unpaid_ns),
        sleeps=fs_counted(&count.sleeps), system_calls=fs_counted(&count.system_calls))


cdef tuple names_of_counters():
    """Returns the names in the order of the C structure, which datagrams use: each counter is set to its index, then sorted."""
    cdef fs_counters numbered
    cdef size_t place
    for place in range(sizeof(fs_counters) // sizeof(uint64_t)):
        (<uint64_t *>&numbered)[place] = place
    named = counts(&numbered)
    assert sorted(named.values()) == list(range(sizeof(fs_counters) // sizeof(uint64_t))), "a counter has no name here"
    return tuple(sorted(named, key=named.get))


COUNTERS = names_of_counters()


def counters():
    """Returns the counters of this process, summed over ended and live connections."""
    cdef fs_counters sum
    with nogil:
        fs_libc_sum_counters(&sum)
    return counts(&sum)


def path_counts():
    """Returns the number of connections on the ring, and {reason: number} of those on kernel TCP."""
    cdef int number
    return fs_count_paths(0), {reason_texts[number]: fs_count_paths(number) for number in range(1, FS_REASONS) if fs_count_paths(number) > 0}


# ---- events, for the program's log ------------------------------------------------------------------------------


cdef object listener = None


cdef int call_listener(void *unused) noexcept:
    """In the main thread, between two instructions of the program, as a signal handler."""
    listener()  # (an exception is printed)
    return 0


cdef int tell() noexcept nogil:
    return Py_AddPendingCall(call_listener, NULL)


def listen(call):
    """Lets `call()` be called in the main thread when events wait, and again only when all were taken. As the program may have any lock there,
    `call` must take none."""
    global listener
    listener = call
    with nogil:
        fs_libc_listen(tell)


def events(bint details):
    """Returns how many events wait. Forgets those that only report paths first, unless `details`."""
    cdef int count
    with nogil:
        count = fs_libc_events(details)
    return count


def take_event():
    """Returns the oldest event and its values, or None."""
    cdef fs_libc_event taken
    cdef bint any
    with nogil:
        any = fs_libc_take_event(&taken)
    if not any:
        return None
    values = {"fd": taken.fd, (<bytes>taken.name).decode(): (<bytes>taken.value).decode(errors="replace")}
    if taken.reason != NULL:
        values["reason"] = (<bytes>taken.reason).decode()
    if taken.lost:
        values["lost"] = taken.lost
    return (<bytes>taken.event).decode(), values


def report_to(bytes folder not None):
    """Lets the events of this process and of those that it forks be reported to `fastsock doctor`, in this folder."""
    cdef const char *name = folder
    with nogil:
        fs_libc_report_to(name)


# ---- forks -----------------------------------------------------------------------------------------------------


cdef object fork_beneath = None, forkpty_beneath = None


def set_forks(fork, forkpty):
    """Sets the functions that `fork` and `forkpty` call."""
    global fork_beneath, forkpty_beneath
    fork_beneath, forkpty_beneath = fork, forkpty


cdef object quietly(fork):
    """Calls a function that forks. The control thread, which stops for a fork, starts again when Python has looked for threads to warn of."""
    fs_libc_fork_quietly(True)
    try:
        return fork()
    finally:
        with nogil:
            fs_libc_fork_quietly(False)


def fork():
    """Like os.fork."""
    return quietly(fork_beneath)


def forkpty():
    """Like os.forkpty."""
    return quietly(forkpty_beneath)
