/* Addresses of this host. Called with the host lock. */
#ifndef FASTSOCK_LOCAL_ADDRESS_H
#define FASTSOCK_LOCAL_ADDRESS_H

/* Returns true if the address (IPv4 as ::ffff:...) is one of this host's: the kernel would bind a socket to it. */
int fs_is_local_address(const unsigned char address[16]);

#endif
