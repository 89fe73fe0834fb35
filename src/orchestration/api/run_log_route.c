// SPDX-License-Identifier: Apache-2.0
/* POST /v1/runs/ID/log: metrics that a program of any kind sends, kept as lines of a file. */
#include "orchestration/api/api_internal.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME_BYTES_MAX = 256,
    FILE_BYTES_MAX = 256 << 20, /* of one run */
};

/* ---- points ---- */

static bool is_number_text(const char *text)
{
    return text &&
           (strcmp(text, "NaN") == 0 || strcmp(text, "Infinity") == 0 || strcmp(text, "-Infinity") == 0);
}

static ls_status check_point(const json_t *point, size_t index)
{
    const char *name = NULL;
    const json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)point, name, value)
    {
        if (strlen(name) == 0 || strlen(name) > NAME_BYTES_MAX) {
            return ls_fail(LS_ERR_INVALID,
                           "points[%zu] has a metric with a name of %zu bytes; allowed is 1 to %d", index,
                           strlen(name), NAME_BYTES_MAX);
        }
        if (!json_is_number(value) && !json_is_boolean(value) && !json_is_null(value) &&
            !is_number_text(json_string_value(value))) {
            return ls_fail(LS_ERR_INVALID,
                           "points[%zu]: %.64s must be a number, true, false, null, or one of the texts NaN, "
                           "Infinity and -Infinity",
                           index, name);
        }
    }
    const json_t *step = json_object_get(point, "step");
    if (step && (!json_is_integer(step) || json_integer_value(step) < 0)) {
        return ls_fail(LS_ERR_INVALID, "points[%zu]: step must be a whole number, 0 or more", index);
    }
    return LS_OK;
}

/* Appends a line for each point, with the time if it has none. */
static ls_status compose(const json_t *points, double now_s, ls_text *text)
{
    for (size_t i = 0; i < json_array_size(points); i++) {
        json_t *point = json_array_get(points, i);
        LS_TRY(check_point(point, i));
        if (!json_object_get(point, "time")) {
            json_object_set_new(point, "time", json_real(now_s));
        }
        char *line = json_dumps(point, JSON_COMPACT | JSON_REAL_PRECISION(17));
        LS_ASSERT(line && "not enough memory for a line of metrics");
        ls_text_printf(text, "%s\n", line);
        free(line);
    }
    return LS_OK;
}

/* ---- the file ---- */

/* All or nothing, except in a crash: then the next write ends the torn line. */
static ls_status append_to(int fd, const char *path, const ls_text *lines)
{
    struct stat info;
    char last = '\n';
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return ls_fail(LS_ERR_IO, "%s is not a plain file", path);
    }
    if (info.st_size + (off_t)lines->bytes > FILE_BYTES_MAX) {
        return ls_fail(LS_ERR_DISK,
                       "%s holds %" PRId64 " MiB, and %d MiB is the limit: log less often, or to another run",
                       path, (int64_t)(info.st_size >> 20), FILE_BYTES_MAX >> 20);
    }
    if (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) != 1) {
        return ls_fail_errno(errno, "can't read %s", path);
    }
    ls_status status = last == '\n' ? LS_OK : ls_file_write_all(fd, path, "\n", 1);
    status = status != LS_OK ? status : ls_file_write_all(fd, path, lines->data, lines->bytes);
    if (status != LS_OK && ftruncate(fd, info.st_size) != 0) {
        return status; /* the torn line is ended by the next write */
    }
    return status;
}

static ls_status append_lines(const char *folder, const char *name, const ls_text *lines)
{
    ls_arena arena = {0};
    const char *path = ls_path_join(&arena, folder, name);
    ls_status status = ls_dir_create(folder);
    if (status == LS_OK) {
        const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
        status = fd >= 0 ? append_to(fd, path, lines) : ls_fail_errno(errno, "can't open %s", path);
        if (fd >= 0) {
            close(fd);
        }
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- the request ---- */

static void keep(ls_api_exchange *exchange, const char *folder, const char *name)
{
    const json_t *points = json_object_get(exchange->arguments, "points");
    ls_text lines = {0};
    int code = 400;
    ls_status status = compose(points, ls_env_wall_s(exchange->api->env), &lines);
    if (status == LS_OK) {
        status = append_lines(folder, name, &lines);
        code = status == LS_ERR_DISK ? 507 : 500;
    }
    ls_text_release(&lines);
    if (status != LS_OK) {
        ls_api_exchange_error(exchange, (unsigned)code, status);
        return;
    }
    ls_api_exchange_json(exchange, 200,
                         json_pack("{s:O, s:I}", "run", json_object_get(exchange->arguments, "run"), "points",
                                   (json_int_t)json_array_size(points)));
}

/* A job's owner may log to it, and so may administrators; those who may only read it may not. */
static void keep_of_job(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    const json_t *job = exchange->asks[0].answer;
    const uint32_t uid = (uint32_t)json_integer_value(json_object_get(job, "uid"));
    if (uid != exchange->caller.uid && !exchange->caller.is_admin) {
        ls_api_exchange_error(
            exchange, 403,
            ls_fail(LS_ERR_INVALID, "only the owner of a job and administrators may log to it"));
        return;
    }
    ls_text folder = {0};
    char name[32];
    const ls_user_file file = ls_api_logged_file(
        exchange->api, (uint64_t)json_integer_value(json_object_get(job, "job")), &folder, name);
    keep(exchange, file.folder, file.name);
    ls_text_release(&folder);
}

void ls_api_run_log(ls_api_exchange *exchange)
{
    const ls_api_calls *calls = &exchange->api->calls;
    const char *run = json_string_value(json_object_get(exchange->arguments, "run"));
    if (exchange->api->home) {
        ls_api_run_ask(exchange, run, keep_of_job);
        return;
    }
    ls_text folder = {0};
    const ls_status status =
        calls->log_folder
            ? calls->log_folder(calls->context, run, &folder)
            : ls_fail(LS_ERR_INVALID, "this page only shows runs: 'lockstep view --log' also keeps metrics");
    if (status == LS_OK) {
        keep(exchange, ls_text_string(&folder), "logged.jsonl");
    } else {
        ls_api_exchange_error(exchange, status == LS_ERR_INVALID && calls->log_folder ? 400 : 403, status);
    }
    ls_text_release(&folder);
}
