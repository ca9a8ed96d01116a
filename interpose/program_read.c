/* How program_file.c reads a file in this library: past the program's own functions, and without memory. */
#include "interpose.h"
#include "own_numbers.h"
#include "program_file.h"

int fs_program_open(const char *path) { return ip_calls.open(path, O_RDONLY | O_CLOEXEC); }
ssize_t fs_program_read(int fd, void *into, size_t size, uint64_t at) { return ip_calls.pread(fd, into, size, (off_t)at); }
void fs_program_close(int fd) { ip_close_own(fd); }
