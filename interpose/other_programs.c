/* Which programs can have this library, and the environment of those that cannot and are started by one that has it: the loader of musl does
 * not start a program with it, and a sanitizer's runtime wants to be first. LD_PRELOAD does not name it there.
 *
 * Responsible for: what an executable file says of itself (elf(5), execve(2)). Never: starts a program. Nothing here allocates by malloc, or
 * uses much stack: the caller may be a signal handler, or the child of vfork. */
#include "interpose.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#endif
#define OWN_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

enum {
    TEXT = 256,       /* bytes that are looked at of a name or a line: as many as the kernel looks at of a "#!" line */
    INTERPRETERS = 4, /* scripts whose interpreter is a script: the kernel follows as many */
    SECTIONS = 512,   /* and segments, at most */
    ENTRIES = 64,     /* of the dynamic section that are read at a time */
};

/* (Beyond the stack.) */
struct scratch {
    char text[TEXT];
    Elf64_Dyn entries[ENTRIES];
};

/* Reads text that ends with 0. Returns its length, 0 if there is none. */
static size_t text_at(int fd, uint64_t at, char *into) {
    ssize_t got = ip_calls.pread(fd, into, TEXT - 1, (off_t)at);
    into[got < 0 ? 0 : got] = 0;
    return strlen(into);
}

static int whole(int fd, void *into, size_t size, uint64_t at) { return ip_calls.pread(fd, into, size, (off_t)at) == (ssize_t)size; }

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
    size_t count = dynamic->p_filesz / sizeof *into, room = first < count ? IP_MIN(count - first, (size_t)ENTRIES) : 0;
    return room && whole(fd, into, room * sizeof *into, dynamic->p_offset + first * sizeof *into) ? room : 0;
}

/* True if the program needs the shared library of a sanitizer. (One that has it within goes well with us.) */
static int needs_sanitizer(int fd, const Elf64_Ehdr *head, const Elf64_Phdr *dynamic, struct scratch *scratch) {
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

static int is_go(int fd, const Elf64_Ehdr *head, char name[TEXT]) {
    static const char *const of_go[] = {".go.buildinfo", ".note.go.buildid", ".gopclntab", NULL};
    Elf64_Shdr names, section;
    if (!head->e_shnum || !whole(fd, &names, sizeof names, head->e_shoff + (uint64_t)head->e_shstrndx * head->e_shentsize)) return 0;
    for (int i = 0; i < head->e_shnum && i < SECTIONS; i++) {
        if (!whole(fd, &section, sizeof section, head->e_shoff + (uint64_t)i * head->e_shentsize)) return 0;
        if (text_at(fd, names.sh_offset + section.sh_name, name) && begins_with_one_of(name, of_go)) return 1;
    }
    return 0;
}

/* `asks_go`: also whether it is Go's, which takes the longest to find out. */
static enum fs_program_kind kind_of(int fd, struct scratch *scratch, int asks_go) {
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
    return needs_sanitizer(fd, &head, &dynamic, scratch) ? FS_PROGRAM_SANITIZED : FS_PROGRAM_SERVED;
}

enum fs_program_kind fs_libc_program_kind(int fd) {
    struct scratch *scratch = fs_allocate(sizeof *scratch);
    enum fs_program_kind kind = scratch ? kind_of(fd, scratch, 1) : FS_PROGRAM_SERVED;
    fs_release(scratch);
    return kind;
}

/* ---- the environment ------------------------------------------------------------------------------------------------------- */

static const char preload[] = "LD_PRELOAD=";

static const char *own_name = ""; /* as LD_PRELOAD has it */

__attribute__((constructor)) static void find_own_name(void) {
    Dl_info info;
    if (dladdr((void *)&own_name, &info) && info.dli_fname) own_name = info.dli_fname;
}

/* The interpreter that a "#!" line names. 0: the file has none. */
static int read_interpreter(int fd, char line[TEXT]) {
    if (!text_at(fd, 0, line) || strncmp(line, "#!", 2) != 0) return 0;
    size_t from = 2 + strspn(line + 2, " \t"), length = strcspn(line + from, " \t\n");
    memmove(line, line + from, length);
    line[length] = 0;
    return length > 0;
}

/* True if the loader, or a runtime of the program's, does not go with our library. */
static int is_harmed(const char *path) {
    struct scratch *scratch = fs_allocate(sizeof *scratch);
    int harmed = 0, is_script = scratch != NULL;
    for (int depth = 0; depth <= INTERPRETERS && is_script; depth++) {
        int fd = ip_calls.open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) break;
        path = scratch->text;
        is_script = read_interpreter(fd, scratch->text);
        if (!is_script && !strncmp(scratch->text, ELFMAG, SELFMAG)) {
            enum fs_program_kind kind = kind_of(fd, scratch, 0);
            harmed = kind == FS_PROGRAM_FOREIGN || kind == FS_PROGRAM_MUSL || kind == FS_PROGRAM_SANITIZED;
        }
        ip_close_own(fd);
    }
    fs_release(scratch);
    return harmed;
}

/* The same of what a name means on the PATH. `room`: PATH_MAX bytes. */
static int is_harmed_by_name(const char *file, char *room) {
    const char *path = getenv("PATH");
    if (strchr(file, '/')) return is_harmed(file);
    for (const char *at = path ? path : "/bin:/usr/bin"; *at; at += strspn(at, ":")) {
        size_t length = strcspn(at, ":");
        if (length + strlen(file) + 2 < PATH_MAX) {
            memcpy(room, at, length);
            room[length] = '/';
            strcpy(room + length + 1, file);
            if (access(room, X_OK) == 0) return is_harmed(room);
        }
        at += length;
    }
    return 0;
}

/* Copies the value of LD_PRELOAD without our name. */
static void copy_without_own(char *into, const char *value) {
    strcpy(into, preload);
    into += strlen(preload);
    for (const char *at = value; *at;) {
        size_t length = strcspn(at, ": ");
        if (length && (length != strlen(own_name) || memcmp(at, own_name, length) != 0)) {
            if (into[-1] != '=') *into++ = ':';
            memcpy(into, at, length);
            into += length;
        }
        at += length + (at[length] != 0);
    }
    *into = 0;
}

char *const *ip_environment_for(const char *file, char *const *environment, struct ip_own_environment *own) {
    size_t count = 0, at = SIZE_MAX;
    own->memory = NULL;
    if (!file || !environment) return environment;
    for (; environment[count]; count++)
        if (!strncmp(environment[count], preload, strlen(preload))) at = count;
    if (at == SIZE_MAX || !*own_name || !strstr(environment[at], own_name)) return environment;
    int error = errno;
    own->size = (count + 1) * sizeof *environment + strlen(environment[at]) + 1 + PATH_MAX;
    void *memory = mmap(NULL, own->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        char **copy = own->memory = memory, *text = (char *)(copy + count + 1);
        if (is_harmed_by_name(file, text)) {
            memcpy(copy, environment, (count + 1) * sizeof *copy);
            copy_without_own(copy[at] = text, environment[at] + strlen(preload));
            environment = copy;
        } else {
            ip_forget_environment(own);
        }
    }
    errno = error;
    return environment;
}

void ip_forget_environment(struct ip_own_environment *own) {
    int error = errno;
    if (own->memory) munmap(own->memory, own->size);
    own->memory = NULL;
    errno = error;
}
