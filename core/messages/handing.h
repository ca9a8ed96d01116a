/* Handing a group's memory to who joins: one datagram with two descriptors, over a socket of a member (serve.c, join.c). */
#pragma once

#include "messages/arena.h"

struct fs_welcome {
    uint64_t magic;
    uint32_t version, unused;
};

/* Sends the descriptors of table and arena. */
void fs_hand_over(int peer, int table, int arena);

/* Receives them within `milliseconds`. Returns 0, or -errno; -ETIMEDOUT; -EPROTO. */
int fs_take_over(int holder, int fds[2], int milliseconds);
