/* The version of the protocol between two processes (docs/protocol.md, docs/versions.md): of the region, and of every message. Two versions
 * do not speak with each other; their connections stay on kernel TCP. */
#pragma once

#ifndef FS_VERSION /* (a test builds a program of another version) */
#define FS_VERSION 8
#endif
