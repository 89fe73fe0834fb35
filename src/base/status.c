// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ERROR_TEXT_BYTES = 2048 };
static _Thread_local char error_text[ERROR_TEXT_BYTES];

static const struct {
    const char *name;
    int exit_code;
} status_table[] = {
    [LS_OK] = {"ok", 0},
    [LS_ERR_INVALID] = {"invalid", 2},
    [LS_ERR_NOT_FOUND] = {"not found", 2},
    [LS_ERR_UNSUPPORTED] = {"unsupported", 2},
    [LS_ERR_DATA] = {"data", 3},
    [LS_ERR_MEMORY] = {"memory", 4},
    [LS_ERR_DISK] = {"disk", 4},
    [LS_ERR_DEVICE] = {"device", 4},
    [LS_ERR_IO] = {"io", 1},
    [LS_ERR_FAILED] = {"failed", 1},
    [LS_ERR_TIMEOUT] = {"timeout", 1},
    [LS_ERR_RANKS_LOST] = {"ranks lost", 5},
    [LS_ERR_MISMATCH] = {"mismatch", 6},
    [LS_STOPPED] = {"stopped", 75},
    [LS_INTERRUPTED] = {"interrupted", 130},
    [LS_FENCED] = {"fenced", 1},
};

const char *ls_status_name(ls_status status)
{
    const size_t count = sizeof status_table / sizeof status_table[0];
    return (size_t)status < count ? status_table[status].name : "unknown";
}

int ls_status_exit_code(ls_status status)
{
    const size_t count = sizeof status_table / sizeof status_table[0];
    return (size_t)status < count ? status_table[status].exit_code : 1;
}

ls_status ls_fail(ls_status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES]; /* the arguments may point into error_text */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(error_text, text, sizeof text);
    return status;
}

static ls_status status_from_errno(int errno_value)
{
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EROFS:
        return LS_ERR_DISK;
    case ENOMEM:
        return LS_ERR_MEMORY;
    case ENOENT:
        return LS_ERR_NOT_FOUND;
    default:
        return LS_ERR_IO;
    }
}

ls_status ls_fail_errno(int errno_value, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ls_fail(status_from_errno(errno_value), "%s: %s", text, strerror(errno_value));
}

ls_status ls_fail_within(ls_status status, const char *format, ...)
{
    char context[ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    return ls_fail(status, "%s: %s", context, error_text);
}

const char *ls_error_text(void)
{
    return error_text;
}

void ls_error_clear(void)
{
    error_text[0] = '\0';
}
