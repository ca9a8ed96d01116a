/* The end of this side's fallback (fallback.h): a held peer may go on. */
#pragma once

#include "conn/connection.h"

#define FS_ANSWER_TIME ((int64_t)1000000000) /* ns that the peer's control thread gets for an answer */

/* Tells a held peer that it may go on. Needs no lock. */
void fs_settle(struct fs_connection *c);

/* The ring is read up to BACK: bytes in the kernel's queue are the program's again. */
void fs_recv_fall_back(struct fs_connection *c, struct fs_receiver *receiver);
