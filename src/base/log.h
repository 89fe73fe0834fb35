// SPDX-License-Identifier: Apache-2.0
/*
 * Log lines on stderr: lower case, "key value" pairs, `job` and `rank` first when they are set.
 * Logs are for people reading what happened; numbers that someone will plot are metrics
 * (base/emit.h).
 *
 * Text form:  12:34:56.789 warn  rank 1 data: shard shorter than its index, file a.bin bytes 12
 * JSON form:  {"time":1700000000.123,"level":"warn","rank":1,"text":"..."}
 *
 * Thread-safe: one write(2) per line.
 */
#ifndef LS_BASE_LOG_H
#define LS_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

typedef enum ls_log_level { LS_LOG_DEBUG, LS_LOG_INFO, LS_LOG_WARN, LS_LOG_ERROR } ls_log_level;

typedef struct ls_log_settings {
    ls_log_level level; /* lowest level that is written; default LS_LOG_WARN */
    bool json;          /* JSON lines instead of text */
    const char *job;    /* borrowed; NULL: left out */
    int rank;           /* -1: left out */
} ls_log_settings;

/* Sets the process's log settings; call before threads start. */
void ls_log_init(const ls_log_settings *settings);

void ls_log_write(ls_log_level level, const char *format, ...) LS_PRINTF(2, 3);

#define ls_log_debug(...) ls_log_write(LS_LOG_DEBUG, __VA_ARGS__)
#define ls_log_info(...)  ls_log_write(LS_LOG_INFO, __VA_ARGS__)
#define ls_log_warn(...)  ls_log_write(LS_LOG_WARN, __VA_ARGS__)
#define ls_log_error(...) ls_log_write(LS_LOG_ERROR, __VA_ARGS__)

#endif
