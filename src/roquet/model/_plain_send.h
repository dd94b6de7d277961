/* Which names of properties are reserved.
 *
 * Made by ``scripts/compiled_declarations.py``; change the Python modules, not this file.
 */

#ifndef ROQUET_PLAIN_SEND_H
#define ROQUET_PLAIN_SEND_H

#include <stddef.h>
#include <string.h>

static inline int roquet_is_reserved(const unsigned char *at, size_t size) {
    if (size == 0) return 0;
    if (size == 13 && memcmp(at, "__SHARDINGKEY", 13) == 0) return 0;
    switch (at[0]) {
    case '1':
        if (size >= 1 && memcmp(at, "1", 1) == 0) return 1;
        return 0;
    case 'C':
        if (size >= 6 && memcmp(at, "CHECK_", 6) == 0) return 1;
        if (size == 7 && memcmp(at, "CLUSTER", 7) == 0) return 1;
        return 0;
    case 'D':
        if (size >= 5 && memcmp(at, "DELAY", 5) == 0) return 1;
        if (size >= 4 && memcmp(at, "DLQ_", 4) == 0) return 1;
        return 0;
    case 'I':
        if (size >= 6 && memcmp(at, "INNER_", 6) == 0) return 1;
        return 0;
    case 'M':
        if (size >= 4 && memcmp(at, "MAX_", 4) == 0) return 1;
        if (size >= 4 && memcmp(at, "MIN_", 4) == 0) return 1;
        if (size >= 4 && memcmp(at, "MSG_", 4) == 0) return 1;
        return 0;
    case 'O':
        if (size == 17 && memcmp(at, "ORIGIN_MESSAGE_ID", 17) == 0) return 1;
        return 0;
    case 'P':
        if (size == 6 && memcmp(at, "PGROUP", 6) == 0) return 1;
        if (size >= 4 && memcmp(at, "POP_", 4) == 0) return 1;
        if (size >= 5 && memcmp(at, "PUSH_", 5) == 0) return 1;
        return 0;
    case 'R':
        if (size >= 2 && memcmp(at, "RE", 2) == 0) return 1;
        return 0;
    case 'T':
        if (size >= 6 && memcmp(at, "TIMER_", 6) == 0) return 1;
        if (size >= 3 && memcmp(at, "TRA", 3) == 0) return 1;
        return 0;
    case '_':
        if (size >= 1 && memcmp(at, "_", 1) == 0) return 1;
        return 0;
    default:
        return 0;
    }
}

#endif
