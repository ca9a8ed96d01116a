/* Event sets between two processes: offers pages to the peer processes of connections, and checks and keeps the offers of others
 * (events/event_set.h uses them). */
#ifndef FASTSOCK_PAGE_OFFERS_H
#define FASTSOCK_PAGE_OFFERS_H

#include "control/control_recv.h"
#include "conn/event_slot.h"

/* For an attached connection that is about to be left to its set: writes the set into the region and offers a page to the posting
 * process if that has none. The set is notified in either case. Needs the host lock and the set's thread. */
void fs_set_register(struct fs_event_set *set, struct fs_connection *c);

/* Offers pages again to processes that had to notify the set in another way. Same needs. */
void fs_reoffer_pages(struct fs_event_set *set);

/* Checks an offer to this process and keeps it. `requester`: its sender. `descriptors`: page and eventfd, which stay the caller's. Takes
 * the table lock; asks no file system. Returns true if the offer is valid and there is room. */
int fs_accept_page_offer(const struct fs_requester *requester, const int descriptors[2]);

#endif
