// SPDX-License-Identifier: Apache-2.0
#include "cli/queue/queue.h"

#include "base/clock.h"
#include "base/file.h"
#include "cli/table.h"
#include "orchestration/client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 256 * 1024, VALUE_BYTES_MAX = 4096 };

extern char **environ;

/* ---- asking ---- */

static ls_status ask(const char *method, const json_t *body, const char *format, va_list args,
                     json_t **answer_out)
{
    ls_text path = {0};
    ls_text_vprintf(&path, format, args);
    const ls_client_request request = {
        .method = method, .path = ls_text_string(&path), .body = body, .timeout_s = LS_QUEUE_ANSWER_S};
    const ls_status status = ls_client_ask(&request, answer_out);
    ls_text_release(&path);
    return status;
}

ls_status ls_queue_get(json_t **answer_out, const char *path, ...)
{
    va_list args;
    va_start(args, path);
    const ls_status status = ask("GET", NULL, path, args, answer_out);
    va_end(args);
    return status;
}

ls_status ls_queue_post(json_t *body, json_t **answer_out, const char *path, ...)
{
    va_list args;
    va_start(args, path);
    const ls_status status = ask("POST", body, path, args, answer_out);
    va_end(args);
    json_decref(body);
    return status;
}

bool ls_queue_is_job(const char *word)
{
    const size_t digits = strspn(word, "0123456789");
    return digits > 0 && digits <= 15 && word[digits] == '\0' && word[0] != '0';
}

ls_status ls_queue_put_usd(json_t *body, const char *key, const char *option, const char *text)
{
    char *end = NULL;
    if (!text[0] || strcmp(text, "none") == 0) {
        return text[0] && json_object_set_new(body, key, json_null()) != 0 ? LS_ERR_MEMORY : LS_OK;
    }
    const double amount = strtod(text, &end);
    if (end == text || (*end != '\0' && strcmp(end, "USD") != 0 && strcmp(end, " USD") != 0)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is '%.40s': write an amount in USD, such as 25.50, or 'none'; other "
                       "currencies are not converted",
                       option, text);
    }
    if (!(amount >= 0.01 && amount <= 1e9)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is %.40s, allowed is 0.01 to 1000000000 USD, or 'none' for no limit", option,
                       text);
    }
    json_object_set_new(body, key, json_real(amount));
    return LS_OK;
}

ls_status ls_queue_job(const char *word, uint64_t *job_out)
{
    if (!ls_queue_is_job(word)) {
        return ls_fail(LS_ERR_INVALID, "'%s' is not the number of a job; 'lockstep ps --all' lists all jobs",
                       word);
    }
    *job_out = strtoull(word, NULL, 10);
    return LS_OK;
}

/* ---- answers ---- */

const char *ls_queue_string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int64_t ls_queue_integer(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

double ls_queue_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool is_one_of(const char *state, const char *const *names)
{
    for (; state && *names; names++) {
        if (strcmp(state, *names) == 0) {
            return true;
        }
    }
    return false;
}

void ls_queue_print_estimate(const json_t *answer, FILE *out)
{
    const json_t *estimate = json_object_get(answer, "estimate");
    const double cost = ls_queue_number(estimate, "cost"), cap = ls_queue_number(answer, "max_cost");
    if (isfinite(cost)) {
        fprintf(out, "expected to cost %.2f %s (%.2f to %.2f): %s on %" PRId64 " device%s%s\n", cost,
                ls_queue_string(estimate, "currency"), ls_queue_number(estimate, "low"),
                ls_queue_number(estimate, "high"), ls_duration_of(ls_queue_number(estimate, "run_s")).text,
                ls_queue_integer(estimate, "devices"), ls_queue_integer(estimate, "devices") == 1 ? "" : "s",
                cost > cap ? "; its cap (job.max_cost) will stop it before its end" : "");
    }
}

bool ls_queue_waits(const char *state)
{
    return is_one_of(state, (const char *const[]){"QUEUED", "HELD", NULL});
}

bool ls_queue_has_ended(const char *state)
{
    return is_one_of(state, (const char *const[]){"SUCCEEDED", "FAILED", "CANCELLED", NULL});
}

/* ---- tables ---- */

/* When it was queued, was last started, or ended: whichever its state is about. */
static double since_s(const json_t *job)
{
    const char *state = ls_queue_string(job, "state");
    return ls_queue_number(job, ls_queue_has_ended(state) ? "ended"
                                : ls_queue_waits(state)   ? "queued"
                                                          : "started");
}

void ls_queue_append_jobs(const json_t *jobs, ls_arena *arena, size_t width, ls_text *text)
{
    static const char *const titles[] = {"JOB",   "NAME", "STATE", "ACCOUNT", "PRIORITY",
                                         "RANKS", "FOR",  "LEFT",  "WHY"};
    static const bool right[] = {true, false, false, false, false, true, true, true, false};
    static const bool whole[] = {false, false, true, false, true, false, false, false, false};
    ls_table table = {.titles = titles, .right = right, .whole = whole, .columns = 9, .arena = arena};
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        const double then_s = since_s(job), ends_s = ls_queue_number(job, "ends");
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "job"));
        ls_table_add(&table, ls_queue_string(job, "name"));
        ls_table_add(&table, ls_queue_string(job, "state"));
        ls_table_add(&table, ls_queue_string(job, "account"));
        ls_table_add(&table, ls_queue_string(job, "priority"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "ranks"));
        ls_table_add_span(&table, now_s - then_s);
        ls_table_add_span(&table, ends_s - now_s);
        ls_table_add(&table, ls_queue_string(job, "why"));
    }
    ls_table_append(&table, width, text);
}

/* "12 (2), 14 (1)": jobs and the number of their devices. */
static void append_holders(const json_t *jobs, ls_text *text)
{
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        ls_text_printf(text, "%s%" PRId64 " (%" PRId64 ")", i > 0 ? ", " : "", ls_queue_integer(job, "job"),
                       ls_queue_integer(job, "devices"));
    }
}

void ls_queue_append_nodes(const json_t *nodes, ls_arena *arena, size_t width, ls_text *text)
{
    static const char *const titles[] = {"NODE", "STATE", "KIND", "DEVICES", "USED", "JOBS"};
    static const bool right[] = {false, false, false, true, true, false};
    ls_table table = {.titles = titles, .right = right, .columns = 6, .arena = arena};
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        ls_text holders = {0};
        append_holders(json_object_get(node, "jobs"), &holders);
        ls_table_add(&table, ls_queue_string(node, "node"));
        ls_table_add(&table, ls_queue_string(node, "state"));
        ls_table_add(&table, ls_queue_string(node, "kind"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(node, "devices"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(node, "used"));
        ls_table_add(&table, ls_text_string(&holders));
        ls_text_release(&holders);
    }
    ls_table_append(&table, width, text);
}

/* ---- requests ---- */

/* False when the value is not set, too long, or not UTF-8. */
static bool put_variable(json_t *environment, const char *name, const char *value)
{
    json_t *text = value && strlen(value) <= VALUE_BYTES_MAX ? json_string(value) : NULL;
    return text && json_object_set_new(environment, name, text) == 0;
}

/* NAME or NAME=VALUE of --env; a variable that cannot be passed on is an error. */
static ls_status put_asked(json_t *environment, const char *word)
{
    char name[256];
    const size_t bytes = strcspn(word, "=");
    if (bytes == 0 || bytes >= sizeof name) {
        return ls_fail(LS_ERR_INVALID, "--env %.64s: write NAME or NAME=VALUE, with a name of 1 to %zu bytes",
                       word, sizeof name - 1);
    }
    memcpy(name, word, bytes);
    name[bytes] = '\0';
    if (strpbrk(name, " \t\n") || (name[0] >= '0' && name[0] <= '9')) {
        return ls_fail(LS_ERR_INVALID,
                       "--env %.64s: write NAME or NAME=VALUE, with a name of letters, digits and _", word);
    }
    const char *value = word[bytes] == '=' ? word + bytes + 1 : getenv(name);
    if (!value) {
        return ls_fail(LS_ERR_INVALID, "--env %.64s: no variable of that name is set in this shell", name);
    }
    return put_variable(environment, name, value)
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "--env %.64s: the value must be UTF-8 of at most %d bytes", name,
                         VALUE_BYTES_MAX);
}

/* Whether LOCKSTEP_HOME belongs to this user. Jobs use caches and calibration of their own user's
 * folder, not those of a daemon of root. */
static bool home_is_own(void)
{
    struct stat info;
    const char *home = getenv("LOCKSTEP_HOME");
    return home && home[0] == '/' && stat(home, &info) == 0 && info.st_uid == geteuid();
}

static json_t *usual_environment(void)
{
    /* Only these: secrets in the environment must not be written to the daemon's database. */
    static const char *const names[] = {
        "PATH",        "HOME",         "USER",       "LOGNAME",   "SHELL",
        "LANG",        "LANGUAGE",     "TZ",         "TMPDIR",    "LD_LIBRARY_PATH",
        "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "CUDA_HOME", "OMP_NUM_THREADS",
        "LOCKSTEP_LOG"};
    json_t *environment = json_object();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        put_variable(environment, names[i], getenv(names[i]));
    }
    if (home_is_own()) {
        put_variable(environment, "LOCKSTEP_HOME", getenv("LOCKSTEP_HOME"));
    }
    for (char **at = environ; *at; at++) {
        char name[64];
        const size_t bytes = strcspn(*at, "=");
        if (strncmp(*at, "LC_", 3) == 0 && bytes < sizeof name) {
            memcpy(name, *at, bytes);
            name[bytes] = '\0';
            put_variable(environment, name, getenv(name));
        }
    }
    return environment;
}

/* All of standard input. */
static ls_status read_stdin(ls_arena *arena, char **text_out, size_t *bytes_out)
{
    char *text = ls_arena_alloc(arena, FILE_BYTES_MAX + 1);
    size_t bytes = 0;
    for (ssize_t got = 1; got != 0 && bytes <= FILE_BYTES_MAX;) {
        got = read(STDIN_FILENO, text + bytes, FILE_BYTES_MAX + 1 - bytes);
        if (got < 0 && errno != EINTR) {
            return ls_fail_errno(errno, "can't read the run file from standard input");
        }
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (bytes > FILE_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "standard input has more than %d bytes, the limit for a run file",
                       FILE_BYTES_MAX);
    }
    text[bytes] = '\0';
    *text_out = text;
    *bytes_out = bytes;
    return LS_OK;
}

/* "-" is standard input. Opening a named pipe could wait without end, so it is refused. */
static ls_status read_text(const char *path, ls_arena *arena, char **text_out, size_t *bytes_out)
{
    struct stat info;
    if (strcmp(path, "-") == 0) {
        return read_stdin(arena, text_out, bytes_out);
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is not a regular file; write '-' instead of a file to read standard input", path);
    }
    const ls_status status = ls_file_read(arena, path, FILE_BYTES_MAX, text_out, bytes_out);
    /* a file that is too long is not a damaged run file, but no run file */
    return status == LS_ERR_DATA ? LS_ERR_INVALID : status;
}

ls_status ls_queue_request(const char *path, const char *const *variables, size_t variable_count,
                           ls_arena *arena, json_t **request_out)
{
    char *text = NULL;
    size_t bytes = 0;
    LS_TRY(read_text(path, arena, &text, &bytes));
    return ls_queue_request_of(text, bytes, strcmp(path, "-") == 0 ? "stdin" : path, variables,
                               variable_count, request_out);
}

ls_status ls_queue_request_of(const char *text, size_t bytes, const char *path, const char *const *variables,
                              size_t variable_count, json_t **request_out)
{
    json_t *file = json_stringn(text, bytes);
    if (!file || strlen(text) != bytes) {
        json_decref(file);
        return ls_fail(LS_ERR_INVALID, "%s is not a run file: it is not UTF-8 text", path);
    }
    char *directory = getcwd(NULL, 0);
    json_t *folder = directory ? json_string(directory) : NULL;
    free(directory);
    if (!folder) {
        json_decref(file);
        return ls_fail(
            LS_ERR_INVALID,
            "the path of the current folder is not usable: the folder was removed, or its name is not UTF-8");
    }
    json_t *name = json_string(path), *environment = usual_environment();
    ls_status put = LS_OK;
    for (size_t i = 0; i < variable_count && put == LS_OK; i++) {
        put = put_asked(environment, variables[i]);
    }
    const mode_t mask = umask(077);
    char mask_text[8];
    umask(mask);
    snprintf(mask_text, sizeof mask_text, "%03o", (unsigned)mask & 0777);
    json_t *request = json_pack("{s:o, s:o, s:o, s:o, s:s}", "file", file, "file_name",
                                name ? name : json_string("run file"), "directory", folder, "environment",
                                environment, "umask", mask_text);
    if (put != LS_OK) {
        json_decref(request);
        return put;
    }
    *request_out = request;
    return LS_OK;
}
