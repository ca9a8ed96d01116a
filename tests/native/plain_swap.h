/* The negative control of life.c: what changes the state of a connection's life is a load and a store. */
#include "os/atomics.h"

static inline int plain_swap(fs_word32 *word, uint32_t value) {
    fs_store_relaxed(word, value);
    return 1;
}
#define fs_cas32(word, expected, value) plain_swap(word, value)
