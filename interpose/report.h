/* What is said of connections: for `fastsock doctor` (report.c), and for the program's own log (program_log.c). */
#pragma once

#include "interpose.h"

#pragma GCC visibility push(hidden)

/* ---- the report for `fastsock doctor` (report.c). These do nothing if nobody watches -------------------------------------- */

void ip_begin_report(void);
int ip_has_report(void); /* there is one, of this process */
void ip_end_report(void); /* each connection is opened by now */
void ip_report_path(struct ip_socket *s); /* the path of a connection is decided. Inside */
void ip_report_error(struct ip_socket *s, const char *event, int failed); /* -errno */
void ip_report_broken(struct ip_socket *s); /* the connection was reset, by a fault of the peer or of this side. Inside */

void ip_report_fallback(struct ip_socket *s, int left, int64_t bridge); /* what fs_fall_back has come to. Inside */

/* ---- the program's own log (program_log.c) ------------------------------------------------------------------------------- */

enum { IP_ADDRESS = 64 };
int ip_ends(struct ip_socket *s, char *local, char *peer); /* both addresses as text, each in IP_ADDRESS bytes. 0: one is not known */
void ip_tell_program(struct ip_socket *s, const char *event, const char *name, const char *value, const char *reason); /* Inside */

#pragma GCC visibility pop
