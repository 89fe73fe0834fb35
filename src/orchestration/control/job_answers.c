// SPDX-License-Identifier: Apache-2.0
/* What is asked about jobs: `ps` and one job in full. */
#include "orchestration/control/answers.h"

#include "base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 10000 };

bool ls_answers_may_see(const ls_caller *caller, const ls_job *job)
{
    return ls_job_is_open_to(job, caller->uid, caller->user, caller->is_admin);
}

json_t *ls_answers_text(const char *text)
{
    json_t *string = text && text[0] ? json_string(text) : NULL;
    return string ? string : json_null();
}

json_t *ls_answers_name(const ls_controller *c, const ls_caller *caller, const ls_job *job)
{
    const bool is_shown = job && (c->settings.show_names || ls_answers_may_see(caller, job));
    return ls_answers_text(is_shown ? job->spec.name : NULL);
}

json_t *ls_answers_time(double time_s)
{
    return time_s > 0.0 ? json_real(time_s) : json_null();
}

/* ---- list and show ---- */

static json_t *brief_json(const ls_job *job)
{
    return json_pack("{s:I, s:s, s:s, s:i}", "job", (json_int_t)job->id, "state",
                     ls_job_state_name(job->state), "account", job->account, "ranks",
                     (int)(job->ranks_now ? job->ranks_now : job->ranks));
}

/* Seconds with devices, over all starts until now. Records of older versions know the last start
 * only. */
static double ran_s(const ls_controller *c, const ls_job *job)
{
    if (ls_job_state_is_final(job->state)) {
        return job->run_s > 0.0 || job->started_s <= 0.0 ? job->run_s
                                                         : fmax(0.0, job->ended_s - job->started_s);
    }
    const bool runs = !ls_job_state_is_waiting(job->state) && job->started_s > 0.0;
    return job->run_s + (runs ? fmax(0.0, c->time_s - job->started_s) : 0.0);
}

/* With times as the wall clock has them; those of an ended job are already. */
static ls_job as_shown(const ls_controller *c, const ls_job *job)
{
    ls_job shown = *job;
    ls_job_shift(&shown, ls_job_state_is_final(job->state) ? 0.0 : c->ahead_s);
    return shown;
}

static json_t *strings_json(const ls_option_strings *strings)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < strings->count; i++) {
        json_array_append_new(list, ls_answers_text(strings->items[i]));
    }
    return list;
}

static json_t *list_item(const ls_controller *c, const ls_caller *caller, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    json_t *item = brief_json(job);
    if (!ls_answers_may_see(caller, job)) {
        json_object_set_new(item, "name", ls_answers_name(c, caller, job));
        if (c->settings.show_names) {
            json_object_set_new(item, "user", ls_answers_text(job->user));
        }
        json_object_set_new(item, "priority", json_null());
        json_object_set_new(item, "why", json_null());
        return item;
    }
    const ls_job shown = as_shown(c, job);
    ls_text why = {0};
    ls_answers_append_reason(c, entry, &why);
    json_object_set_new(item, "name", ls_answers_text(job->spec.name));
    json_object_set_new(item, "user", ls_answers_text(job->user));
    json_object_set_new(item, "uid", json_integer(job->uid));
    json_object_set_new(item, "gid", json_integer(job->gid));
    json_object_set_new(item, "group", ls_answers_text(job->spec.group));
    json_object_set_new(item, "run_dir", ls_answers_text(job->run_dir));
    json_object_set_new(item, "metrics", strings_json(&job->spec.metrics));
    json_object_set_new(item, "priority", json_string(ls_priority_name(job->priority)));
    json_object_set_new(item, "epoch", json_integer(job->epoch));
    json_object_set_new(item, "submitted", ls_answers_time(shown.submitted_s));
    json_object_set_new(item, "queued", ls_answers_time(shown.queued_s));
    json_object_set_new(item, "started", ls_answers_time(shown.started_s));
    json_object_set_new(item, "ran_s", json_real(ran_s(c, job)));
    json_object_set_new(item, "ended", ls_answers_time(shown.ended_s));
    json_object_set_new(item, "exit_code", job->exit_code < 0 ? json_null() : json_integer(job->exit_code));
    json_object_set_new(item, "idle_s",
                        entry->idle_told ? json_real(c->time_s - entry->idle_since_s) : json_null());
    json_object_set_new(item, "why", ls_answers_text(ls_text_string(&why)));
    const double starts_s = c->decides ? entry->starts_s + c->ahead_s : shown.foresight.start_s;
    const bool is_due = job->state == LS_JOB_QUEUED && starts_s > c->time_s + c->ahead_s;
    json_object_set_new(item, "starts", is_due ? json_real(starts_s) : json_null());
    ls_money_add(c, entry, item);
    ls_foresight_add(&shown, item);
    ls_text_release(&why);
    return item;
}

/* Which jobs a list is to have. */
typedef struct wanted {
    const ls_caller *caller;
    const char *account, *user, *group; /* NULL: any */
    ls_job_state state;                 /* LS_JOB_STATES: any */
    bool live, ended, shows_names;
    const ls_job *before; /* only jobs that ended before this one did; NULL: all */
    uint64_t limit;       /* of the ended jobs */
} wanted;

/* User and group are only compared where the caller may see them: a filter must not reveal them. */
static bool is_wanted(const wanted *want, const ls_job *job)
{
    if (!(ls_job_state_is_final(job->state) ? want->ended : want->live) ||
        (want->state != LS_JOB_STATES && want->state != job->state) ||
        (want->account && strcmp(want->account, job->account) != 0)) {
        return false;
    }
    const bool sees_user = want->shows_names && !want->group;
    if ((want->user || want->group) && !sees_user && !ls_answers_may_see(want->caller, job)) {
        return false;
    }
    return (!want->user || strcmp(want->user, job->user) == 0) &&
           (!want->group || (job->spec.group && strcmp(want->group, job->spec.group) == 0));
}

/* The job that ended last comes first. */
static int compare_ends(const ls_job *x, const ls_job *y)
{
    return x->ended_s != y->ended_s ? (x->ended_s < y->ended_s) - (x->ended_s > y->ended_s)
                                    : (x->id < y->id) - (x->id > y->id);
}

static int by_end(const void *a, const void *b)
{
    return compare_ends((*(const ls_entry *const *)a)->job, (*(const ls_entry *const *)b)->job);
}

static int by_number(const void *a, const void *b)
{
    const ls_job *x = (*(const ls_entry *const *)a)->job, *y = (*(const ls_entry *const *)b)->job;
    return (x->id > y->id) - (x->id < y->id);
}

static ls_status parse_state(const char *name, ls_job_state *state_out)
{
    *state_out = name ? ls_job_state_named(name) : LS_JOB_STATES;
    if (!name || *state_out != LS_JOB_STATES) {
        return LS_OK;
    }
    ls_text names = {0};
    for (int state = 0; state < LS_JOB_STATES; state++) {
        ls_text_printf(&names, "%s%s", state > 0 ? ", " : "", ls_job_state_name((ls_job_state)state));
    }
    const ls_status status = ls_fail(LS_ERR_INVALID, "'%.30s' is not a state of a job; allowed is one of %s",
                                     name, ls_text_string(&names));
    ls_text_release(&names);
    return status;
}

static ls_status parse_wanted(const ls_controller *c, const json_t *arguments, wanted *want)
{
    bool all = false, ended = false;
    uint64_t before = 0;
    const char *state = NULL;
    LS_TRY(ls_json_get_bool(arguments, "ps", "all", false, &all));
    LS_TRY(ls_json_get_bool(arguments, "ps", "ended", false, &ended));
    LS_TRY(ls_json_get_u64(arguments, "ps", "limit", 1, LIST_MAX, LIST_MAX, &want->limit));
    LS_TRY(ls_json_get_u64(arguments, "ps", "before", 1, UINT64_MAX, 0, &before));
    LS_TRY(ls_json_get_string(arguments, "ps", "account", NULL, &want->account));
    LS_TRY(ls_json_get_string(arguments, "ps", "user", NULL, &want->user));
    LS_TRY(ls_json_get_string(arguments, "ps", "group", NULL, &want->group));
    LS_TRY(ls_json_get_string(arguments, "ps", "state", NULL, &state));
    LS_TRY(parse_state(state, &want->state));
    const ls_entry *mark = before > 0 ? ls_controller_find(c, before) : NULL;
    if (before > 0 && !(mark && ls_job_state_is_final(mark->job->state))) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "\"before\" is %" PRIu64
                       ", which is not the number of a job that ended recently; use the value of \"before\" "
                       "in the answer with the previous page",
                       before);
    }
    want->before = mark ? mark->job : NULL;
    want->ended = all || ended || mark || (state && ls_job_state_is_final(want->state));
    want->live = !ended && !mark;
    want->shows_names = c->settings.show_names;
    return LS_OK;
}

/* The ended jobs of a page, moved to the front of `ended`. Returns how many; next_out: what the
 * next page has to give as `before`, null when this is the last one. */
static size_t cut_page(const wanted *want, ls_entry **ended, size_t count, json_t **next_out)
{
    size_t first = 0;
    qsort(ended, count, sizeof *ended, by_end);
    while (want->before && first < count && compare_ends(ended[first]->job, want->before) <= 0) {
        first++;
    }
    const size_t left = count - first, kept = left < want->limit ? left : (size_t)want->limit;
    *next_out = left > kept ? json_integer((json_int_t)ended[first + kept - 1]->job->id) : json_null();
    memmove(ended, ended + first, kept * sizeof *ended);
    return kept;
}

ls_answer ls_answers_list(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    wanted want = {.caller = caller};
    const ls_status status = parse_wanted(c, arguments, &want);
    if (status != LS_OK) {
        return ls_answer_error(status);
    }
    ls_entry **live = calloc(c->entry_count + 1, sizeof *live);
    ls_entry **ended = calloc(c->entry_count + 1, sizeof *ended);
    LS_ASSERT(live && ended && "not enough memory for a list");
    size_t count = 0, ended_count = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_entry *entry = c->entries[i];
        if (is_wanted(&want, entry->job)) {
            ls_entry **place =
                ls_job_state_is_final(entry->job->state) ? &ended[ended_count++] : &live[count++];
            *place = entry;
        }
    }
    json_t *next = NULL;
    const size_t kept = cut_page(&want, ended, ended_count, &next);
    memcpy(live + count, ended, kept * sizeof *live);
    count += kept;
    if (want.live) {
        qsort(live, count, sizeof *live, by_number);
    }
    json_t *jobs = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(jobs, list_item(c, caller, live[i]));
    }
    free(live);
    free(ended);
    return (ls_answer){200, json_pack("{s:o, s:o}", "jobs", jobs, "before", next), 0};
}

static json_t *devices_json(const ls_controller *c, const ls_job *job)
{
    json_t *list = json_array(), *numbers = NULL;
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < job->share_count; i++) {
        /* A record from before the machine's devices changed may name a place that is gone. */
        const ls_job_place gone = {.node = UINT32_MAX - 1};
        const ls_job_place *place =
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

static void add_spec(json_t *item, const ls_job *job)
{
    const ls_job_spec *spec = &job->spec;
    json_t *after = json_array();
    for (uint32_t i = 0; i < spec->after_count; i++) {
        json_array_append_new(after, json_integer((json_int_t)spec->after[i]));
    }
    json_object_set_new(item, "after", after);
    json_object_set_new(item, "directory", ls_answers_text(spec->directory));
    json_object_set_new(item, "file_name", ls_answers_text(spec->file_name));
    json_object_set_new(item, "command", strings_json(&spec->command));
    json_object_set_new(item, "set", strings_json(&spec->set));
    json_object_set_new(item, "min_ranks", json_integer(ls_job_ranks_min(job)));
    json_object_set_new(item, "max_ranks", json_integer(ls_job_ranks_max(job)));
    json_object_set_new(item, "time_limit_s",
                        spec->time_limit_s > 0.0 ? json_real(spec->time_limit_s) : json_null());
    json_object_set_new(item, "restartable", json_boolean(spec->restartable));
    json_object_set_new(item, "spot", json_boolean(spec->spot));
}

static json_t *per(double value, double count)
{
    return value > 0.0 && count > 0.0 ? json_real(value / count) : json_null();
}

/* What a step and a million tokens of a training run have cost, its restarts included. */
static json_t *rates_json(const ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    const double steps = (double)job->step, tokens = 1e-6 * steps * (double)job->spec.step_tokens;
    const double cost = ls_money_of_job(c, entry), energy_j = 1e-3 * (double)job->energy_mj;
    return json_pack("{s:o, s:o, s:o, s:o}", "step_cost", per(cost, steps), "step_energy_j",
                     per(energy_j, steps), "million_tokens_cost", per(cost, tokens),
                     "million_tokens_energy_j", per(energy_j, tokens));
}

ls_answer ls_answers_show(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry)
{
    ls_entry old = {.job = (ls_job *)(uintptr_t)job};
    const ls_entry *of = entry ? entry : &old;
    json_t *item = list_item(c, caller, of);
    const ls_job shown = as_shown(c, job);
    add_spec(item, job);
    json_object_set_new(item, "cause", json_string(ls_job_cause_name(job->cause)));
    json_object_set_new(item, "text", ls_answers_text(job->text));
    json_object_set_new(item, "held", json_boolean(job->held));
    json_object_set_new(item, "restarts", json_integer(job->restarts));
    json_object_set_new(item, "preemptions", json_integer(job->preemptions));
    json_object_set_new(item, "saved", ls_answers_time(shown.saved_s));
    json_object_set_new(item, "nodes", devices_json(c, job));
    json_object_set_new(item, "engine", json_string(c->engine->calls->name));
    json_object_set_new(item, "engine_ref", ls_answers_text(job->engine_ref));
    json_object_set_new(item, "kind", ls_answers_text(job->kind[0] ? job->kind : NULL));
    json_object_set_new(item, "foresight", ls_foresight_json(&shown));
    json_object_set_new(item, "usage", ls_answers_usage_json(c, ls_usage_of_job(c, of)));
    json_object_set_new(item, "rates", rates_json(c, of));
    return (ls_answer){200, item, 0};
}
