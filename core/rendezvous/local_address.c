/* Responsible for: which addresses are this host's. Never: whether a connection may move. */
#include "rendezvous/local_address.h"

#include <arpa/inet.h>

#include "transport/stream.h"

enum { KNOWN = 64 /* addresses in the cache of fs_is_local_address */ };

static struct {
    unsigned char address[16];
    int known, local;
} cache[KNOWN];

static int binds(const unsigned char address[16]) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    int mapped = fs_is_mapped(address);
    memcpy(&four.sin_addr, address + 12, 4);
    memcpy(&six.sin6_addr, address, 16);
    int probe = fs_system.socket(mapped ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return 0;
    struct sockaddr *name = mapped ? (struct sockaddr *)&four : (struct sockaddr *)&six;
    int bound = fs_system.bind(probe, name, mapped ? sizeof four : sizeof six) == 0;
    fs_system.close(probe);
    return bound;
}

int fs_is_local_address(const unsigned char address[16]) {
    static const unsigned char loopback[16] = {[15] = 1};
    if (fs_is_mapped(address) ? address[12] == 127 : !memcmp(address, loopback, 16)) return 1;
    unsigned slot = 0;
    for (int i = 0; i < 16; i++) slot = slot * 31 + address[i];
    slot %= KNOWN;
    if (!cache[slot].known || memcmp(cache[slot].address, address, 16) != 0) {
        memcpy(cache[slot].address, address, 16);
        cache[slot].local = binds(address);
        cache[slot].known = 1;
    }
    return cache[slot].local;
}
