/* Copies of several pieces into the ring, and what the kernel gets of them at a time. */
#include "os/pieces.h"

void fs_gather(void *to, const struct iovec *v, size_t skip, size_t length) {
    char *at = to;
    while (length) {
        if (skip >= v->iov_len) {
            skip -= v++->iov_len;
            continue;
        }
        size_t part = v->iov_len - skip < length ? v->iov_len - skip : length;
        fs_copy(at, (const char *)v++->iov_base + skip, part);
        at += part;
        length -= part;
        skip = 0;
    }
}

size_t fs_kernel_part(const struct iovec *v, size_t skip, size_t length) {
    struct iovec first[FS_PIECES];
    size_t count;
    return fs_first_pieces(v, skip, length, first, &count);
}

size_t fs_first_pieces(const struct iovec *v, size_t skip, size_t length, struct iovec part[FS_PIECES], size_t *count) {
    size_t sum = 0;
    for (*count = 0; sum < length && *count < FS_PIECES; v++) {
        if (skip >= v->iov_len) {
            skip -= v->iov_len;
            continue;
        }
        size_t rest = v->iov_len - skip, taken = rest < length - sum ? rest : length - sum;
        part[(*count)++] = (struct iovec){(char *)v->iov_base + skip, taken};
        sum += taken;
        skip = 0;
    }
    return sum;
}
