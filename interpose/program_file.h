/* Which programs can have the library: what an executable file says of itself. For the library, and for the launcher. */
#pragma once

#include <elf.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum fs_program_kind {
    FS_PROGRAM_GLIBC,
    FS_PROGRAM_STATIC,    /* no loader reads LD_PRELOAD */
    FS_PROGRAM_GO,        /* it calls the kernel itself */
    FS_PROGRAM_MUSL,
    FS_PROGRAM_FOREIGN,   /* not a 64-bit program for this processor. With this one and the next LD_PRELOAD does not go well */
    FS_PROGRAM_SANITIZED, /* the shared library of a sanitizer has to be loaded first */
};

#ifdef __GLIBC__
#define FS_OTHER_LIBC FS_PROGRAM_MUSL
#else
#define FS_OTHER_LIBC FS_PROGRAM_GLIBC
#endif

enum { FS_PROGRAM_TEXT = 256, FS_PROGRAM_ENTRIES = 64 };

/* (Beyond the stack of the caller, who may be a signal handler.) */
struct fs_program_scratch {
    char text[FS_PROGRAM_TEXT];
    Elf64_Dyn entries[FS_PROGRAM_ENTRIES];
};

/* Given by who has this file, and may not allocate, or be the program's own functions. */
int fs_program_open(const char *path); /* for reading */
ssize_t fs_program_read(int fd, void *into, size_t size, uint64_t at);
void fs_program_close(int fd);

/* What the program in a file is, or the interpreter of a script, and of its interpreter; FS_PROGRAM_STATIC if that cannot be read.
 * `asks_go`: also whether it is Go's, which takes the longest to find out. */
enum fs_program_kind fs_program_kind_of(const char *path, struct fs_program_scratch *scratch, int asks_go);

/* The file of a command on the PATH, in `room` of PATH_MAX bytes; a name with a slash is its own. NULL: there is none. */
const char *fs_program_on_path(const char *name, char *room);

struct fs_program {
    char path[PATH_MAX];
    char interpreter[PATH_MAX]; /* of a script, or "": then the rest says so of the interpreter */
    enum fs_program_kind kind;
    int python;       /* it is an interpreter of Python, or a script of one */
    int changes_user; /* the loader ignores LD_PRELOAD */
    struct fs_program_scratch scratch;
};

/* Finds the program of a name: a file, or a command on the PATH. Returns 1; 0 if `python NAME` should be run: a script without an
 * interpreter line or one of Python that was named itself, a folder, an option, or a name that does not exist; or -errno. */
int fs_find_program(const char *name, struct fs_program *found);

/* Why it cannot have the library, or NULL. */
const char *fs_program_refusal(const struct fs_program *found);
