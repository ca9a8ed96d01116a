/* What drives LLVMFuzzerTestOneInput where there is no libFuzzer: mutates the inputs of a corpus, blindly, from a seed.
 * Takes libFuzzer's options as far as tests/hostile/fuzz/run uses them; every other argument is a folder, or an input to run once.
 * The input that ends the program is in the file named crash-... (or under -artifact_prefix=). */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 4096, INPUTS = 4096 };

static struct {
    uint8_t *data;
    size_t size;
} corpus[INPUTS];
static int inputs;
static uint8_t current[LONGEST];
static size_t current_size;
static const char *prefix = "";
static uint64_t state;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t below(size_t bound) { return (uint32_t)((next_random() >> 33) % bound); }

static void save_input(void) {
    char name[512];
    snprintf(name, sizeof name, "%scrash-%ld", prefix, (long)getpid());
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, current, current_size) != (ssize_t)current_size) return;
    close(fd);
    fprintf(stderr, "input saved as %s\n", name);
}

void __asan_on_error(void); /* the sanitizer calls it before its report */
void __asan_on_error(void) { save_input(); }

static void on_signal(int number) {
    save_input();
    signal(number, SIG_DFL);
    raise(number);
}

static void load(const char *path) {
    struct stat status;
    char inside[1024];
    if (stat(path, &status) < 0) {
        perror(path);
        exit(2);
    }
    if (S_ISDIR(status.st_mode)) {
        DIR *folder = opendir(path);
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            if (entry->d_name[0] == '.') continue;
            snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
            load(inside);
        }
        if (folder) closedir(folder);
        return;
    }
    FILE *file = fopen(path, "rb");
    if (!file || inputs == INPUTS) exit(2);
    corpus[inputs].data = malloc(LONGEST);
    corpus[inputs].size = fread(corpus[inputs].data, 1, LONGEST, file);
    inputs++;
    fclose(file);
}

static void run(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void mutate(void) {
    for (uint32_t times = 1 + below(6); times; times--) {
        size_t at = current_size ? below(current_size) : 0, n = 1 + below(16);
        switch (below(6)) {
        case 0: if (current_size) current[at] ^= (uint8_t)(1 << below(8)); break;
        case 1: if (current_size) current[at] = (uint8_t)next_random(); break;
        case 2: /* insert */
            if (current_size + n > LONGEST) break;
            memmove(current + at + n, current + at, current_size - at);
            for (size_t i = 0; i < n; i++) current[at + i] = (uint8_t)next_random();
            current_size += n;
            break;
        case 3: /* remove */
            if (at + n > current_size) break;
            memmove(current + at, current + at + n, current_size - at - n);
            current_size -= n;
            break;
        default: { /* a part of another input */
            size_t other = below((size_t)inputs), from = corpus[other].size ? below(corpus[other].size) : 0;
            n = below(corpus[other].size - from + 1);
            if (at + n > LONGEST) n = LONGEST - at;
            memcpy(current + at, corpus[other].data + from, n);
            if (at + n > current_size) current_size = at + n;
        }
        }
    }
}

int main(int count, char **arguments) {
    double seconds = 0;
    unsigned long runs = 0;
    state = (uint64_t)time(NULL);
    for (int i = 1; i < count; i++) {
        if (!strncmp(arguments[i], "-max_total_time=", 16)) seconds = strtod(arguments[i] + 16, NULL);
        else if (!strncmp(arguments[i], "-seed=", 6)) state = strtoull(arguments[i] + 6, NULL, 0);
        else if (!strncmp(arguments[i], "-artifact_prefix=", 17)) prefix = arguments[i] + 17;
        else if (arguments[i][0] != '-') load(arguments[i]);
    }
    signal(SIGABRT, on_signal);
    for (int i = 0; i < inputs; i++, runs++) {
        current_size = corpus[i].size;
        memcpy(current, corpus[i].data, current_size);
        run(current, current_size);
    }
    for (time_t until = time(NULL) + (time_t)seconds; inputs && time(NULL) < until;)
        for (int i = 0; i < 256; i++, runs++) {
            uint32_t from = below((size_t)inputs);
            current_size = corpus[from].size;
            memcpy(current, corpus[from].data, current_size);
            mutate();
            run(current, current_size);
            if (runs % 64 == 0 && current_size) { /* blind, but not always from the same inputs */
                uint32_t over = below((size_t)inputs);
                memcpy(corpus[over].data, current, current_size);
                corpus[over].size = current_size;
            }
        }
    printf("%lu inputs run, from %d\n", runs, inputs);
    return 0;
}
