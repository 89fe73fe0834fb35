// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static ls_log_settings log_settings = {.level = LS_LOG_WARN, .rank = -1};
static const char *const level_names[] = {"debug", "info", "warn", "error"};

void ls_log_init(const ls_log_settings *settings)
{
    log_settings = *settings;
}

static int format_text_line(char *line, size_t line_bytes, ls_log_level level, const char *text)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    char who[160] = "";
    int used = 0;
    if (log_settings.job) {
        used = snprintf(who, sizeof who, "job %.100s ", log_settings.job);
    }
    if (log_settings.rank >= 0) {
        snprintf(who + used, sizeof who - (size_t)used, "rank %d ", log_settings.rank);
    }
    return snprintf(line, line_bytes, "%02d:%02d:%02d.%03ld %-5s %s%s\n", local.tm_hour, local.tm_min,
                    local.tm_sec, now.tv_nsec / 1000000, level_names[level], who, text);
}

static int format_json_line(char *line, size_t line_bytes, ls_log_level level, const char *text)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *object = json_pack("{s:f, s:s}", "time", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, "level",
                               level_names[level]);
    if (log_settings.job) {
        json_object_set_new(object, "job", json_string(log_settings.job));
    }
    if (log_settings.rank >= 0) {
        json_object_set_new(object, "rank", json_integer(log_settings.rank));
    }
    json_object_set_new(object, "text", json_string(text));
    const size_t used = json_dumpb(object, line, line_bytes - 1, JSON_COMPACT);
    json_decref(object);
    if (used == 0 || used >= line_bytes) {
        return 0;
    }
    line[used] = '\n';
    return (int)used + 1;
}

void ls_log_write(ls_log_level level, const char *format, ...)
{
    if (level < log_settings.level) {
        return;
    }
    char text[1536], line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int bytes = log_settings.json ? format_json_line(line, sizeof line, level, text)
                                  : format_text_line(line, sizeof line, level, text);
    if (bytes >= (int)sizeof line) {
        bytes = (int)sizeof line - 1;
    }
    if (bytes > 0 && write(STDERR_FILENO, line, (size_t)bytes) < 0) {
        /* if stderr fails there is nowhere left to report it */
    }
}
