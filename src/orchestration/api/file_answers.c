// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one file, for an exchange ---- */

static void hear(void *context, const ls_user_file_answer *answer)
{
    ls_api_exchange *exchange = context;
    const ls_api_hear_file next = exchange->hear;
    ls_user_file_answer seen = *answer;
    exchange->question = 0;
    ls_api_check_owner(&seen, exchange->file_owner);
    next(exchange, &seen);
}

void ls_api_check_owner(ls_user_file_answer *answer, uint32_t uid)
{
    if (answer->error == 0 && answer->owner != uid) {
        *answer = (ls_user_file_answer){.error = EPERM};
    }
}

void ls_api_exchange_read(ls_api_exchange *exchange, const ls_user_file *file, uint32_t owner,
                          ls_api_hear_file next)
{
    LS_ASSERT(!exchange->question);
    exchange->hear = next;
    exchange->file_owner = owner;
    exchange->question = ls_user_files_ask(exchange->api->files, file, hear, exchange);
}

void ls_api_exchange_file_error(ls_api_exchange *exchange, uint64_t job, const char *name, int error)
{
    if (error == ETIMEDOUT) {
        ls_api_exchange_error(
            exchange, 504,
            ls_fail(LS_ERR_TIMEOUT,
                    "%s of job %" PRIu64
                    " can't be read: the file system that holds the job's folder does not respond",
                    name, job));
    } else if (error == EBUSY || error == EAGAIN) {
        ls_api_exchange_error(
            exchange, 503,
            ls_fail(LS_ERR_FAILED,
                    "%s of job %" PRIu64
                    " can't be read now: an earlier read in the job's folder has not finished; try again",
                    name, job));
    } else {
        ls_api_exchange_error(exchange, 500,
                              ls_fail_errno(error, "%s of job %" PRIu64 " can't be read", name, job));
    }
}

/* ---- logs ---- */

ls_user_file ls_api_log_file(const ls_api *api, uint64_t job, const char *name, ls_text *folder)
{
    ls_text_printf(folder, "%s/jobs/%" PRIu64, api->home, job);
    /* The folder is the user's, the way to it is ours: it is read with our rights, and must then
     * turn out to be the user's file. */
    return (ls_user_file){.folder = ls_text_string(folder),
                          .name = name,
                          .uid = (uint32_t)geteuid(),
                          .gid = (uint32_t)getegid()};
}

size_t ls_api_tail_at(const char *text, size_t bytes, uint64_t lines)
{
    size_t at = bytes;
    while (at > 0) {
        /* A line feed at the very end ends the last line and does not begin another. */
        if (text[at - 1] == '\n' && at < bytes && --lines == 0) {
            break;
        }
        at--;
    }
    return at;
}
