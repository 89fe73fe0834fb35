// SPDX-License-Identifier: Apache-2.0
/* resize: changes the number of ranks of a running run or of a job, or shows the ranks. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "execution/run/control_socket.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ANSWER_TIMEOUT_S 10.0
#define LOOK_S           0.05

typedef struct resize_settings {
    uint64_t ranks, max_ranks, timeout;
    bool wait, json;
} resize_settings;

static const ls_option resize_options[] = {
    LS_ROW_U64(resize_settings, ranks, "auto", 1, 1 << 20,
               "new number of ranks, from job.min_ranks to job.max_ranks and at most train.leaves; auto: "
               "change nothing and show the ranks",
               .letter = 'n', .allow_auto = true),
    LS_ROW_U64(resize_settings, max_ranks, "auto", 1, 1 << 20,
               "for an elastic job of the queue (job.elastic): maximum number of ranks to which it grows "
               "while devices are idle; auto: unchanged",
               .allow_auto = true),
    LS_ROW(resize_settings, "wait", wait, LS_OPTION_BOOL, "true",
           "wait until the ranks have joined or left; --no-wait returns at once"),
    LS_ROW_U64(resize_settings, timeout, "120", 1, 86400,
               "maximum number of seconds to wait until the ranks have joined or left"),
    LS_ROW_JSON(resize_settings),
};

/* ---- asking ---- */

/* The error of the run becomes the error of the command. */
static ls_status refused(const json_t *answer)
{
    const char *text = json_string_value(json_object_get(answer, "error"));
    const char *name = json_string_value(json_object_get(answer, "status"));
    const bool is_invalid = name && strcmp(name, ls_status_name(LS_ERR_INVALID)) == 0;
    return ls_fail(is_invalid ? LS_ERR_INVALID : LS_ERR_FAILED, "%s",
                   text ? text : "the run refused without giving a reason");
}

/* Takes over `request`. answer_out: the caller drops it. */
static ls_status ask(const char *run, json_t *request, json_t **answer_out)
{
    json_t *answer = NULL;
    ls_status status = ls_control_socket_ask(run, request, ANSWER_TIMEOUT_S, &answer);
    json_decref(request);
    if (status == LS_OK && !json_is_true(json_object_get(answer, "ok"))) {
        status = refused(answer);
        json_decref(answer);
    }
    if (status == LS_OK) {
        *answer_out = answer;
    }
    return status;
}

static ls_status ask_status(const char *run, json_t **answer_out)
{
    return ask(run, json_pack("{s:s}", "request", "status"), answer_out);
}

/* ---- teams ---- */

static int64_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static bool is_member(const json_t *rank)
{
    return json_array_size(json_object_get(rank, "parts")) > 0;
}

static uint64_t count_members(const json_t *status)
{
    const json_t *ranks = json_object_get(status, "ranks");
    uint64_t count = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        count += is_member(json_array_get(ranks, i));
    }
    return count;
}

/* Whether as many ranks as were asked for have a part each. */
static bool is_complete(const json_t *status, uint64_t ranks)
{
    return count_members(status) == ranks && (uint64_t)number_of(status, "parts") == ranks;
}

static const json_t *find_member(const json_t *status, int64_t rank)
{
    const json_t *ranks = json_object_get(status, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *item = json_array_get(ranks, i);
        if (number_of(item, "rank") == rank && is_member(item)) {
            return item;
        }
    }
    return NULL;
}

/* Members of `status` that are not in `other`, compared by rank and process. */
static json_t *members_without(const json_t *status, const json_t *other)
{
    const json_t *ranks = json_object_get(status, "ranks");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *item = json_array_get(ranks, i);
        const json_t *there = find_member(other, number_of(item, "rank"));
        if (is_member(item) && (!there || number_of(there, "pid") != number_of(item, "pid"))) {
            json_array_append_new(list, json_pack("{s:I, s:I}", "rank", number_of(item, "rank"), "pid",
                                                  number_of(item, "pid")));
        }
    }
    return list;
}

/* ---- output ---- */

static void print_rank(const json_t *rank)
{
    ls_text parts = {0};
    const json_t *list = json_object_get(rank, "parts");
    for (size_t i = 0; i < json_array_size(list); i++) {
        ls_text_printf(&parts, "%s%" PRId64, i > 0 ? ", " : "",
                       (int64_t)json_integer_value(json_array_get(list, i)));
    }
    const char *host = json_string_value(json_object_get(rank, "host")),
               *phase = json_string_value(json_object_get(rank, "phase"));
    printf("  rank %-4" PRId64 " pid %-8" PRId64 " %-12s %-9s %s%s\n", number_of(rank, "rank"),
           number_of(rank, "pid"), host ? host : "-", phase ? phase : "-",
           parts.bytes > 0 ? "part " : "no part", ls_text_string(&parts));
    ls_text_release(&parts);
}

static void print_team(const json_t *status)
{
    const char *run = json_string_value(json_object_get(status, "run"));
    printf("%s: step %" PRId64 " of %" PRId64, run ? run : "run", number_of(status, "step"),
           number_of(status, "steps"));
    const json_t *ranks = json_object_get(status, "ranks");
    if (!ranks) {
        printf(", one process (pid %" PRId64 ")\n", number_of(status, "pid"));
        return;
    }
    printf(", %" PRIu64 " rank%s (%" PRId64 " to %" PRId64 " possible), epoch %" PRId64 "\n",
           count_members(status), count_members(status) == 1 ? "" : "s", number_of(status, "min_ranks"),
           number_of(status, "max_ranks"), number_of(status, "epoch"));
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        print_rank(json_array_get(ranks, i));
    }
}

static void print_changes(const json_t *list, const char *what)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        printf("rank %" PRId64 " (pid %" PRId64 ") %s\n", number_of(item, "rank"), number_of(item, "pid"),
               what);
    }
}

/* ---- waiting ---- */

static ls_status wait_for_team(const char *run, uint64_t ranks, double timeout_s, json_t **status_out)
{
    const double end_s = ls_clock_monotonic_s() + timeout_s;
    for (;;) {
        json_t *status = NULL;
        const ls_status asked = ask_status(run, &status);
        if (asked == LS_ERR_NOT_FOUND) {
            return ls_fail(LS_ERR_FAILED, "the run ended before it had %" PRIu64 " rank%s", ranks,
                           ranks == 1 ? "" : "s");
        }
        LS_TRY(asked);
        if (is_complete(status, ranks)) {
            *status_out = status;
            return LS_OK;
        }
        const uint64_t members = count_members(status);
        const size_t processes = json_array_size(json_object_get(status, "ranks"));
        json_decref(status);
        if (ls_clock_monotonic_s() > end_s) {
            return ls_fail(LS_ERR_TIMEOUT,
                           "after %.0f s the resize is not complete: the run has %" PRIu64 " of %" PRIu64
                           " ranks (%zu process%s). The request remains in effect; 'lockstep resize %s' "
                           "shows its progress",
                           timeout_s, members, ranks, processes, processes == 1 ? "" : "es", run);
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * LOOK_S)}, NULL);
    }
}

static void print_result(const resize_settings *settings, const json_t *before, json_t *after)
{
    json_t *joined = members_without(after, before), *left = members_without(before, after);
    if (settings->json) {
        json_object_set(after, "joined", joined);
        json_object_set(after, "left", left);
        ls_print_json(after);
    } else {
        print_changes(joined, "joined");
        print_changes(left, "left");
        print_team(after);
    }
    json_decref(joined);
    json_decref(left);
}

/* Asks for a new number of ranks and shows the result. before: the ranks until now. */
static ls_status change(const resize_settings *settings, const char *run, const json_t *before)
{
    json_t *answer = NULL, *after = NULL;
    LS_TRY(ask(run, json_pack("{s:s, s:I}", "request", "resize", "ranks", (json_int_t)settings->ranks),
               &answer));
    json_decref(answer);
    LS_TRY(settings->wait ? wait_for_team(run, settings->ranks, (double)settings->timeout, &after)
                          : ask_status(run, &after));
    print_result(settings, before, after);
    json_decref(after);
    return LS_OK;
}

/* ---- jobs ---- */

static ls_status resize_job(const resize_settings *settings, uint64_t job)
{
    json_t *answer = NULL;
    const bool changes = settings->ranks != LS_AUTO_U64 || settings->max_ranks != LS_AUTO_U64;
    json_t *body = json_object();
    if (settings->ranks != LS_AUTO_U64) {
        json_object_set_new(body, "ranks", json_integer((json_int_t)settings->ranks));
    }
    if (settings->max_ranks != LS_AUTO_U64) {
        json_object_set_new(body, "max_ranks", json_integer((json_int_t)settings->max_ranks));
    }
    if (changes) {
        LS_TRY(ls_queue_post(body, &answer, "/v1/jobs/%" PRIu64 "/resize", job));
    } else {
        json_decref(body);
        LS_TRY(ls_queue_get(&answer, "/v1/jobs/%" PRIu64, job));
    }
    if (settings->json) {
        ls_print_json(answer);
    } else if (changes) {
        printf("job %" PRIu64 " is %s: %s\n", job, ls_queue_string(answer, "state"),
               ls_queue_string(answer, "text"));
    } else {
        printf("job %" PRIu64 ": %s, %" PRId64 " rank%s (%" PRId64 " to %" PRId64 " possible)\n", job,
               ls_queue_string(answer, "state"), number_of(answer, "ranks"),
               number_of(answer, "ranks") == 1 ? "" : "s", number_of(answer, "min_ranks"),
               number_of(answer, "max_ranks"));
    }
    json_decref(answer);
    return LS_OK;
}

static ls_status run_resize(const ls_invocation *invocation)
{
    const resize_settings *settings = invocation->settings;
    const char *run = invocation->words[0];
    uint64_t job = 0;
    if (ls_queue_is_job(run)) {
        LS_TRY(ls_queue_job(run, &job));
        return resize_job(settings, job);
    }
    if (settings->max_ranks != LS_AUTO_U64) {
        return ls_fail(LS_ERR_INVALID,
                       "--max-ranks is for jobs of the queue; '%s' is not the number of a job", run);
    }
    json_t *status = NULL;
    LS_TRY(ask_status(run, &status));
    ls_status result = LS_OK;
    if (settings->ranks != LS_AUTO_U64) {
        result = change(settings, run, status);
    } else if (settings->json) {
        ls_print_json(status);
    } else {
        print_team(status);
    }
    json_decref(status);
    return result;
}

const ls_command ls_command_resize = {
    .name = "resize",
    LS_WORDS("RUN|JOB", 1, 1),
    .summary = "change the number of ranks of a running run or of a job",
    .details = "RUN is the run directory of a run in progress. Ranks join or leave at a step\n"
               "boundary while the others compute; the result has the same bits. The command\n"
               "waits until the change is complete and prints which ranks joined and left.\n"
               "Without --ranks it shows the ranks and what each does. A run of one process\n"
               "(--ranks 1 without job.elastic) cannot be resized.\n"
               "\n"
               "JOB is the number of a job of the queue. A waiting job, or a running one with\n"
               "job.elastic, gets the new size when there are devices for it; the command does\n"
               "not wait for that. While devices are idle, an elastic job grows beyond --ranks,\n"
               "up to --max-ranks.\n"
               "\n"
               "Examples:\n"
               "  lockstep resize runs/mine\n"
               "      show the ranks\n"
               "  lockstep resize runs/mine --ranks 3\n"
               "      use three ranks from the next step boundary on\n"
               "  lockstep resize 12 --ranks 3\n"
               "  lockstep resize 12 --ranks 1 --max-ranks 1\n"
               "      job 12 keeps one rank",
    LS_SETTINGS(resize_settings, resize_options),
    .run = run_resize,
};
