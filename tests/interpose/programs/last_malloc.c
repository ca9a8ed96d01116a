/* Ends with exit(3), and says so if anything takes memory from malloc from there on. */
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);

static int ends;

void *malloc(size_t size) {
    if (ends && write(STDERR_FILENO, "malloc at the end\n", 18) < 0) abort();
    return __libc_malloc(size);
}

int main(void) {
    free(malloc(1));
    ends = 1;
    exit(write(STDOUT_FILENO, "ends\n", 5) != 5);
}
