/* The negative control of life.c: what changes the state of a connection's life is a load and a store. */
#include "os/atomics.h"

#define fs_cas32(word, expected, value) (fs_store_relaxed(word, value), 1)
