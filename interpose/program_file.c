/* What an executable file says of itself (elf(5), execve(2)), and which one a name means.
 *
 * Responsible for: whether a program can have this library. Never: starts one. Nothing here allocates, or uses much stack: the caller may be
 * a signal handler, or the child of vfork. */
#include "program_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#endif
#define OWN_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

enum {
    INTERPRETERS = 4, /* scripts whose interpreter is a script: the kernel follows as many */
    SECTIONS = 512,   /* and segments, at most */
};

/* Reads text that ends with 0. Returns its length, 0 if there is none. */
static size_t text_at(int fd, uint64_t at, char *into) {
    ssize_t got = fs_program_read(fd, into, FS_PROGRAM_TEXT - 1, at);
    into[got < 0 ? 0 : got] = 0;
    return strlen(into);
}

static int whole(int fd, void *into, size_t size, uint64_t at) { return fs_program_read(fd, into, size, at) == (ssize_t)size; }

static int begins_with_one_of(const char *text, const char *const *words) {
    for (; *words; words++)
        if (!strncmp(text, *words, strlen(*words))) return 1;
    return 0;
}

/* Where in the file an address of the program lies; 0: nowhere. */
static uint64_t offset_of(int fd, const Elf64_Ehdr *head, uint64_t address) {
    Elf64_Phdr segment;
    for (int i = 0; i < head->e_phnum && i < SECTIONS; i++) {
        if (!whole(fd, &segment, sizeof segment, head->e_phoff + (uint64_t)i * head->e_phentsize)) break;
        if (segment.p_type == PT_LOAD && segment.p_vaddr <= address && address - segment.p_vaddr < segment.p_filesz)
            return address - segment.p_vaddr + segment.p_offset;
    }
    return 0;
}

/* Reads entries of the dynamic section from the `first` one on. Returns how many. */
static size_t read_entries(int fd, const Elf64_Phdr *dynamic, size_t first, Elf64_Dyn *into) {
    size_t count = dynamic->p_filesz / sizeof *into, room = first < count ? count - first : 0;
    if (room > FS_PROGRAM_ENTRIES) room = FS_PROGRAM_ENTRIES;
    return room && whole(fd, into, room * sizeof *into, dynamic->p_offset + first * sizeof *into) ? room : 0;
}

/* True if the program needs the shared library of a sanitizer. (One that has it within goes well with us.) */
static int needs_sanitizer(int fd, const Elf64_Ehdr *head, const Elf64_Phdr *dynamic, struct fs_program_scratch *scratch) {
    static const char *const runtimes[] = {"libasan.so", "libtsan.so", "libhwasan.so", "liblsan.so", "libclang_rt.", NULL};
    uint64_t names = 0;
    for (int looks_for_names = 1; looks_for_names >= 0; looks_for_names--) {
        size_t count;
        for (size_t first = 0; (count = read_entries(fd, dynamic, first, scratch->entries)); first += count)
            for (size_t i = 0; i < count && scratch->entries[i].d_tag != DT_NULL; i++) {
                const Elf64_Dyn *entry = &scratch->entries[i];
                if (looks_for_names && entry->d_tag == DT_STRTAB) names = offset_of(fd, head, entry->d_un.d_ptr);
                if (looks_for_names || entry->d_tag != DT_NEEDED || !names) continue;
                if (text_at(fd, names + entry->d_un.d_val, scratch->text) && begins_with_one_of(scratch->text, runtimes)) return 1;
            }
    }
    return 0;
}

static int is_go(int fd, const Elf64_Ehdr *head, char name[FS_PROGRAM_TEXT]) {
    static const char *const of_go[] = {".go.buildinfo", ".note.go.buildid", ".gopclntab", NULL};
    Elf64_Shdr names, section;
    if (!head->e_shnum || !whole(fd, &names, sizeof names, head->e_shoff + (uint64_t)head->e_shstrndx * head->e_shentsize)) return 0;
    for (int i = 0; i < head->e_shnum && i < SECTIONS; i++) {
        if (!whole(fd, &section, sizeof section, head->e_shoff + (uint64_t)i * head->e_shentsize)) return 0;
        if (text_at(fd, names.sh_offset + section.sh_name, name) && begins_with_one_of(name, of_go)) return 1;
    }
    return 0;
}

static enum fs_program_kind kind_of(int fd, struct fs_program_scratch *scratch, int asks_go) {
    Elf64_Ehdr head;
    Elf64_Phdr segment, dynamic = {0};
    int is_musl = 0, has_loader = 0;
    if (!whole(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return FS_PROGRAM_FOREIGN;
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != OWN_ORDER || head.e_machine != OWN_MACHINE) return FS_PROGRAM_FOREIGN;
    for (int i = 0; i < head.e_phnum && i < SECTIONS; i++) {
        if (!whole(fd, &segment, sizeof segment, head.e_phoff + (uint64_t)i * head.e_phentsize)) return FS_PROGRAM_FOREIGN;
        if (segment.p_type == PT_DYNAMIC) dynamic = segment;
        if (segment.p_type != PT_INTERP) continue;
        has_loader = text_at(fd, segment.p_offset, scratch->text) > 0;
        is_musl = strstr(scratch->text, "musl") != NULL;
    }
    if (asks_go && is_go(fd, &head, scratch->text)) return FS_PROGRAM_GO;
    if (!has_loader) return FS_PROGRAM_STATIC;
    if (is_musl) return FS_PROGRAM_MUSL;
    return needs_sanitizer(fd, &head, &dynamic, scratch) ? FS_PROGRAM_SANITIZED : FS_PROGRAM_GLIBC;
}

/* The interpreter that a "#!" line names. 0: the file has none. */
static int read_interpreter(int fd, char line[FS_PROGRAM_TEXT]) {
    if (!text_at(fd, 0, line) || strncmp(line, "#!", 2) != 0) return 0;
    size_t from = 2 + strspn(line + 2, " \t"), length = strcspn(line + from, " \t\n");
    memmove(line, line + from, length);
    line[length] = 0;
    return length > 0;
}

enum fs_program_kind fs_program_kind_of(const char *path, struct fs_program_scratch *scratch, int asks_go) {
    enum fs_program_kind kind = FS_PROGRAM_STATIC;
    for (int depth = 0, is_script = 1; depth <= INTERPRETERS && is_script; depth++) {
        int fd = fs_program_open(path);
        if (fd < 0) break;
        path = scratch->text;
        is_script = read_interpreter(fd, scratch->text);
        if (!is_script && !strncmp(scratch->text, ELFMAG, SELFMAG)) kind = kind_of(fd, scratch, asks_go);
        fs_program_close(fd);
    }
    return kind;
}

const char *fs_program_on_path(const char *name, char *room) {
    const char *path = getenv("PATH");
    if (strchr(name, '/')) return name;
    for (const char *at = path ? path : "/bin:/usr/bin"; *name; at++) {
        struct stat status;
        size_t length = strcspn(at, ":");
        if (length + strlen(name) + 3 < PATH_MAX) {
            memcpy(room, length ? at : ".", length ? length : 1);
            strcpy(stpcpy(room + (length ? length : 1), "/"), name);
            if (access(room, X_OK) == 0 && stat(room, &status) == 0 && S_ISREG(status.st_mode)) return room;
        }
        if (!*(at += length)) break;
    }
    return NULL;
}

/* ---- the program of a name --------------------------------------------------------------------------------------------------- */

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_python(const char *path) { return !strncmp(base_of(path), "python", 6); }

/* The program gets other rights than this process has, so that the loader trusts its environment less (AT_SECURE of getauxval(3)). Root's own
 * setuid programs get none when root starts them. */
static int changes_user(const char *path) {
    struct stat status;
    if (stat(path, &status)) return 0;
    if (status.st_mode & S_ISUID && status.st_uid != getuid()) return 1;
    if (status.st_mode & S_ISGID && status.st_gid != getgid()) return 1;
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0;
}

/* The interpreter that a script's line asks for: the first word that is no option, nor env(1). Returns its file, or NULL. */
static const char *interpreter_of(char *line, char *room, int *python) {
    *python = 0;
    for (char *word, *rest = line + 2; (word = strsep(&rest, " \t\r"));) {
        if (!*word || *word == '-' || !strcmp(base_of(word), "env")) continue;
        *python = is_python(word);
        return fs_program_on_path(word, room);
    }
    return NULL;
}

/* A file that was named itself, and not found on the PATH, so that `python NAME` can run it if it is Python's. */
static int is_here(const char *name, char *room) {
    struct stat status;
    if (stat(name, &status)) return 0;
    if (S_ISSOCK(status.st_mode)) return 0; /* the socket of a server of that name */
    if (!S_ISDIR(status.st_mode)) return 1;
    return strlen(name) + 16 < PATH_MAX && (strcpy(stpcpy(room, name), "/__main__.py"), access(room, F_OK) == 0);
}

int fs_find_program(const char *name, struct fs_program *p) {
    struct stat status;
    int here = is_here(name, p->path);
    const char *path = *name == '-' ? NULL : here ? name : fs_program_on_path(name, p->path);
    if (!path || strlen(path) >= PATH_MAX || stat(path, &status) || !S_ISREG(status.st_mode)) return 0;
    if (path != p->path) strcpy(p->path, path);
    p->python = is_python(path);
    *p->interpreter = 0;
    p->kind = FS_PROGRAM_GLIBC;
    p->changes_user = 0;
    for (int depth = 0; path && depth <= INTERPRETERS; depth++) {
        int fd = fs_program_open(path), python;
        if (fd < 0) return depth ? 1 : -errno;
        ssize_t got = fs_program_read(fd, p->scratch.text, FS_PROGRAM_TEXT - 1, 0);
        p->scratch.text[got < 0 ? 0 : got] = 0;
        if (!strncmp(p->scratch.text, ELFMAG, SELFMAG)) {
            p->kind = kind_of(fd, &p->scratch, 1);
            p->changes_user = changes_user(path);
            path = NULL;
        } else if (strncmp(p->scratch.text, "#!", 2) != 0 || access(path, X_OK)) {
            path = NULL;
            if (!depth) here = 2; /* neither */
        } else {
            p->scratch.text[strcspn(p->scratch.text, "\n")] = 0;
            path = interpreter_of(p->scratch.text, p->interpreter, &python);
            if (path && path != p->interpreter) path = strncpy(p->interpreter, path, PATH_MAX - 1);
            if (!depth) p->python = python;
            if (!depth && python && here) here = 2;
        }
        fs_program_close(fd);
        if (here == 2) return 0;
    }
    return 1;
}

const char *fs_program_refusal(const struct fs_program *p) {
    if (p->changes_user) return "it is setuid or has capabilities, so the loader ignores LD_PRELOAD";
    switch (p->kind) {
    case FS_PROGRAM_STATIC: return "it is statically linked, so LD_PRELOAD has no effect";
    case FS_PROGRAM_GO: return "Go programs call the kernel directly";
    case FS_PROGRAM_FOREIGN: return "it is not a 64-bit ELF program for this CPU";
    case FS_PROGRAM_SANITIZED: return "the shared library of its sanitizer has to be loaded first";
    default: return NULL;
    }
}
