// SPDX-License-Identifier: Apache-2.0
/*
 * Upkeep: what administrators do to the queue as a whole. They pause it, drain nodes, and announce
 * maintenance. Nothing of this is told to jobs that run, except that maintenance stops them.
 *
 *   {"paused": NOTE or null, "drained": {NODE: NOTE}, "maintenance": [NOTE with "window", "begin",
 *    "end"], "free_energy_mj"?: used by no job (usage.c)}   NOTE: {"by", "since", "reason"}
 *
 * This object is the state: the store keeps it as it is, and status shows it.
 */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { REASON_BYTES_MAX = 200 };

/* ---- state ---- */

static json_t *windows_of(const ls_controller *c)
{
    return json_object_get(c->upkeep, "maintenance");
}

static double moment(const json_t *window, const char *key)
{
    return json_number_value(json_object_get(window, key));
}

bool ls_upkeep_is_paused(const ls_controller *c)
{
    return json_is_object(json_object_get(c->upkeep, "paused"));
}

bool ls_upkeep_is_drained(const ls_controller *c, const char *node)
{
    return json_object_get(json_object_get(c->upkeep, "drained"), node) != NULL;
}

const json_t *ls_upkeep_window(const ls_controller *c, uint64_t begin_ms)
{
    for (size_t i = 0; i < json_array_size(windows_of(c)); i++) {
        const json_t *window = json_array_get(windows_of(c), i);
        if (ls_controller_ms(moment(window, "begin")) == begin_ms) {
            return window;
        }
    }
    return NULL;
}

/* Tells the policy on which places jobs may start, and when none may run. */
void ls_upkeep_apply(ls_controller *c)
{
    ls_policy_window windows[LS_WINDOWS_MAX];
    uint32_t count = 0;
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    if (!c->policy) {
        return;
    }
    for (uint32_t i = 0; i < c->place_count; i++) {
        const uint32_t node = c->places[i].node;
        const bool is_open = !ls_upkeep_is_paused(c) && !ls_upkeep_is_drained(c, c->nodes[node].name);
        const ls_node_state state = !c->node_is_up[node] ? LS_NODE_DOWN
                                    : is_open            ? LS_NODE_UP
                                                         : LS_NODE_DRAINING;
        LS_ASSERT(ls_policy_node_set(c->policy, now_ms, i, state) == LS_OK);
    }
    for (size_t i = 0; i < json_array_size(windows_of(c)) && count < LS_WINDOWS_MAX; i++) {
        const json_t *window = json_array_get(windows_of(c), i);
        windows[count++] = (ls_policy_window){ls_controller_ms(moment(window, "begin")),
                                              ls_controller_ms(moment(window, "end"))};
    }
    LS_ASSERT(ls_policy_windows_set(c->policy, windows, count) == LS_OK);
}

/* Windows that are over are dropped when the next one changes. */
static void drop_old(ls_controller *c)
{
    for (size_t i = json_array_size(windows_of(c)); i-- > 0;) {
        if (moment(json_array_get(windows_of(c), i), "end") <= c->time_s) {
            json_array_remove(windows_of(c), i);
        }
    }
}

static bool is_good_window(const json_t *window)
{
    return json_is_integer(json_object_get(window, "window")) && moment(window, "begin") > 0.0 &&
           ls_controller_ms(moment(window, "begin")) < ls_controller_ms(moment(window, "end"));
}

ls_status ls_controller_restore_upkeep(ls_controller *c, const json_t *upkeep)
{
    const json_t *windows = json_object_get(upkeep, "maintenance"), *window;
    size_t i;
    bool is_good = json_is_object(json_object_get(upkeep, "drained")) && json_is_array(windows) &&
                   json_array_size(windows) <= LS_WINDOWS_MAX;
    json_array_foreach(windows, i, window)
    {
        is_good = is_good && is_good_window(window);
    }
    if (!is_good) {
        return ls_fail(
            LS_ERR_DATA,
            "the daemon's stored record of paused queues, drained nodes and planned maintenance is damaged");
    }
    json_decref(c->upkeep);
    c->upkeep = json_deep_copy(upkeep);
    ls_upkeep_apply(c);
    return LS_OK;
}

json_t *ls_upkeep_new(void)
{
    return json_pack("{s:n, s:{}, s:[]}", "paused", "drained", "maintenance");
}

/* ---- what the verbs share ---- */

json_t *ls_upkeep_shown(const ls_controller *c)
{
    json_t *shown = json_deep_copy(c->upkeep);
    json_object_del(shown, "free_energy_mj"); /* usage shows it */
    return shown;
}

static ls_answer answer_of(const ls_controller *c)
{
    return (ls_answer){200, ls_upkeep_shown(c), 0};
}

/* Whether the caller may do this here. scontrol: the command of Slurm that does it there. */
static bool may(const ls_controller *c, const ls_caller *caller, const char *scontrol, ls_answer *refusal_out)
{
    if (!ls_caller_is_admin(caller)) {
        *refusal_out = ls_answer_fail(403, "only an administrator can do this");
        return false;
    }
    if (c->decides) {
        *refusal_out = ls_answer_fail(
            409, "Slurm decides what runs on these nodes, so this is done there: %s", scontrol);
        return false;
    }
    return true;
}

/* {"by", "since", "reason"}; NULL: the reason is not a short text. */
static json_t *note_of(const ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const json_t *reason = json_object_get(arguments, "reason");
    if (reason && !json_is_null(reason) &&
        (!json_is_string(reason) || json_string_length(reason) > REASON_BYTES_MAX)) {
        return NULL;
    }
    return json_pack("{s:s, s:f, s:o}", "by", caller->user, "since", c->time_s, "reason",
                     json_is_string(reason) ? json_deep_copy(reason) : json_null());
}

static ls_answer bad_reason(void)
{
    return ls_answer_fail(400, "\"reason\" must be a text of at most %d bytes", REASON_BYTES_MAX);
}

/* Something has changed: it takes effect, and is written to the store and the journal. */
static ls_answer changed(ls_controller *c, const ls_caller *caller, const char *what, const json_t *note)
{
    const char *reason = json_string_value(json_object_get(note, "reason"));
    ls_text text = {0};
    ls_text_printf(&text, "%s by %s%s", what, caller->user, reason ? ": " : "");
    ls_text_append_printable(&text, reason ? reason : "", reason ? strlen(reason) : 0, "");
    ls_controller_announce(c, ls_text_string(&text));
    ls_text_release(&text);
    c->upkeep_is_changed = true;
    ls_upkeep_apply(c);
    return answer_of(c);
}

/* ---- pause ---- */

ls_answer ls_upkeep_pause(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    if (!may(c, caller, "scontrol update PartitionName=NAME State=DOWN", &refusal)) {
        return refusal;
    }
    json_t *note = note_of(c, caller, arguments);
    if (!note) {
        return bad_reason();
    }
    json_object_set_new(c->upkeep, "paused", note);
    return changed(c, caller, "the queue was paused", note);
}

ls_answer ls_upkeep_resume(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    (void)arguments;
    if (!may(c, caller, "scontrol update PartitionName=NAME State=UP", &refusal)) {
        return refusal;
    }
    if (!ls_upkeep_is_paused(c)) {
        return ls_answer_fail(409, "the queue is not paused: there is nothing to resume");
    }
    json_object_set_new(c->upkeep, "paused", json_null());
    return changed(c, caller, "the queue was resumed", NULL);
}

/* ---- nodes ---- */

/* The node that the arguments name; without a name the only one there is. NULL: refusal_out. */
static const char *find_node(const ls_controller *c, const json_t *arguments, ls_answer *refusal_out)
{
    const char *name = json_string_value(json_object_get(arguments, "node"));
    if (!name && c->node_count == 1) {
        return c->nodes[0].name;
    }
    for (uint32_t i = 0; name && i < c->node_count; i++) {
        if (strcmp(c->nodes[i].name, name) == 0) {
            return c->nodes[i].name;
        }
    }
    *refusal_out =
        name ? ls_answer_fail(404, "there is no node '%.60s'; 'lockstep nodes' lists the nodes", name)
             : ls_answer_fail(400, "\"node\" is missing; 'lockstep nodes' lists the nodes");
    return NULL;
}

ls_answer ls_upkeep_drain(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    if (!may(c, caller, "scontrol update NodeName=NODE State=DRAIN Reason=TEXT", &refusal)) {
        return refusal;
    }
    const char *node = find_node(c, arguments, &refusal);
    json_t *note = node ? note_of(c, caller, arguments) : NULL;
    if (!note) {
        return node ? bad_reason() : refusal;
    }
    json_object_set_new(json_object_get(c->upkeep, "drained"), node, note);
    return changed(c, caller, ls_arena_printf(&c->arena, "node %s was drained", node), note);
}

ls_answer ls_upkeep_undrain(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    if (!may(c, caller, "scontrol update NodeName=NODE State=RESUME", &refusal)) {
        return refusal;
    }
    const char *node = find_node(c, arguments, &refusal);
    if (!node) {
        return refusal;
    }
    if (!ls_upkeep_is_drained(c, node)) {
        return ls_answer_fail(409, "node %s is not drained", node);
    }
    json_object_del(json_object_get(c->upkeep, "drained"), node);
    return changed(c, caller, ls_arena_printf(&c->arena, "node %s was put back into use", node), NULL);
}

/* ---- maintenance ---- */

/* The least number that no window has. */
static int free_number(const ls_controller *c)
{
    int number = 1;
    for (size_t i = 0; i < json_array_size(windows_of(c)); i++) {
        const json_t *window = json_object_get(json_array_get(windows_of(c), i), "window");
        if (json_integer_value(window) == number) {
            number++;
            i = (size_t)-1; /* from the first again */
        }
    }
    return number;
}

ls_answer ls_upkeep_reserve(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    const double begin_s = moment(arguments, "begin"), end_s = moment(arguments, "end");
    if (!may(c, caller,
             "scontrol create reservation StartTime=.. Duration=.. Flags=MAINT Nodes=ALL Users=root",
             &refusal)) {
        return refusal;
    }
    drop_old(c);
    if (!(begin_s > 0.0 && end_s > begin_s + 0.01 && end_s > c->time_s && end_s < 1e11)) {
        return ls_answer_fail(
            400, "maintenance needs \"begin\" and \"end\", in seconds since 1970; the end must be "
                 "after the begin and in the future");
    }
    if (json_array_size(windows_of(c)) == LS_WINDOWS_MAX) {
        return ls_answer_fail(409, "%d windows of maintenance are announced already, the most allowed",
                              LS_WINDOWS_MAX);
    }
    json_t *note = note_of(c, caller, arguments);
    if (!note) {
        return bad_reason();
    }
    const int number = free_number(c);
    json_object_set_new(note, "window", json_integer(number));
    json_object_set_new(note, "begin", json_real(begin_s));
    json_object_set_new(note, "end", json_real(end_s));
    json_array_append_new(windows_of(c), note);
    const double in_s = begin_s > c->time_s ? begin_s - c->time_s : 0.0;
    return changed(c, caller,
                   ls_arena_printf(&c->arena, "maintenance %d, in %s for %s, was announced", number,
                                   ls_duration_of(in_s).text, ls_duration_of(end_s - begin_s).text),
                   note);
}

ls_answer ls_upkeep_unreserve(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_answer refusal;
    const json_int_t number = json_integer_value(json_object_get(arguments, "window"));
    if (!may(c, caller, "scontrol delete ReservationName=NAME", &refusal)) {
        return refusal;
    }
    for (size_t i = 0; i < json_array_size(windows_of(c)); i++) {
        if (json_integer_value(json_object_get(json_array_get(windows_of(c), i), "window")) == number) {
            json_array_remove(windows_of(c), i);
            return changed(c, caller,
                           ls_arena_printf(&c->arena, "maintenance %lld was called off", (long long)number),
                           NULL);
        }
    }
    return ls_answer_fail(404, "there is no maintenance %lld; 'lockstep maintenance' lists all",
                          (long long)number);
}
