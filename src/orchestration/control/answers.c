// SPDX-License-Identifier: Apache-2.0
/* What is asked to be shown. Others' jobs have number, state, account and ranks, and nothing else. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 10000 };

static const char *const priority_names[] = {"low", "normal", "high"};

static bool may_see(const ls_caller *caller, const ls_job *job)
{
    return ls_job_is_open_to(job, caller->uid, caller->user, caller->is_admin);
}

/* A name that came from a user may not be printable as JSON text; then it is left out. */
static json_t *text_or_null(const char *text)
{
    json_t *string = text && text[0] ? json_string(text) : NULL;
    return string ? string : json_null();
}

static json_t *time_or_null(double time_s)
{
    return time_s > 0.0 ? json_real(time_s) : json_null();
}

/* ---- a reason: the same words in a list and in `why` ---- */

static const char *level_text(ls_level level)
{
    static const char *const texts[] = {"one island", "one node", "one leaf", "one spine", "the cluster"};
    return texts[level];
}

/* "jobs 3 and 4" that have not ended. */
static void append_dependency(const ls_controller *c, const ls_job *job, ls_text *text)
{
    enum { NAMED_MAX = 4 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const ls_entry *other = ls_controller_find(c, job->spec.after[i]);
        if (other && !ls_job_state_is_final(other->job->state)) {
            if (count < NAMED_MAX) {
                ls_text_printf(text, "%s%" PRIu64, count == 0 ? "it waits for job " : ", ", other->job->id);
            }
            count++;
        }
    }
    if (count > NAMED_MAX) {
        ls_text_printf(text, " and %u more", count - NAMED_MAX);
    }
    ls_text_append(text, job->spec.after_any ? " to end" : " to succeed");
}

/* One sentence: the first stage that fails. */
static void append_sentence(const ls_controller *c, const ls_job *job, const ls_why *why, ls_text *text)
{
    switch (why->stage) {
    case LS_WHY_IMPOSSIBLE:
        ls_text_append(text,
                       "it can never start as it is: all machines together could not hold it, or its "
                       "account may never use so much, for its quota or for what other accounts do not lend");
        break;
    case LS_WHY_HOLD:
        ls_text_printf(text, "%s, until 'lockstep release'", job->text ? job->text : "it is held");
        break;
    case LS_WHY_DEPENDENCY:
        append_dependency(c, job, text);
        break;
    case LS_WHY_BEGIN:
        ls_text_printf(text, "it may begin in %s",
                       ls_duration_of(job->submitted_s + job->spec.begin_s - c->time_s).text);
        break;
    case LS_WHY_GROUP:
        ls_text_printf(text, "%u job%s of its group run%s already, as many as may (job.group.running_max)",
                       job->spec.group_running_max, job->spec.group_running_max == 1 ? "" : "s",
                       job->spec.group_running_max == 1 ? "s" : "");
        break;
    case LS_WHY_QUOTA:
        ls_text_printf(text, "its account %s may use %u more device%s now, and it needs %u", job->account,
                       why->available, why->available == 1 ? "" : "s", why->needed);
        break;
    case LS_WHY_PRIORITY:
        ls_text_printf(text, "others come first: it is number %u of %u", why->rank, why->pending);
        break;
    case LS_WHY_GANG:
        ls_text_printf(text, "it needs %u device%s at once, and %u %s free", why->needed,
                       why->needed == 1 ? "" : "s", why->available, why->available == 1 ? "is" : "are");
        break;
    case LS_WHY_PLACEMENT:
        ls_text_printf(text, "it needs %u device%s in %s, and the most that %s free in one %s %u",
                       why->needed, why->needed == 1 ? "" : "s", level_text(why->level),
                       why->available == 1 ? "is" : "are", why->available == 1 ? "is" : "are",
                       why->available);
        break;
    case LS_WHY_RESERVATION:
        ls_text_append(
            text,
            "what is free is reserved for a job that comes first, and this one would not be done in time");
        break;
    case LS_WHY_STARTING:
        ls_text_append(text, "its devices are being freed, or it starts at once");
        break;
    default:
        ls_text_append(text, "it does not wait");
        break;
    }
}

/* Why it left its devices the last time: that is behind it, and explains that it waits at all. */
static void append_last(const ls_job *job, ls_text *text)
{
    if (job->state == LS_JOB_QUEUED && job->epoch > 0 && job->text) {
        ls_text_printf(text, " (last: %s)", job->text);
    }
}

/* An engine that decides gets it when those it waits for have ended; the policy knows nothing of one that is set aside. */
static bool is_kept_back(const ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    return c->decides ? job->state == LS_JOB_QUEUED && !job->handed_over
                      : ls_job_state_is_waiting(job->state) && !entry->in_policy;
}

static void append_kept_back(const ls_controller *c, const ls_entry *entry, ls_text *text)
{
    if (!c->decides && entry->stage_text) {
        ls_text_append(text, entry->stage_text);
    } else {
        append_dependency(c, entry->job, text);
    }
}

static void append_reason(const ls_controller *c, const ls_entry *entry, ls_text *text)
{
    const ls_job *job = entry->job;
    ls_why why;
    if (is_kept_back(c, entry)) {
        append_kept_back(c, entry, text);
    } else if (ls_job_state_is_waiting(job->state) && c->decides) {
        ls_text_append(text, entry->stage_text ? entry->stage_text : job->text ? job->text : "");
    } else if (ls_job_state_is_waiting(job->state)) {
        if (ls_policy_stage(c->policy, ls_controller_ms(c->time_s), job->id, &why) == LS_OK) {
            append_sentence(c, job, &why, text);
        }
        append_last(job, text);
    } else if (job->text) {
        ls_text_append(text, job->text);
    } else if (entry->idle_told) {
        ls_text_printf(text, "its devices have done nothing for %.0f s", c->time_s - entry->idle_since_s);
    }
}

/* ---- list and show ---- */

static json_t *brief_json(const ls_job *job)
{
    return json_pack("{s:I, s:s, s:s, s:i}", "job", (json_int_t)job->id, "state",
                     ls_job_state_name(job->state), "account", job->account, "ranks",
                     (int)(job->ranks_now ? job->ranks_now : job->ranks));
}

/* In all its starts, until now; jobs that ended before that was counted: in the last. */
static double ran_s(const ls_controller *c, const ls_job *job)
{
    if (ls_job_state_is_final(job->state)) {
        return job->run_s > 0.0 || job->started_s <= 0.0 ? job->run_s
                                                         : fmax(0.0, job->ended_s - job->started_s);
    }
    const bool runs = !ls_job_state_is_waiting(job->state) && job->started_s > 0.0;
    return job->run_s + (runs ? fmax(0.0, c->time_s - job->started_s) : 0.0);
}

static json_t *list_item(const ls_controller *c, const ls_caller *caller, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    json_t *item = brief_json(job);
    if (!may_see(caller, job)) {
        json_object_set_new(item, "name", json_null());
        json_object_set_new(item, "priority", json_null());
        json_object_set_new(item, "why", json_null());
        return item;
    }
    ls_text why = {0};
    append_reason(c, entry, &why);
    json_object_set_new(item, "name", text_or_null(job->spec.name));
    json_object_set_new(item, "user", text_or_null(job->user));
    json_object_set_new(item, "uid", json_integer(job->uid));
    json_object_set_new(item, "gid", json_integer(job->gid));
    json_object_set_new(item, "group", text_or_null(job->spec.group));
    json_object_set_new(item, "run_dir", text_or_null(job->run_dir));
    json_object_set_new(item, "priority", json_string(priority_names[job->priority]));
    json_object_set_new(item, "epoch", json_integer(job->epoch));
    json_object_set_new(item, "submitted", time_or_null(job->submitted_s));
    json_object_set_new(item, "queued", time_or_null(job->queued_s));
    json_object_set_new(item, "started", time_or_null(job->started_s));
    json_object_set_new(item, "ran_s", json_real(ran_s(c, job)));
    json_object_set_new(item, "ended", time_or_null(job->ended_s));
    json_object_set_new(item, "exit_code", job->exit_code < 0 ? json_null() : json_integer(job->exit_code));
    json_object_set_new(item, "idle_s",
                        entry->idle_told ? json_real(c->time_s - entry->idle_since_s) : json_null());
    json_object_set_new(item, "why", text_or_null(ls_text_string(&why)));
    ls_foresight_add(job, item);
    ls_text_release(&why);
    return item;
}

/* What is wanted of a list. */
typedef struct wanted {
    const ls_caller *caller;
    const char *account, *user, *group; /* NULL: any */
    ls_job_state state;                 /* LS_JOB_STATES: any */
    bool live, ended;
    const ls_job *before; /* of those that have ended, the ones that ended before this one; NULL: all */
    uint64_t limit;       /* of those that have ended */
} wanted;

/* Whose a job is and what it belongs to is for who may read it. */
static bool is_wanted(const wanted *want, const ls_job *job)
{
    return (ls_job_state_is_final(job->state) ? want->ended : want->live) &&
           (want->state == LS_JOB_STATES || want->state == job->state) &&
           (!want->account || strcmp(want->account, job->account) == 0) &&
           (!want->user || (strcmp(want->user, job->user) == 0 && may_see(want->caller, job))) &&
           (!want->group ||
            (job->spec.group && strcmp(want->group, job->spec.group) == 0 && may_see(want->caller, job)));
}

/* Who ended last comes first. */
static int by_end(const void *a, const void *b)
{
    const ls_job *x = (*(const ls_entry *const *)a)->job, *y = (*(const ls_entry *const *)b)->job;
    return x->ended_s != y->ended_s ? (x->ended_s < y->ended_s) - (x->ended_s > y->ended_s)
                                    : (x->id < y->id) - (x->id > y->id);
}

static int by_number(const void *a, const void *b)
{
    const ls_job *x = (*(const ls_entry *const *)a)->job, *y = (*(const ls_entry *const *)b)->job;
    return (x->id > y->id) - (x->id < y->id);
}

static const char *state_names(ls_text *text)
{
    for (int state = 0; state < LS_JOB_STATES; state++) {
        ls_text_printf(text, "%s%s", state > 0 ? ", " : "", ls_job_state_name((ls_job_state)state));
    }
    return ls_text_string(text);
}

static ls_answer no_such_state(const char *name)
{
    ls_text names = {0};
    const ls_answer answer =
        ls_answer_fail(400, "there is no state '%.30s'; allowed is one of %s", name, state_names(&names));
    ls_text_release(&names);
    return answer;
}

/* Of the first `live_count` entries, all; of the `ended_count` behind them, in the order of their ends, the limit. */
static ls_answer list_json(const ls_controller *c, const wanted *want, ls_entry **entries, size_t live_count,
                           size_t ended_count)
{
    ls_entry **ended = entries + live_count;
    qsort(ended, ended_count, sizeof *ended, by_end);
    size_t first = 0;
    while (want->before && first < ended_count &&
           by_end(&ended[first],
                  &(const ls_entry *){&(ls_entry){.job = (ls_job *)(uintptr_t)want->before}}) <= 0) {
        first++;
    }
    const size_t left = ended_count - first, kept = left < want->limit ? left : (size_t)want->limit;
    json_t *next = left > kept ? json_integer((json_int_t)ended[first + kept - 1]->job->id) : json_null();
    memmove(ended, ended + first, kept * sizeof *ended);
    if (want->live) {
        qsort(entries, live_count + kept, sizeof *entries, by_number);
    }
    json_t *jobs = json_array();
    for (size_t i = 0; i < live_count + kept; i++) {
        json_array_append_new(jobs, list_item(c, want->caller, entries[i]));
    }
    return (ls_answer){200, json_pack("{s:o, s:o}", "jobs", jobs, "before", next), 0};
}

ls_answer ls_answers_list(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    bool all = false, ended = false;
    uint64_t before = 0;
    const char *state_name = NULL;
    wanted want = {.caller = caller};
    if (ls_json_get_bool(arguments, "ps", "all", false, &all) != LS_OK ||
        ls_json_get_bool(arguments, "ps", "ended", false, &ended) != LS_OK ||
        ls_json_get_u64(arguments, "ps", "limit", 1, LIST_MAX, LIST_MAX, &want.limit) != LS_OK ||
        ls_json_get_u64(arguments, "ps", "before", 1, UINT64_MAX, 0, &before) != LS_OK ||
        ls_json_get_string(arguments, "ps", "account", NULL, &want.account) != LS_OK ||
        ls_json_get_string(arguments, "ps", "user", NULL, &want.user) != LS_OK ||
        ls_json_get_string(arguments, "ps", "group", NULL, &want.group) != LS_OK ||
        ls_json_get_string(arguments, "ps", "state", NULL, &state_name) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    want.state = state_name ? ls_job_state_named(state_name) : LS_JOB_STATES;
    if (state_name && want.state == LS_JOB_STATES) {
        return no_such_state(state_name);
    }
    const ls_entry *mark = before > 0 ? ls_controller_find(c, before) : NULL;
    if (before > 0 && !(mark && ls_job_state_is_final(mark->job->state))) {
        return ls_answer_fail(404, "before is %" PRIu64 ", which is none of the jobs that have ended lately",
                              before);
    }
    want.before = mark ? mark->job : NULL;
    want.ended = all || ended || mark || (state_name && ls_job_state_is_final(want.state));
    want.live = !ended && !mark;
    ls_entry **entries = calloc(c->entry_count + 1, sizeof *entries);
    LS_ASSERT(entries && "out of memory for a list");
    size_t live_count = 0, ended_count = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        live_count +=
            is_wanted(&want, c->entries[i]->job) && !ls_job_state_is_final(c->entries[i]->job->state);
    }
    for (uint32_t i = 0, live = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (is_wanted(&want, job)) {
            entries[ls_job_state_is_final(job->state) ? live_count + ended_count++ : live++] = c->entries[i];
        }
    }
    const ls_answer answer = list_json(c, &want, entries, live_count, ended_count);
    free(entries);
    return answer;
}

static json_t *devices_json(const ls_controller *c, const ls_job *job)
{
    json_t *list = json_array(), *numbers = NULL;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < job->share_count; i++) {
        /* What was written before the machine had other devices may name a place that is no more. */
        const ls_place gone = {.node = UINT32_MAX - 1};
        const ls_place *place =
            job->shares[i].node < c->place_count ? &c->places[job->shares[i].node] : &gone;
        if (place->node != last) {
            numbers = json_array();
            json_array_append_new(list, json_pack("{s:s, s:o}", "node",
                                                  place == &gone ? "?" : c->nodes[place->node].name,
                                                  "devices", numbers));
            last = place->node;
        }
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (job->shares[i].devices >> bit & 1) {
                json_array_append_new(numbers, json_integer(place->first + bit));
            }
        }
    }
    return list;
}

static double hours(uint64_t device_ms)
{
    return (double)device_ms / 3600000.0;
}

static json_t *money(const ls_controller *c, uint64_t device_ms)
{
    return c->settings.price_per_device_h > 0.0 ? json_real(hours(device_ms) * c->settings.price_per_device_h)
                                                : json_null();
}

static json_t *usage_json(const ls_controller *c, ls_usage usage)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "allocated_h", hours(usage.allocated_device_ms),
                     "idle_h", hours(usage.idle_device_ms), "waiting_h", hours(usage.waiting_device_ms),
                     "lost_h", hours(usage.lost_device_ms), "cost", money(c, usage.allocated_device_ms),
                     "idle_cost", money(c, usage.idle_device_ms), "lost_cost",
                     money(c, usage.lost_device_ms));
}

static json_t *strings_json(const ls_option_strings *strings)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < strings->count; i++) {
        json_array_append_new(list, text_or_null(strings->items[i]));
    }
    return list;
}

static void add_spec(json_t *item, const ls_job *job)
{
    const ls_job_spec *spec = &job->spec;
    json_t *after = json_array();
    for (uint32_t i = 0; i < spec->after_count; i++) {
        json_array_append_new(after, json_integer((json_int_t)spec->after[i]));
    }
    json_object_set_new(item, "after", after);
    json_object_set_new(item, "directory", text_or_null(spec->directory));
    json_object_set_new(item, "file_name", text_or_null(spec->file_name));
    json_object_set_new(item, "command", strings_json(&spec->command));
    json_object_set_new(item, "set", strings_json(&spec->set));
    /* It may have been resized while it waited; a job of one size then has another one size. */
    const bool is_elastic = spec->min_ranks < spec->max_ranks;
    const bool is_below = is_elastic && spec->min_ranks < job->ranks;
    const bool is_above = is_elastic && spec->max_ranks > job->ranks;
    json_object_set_new(item, "min_ranks", json_integer(is_below ? spec->min_ranks : job->ranks));
    json_object_set_new(item, "max_ranks", json_integer(is_above ? spec->max_ranks : job->ranks));
    json_object_set_new(item, "time_limit_s",
                        spec->time_limit_s > 0.0 ? json_real(spec->time_limit_s) : json_null());
    json_object_set_new(item, "restartable", json_boolean(spec->restartable));
    json_object_set_new(item, "spot", json_boolean(spec->spot));
}

ls_answer ls_answers_show(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry)
{
    ls_entry old = {.job = (ls_job *)(uintptr_t)job};
    const ls_entry *of = entry ? entry : &old;
    json_t *item = list_item(c, caller, of);
    add_spec(item, job);
    json_object_set_new(item, "cause", json_string(ls_job_cause_name(job->cause)));
    json_object_set_new(item, "text", text_or_null(job->text));
    json_object_set_new(item, "held", json_boolean(job->held));
    json_object_set_new(item, "restarts", json_integer(job->restarts));
    json_object_set_new(item, "preemptions", json_integer(job->preemptions));
    json_object_set_new(item, "saved", time_or_null(job->saved_s));
    json_object_set_new(item, "nodes", devices_json(c, job));
    json_object_set_new(item, "engine", json_string(c->engine->calls->name));
    json_object_set_new(item, "engine_ref", text_or_null(job->engine_ref));
    json_object_set_new(item, "foresight", ls_foresight_json(job));
    json_object_set_new(item, "usage", usage_json(c, ls_usage_of_job(c, of)));
    return (ls_answer){200, item, 0};
}

/* ---- why ---- */

static void append_change(ls_text *text, ls_change_kind kind, uint64_t value)
{
    static const char *const priorities[] = {"low", "normal", "high"};
    switch (kind) {
    case LS_CHANGE_RANKS:
        ls_text_printf(text, "with %" PRIu64 " ranks", value);
        break;
    case LS_CHANGE_PRIORITY:
        ls_text_printf(text, "with priority %s", priorities[value < 3 ? value : 1]);
        break;
    case LS_CHANGE_LIMIT:
        ls_text_printf(text, "with a time limit of %" PRIu64 " s", value / 1000);
        break;
    case LS_CHANGE_REQUIRED:
        ls_text_printf(text, "spread over %s",
                       level_text(value < LS_LEVEL_COUNT ? (ls_level)value : LS_LEVEL_CLUSTER));
        break;
    case LS_CHANGE_PER_NODE:
        ls_text_printf(text, "with %" PRIu64 " ranks per node", value);
        break;
    case LS_CHANGE_QUOTA:
        ls_text_printf(text, "if its account could use %" PRIu64 " devices more", value);
        break;
    case LS_CHANGE_HELD:
        ls_text_append(text, "without the hold");
        break;
    case LS_CHANGE_BEGIN:
        ls_text_append(text, "without the time before which it may not begin");
        break;
    case LS_CHANGE_KIND:
        ls_text_append(text, "on any kind of device");
        break;
    case LS_CHANGE_SPOT:
        ls_text_append(text, "if it may run on spot nodes");
        break;
    case LS_CHANGE_GROUP:
        ls_text_printf(text, "if %" PRIu64 " of its group might run at once", value);
        break;
    default:
        ls_text_printf(text, "with another %s", ls_change_name(kind));
        break;
    }
}

static json_t *changes_json(const ls_why *why, uint64_t now_ms)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < why->change_count; i++) {
        const uint64_t starts_ms = why->changes[i].starts_ms;
        const double in_s = starts_ms > now_ms ? 1e-3 * (double)(starts_ms - now_ms) : 0.0;
        ls_text text = {0};
        if (in_s > 0.0) {
            ls_text_printf(&text, "starts in %.0f s ", in_s);
        } else {
            ls_text_append(&text, "starts now ");
        }
        append_change(&text, why->changes[i].kind, why->changes[i].value);
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:s}", "change",
                                              ls_change_name(why->changes[i].kind), "value",
                                              (json_int_t)why->changes[i].value, "starts_in_s", in_s, "text",
                                              ls_text_string(&text)));
        ls_text_release(&text);
    }
    return list;
}

static const char *kept_text(ls_kept kept)
{
    return kept == LS_KEPT_UNSAVED ? "it does not save when told to (job.restartable)"
           : kept == LS_KEPT_YOUNG ? "it has only just started"
           : kept == LS_KEPT_OFTEN ? "it was stopped too often lately"
                                   : NULL;
}

/* Who comes after it, has what it needs and keeps it. */
static void append_kept(const ls_why *why, ls_text *text)
{
    for (uint32_t i = 0; i < why->blocker_count; i++) {
        const char *reason = kept_text(why->blockers[i].kept);
        if (reason) {
            ls_text_printf(text, "; job %" PRIu64 " comes after it but is not stopped for it: %s",
                           why->blockers[i].job, reason);
            return;
        }
    }
}

static json_t *blockers_json(const ls_controller *c, const ls_caller *caller, const ls_why *why)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < why->blocker_count; i++) {
        const ls_entry *other = ls_controller_find(c, why->blockers[i].job);
        const uint64_t ends_ms = why->blockers[i].ends_ms;
        const char *source = other && ends_ms > 0 ? ls_foresight_source(other->job) : NULL;
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:i, s:o, s:o, s:o}", "job", (json_int_t)why->blockers[i].job, "name",
                            text_or_null(other && may_see(caller, other->job) ? other->job->spec.name : NULL),
                            "devices", (int)why->blockers[i].devices, "ends_from", text_or_null(source),
                            "ends", time_or_null(1e-3 * (double)ends_ms), "kept",
                            text_or_null(kept_text(why->blockers[i].kept))));
    }
    return list;
}

static json_t *levels_json(const ls_why *why)
{
    json_t *levels = json_object();
    for (int level = 0; level < LS_LEVEL_COUNT; level++) {
        json_object_set_new(levels, ls_level_name((ls_level)level), json_integer(why->free_most[level]));
    }
    return levels;
}

static ls_answer why_from_policy(ls_controller *c, const ls_caller *caller, const ls_job *job)
{
    ls_why why;
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    if (ls_policy_why(c->policy, now_ms, job->id, &why) != LS_OK) {
        return ls_answer_error(LS_ERR_NOT_FOUND);
    }
    for (uint32_t i = 0; i < why.blocker_count; i++) {
        why.blockers[i].job &= ~LS_WITHHELD_BIT;
    }
    ls_text text = {0};
    append_sentence(c, job, &why, &text);
    append_kept(&why, &text);
    append_last(job, &text);
    json_t *factors = json_pack("{s:I, s:I, s:I, s:I, s:I}", "priority", (json_int_t)why.factors[0], "fair",
                                (json_int_t)why.factors[1], "age", (json_int_t)why.factors[2], "size",
                                (json_int_t)why.factors[3], "sum", (json_int_t)why.factor_sum);
    json_t *eta = why.eta_ms > 0 ? json_real(why.eta_ms > now_ms ? 1e-3 * (double)(why.eta_ms - now_ms) : 0.0)
                                 : json_null();
    bool is_latest = false; /* who may soon be stopped for it makes room before he ends */
    for (uint32_t i = 0; i < why.blocker_count; i++) {
        is_latest = is_latest || why.blockers[i].kept == LS_KEPT_YOUNG;
    }
    json_t *answer = json_pack(
        "{s:I, s:s, s:s, s:i, s:i, s:s, s:o, s:i, s:i, s:o, s:o, s:o, s:b, s:b, s:o, s:s, s:s}", "job",
        (json_int_t)job->id, "state", ls_job_state_name(job->state), "stage", ls_why_stage_name(why.stage),
        "needed", (int)why.needed, "available", (int)why.available, "level", ls_level_name(why.level),
        "by_level", levels_json(&why), "rank", (int)why.rank, "pending", (int)why.pending, "factors", factors,
        "blockers", blockers_json(c, caller, &why), "eta_s", eta, "eta_is_reserved", (int)why.eta_is_reserved,
        "eta_is_latest", (int)is_latest, "counterfactuals", changes_json(&why, now_ms), "text",
        ls_text_string(&text), "from", "policy");
    ls_text_release(&text);
    return (ls_answer){200, answer, 0};
}

/* The jobs that it waits for. */
static json_t *after_json(const ls_controller *c, const ls_caller *caller, const ls_job *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const ls_entry *other = ls_controller_find(c, job->spec.after[i]);
        if (other && !ls_job_state_is_final(other->job->state)) {
            json_array_append_new(
                list, json_pack("{s:I, s:o, s:i, s:n}", "job", (json_int_t)other->job->id, "name",
                                text_or_null(may_see(caller, other->job) ? other->job->spec.name : NULL),
                                "devices", (int)other->job->ranks, "ends"));
        }
    }
    return list;
}

/* For jobs that do not wait, and for engines that decide. */
static ls_answer why_plain(const ls_controller *c, const ls_job *job, const ls_entry *entry,
                           const char *stage, const char *text, const char *from, json_t *blockers)
{
    const double starts_s = entry ? entry->starts_s : 0.0;
    json_t *eta = starts_s > 0.0 ? json_real(starts_s > c->time_s ? starts_s - c->time_s : 0.0) : json_null();
    return (ls_answer){200,
                       json_pack("{s:I, s:s, s:s, s:i, s:n, s:o, s:o, s:[], s:o, s:s}", "job",
                                 (json_int_t)job->id, "state", ls_job_state_name(job->state), "stage", stage,
                                 "needed", (int)job->ranks, "available", "blockers",
                                 blockers ? blockers : json_array(), "eta_s", eta, "counterfactuals", "text",
                                 text_or_null(text), "from", from),
                       0};
}

ls_answer ls_answers_why(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry)
{
    if (ls_job_state_is_final(job->state)) {
        return why_plain(c, job, entry, "ended", job->text ? job->text : "it has ended", "queue", NULL);
    }
    if (is_kept_back(c, entry)) {
        ls_text text = {0};
        append_kept_back(c, entry, &text);
        const ls_answer answer =
            why_plain(c, job, entry, !c->decides && entry->stage ? entry->stage : "dependency",
                      ls_text_string(&text), "queue", after_json(c, caller, job));
        ls_text_release(&text);
        return answer;
    }
    if (c->decides && ls_job_state_is_waiting(job->state)) {
        return why_plain(c, job, entry,
                         job->held      ? "hold"
                         : entry->stage ? entry->stage
                                        : "priority",
                         entry->stage_text, c->engine->calls->name, NULL);
    }
    if (!ls_job_state_is_waiting(job->state)) {
        ls_text text = {0};
        ls_text_append(&text, "it does not wait");
        if (entry->idle_told) {
            ls_text_printf(&text, ", but its devices have done nothing for %.0f s",
                           c->time_s - entry->idle_since_s);
        } else if (job->text) {
            ls_text_printf(&text, ": %s", job->text);
        }
        const double end_s = ls_foresight_end_s(job);
        if (end_s > c->time_s) {
            ls_text_printf(&text, "; it is expected to end in %s", ls_duration_of(end_s - c->time_s).text);
        }
        const ls_answer answer =
            why_plain(c, job, entry, job->state == LS_JOB_STARTING ? "starting" : "running",
                      ls_text_string(&text), "queue", NULL);
        ls_text_release(&text);
        return answer;
    }
    return why_from_policy(c, caller, job);
}

/* ---- nodes, accounts, usage, status ---- */

/* Devices of a place that a job has: those that are there. */
static uint32_t devices_at(const ls_controller *c, const ls_job_share *share)
{
    const uint32_t devices = share->node < c->place_count ? c->places[share->node].devices : 0;
    const uint64_t there = devices >= 64 ? UINT64_MAX : (UINT64_C(1) << devices) - 1;
    return (uint32_t)__builtin_popcountll(share->devices & there);
}

static uint32_t count_used(const ls_controller *c, uint32_t node, const ls_caller *caller, json_t *jobs)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        uint32_t count = 0;
        for (uint32_t k = 0; k < job->share_count; k++) {
            const uint32_t place = job->shares[k].node;
            if (place < c->place_count && c->places[place].node == node) {
                count += devices_at(c, &job->shares[k]);
            }
        }
        used += count;
        if (count > 0) {
            json_array_append_new(jobs, json_pack("{s:I, s:o, s:i}", "job", (json_int_t)job->id, "name",
                                                  text_or_null(may_see(caller, job) ? job->spec.name : NULL),
                                                  "devices", (int)count));
        }
    }
    return used;
}

ls_answer ls_answers_nodes(ls_controller *c, const ls_caller *caller)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ls_engine_node *node = &c->nodes[i];
        json_t *jobs = json_array();
        const uint32_t used = count_used(c, i, caller, jobs);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o}",
                                              "node", node->name, "state", c->node_is_up[i] ? "up" : "down",
                                              "kind", node->kind, "devices", (int)node->devices, "used",
                                              (int)used, "leaf", (int)node->leaf, "spine", (int)node->spine,
                                              "cpus", (int)node->cpus, "memory_mib", (int)node->memory_mib,
                                              "spot", (int)node->spot, "jobs", jobs));
    }
    return (ls_answer){200, json_pack("{s:s, s:o}", "engine", c->engine->calls->name, "nodes", list), 0};
}

static json_t *limit_json(uint32_t limit)
{
    return limit == UINT32_MAX ? json_null() : json_integer(limit);
}

ls_answer ls_answers_accounts(ls_controller *c, const ls_caller *caller)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->account_count; i++) {
        const ls_account *account = &c->accounts[i]->account;
        uint32_t running = 0, waiting = 0, devices = 0;
        for (uint32_t k = 0; k < c->entry_count; k++) {
            const ls_job *job = c->entries[k]->job;
            if (!ls_job_state_is_final(job->state) && strcmp(job->account, account->name) == 0) {
                waiting += ls_job_state_is_waiting(job->state);
                running += !ls_job_state_is_waiting(job->state);
                devices += job->ranks_now;
            }
        }
        /* Who is in it is for who runs the queue: others don't see who there is. */
        json_t *users = ls_caller_is_admin(caller) ? ls_accounts_users_json(account) : json_null();
        json_array_append_new(
            list,
            json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:I}", "account",
                      account->name, "weight", (int)account->weight, "quota", limit_json(account->quota),
                      "borrow", limit_json(account->borrow), "lend", limit_json(account->lend), "users",
                      users, "open_to", ls_accounts_open_to(c, caller, account), "priority_max",
                      priority_names[account->priority_max], "devices", (int)devices, "running", (int)running,
                      "waiting", (int)waiting, "jobs", (json_int_t)account->jobs));
    }
    return (ls_answer){200, json_pack("{s:o}", "accounts", list), 0};
}

ls_answer ls_answers_usage(ls_controller *c)
{
    json_t *list = json_array();
    ls_usage total = {0};
    for (uint32_t i = 0; i < c->account_count; i++) {
        const ls_account *account = &c->accounts[i]->account;
        const ls_usage usage = ls_usage_of_account(c, account);
        json_t *item = usage_json(c, usage);
        json_object_set_new(item, "account", json_string(account->name));
        json_object_set_new(item, "jobs", json_integer((json_int_t)account->jobs));
        json_array_append_new(list, item);
        total.allocated_device_ms += usage.allocated_device_ms;
        total.idle_device_ms += usage.idle_device_ms;
        total.waiting_device_ms += usage.waiting_device_ms;
        total.lost_device_ms += usage.lost_device_ms;
    }
    json_t *price =
        c->settings.price_per_device_h > 0.0 ? json_real(c->settings.price_per_device_h) : json_null();
    return (ls_answer){200,
                       json_pack("{s:o, s:o, s:o, s:s, s:o}", "accounts", list, "total", usage_json(c, total),
                                 "price_per_device_h", price, "currency", c->settings.currency, "foresight",
                                 ls_foresight_summary(c)),
                       0};
}

static uint32_t devices_of(const ls_controller *c, const ls_job *job)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < job->share_count; k++) {
        count += devices_at(c, &job->shares[k]);
    }
    return count;
}

/* Who has a reserved start, in the order in which they are kept. */
static json_t *reserved_json(const ls_controller *c)
{
    ls_policy_reservation list[LS_RESERVATIONS_MAX];
    const uint32_t count = c->policy ? ls_policy_reservations(c->policy, list, LS_RESERVATIONS_MAX) : 0;
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t starts_ms = list[i].starts_ms;
        json_t *in_s = starts_ms == 0
                           ? json_null()
                           : json_real(starts_ms > now_ms ? 1e-3 * (double)(starts_ms - now_ms) : 0.0);
        json_array_append_new(array,
                              json_pack("{s:I, s:o}", "job", (json_int_t)list[i].job, "starts_in_s", in_s));
    }
    return array;
}

json_t *ls_controller_status(ls_controller *c)
{
    uint32_t counts[LS_JOB_STATES] = {0}, waiting[3] = {0}, used = 0, idle = 0;
    uint64_t asked = 0;
    double oldest_s = c->time_s;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        const uint32_t devices = devices_of(c, job);
        counts[job->state]++;
        used += devices;
        idle += c->entries[i]->idle_told ? devices : 0;
        if (job->state == LS_JOB_QUEUED) {
            waiting[job->priority]++;
            asked += job->ranks;
            oldest_s = fmin(oldest_s, job->queued_s);
        }
    }
    json_t *states = json_object(), *priorities = json_object();
    for (int state = 0; state < LS_JOB_STATES; state++) {
        json_object_set_new(states, ls_job_state_name((ls_job_state)state), json_integer(counts[state]));
    }
    for (int i = 0; i < 3; i++) {
        json_object_set_new(priorities, priority_names[i], json_integer(waiting[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:f, s:i, s:i, s:i, s:i, s:o, s:o}", "version",
                     LS_VERSION, "engine", c->engine->calls->name, "order", c->settings.order, "states",
                     states, "waiting", priorities, "devices_wanted", (json_int_t)asked, "waits_s",
                     c->time_s - oldest_s, "devices", (int)c->device_count, "devices_used", (int)used,
                     "devices_idle", (int)idle, "nodes", (int)c->node_count, "paused",
                     text_or_null(c->paused), "reserved", reserved_json(c));
}
