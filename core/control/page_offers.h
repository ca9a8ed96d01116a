/* Event sets between two processes: a page is offered to the process at the other end of a connection, and what others offer is
 * judged and kept (events/event_set.h has what is done with it). */
#ifndef FASTSOCK_PAGE_OFFERS_H
#define FASTSOCK_PAGE_OFFERS_H

#include "control/control_recv.h"
#include "conn/event_slot.h"

/* An attached connection is about to be left to its set: its region says so, and the process that posts to it is offered a page, if
 * it has none yet. Whether or not it takes it, the set is told. With the front end's lock, in the set's thread. */
void fs_set_register(struct fs_event_set *set, struct fs_connection *c);

/* Offers pages again to those that had to tell the set in another way. The same. */
void fs_reoffer_pages(struct fs_event_set *set);

/* Judges what has been offered to this process, and keeps it: `asker` has who it was, `descriptors` the page and the eventfd, which stay
 * the caller's. Takes the table lock, and asks no file system. Whether it was sound, and there was room. */
int fs_accept_page_offer(const struct fs_requester *requester, const int descriptors[2]);

#endif
