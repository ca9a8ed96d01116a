/* The functions in place of the C library's: whoever looks one up, by whichever name, gets ours.
 *
 * What leads to a function is written by its address, never by a name:
 *  - The C library's symbol table, in this process's memory. Each symbol that has the address of one of its functions gets the address of
 *    ours: all versions, and aliases such as __read. So an object that is loaded from now on is bound to ours before its constructors
 *    run, also with RTLD_DEEPBIND; so is a slot that is filled at its first call; and dlsym(3) and dlvsym(3) find ours, in the C
 *    library's own handle too.
 *  - The slots of the objects that are there: of the procedure linkage table (JUMP_SLOT), of the global offset table (GLOB_DAT), and
 *    pointers in data (absolute relocations). Each one that has the address of the C library's function gets ours.
 * A preloaded library is found by its names besides (exports.map): constructors may run before its own.
 *
 * A pointer that the program has copied before, and calls inside of the C library, stay as they are. What is known of the latter leaves the
 * ring first (fallback.c, ip_connected).
 *
 * Responsible for: which words these are, and that they are writable meanwhile. Never: what the functions do. */
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

/* What the library shows beside the table of libc_functions.h (interpose/exports.map): functions with code of their own in the C
 * library. */
#define OTHERS(E) \
    E(__dprintf_chk) E(__poll_chk) E(__ppoll_chk) E(__read_chk) E(__recv_chk) E(__recvfrom_chk) E(__vdprintf_chk) E(dprintf) E(execl) \
    E(execle) E(execlp) E(execv) E(execvp) E(siginterrupt) E(signal) E(sigset) E(sockatmark) E(syscall) E(sysv_signal)

/* (By their names in the object file: some of them have no declaration.) */
#define DECLARE(name) extern const char ours_##name[] __asm__(#name);
#define DECLARE_ENTRY(type, name, parameters, arguments) DECLARE(name)
FS_ENTRY_POINTS(DECLARE_ENTRY)
OTHERS(DECLARE)
#define DECLARE_NEW(name, parameters, arguments) \
    extern const char ours_##name[] __asm__("ip_new_" #name) __attribute__((visibility("hidden")));
FS_NEW_NUMBERS(DECLARE_NEW, DECLARE_NEW)

static struct function {
    const char *name;
    const void *ours;
    const void *next; /* what our calls reach: the C library's, or another library's that stands between; NULL: there is none */
} functions[] = {
#define LIST(name) {#name, ours_##name, NULL},
#define LIST_ENTRY(type, name, parameters, arguments) LIST(name)
#define LIST_NEW(name, parameters, arguments) LIST(name)
    FS_ENTRY_POINTS(LIST_ENTRY) OTHERS(LIST) FS_NEW_NUMBERS(LIST_NEW, LIST_NEW)
};
#define COUNT(...) +1
enum { SHOWN = 0 FS_ENTRY_POINTS(COUNT) OTHERS(COUNT), FUNCTIONS = sizeof functions / sizeof *functions, PLACES = 512, CHANGED = 1024 };

static struct { const void *theirs, *ours; } addresses[PLACES]; /* of the C library's functions, by a hash; `theirs` NULL: free */
static unsigned char place_of[PLACES];                          /* 1 + a function's place in the table, by the hash of its name; 0: free */

static unsigned hash_of_name(const char *name) {
    unsigned h = 5381;
    while (*name) h = h * 33 + (unsigned char)*name++;
    return h % PLACES;
}

static unsigned hash_of_address(const void *address) { return (unsigned)((uintptr_t)address / 16 % PLACES); }

static const struct function *function_of(const char *name) {
    for (unsigned h = hash_of_name(name); place_of[h]; h = (h + 1) % PLACES)
        if (!strcmp(functions[place_of[h] - 1].name, name)) return &functions[place_of[h] - 1];
    return NULL;
}

static void fill_places(void) {
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        unsigned h = hash_of_name(functions[i].name);
        while (place_of[h]) h = (h + 1) % PLACES;
        place_of[h] = (unsigned char)(i + 1);
    }
}

static const void *ours_for(const void *theirs) {
    for (unsigned h = hash_of_address(theirs); addresses[h].theirs; h = (h + 1) % PLACES)
        if (addresses[h].theirs == theirs) return addresses[h].ours;
    return NULL;
}

static const void *theirs_for(const void *ours) {
    for (unsigned h = 0; h < PLACES; h++)
        if (addresses[h].theirs && addresses[h].ours == ours) return addresses[h].theirs;
    return NULL;
}

static void note_address(const void *theirs, const void *ours) {
    unsigned h = hash_of_address(theirs);
    while (addresses[h].theirs && addresses[h].theirs != theirs) h = (h + 1) % PLACES;
    addresses[h].theirs = theirs;
    addresses[h].ours = ours;
}

/* ---- an object -------------------------------------------------------------------------------------------------------- */

struct object {
    ElfW(Addr) base;
    const char *name;
    const ElfW(Sym) *symbols;
    const char *strings;
    size_t symbol_count; /* 0: not known */
    const ElfW(Versym) *versions;
    const ElfW(Rela) *tables[2];
    size_t sizes[2];
    ElfW(Addr) first, last;       /* its addresses */
    ElfW(Addr) sealed, sealed_to; /* what the loader has made read-only after the relocation */
};

/* The hashed symbols come last, in the order of their buckets: one after the last of the last chain. */
static size_t count_hashed(const uint32_t *h) {
    uint32_t buckets = h[0], first = h[1], bloom = h[2], last = 0;
    const uint32_t *bucket = h + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof *h), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++) last = IP_MAX(last, bucket[i]);
    if (last < first) return first;
    while (!(chain[last - first] & 1)) last++;
    return last + 1;
}

static void read_dynamic(struct object *o, const ElfW(Dyn) *d) {
    int is_rela = 1;
    for (; d->d_tag; d++) {
        ElfW(Addr) at = d->d_un.d_ptr; /* (the C library's loader has added the base, where it can write there) */
        if (at < o->base) at += o->base;
        switch (d->d_tag) {
        case DT_SYMTAB: o->symbols = (const void *)at; break;
        case DT_STRTAB: o->strings = (const void *)at; break;
        case DT_HASH: o->symbol_count = ((const uint32_t *)at)[1]; break;
        case DT_GNU_HASH: o->symbol_count = count_hashed((const uint32_t *)at); break;
        case DT_VERSYM: o->versions = (const void *)at; break;
        case DT_RELA: o->tables[0] = (const void *)at; break;
        case DT_RELASZ: o->sizes[0] = d->d_un.d_val; break;
        case DT_JMPREL: o->tables[1] = (const void *)at; break;
        case DT_PLTRELSZ: o->sizes[1] = d->d_un.d_val; break;
        case DT_PLTREL: is_rela = d->d_un.d_val == DT_RELA; break;
        default: break;
        }
    }
    if (!is_rela) o->sizes[0] = o->sizes[1] = 0;
    if (!o->symbols || !o->strings) o->symbol_count = 0;
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

/* The last part of a file's name. */
static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_named(const struct object *o, const char *const *names) {
    for (; *names; names++)
        if (!strncmp(base_of(o->name), *names, strlen(*names))) return 1;
    return 0;
}

/* The C library: its functions are looked up there, and its own calls stay as they are. */
static int is_libc(const struct object *o) {
    return is_named(o, (const char *const[]){"libc.so", "libpthread.so", "librt.so", "libc.musl", "ld-musl", NULL});
}

static int is_apart(const struct object *o) {
    if (o->first <= (ElfW(Addr))functions && (ElfW(Addr))functions < o->last) return 1; /* this library */
    return is_libc(o) || is_named(o, (const char *const[]){"ld-linux", "linux-vdso", "linux-gate", NULL});
}

/* ---- words of the loader's -------------------------------------------------------------------------------------------- */

static struct {
    int in;     /* 1: ours are put in; 0: they are taken out */
    int failed; /* an errno: some page cannot be made writable */
    int64_t since; /* when they were put in, monotonic ns */
} scan;

static void make_writable(ElfW(Addr) from, ElfW(Addr) to, int writable) {
    ElfW(Addr) page = (ElfW(Addr))sysconf(_SC_PAGESIZE), first = from & -page, last = (to + page - 1) & -page;
    if (mprotect((void *)first, last - first, writable ? PROT_READ | PROT_WRITE : PROT_READ) < 0 && writable) scan.failed = errno;
}

/* ---- the C library's symbols -------------------------------------------------------------------------------------------- */

static struct { ElfW(Sym) *symbol; ElfW(Addr) value; } changed[CHANGED]; /* and what they were */
static int changes;

static int is_function(const ElfW(Sym) *symbol) {
    return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx != SHN_ABS && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

static int read_libc(struct object *o, const struct dl_phdr_info *info) {
    return read_object(o, info) && is_libc(o);
}

/* The next functions, where all of them are in the C library's only object, as nearly always: its 3,000 names need not be read then.
 * Returns true where some are elsewhere. */
static int note_next_functions(struct dl_phdr_info *info, size_t size, void *seen) {
    struct object o;
    (void)size;
    if (!read_libc(&o, info) || !o.symbol_count) return 0;
    if ((*(int *)seen)++) return 1;
    for (struct function *f = functions; f < functions + FUNCTIONS; f++) {
        ElfW(Addr) next = (ElfW(Addr))f->next;
        if (next && (next < o.first || o.last <= next)) return 1;
        if (next) note_address(f->next, f->ours);
    }
    return 0;
}

/* (An older version of a function may do something else: of a name only the version counts that is bound today.) */
static int note_functions(struct dl_phdr_info *info, size_t size, void *unused) {
    struct object o;
    (void)size, (void)unused;
    if (!read_libc(&o, info)) return 0;
    for (size_t i = 0; i < o.symbol_count; i++) {
        if (!is_function(&o.symbols[i]) || (o.versions && o.versions[i] & 0x8000)) continue;
        const struct function *f = function_of(o.strings + o.symbols[i].st_name);
        if (f) note_address((const void *)(o.base + o.symbols[i].st_value), f->ours);
    }
    return 0;
}

static int change_symbols(struct dl_phdr_info *info, size_t size, void *unused) {
    struct object o;
    (void)size, (void)unused;
    if (!read_libc(&o, info) || !o.symbol_count) return 0;
    ElfW(Addr) first = (ElfW(Addr))o.symbols, last = (ElfW(Addr))(o.symbols + o.symbol_count);
    make_writable(first, last, 1);
    for (size_t i = 0; i < o.symbol_count && !scan.failed; i++) {
        ElfW(Sym) *symbol = (ElfW(Sym) *)&o.symbols[i];
        const void *ours = is_function(symbol) ? ours_for((const void *)(o.base + symbol->st_value)) : NULL;
        if (!ours || changes == CHANGED) continue;
        changed[changes].symbol = symbol;
        changed[changes++].value = symbol->st_value;
        /* (The loader adds the base, and the sum is ours. Other threads may look it up: one of both.) */
        ip_store_relaxed((fs_word64 *)(void *)&symbol->st_value, (uint64_t)((ElfW(Addr))ours - o.base));
    }
    if (!scan.failed) make_writable(first, last, 0);
    return 0;
}

static void change_symbols_back(void) {
    for (int i = 0; i < changes; i++) {
        ElfW(Addr) at = (ElfW(Addr))changed[i].symbol;
        make_writable(at, at + sizeof *changed[i].symbol, 1);
        if (!scan.failed) ip_store_relaxed((fs_word64 *)(void *)&changed[i].symbol->st_value, (uint64_t)changed[i].value);
        make_writable(at, at + sizeof *changed[i].symbol, 0);
    }
    changes = 0;
}

/* ---- slots ------------------------------------------------------------------------------------------------------------ */

static void visit_table(const struct object *o, const ElfW(Rela) *table, size_t bytes, int *unsealed) {
    for (const ElfW(Rela) *r = table; (const char *)r < (const char *)table + bytes && !scan.failed; r++) {
        unsigned type = ELF64_R_TYPE(r->r_info);
        if (type != JUMP_SLOT && type != GLOB_DAT && type != ABSOLUTE) continue;
        ElfW(Addr) at = o->base + r->r_offset;
        ip_atomic_ptr(const void) *slot = (void *)at;
        const void *now = ip_load_relaxed(slot), *then = scan.in ? ours_for(now) : theirs_for(now);
        if (!then) continue;
        if (o->sealed <= at && at < o->sealed_to && !*unsealed) {
            make_writable(o->sealed, o->sealed_to, 1);
            *unsealed = 1;
            if (scan.failed) return;
        }
        ip_store_relaxed(slot, then); /* (a thread that calls now goes to the one or the other) */
    }
}

static int visit_object(struct dl_phdr_info *info, size_t size, void *unused) {
    struct object o;
    int unsealed = 0;
    (void)size, (void)unused;
    if (!read_object(&o, info) || is_apart(&o)) return 0;
    for (int i = 0; i < 2; i++) visit_table(&o, o.tables[i], o.sizes[i], &unsealed);
    if (unsealed) make_writable(o.sealed, o.sealed_to, 0);
    return scan.failed;
}

static void look_at_slots(void) { dl_iterate_phdr(visit_object, NULL); }

/* ---- looking again ---------------------------------------------------------------------------------------------------- */

enum { SETTLING = 1000000000 }; /* ns */

static fs_word32 unsettled;

/* A thread may be in a first call, or load an object, while the functions are put in: then it fills a slot with what it has found before.
 * So the slots are looked at again before a connection moves, until no thread can be in such a call any more. */
void ip_look_again(void) {
    if (ip_likely(!ip_load_relaxed(&unsettled))) return;
    ip_lock();
    if (ip_load_relaxed(&unsettled)) {
        if (fs_now() - scan.since > SETTLING) ip_store_relaxed(&unsettled, 0);
        look_at_slots();
    }
    ip_unlock();
}

/* ---- in and out ------------------------------------------------------------------------------------------------------- */

/* The file that has what the program's names mean, or "". */
static const char *file_of(const void *function) {
    Dl_info where;
    return function && dladdr(function, &where) && where.dli_fname ? where.dli_fname : "";
}

/* The first function that the program's names mean in another library, where ours is not among what they can mean; or NULL. */
static const struct function *taken_by_another(void *program, const char **file) {
    if (ip_is_preloaded()) return NULL; /* perhaps after another library */
    for (const struct function *f = functions; f < functions + SHOWN; f++) {
        void *found = dlsym(program, f->name);
        if (!found || !f->next || found == f->next) continue;
        *file = file_of(found);
        /* (A program that is not relocatable has a place of its own for a function that it takes the address of.) */
        if (strstr(base_of(*file), ".so")) return f;
    }
    return NULL;
}

/* A library that stands between finds its next function by dlsym(3): it must not be ours again. What it stands before goes by names
 * alone. */
static void leave_out_chained(void) {
    for (struct function *f = functions; f < functions + FUNCTIONS; f++) {
        if (!f->next || ours_for(f->next) == f->ours) continue;
        for (unsigned h = 0; h < PLACES; h++)
            if (addresses[h].ours == f->ours) addresses[h].ours = NULL;
    }
}

const char *ip_put_in_place(void) {
    static char why[256];
    const char *file;
    void *program = dlopen(NULL, RTLD_LAZY); /* with all that every object finds (RTLD_DEFAULT is what this library finds) */
#ifdef __GLIBC__
    if (!dlsym(program, "gnu_get_libc_version")) return "the C library is not glibc";
#endif
    if (!place_of[hash_of_name("read")]) fill_places();
    for (struct function *f = functions; f < functions + FUNCTIONS; f++) f->next = dlsym(RTLD_NEXT, f->name);
    const char *single_threaded = dlsym(program, "__libc_single_threaded"); /* glibc has it from 2.32 on */
    const struct function *taken = taken_by_another(program, &file);
    if (taken) {
        snprintf(why, sizeof why, "%s is also in %s", taken->name, file);
        return why;
    }
    memset(addresses, 0, sizeof addresses);
    int objects = 0;
    if (dl_iterate_phdr(note_next_functions, &objects)) dl_iterate_phdr(note_functions, NULL);
    leave_out_chained();
    scan.in = 1;
    scan.failed = 0;
    dl_iterate_phdr(change_symbols, NULL);
    if (!scan.failed) look_at_slots();
    if (scan.failed) {
        snprintf(why, sizeof why, "the loader's tables cannot be written: %s", strerror(scan.failed));
        ip_take_out_of_place();
        return why;
    }
    scan.since = fs_now();
    ip_store_relaxed(&unsettled, !single_threaded || !*single_threaded);
    return NULL;
}

void ip_take_out_of_place(void) {
    ip_store_relaxed(&unsettled, 0);
    scan.in = scan.failed = 0;
    change_symbols_back();
    look_at_slots();
}
