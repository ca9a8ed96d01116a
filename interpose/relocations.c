/* The functions in place of the C library's in a process that runs already: the slots that the loader has relocated are rewritten.
 *
 * A call of recv(2) goes through a slot that the loader has filled with the function's address, in each loaded object: of the procedure linkage
 * table (JUMP_SLOT), of the global offset table (GLOB_DAT), or a pointer in data (an absolute relocation). Each such slot that means the C
 * library's function gets ours. A slot that the loader fills at the first call may be filled by a thread that is in that call meanwhile, and
 * objects come later: so all objects but those that have settled are looked at again before a connection moves (ip_look_again), and before the
 * program looks a function up in an object that it has loaded (dlsym). A pointer that the program has copied before, and what dlsym(3) has told
 * before, stay as they are.
 *
 * Responsible for: which slots these are, and that they are writable meanwhile. Never: what the functions do. */
#include "interpose.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT, ABSOLUTE = R_X86_64_64 };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT, ABSOLUTE = R_AARCH64_ABS64 };
#endif

/* ---- the functions ---------------------------------------------------------------------------------------------------- */

/* What the library shows beside the table of libc_functions.h (interpose/exports.map). */
#define OTHERS(E) \
    E(__dprintf_chk) E(__poll_chk) E(__ppoll_chk) E(__read_chk) E(__recv_chk) E(__recvfrom_chk) E(__sigaction) E(__sysv_signal) \
    E(__vdprintf_chk) E(bsd_signal) E(dprintf) E(execl) E(execle) E(execlp) E(execv) E(execvp) E(fcntl64) E(preadv64v2) E(pwritev64v2) E(sendfile64) \
    E(siginterrupt) E(signal) E(sigset) E(sockatmark) E(ssignal) E(syscall) E(sysv_signal)

/* (By their names in the object file: some of them have no declaration.) */
#define DECLARE(name) extern const char ours_##name[] __asm__(#name);
#define DECLARE_ENTRY(type, name, parameters, arguments) DECLARE(name)
FS_ENTRY_POINTS(DECLARE_ENTRY)
OTHERS(DECLARE)

static void *look_up(void *handle, const char *name);

static struct function {
    const char *name;
    const void *ours;
    void *theirs; /* the C library's; NULL: it has none */
} functions[] = {
#define LIST(name) {#name, ours_##name, NULL},
#define LIST_ENTRY(type, name, parameters, arguments) LIST(name)
    FS_ENTRY_POINTS(LIST_ENTRY) OTHERS(LIST) {"dlsym", (const void *)look_up, NULL},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions, PLACES = 512 };

static unsigned char place_of[PLACES]; /* 1 + a function's place in the table, by the hash of its name; 0: free */

static unsigned hash(const char *name) {
    unsigned h = 5381;
    while (*name) h = h * 33 + (unsigned char)*name++;
    return h % PLACES;
}

static struct function *function_of(const char *name) {
    for (unsigned h = hash(name); place_of[h]; h = (h + 1) % PLACES)
        if (!strcmp(functions[place_of[h] - 1].name, name)) return &functions[place_of[h] - 1];
    return NULL;
}

static void fill_places(void) {
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        unsigned h = hash(functions[i].name);
        while (place_of[h]) h = (h + 1) % PLACES;
        place_of[h] = (unsigned char)(i + 1);
    }
}

/* ---- an object -------------------------------------------------------------------------------------------------------- */

struct object {
    ElfW(Addr) base;
    const char *name;
    const ElfW(Sym) *symbols;
    const char *strings;
    const ElfW(Rela) *tables[2];
    size_t sizes[2];
    ElfW(Addr) first, last;       /* its addresses */
    ElfW(Addr) sealed, sealed_to; /* what the loader has made read-only after the relocation */
};

static void read_dynamic(struct object *o, const ElfW(Dyn) *d) {
    int is_rela = 1;
    for (; d->d_tag; d++) {
        ElfW(Addr) at = d->d_un.d_ptr; /* (the C library's loader has added the base, where it can write there) */
        if (at < o->base) at += o->base;
        switch (d->d_tag) {
        case DT_SYMTAB: o->symbols = (const void *)at; break;
        case DT_STRTAB: o->strings = (const void *)at; break;
        case DT_RELA: o->tables[0] = (const void *)at; break;
        case DT_RELASZ: o->sizes[0] = d->d_un.d_val; break;
        case DT_JMPREL: o->tables[1] = (const void *)at; break;
        case DT_PLTRELSZ: o->sizes[1] = d->d_un.d_val; break;
        case DT_PLTREL: is_rela = d->d_un.d_val == DT_RELA; break;
        default: break;
        }
    }
    if (!is_rela || !o->symbols || !o->strings) o->sizes[0] = o->sizes[1] = 0;
}

static int read_object(struct object *o, const struct dl_phdr_info *info) {
    long page = sysconf(_SC_PAGESIZE);
    const ElfW(Dyn) *dynamic = NULL;
    *o = (struct object){.base = info->dlpi_addr, .name = info->dlpi_name, .first = ~(ElfW(Addr))0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        ElfW(Addr) begins = o->base + p->p_vaddr, ends = begins + p->p_memsz;
        if (p->p_type == PT_DYNAMIC) dynamic = (const void *)begins;
        if (p->p_type == PT_LOAD) {
            o->first = IP_MIN(o->first, begins);
            o->last = IP_MAX(o->last, ends);
        }
        if (p->p_type == PT_GNU_RELRO) {
            o->sealed = begins & -(ElfW(Addr))page;
            o->sealed_to = ends & -(ElfW(Addr))page;
        }
    }
    if (dynamic) read_dynamic(o, dynamic);
    return dynamic != NULL;
}

/* ---- slots ------------------------------------------------------------------------------------------------------------ */

static struct {
    int in;        /* 1: ours are put in; 0: they are taken out */
    int rewritten; /* slots of the object */
    int unknown;   /* slots of it that mean neither function: the loader may not have filled them yet */
    int unsettled; /* objects that are to be looked at again */
    int failed;    /* an errno: some page cannot be made writable */
    int64_t now;
    unsigned long long added, removed; /* objects, as the loader counts them */
} scan;

/* What a slot of a function shall have, or NULL if it stays. A slot that means neither function belongs to another library's function of the
 * same name; one that leads back into its own object is not filled yet. */
static const void *wanted(const struct object *o, const struct function *f, const void *now, unsigned type) {
    if (!scan.in) return now == f->ours ? f->theirs : NULL;
    int unfilled = type == JUMP_SLOT && o->first <= (ElfW(Addr))now && (ElfW(Addr))now < o->last;
    return now == f->theirs || unfilled ? f->ours : NULL;
}

static void visit_table(const struct object *o, const ElfW(Rela) *table, size_t bytes, int *unsealed) {
    for (const ElfW(Rela) *r = table; (const char *)r < (const char *)table + bytes; r++) {
        unsigned type = ELF64_R_TYPE(r->r_info);
        if (type != JUMP_SLOT && type != GLOB_DAT && type != ABSOLUTE) continue;
        const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
        if (symbol->st_shndx != SHN_UNDEF || (type == ABSOLUTE && r->r_addend)) continue;
        const struct function *f = function_of(o->strings + symbol->st_name);
        if (!f || !f->theirs) continue;
        ip_atomic_ptr(const void) *slot = (void *)(o->base + r->r_offset);
        const void *now = ip_load_relaxed(slot), *then = wanted(o, f, now, type);
        if (!then) {
            scan.unknown += scan.in && now != f->ours;
            continue;
        }
        ElfW(Addr) at = o->base + r->r_offset;
        if (o->sealed <= at && at < o->sealed_to && !*unsealed) {
            if (mprotect((void *)o->sealed, o->sealed_to - o->sealed, PROT_READ | PROT_WRITE) < 0) {
                scan.failed = errno;
                return;
            }
            *unsealed = 1;
        }
        ip_store_relaxed(slot, then); /* (a thread that calls now goes to the one or the other) */
        scan.rewritten++;
    }
}

/* The last part of a file's name. */
static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Calls inside of the C library and of the loader are not served by us, with LD_PRELOAD neither. */
static int is_apart(const struct object *o) {
    static const char *const apart[] = {"libc.so", "ld-linux", "libpthread.so", "linux-vdso", "linux-gate"};
    const char *name = base_of(o->name);
    if (o->first <= (ElfW(Addr))functions && (ElfW(Addr))functions < o->last) return 1; /* this library */
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (!strncmp(name, apart[i], strlen(apart[i]))) return 1;
    return 0;
}

enum { OBJECTS = 2048, SETTLING = 1000000000 }; /* ns */

/* The objects that scans have looked at, until one is unloaded. An object settles if no slot of it was rewritten for so long that no thread is
 * still in a first call, whose end fills the slot once more. One that finds no place here is looked at by each scan. */
static struct looked_at {
    const void *headers; /* of the object; NULL: the place is free */
    int64_t rewritten;   /* when a slot was, or was found unfilled, monotonic ns; 0: it has settled */
} objects[OBJECTS];

static struct looked_at *place_of_object(const void *headers) {
    size_t at = (uintptr_t)headers / 64 % OBJECTS;
    for (int tries = 0; tries < 16; tries++, at = (at + 1) % OBJECTS)
        if (!objects[at].headers || objects[at].headers == headers) return &objects[at];
    return NULL;
}

static void visit_object(const struct dl_phdr_info *info) {
    struct object o;
    int unsealed = 0;
    scan.rewritten = scan.unknown = 0;
    if (!read_object(&o, info) || is_apart(&o)) return;
    for (int i = 0; i < 2; i++) visit_table(&o, o.tables[i], o.sizes[i], &unsealed);
    if (unsealed) mprotect((void *)o.sealed, o.sealed_to - o.sealed, PROT_READ);
}

static int visit(struct dl_phdr_info *info, size_t size, void *first) {
    (void)size;
    if (*(int *)first && info->dlpi_subs != scan.removed) memset(objects, 0, sizeof objects);
    *(int *)first = 0;
    scan.added = info->dlpi_adds;
    scan.removed = info->dlpi_subs;
    struct looked_at *it = place_of_object(info->dlpi_phdr);
    if (it && it->headers && !it->rewritten && scan.in) return 0;
    visit_object(info);
    if (it) {
        if (scan.rewritten || (scan.unknown && !it->headers)) it->rewritten = scan.now;
        else if (scan.now - it->rewritten > SETTLING) it->rewritten = 0;
        it->headers = info->dlpi_phdr;
    }
    scan.unsettled += it ? it->rewritten != 0 : scan.rewritten != 0;
    return scan.failed;
}

/* ---- looking again ---------------------------------------------------------------------------------------------------- */

/* What the loader had counted when a scan left no object to be looked at again. Written with the lock; a stale value makes another scan. */
static fs_word64 settled_added, settled_removed;
static fs_word32 in_place;

static int has_settled(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_adds == ip_load_relaxed(&settled_added) && info->dlpi_subs == ip_load_relaxed(&settled_removed) ? 1 : -1;
}

static void look(void) {
    int first = 1;
    scan.now = fs_now();
    scan.unsettled = 0;
    dl_iterate_phdr(visit, &first);
}

void ip_look_again(void) {
    if (!ip_load_relaxed(&in_place) || dl_iterate_phdr(has_settled, NULL) > 0) return;
    ip_lock();
    if (ip_load_relaxed(&in_place)) {
        look();
        if (!scan.unsettled) {
            ip_store_relaxed(&settled_added, scan.added);
            ip_store_relaxed(&settled_removed, scan.removed);
        }
    }
    ip_unlock();
}

/* As dlsym(3), which asks who calls: the C library's is called in our place where that matters. By a handle our functions are found too. */
static void *look_up(void *handle, const char *name) {
    static void *(*plain)(void *, const char *);
    if (!plain) {
        void *found = function_of("dlsym")->theirs;
        memcpy(&plain, &found, sizeof found);
    }
    ip_look_again();
    struct function *f = handle == RTLD_NEXT || !ip_load_relaxed(&in_place) ? NULL : function_of(name);
    if (ip_likely(!f)) return plain(handle, name); /* a jump: it sees our caller */
    void *found = plain(handle, name);
    return found && found == f->theirs ? (void *)f->ours : found;
}

/* ---- in and out ------------------------------------------------------------------------------------------------------- */

/* The file that has what the program's names mean, or "". */
static const char *file_of(const void *function) {
    Dl_info where;
    return function && dladdr(function, &where) && where.dli_fname ? where.dli_fname : "";
}

const char *ip_put_in_place(void) {
    static char why[256];
    if (!place_of[hash("read")]) fill_places();
    void *program = dlopen(NULL, RTLD_LAZY); /* with all that every object finds (RTLD_DEFAULT finds ours first: we are linked with -Bsymbolic) */
    if (!dlsym(program, "gnu_get_libc_version")) return "the C library is not glibc";
    if (dlsym(program, "fs_libc_install") == (void *)fs_libc_install) return NULL; /* it is preloaded, perhaps behind another library */
    for (struct function *f = functions; f < functions + FUNCTIONS; f++) {
        f->theirs = dlsym(RTLD_NEXT, f->name);
        void *found = dlsym(program, f->name);
        if (!found || !f->theirs || found == f->theirs) continue;
        const char *file = file_of(found);
        if (strstr(base_of(file), ".so")) { /* (a program that is not relocatable has a place of its own for a function that it takes the address of) */
            snprintf(why, sizeof why, "%s is also in %s", f->name, file);
            return why;
        }
    }
    scan.in = 1;
    scan.failed = 0;
    memset(objects, 0, sizeof objects);
    ip_store_relaxed(&settled_added, 0);
    look();
    if (scan.failed) {
        snprintf(why, sizeof why, "the loader's tables cannot be written: %s", strerror(scan.failed));
        ip_store_relaxed(&in_place, 1);
        ip_take_out_of_place();
        return why;
    }
    ip_store_relaxed(&in_place, 1);
    return NULL;
}

void ip_take_out_of_place(void) {
    if (!ip_load_relaxed(&in_place)) return;
    ip_store_relaxed(&in_place, 0);
    scan.in = scan.failed = 0;
    look();
}
