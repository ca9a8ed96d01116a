/* The options of TCP, for the core's own files. <linux/tcp.h> and <netinet/tcp.h> cannot both be included, and the choice is the
 * program's. So no header that a program includes has either. */
#pragma once

#include <netinet/in.h>
#include <linux/tcp.h>
