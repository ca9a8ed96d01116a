/* A seeker meets a process of another network namespace.
 *
 * Responsible for: no hello before the proof; what else a stranger may send is dropped without waiting. Never: the order of a search's
 * steps (rendezvous/connector.c). */
#include "control/far_meeting.h"

#include "control/control_state.h"
#include "control/control_thread.h"
#include "control/descriptors.h"
#include "control/fd_reaper.h"
#include "process/far_peer.h"

enum { MESSAGES = 4 }; /* received at once */

void fs_meeting_init(struct fs_far_meeting *meeting) { *meeting = (struct fs_far_meeting){.proof = {.udp = -1}, .way = -1}; }

/* Receives a message of the publisher's, as recv does, with its first descriptor, or -1. */
static ssize_t receive(int control, void *into, size_t room, int *came) {
    static struct fs_descriptors all; /* (one thread at a time, with the host lock: it is too large for a stack) */
    ssize_t got = fs_receive_descriptors(control, into, room, &all);
    *came = got >= 0 && all.count ? all.fds[0] : -1;
    for (int i = 1; got >= 0 && i < all.count; i++) fs_reap_fd(all.fds[i], 0);
    return got;
}

int fs_meeting_begin(struct fs_far_meeting *meeting, int control, const struct fs_stream_identity *ends) {
    meeting->key = fs_process_key(control);
    if (fs_was_proven(FS_PROOF_SEEKER, ends, meeting->key)) return 1;
    int failed = fs_proof_begin(&meeting->proof, control, ends);
    meeting->runs = !failed;
    return failed;
}

int fs_meeting_step(struct fs_far_meeting *meeting, int control, const struct fs_stream_identity *ends) {
    struct fs_proof_msg said;
    int came;
    for (int i = 0; i < MESSAGES && !fs_is_proven(&meeting->proof); i++) {
        fs_proof_look(&meeting->proof, control, ends, FS_PROOF_SEEKER);
        ssize_t got = receive(control, &said, sizeof said, &came);
        if (came >= 0) fs_reap_fd(came, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got > 0 && fs_proof_hear(&meeting->proof, ends, FS_PROOF_SEEKER, &said, (size_t)got)) continue;
        return got == 1 ? *(const char *)&said : FS_MEETING_FAILED;
    }
    if (!fs_is_proven(&meeting->proof)) return FS_MEETING_GOES_ON;
    meeting->runs = 0;
    fs_note_proven(FS_PROOF_SEEKER, ends, meeting->key);
    return FS_MEETING_READY;
}

int fs_meeting_hello(int control, const struct fs_hello *hello, const int *descriptors, int count) {
    int all[3] = {descriptors[0]}, failed = fs_control_thread_start(); /* (which has the socket) */
    int way = failed ? failed : fs_make_way(fs_control_fds.token);
    if (way < 0) return way;
    all[count - 1] = way;
    all[count] = descriptors[count - 1];
    fs_accept_descriptors(control);
    failed = fs_send_descriptors(control, hello, sizeof *hello, all, count + 1);
    fs_system.close(way);
    return failed;
}

ssize_t fs_meeting_answer(struct fs_far_meeting *meeting, int control, char *letter) {
    int came;
    ssize_t got = receive(control, letter, 1, &came);
    if (came >= 0 && got == 1 && *letter == FS_HAS_WAY && meeting->way < 0 && fs_is_way(came)) meeting->way = came;
    else if (came >= 0) fs_reap_fd(came, 0);
    if (got == 1 && *letter == FS_WHY_UNPROVEN) fs_forget_proven(FS_PROOF_SEEKER, meeting->key); /* the next attempt proves it again */
    return got;
}

struct fs_far_peer *fs_meeting_join(struct fs_far_meeting *meeting, int control) {
    char letter;
    int way;
    while (meeting->way < 0 && fs_meeting_answer(meeting, control, &letter) > 0) {}
    way = meeting->way;
    meeting->way = -1;
    return fs_far_peer_join(meeting->key, way);
}

void fs_meeting_end(struct fs_far_meeting *meeting) {
    fs_proof_end(&meeting->proof);
    if (meeting->way >= 0) fs_system.close(meeting->way); /* (fs_is_way) */
    fs_meeting_init(meeting);
}
