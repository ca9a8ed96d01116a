/* Addresses of this host. Called with the host lock. */
#pragma once

/* Returns true if the address (IPv4 as ::ffff:...) is one of this host's: the kernel would bind a socket to it. */
int fs_is_local_address(const unsigned char address[16]);
