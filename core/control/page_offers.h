/* Offers the pages of this process's event sets to the peer processes of connections. control_requests.c receives such offers. */
#pragma once

#include "conn/event_slot.h"

/* For an attached connection that is about to be left to its set: writes the set into the region and offers a page to the posting
 * process if that has none. The set is notified in either case. Needs the set's thread, or the lock of its poller. */
void fs_set_register(struct fs_event_set *set, struct fs_connection *c);

/* Offers pages again to processes that had to notify the set in another way. Same needs. */
void fs_reoffer_pages(struct fs_event_set *set);
