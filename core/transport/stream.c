/* Which kind of stream a socket is. */
#include "transport/stream.h"

const struct fs_stream_kind *fs_stream_kind_of(int fd) {
    return fs_option(fd, SOL_SOCKET, SO_DOMAIN) == AF_UNIX ? &fs_unix_stream : &fs_tcp_stream;
}
