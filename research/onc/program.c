/* A server and a client of ONC RPC over TCP, by rpcgen and libtirpc, without rpcbind.
 *
 *     program serve                         says where it listens
 *     program check PORT ROUNDS             calls of all sizes, a timeout, the server's death: says what came
 *     program measure PORT BYTES SECONDS    calls one after the other: {"calls": N, "seconds": S} */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

void calls_1(struct svc_req *request, SVCXPRT *transport);

/* ---- the server ------------------------------------------------------------------------------------------------------- */

bool_t echo_1_svc(piece given, piece *result, struct svc_req *request) {
    (void)request;
    *result = given;
    return TRUE;
}

bool_t sum_1_svc(piece given, u_int *result, struct svc_req *request) {
    (void)request;
    *result = 0;
    for (u_int i = 0; i < given.piece_len; i++) *result = *result * 31 + (unsigned char)given.piece_val[i];
    return TRUE;
}

bool_t nap_1_svc(int given, int *result, struct svc_req *request) {
    (void)request;
    *result = given;
    return usleep((useconds_t)given * 1000) == 0;
}

bool_t end_1_svc(int given, int *result, struct svc_req *request) {
    (void)result, (void)request;
    exit(given);
}

int calls_1_freeresult(SVCXPRT *transport, xdrproc_t type, caddr_t result) {
    (void)transport, (void)type, (void)result; /* an echo's bytes are those of the arguments */
    return TRUE;
}

static int serve(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 16) || getsockname(listener, (struct sockaddr *)&at, &size))
        return 1;
    SVCXPRT *transport = svctcp_create(listener, 0, 0);
    if (!transport || !svc_register(transport, CALLS, ONE, calls_1, 0)) return 1;
    printf("listening on 127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    svc_run();
    return 1;
}

/* ---- the client ------------------------------------------------------------------------------------------------------- */

enum { MOST = 64 << 10 };

static char bytes[MOST];

static CLIENT *connected(const char *port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)atoi(port))};
    int made = RPC_ANYSOCK;
    CLIENT *client = clnttcp_create(&at, CALLS, ONE, &made, 0, 0);
    if (!client) clnt_pcreateerror("client"), exit(1);
    return client;
}

static void set_patience(CLIENT *client, int milliseconds) {
    struct timeval patience = {milliseconds / 1000, milliseconds % 1000 * 1000};
    clnt_control(client, CLSET_TIMEOUT, (char *)&patience);
}

/* Without arguments and result. */
static enum clnt_stat bare(CLIENT *client, rpcproc_t number) {
    struct timeval patience = {60, 0};
    return clnt_call(client, number, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, patience);
}

static enum clnt_stat echo(CLIENT *client, u_int size, int *same) {
    piece result = {0};
    enum clnt_stat got = echo_1((piece){size, bytes}, &result, client);
    *same = got == RPC_SUCCESS && result.piece_len == size && !memcmp(result.piece_val, bytes, size);
    if (got == RPC_SUCCESS) clnt_freeres(client, (xdrproc_t)xdr_piece, (char *)&result);
    return got;
}

static int check(const char *port, int rounds) {
    CLIENT *client = connected(port), *other = connected(port);
    int same, good = 0, napped = 0;
    u_int sum = 0;
    for (u_int i = 0; i < MOST; i++) bytes[i] = (char)(i * 7 + i / 251);
    set_patience(client, 60000);
    set_patience(other, 60000);
    for (int i = 0; i < rounds; i++)
        for (u_int size = 0; size <= MOST; size = size ? size * 4 : 4) {
            good += echo(client, size, &same) == RPC_SUCCESS && same;
            good += bare(other, NULLPROC) == RPC_SUCCESS;
        }
    printf("%d calls came back\n", good);
    enum clnt_stat got = sum_1((piece){MOST, bytes}, &sum, other);
    printf("sum: %d %u\n", got, sum);
    got = bare(client, 99);
    printf("no such call: %s\n", clnt_sperrno(got));
    set_patience(client, 50);
    got = nap_1(300, &napped, client);
    printf("too late: %s\n", clnt_sperrno(got));
    set_patience(client, 60000);
    got = echo(client, 1000, &same); /* the answer that came late is passed over */
    printf("and on: %s %d\n", clnt_sperrno(got), same);
    clnt_destroy(other);
    got = end_1(3, &napped, client);
    printf("the server ends: %s\n", clnt_sperrno(got));
    got = echo(client, 4, &same);
    printf("and then: %s\n", got == RPC_SUCCESS ? "an answer" : "none");
    clnt_destroy(client);
    return 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int measure(const char *port, u_int size, double seconds) {
    CLIENT *client = connected(port);
    double begin = now(), took = 0;
    long calls = 0;
    for (int warm = 1; warm || took < seconds; took = now() - begin) {
        int same = 1;
        if (warm && took > seconds / 4) warm = 0, calls = 0, begin = now();
        if ((size ? echo(client, size, &same) : bare(client, NULLPROC)) != RPC_SUCCESS || !same) return 1;
        calls++;
    }
    printf("{\"calls\": %ld, \"seconds\": %.6f}\n", calls, took);
    clnt_destroy(client);
    return 0;
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "serve")) return serve();
    if (count == 4 && !strcmp(words[1], "check")) return check(words[2], atoi(words[3]));
    if (count == 5 && !strcmp(words[1], "measure")) return measure(words[2], (u_int)atoi(words[3]), atof(words[4]));
    fprintf(stderr, "usage: program serve | check PORT ROUNDS | measure PORT BYTES SECONDS\n");
    return 2;
}
