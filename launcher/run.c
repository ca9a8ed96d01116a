/* The command `fastsock-run PROGRAM ARGUMENTS`: becomes the program, with the library that lies beside this file in LD_PRELOAD. `fastsock
 * run` of a program that is not Python's is this one. docs/interpose.md has its options.
 *
 * Responsible for: what stands in the environment of the program, and one line if the program cannot use the library. Never: what a setting
 * may be (setting_table.c), or what a file is (program_file.c). */
#include "program_file.h"
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

int fs_program_open(const char *path) { return open(path, O_RDONLY | O_CLOEXEC); }
ssize_t fs_program_read(int fd, void *into, size_t size, uint64_t at) { return pread(fd, into, size, (off_t)at); }
void fs_program_close(int fd) { close(fd); }

static struct fs_program program;
static struct fs_settings settings;
static char folder[PATH_MAX];      /* of this file: the library is in it */
static const char *stats;          /* --stats */
static int libc_alone;             /* --libc: the library serves Python too, and not the package */
static char **of_python;           /* `fastsock run` in Python, with its words: what is no program for us, it starts */

__attribute__((format(printf, 2, 3), noreturn)) static void end(int status, const char *format, ...) {
    va_list more;
    va_start(more, format);
    fputs("fastsock: ", stderr);
    vfprintf(stderr, format, more);
    fputc('\n', stderr);
    exit(status);
}

/* The command line is one that Python's parser complains of, or has more to do for. */
static void leave_to_python(void) {
    if (!of_python) return;
    execv(of_python[0], of_python);
    end(126, "%s: %s", of_python[0], strerror(errno));
}

static int exists(const char *name) {
    static char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

/* A list in a variable, with what is ours before its own, and without what is ours already. */
static void put_first(const char *variable, const char *ours, int (*is_ours)(const char *word), int (*goes_first)(const char *word)) {
    const char *inherited = getenv(variable) ? getenv(variable) : "";
    char *words = strdup(inherited), *first = calloc(1, strlen(inherited) + 2), *last = calloc(1, strlen(inherited) + 2), *all = NULL;
    const char *separators = goes_first ? ": " : ":"; /* LD_PRELOAD has both, and its empty words mean nothing */
    for (char *word, *rest = *words ? words : NULL; (word = strsep(&rest, separators));)
        if (!is_ours(word) && (*word || !goes_first)) strcat(strcat(goes_first && goes_first(word) ? first : last, word), ":");
    int length = asprintf(&all, "%s%s%s%s", first, ours, *ours ? ":" : "", last);
    if (length > 0) all[length - 1] = 0;
    if (length > 0) setenv(variable, all, 1);
    else unsetenv(variable);
    free(words), free(first), free(last), free(all);
}

static int is_library(const char *word) {
    size_t length = strlen(folder);
    return !strncmp(word, folder, length) && !strncmp(word + length, "/libfastsock", 12);
}

/* (The runtime of a sanitizer has to be the first library.) */
static int is_sanitizer(const char *word) {
    static const char *const names[] = {"libasan.so", "libtsan.so", "libhwasan.so", "liblsan.so", "libclang_rt."};
    const char *slash = strrchr(word, '/');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(slash ? slash + 1 : word, names[i], strlen(names[i]))) return 1;
    return 0;
}

static int is_startup(const char *word) {
    size_t length = strlen(folder);
    return !strncmp(word, folder, length) && !strcmp(word + length, "/_startup");
}

/* Python processes that the program starts are served by the package, where there is one (fastsock/_startup). */
static void set_for_python(int served_by_package) {
    static char startup[PATH_MAX + 16];
    if (served_by_package) {
        setenv("FASTSOCK_RUN", "1", 1);
        snprintf(startup, sizeof startup, "%s/_startup", folder);
    } else {
        unsetenv("FASTSOCK_RUN");
        unsetenv("FASTSOCK_RUN_STATS");
    }
    put_first("PYTHONPATH", startup, is_startup, NULL);
}

static void set_statistics(const char *variable) {
    static char text[2 * PATH_MAX + 32], here[PATH_MAX];
    int of_library = !strcmp(variable, "FASTSOCK_RUN_LIBRARY_STATS"), length = of_library ? sprintf(text, "%d:", (int)getpid()) : 0;
    if (*stats != '/' && !getcwd(here, sizeof here)) end(2, "the current folder has no name: %s", strerror(errno));
    snprintf(text + length, sizeof text - (size_t)length, "%s%s%s", *stats == '/' ? "" : here, *stats == '/' ? "" : "/", stats);
    setenv(variable, text, 1); /* (this process becomes the program, so its number tells the program from its children) */
}

/* Whether the file can be written when the program ends. */
static void check_statistics(void) {
    struct stat status;
    char *of = strdup(stats), *slash = strrchr(of, '/');
    if (slash) slash[slash == of] = 0;
    int there = stat(stats, &status) == 0;
    if (*stats && (there ? !S_ISDIR(status.st_mode) && access(stats, W_OK) == 0 : access(slash ? of : ".", W_OK | X_OK) == 0)) {
        free(of);
        return;
    }
    leave_to_python();
    end(2, "argument --stats: %s cannot be written", stats);
}

/* "--poll-us 20" or "--poll-us=20" is FASTSOCK_POLL_US=20. Returns 1, or 0: it is no setting. */
static int set_setting(const char *option, const char *value) {
    char variable[64];
    size_t length = strcspn(option, "=");
    for (const struct fs_setting *it = fs_setting_table; it->name; it++) {
        size_t at = 0;
        while (at < length && (it->name[at] == option[at] || (it->name[at] == '_' && option[at] == '-'))) at++;
        if (at < length || it->name[at] || *it->name == '_') continue;
        if (option[length] == '=') value = option + length + 1;
        if (value) setenv(fs_setting_variable(it, variable), value, 1);
        return value != NULL;
    }
    return 0;
}

/* Returns the words of the program. */
static char **read_options(char **words) {
    for (; *words && words[0][0] == '-'; words++) {
        const char *option = *words, *value = words[1];
        if (!strcmp(option, "--libc")) {
            libc_alone = 1;
        } else if (!strncmp(option, "--stats=", 8)) {
            stats = option + 8;
        } else if (!strcmp(option, "--stats") && value) {
            stats = *++words;
        } else if (!strncmp(option, "--", 2) && set_setting(option + 2, value)) {
            words += !strchr(option, '=');
        } else {
            leave_to_python();
            end(2, "no option %s, or no value for it: fastsock-run [--libc] [--stats FILE] [--SETTING VALUE] ... PROGRAM [ARGUMENT ...]",
                option);
        }
    }
    return words;
}

/* The settings that the program reads are right, and name users by number. */
static void check_settings(void) {
    static struct fs_setting_error error;
    static char text[FS_TRUSTED_USERS * 32 + 16], line[FS_SETTING_LINE];
    if (fs_settings_of_environment(&settings, &error)) {
        fs_setting_say(&error, line);
        end(2, "%s", line);
    }
    fs_users_text(&settings.trust, text, sizeof text);
    if (settings.trust.count) setenv("FASTSOCK_TRUST", text, 1);
    if (fs_settings_warn()) setenv("FASTSOCK_RUN_TOLD", "1", 1);
}

static void find_program(const char *name) {
    int found = fs_find_program(name, &program);
    if (found > 0) return;
    if (!found) leave_to_python();
    int exist = strchr(name, '/') ? access(name, F_OK) == 0 : fs_program_on_path(name, program.path) != NULL;
    if (found) end(126, "%s: %s", name, strerror(-found));
    if (exist) end(126, "%s is not executable", name);
    end(127, "%s: %s", name, strchr(name, '/') ? "no such file or directory" : "command not found");
}

/* The library for it, or NULL; says why there is none. */
static const char *library_for(const char *name) {
    const char *library = program.kind == FS_PROGRAM_MUSL ? "libfastsock-musl.so" : "libfastsock.so",
               *refusal = fs_program_refusal(&program);
    if (!refusal && !exists(library))
        refusal = program.kind == FS_PROGRAM_MUSL ? "its C library is musl; glibc is needed"
                                                  : "its C library is glibc, and its library is not here";
    if (refusal && *program.interpreter)
        fprintf(stderr, "fastsock: %s stays with the kernel: its interpreter is %s, and %s\n", name, program.interpreter, refusal);
    else if (refusal)
        fprintf(stderr, "fastsock: %s stays with the kernel: %s\n", name, refusal);
    return exists(library) && program.kind != FS_PROGRAM_FOREIGN && program.kind != FS_PROGRAM_SANITIZED ? library : NULL;
}

static void find_folder(void) {
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length > 0 ? length : 0] = 0;
    if (length <= 0 && !realpath((const char *)getauxval(AT_EXECFN), folder)) *folder = 0; /* (no /proc is mounted) */
    char *slash = strrchr(folder, '/');
    if (!slash) end(2, "the folder of fastsock-run cannot be found: mount /proc");
    *slash = 0;
}

int main(int count, char **words) {
    static char library[PATH_MAX + 32];
    if (count > 3 && !strcmp(words[1], "--python")) of_python = words += 2; /* its command, and "run" */
    find_folder();
    words = read_options(words + 1 + (of_python != NULL));
    if (!*words) {
        leave_to_python();
        end(2, "no program given: fastsock-run [--libc] [--stats FILE] [--SETTING VALUE] ... PROGRAM [ARGUMENT ...]");
    }
    check_settings();
    find_program(*words);
    int has_package = exists("_startup/sitecustomize.py") && !libc_alone;
    const char *name = library_for(*words);
    if (stats) check_statistics();
    if (name && settings.enabled) snprintf(library, sizeof library, "%s/%s", folder, name);
    if (*library && strpbrk(library, " :"))
        end(2, "LD_PRELOAD cannot name %s: install fastsock in a folder whose path has no space and no colon", library);
    put_first("LD_PRELOAD", library, is_library, is_sanitizer);
    set_for_python(has_package);
    if (stats) set_statistics(program.python && has_package ? "FASTSOCK_RUN_STATS" : "FASTSOCK_RUN_LIBRARY_STATS");
    unsetenv("FASTSOCK_RUN_IGNORED");
    execv(program.path, words);
    int error = errno;
    end(access(program.path, F_OK) == 0 ? 126 : 127, "%s%s: %s", strchr(program.path, '/') ? "" : "./", program.path,
        error == ENOENT && access(program.path, F_OK) == 0 ? "its interpreter or loader does not exist" : strerror(error));
}
