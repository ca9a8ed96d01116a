/* Shows an observer (`fastsock tcpdump`) the bytes that connections of this process send and receive on the ring.
 *
 * While nobody looks, nothing is done: a connection that is watched has a mark (state.h), in a word that each send and receive looks at
 * anyhow, and goes a longer way. The mark goes with the first record after the observer has gone. */
#pragma once

#include "conn/connection.h"
#include "os/pieces.h"
#include "wire/tap_page.h"

/* Refuses observers from now on, or does not. */
void fs_tap_hide(int hidden);

/* Takes the page that an observer of a trusted user offers, or writes the refusal there. Returns true if it looks from now on: the caller
 * marks the connections. The descriptor stays the caller's. For the control thread, without its lock. */
int fs_tap_accept(int memfd);

/* Returns true if an observer looks, as far as known. */
int fs_tap_is_on(void);

void fs_tap_forget(void); /* called in a forked child: other threads of the parent's were writing records */

/* Records bytes of a watched connection at this position among those of the ring. `from.data` and `from.v` NULL: they are not known. Need
 * the lock of the direction. */
void fs_tap_bytes(struct fs_connection *c, enum fs_tap_kind kind, int64_t when, uint64_t position, struct fs_source from, size_t length);

/* Records the end of a direction, or of a watched connection. */
void fs_tap_end(struct fs_connection *c, enum fs_tap_kind kind);
