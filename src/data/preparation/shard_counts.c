// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/shard_counts.h"

#include "tokenizer/unicode.h"

#include <string.h>

size_t ls_excerpt_bytes(const char *text, size_t bytes)
{
    return bytes <= LS_EXCERPT_BYTES ? bytes : ls_utf8_previous(text, LS_EXCERPT_BYTES);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* How many examples of a reason there are; of changes all have the reason "". */
static size_t count_alike(const json_t *list, const char *reason)
{
    size_t count = 0, index;
    const json_t *item;
    json_array_foreach(list, index, item)
    {
        const char *other = json_string_value(json_object_get(item, "reason"));
        count += strcmp(other ? other : "", reason) == 0;
    }
    return count;
}

/* Moves examples to `list` as long as there are few of their kind. */
static void add_examples(json_t **list, const json_t *from)
{
    size_t index;
    json_t *item;
    json_array_foreach(from, index, item)
    {
        const char *reason = json_string_value(json_object_get(item, "reason"));
        *list = *list ? *list : json_array();
        if (count_alike(*list, reason ? reason : "") < LS_EXAMPLES_MAX) {
            json_array_append(*list, item);
        }
    }
}

static void add_step(ls_step_counts *counts, const ls_step_counts *from)
{
    counts->removed += from->removed;
    counts->removed_bytes += from->removed_bytes;
    counts->changed += from->changed;
    counts->changed_before += from->changed_before;
    counts->changed_after += from->changed_after;
    for (size_t r = 0; r < LS_REASONS_MAX; r++) {
        counts->reasons[r] += from->reasons[r];
    }
    add_examples(&counts->examples, from->examples);
    add_examples(&counts->changes, from->changes);
}

void ls_shard_counts_add(ls_shard_counts *counts, ls_shard_counts *from)
{
    counts->documents += from->documents;
    counts->bytes += from->bytes;
    counts->kept += from->kept;
    counts->kept_bytes += from->kept_bytes;
    for (size_t i = 0; i < LS_PIPELINE_STEPS_MAX; i++) {
        add_step(&counts->steps[i], &from->steps[i]);
    }
    ls_shard_counts_release(from);
}

void ls_shard_counts_release(ls_shard_counts *counts)
{
    for (size_t i = 0; i < LS_PIPELINE_STEPS_MAX; i++) {
        json_decref(counts->steps[i].examples);
        json_decref(counts->steps[i].changes);
    }
    *counts = (ls_shard_counts){0};
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The part of a text around its byte `at`. */
static json_t *window_of(const ls_passage *text, size_t at)
{
    enum { BEFORE = 60 };
    const size_t from = at > BEFORE && text->bytes > 0 ? ls_utf8_previous(text->text, at - BEFORE) : 0;
    return json_stringn(text->text + from, ls_excerpt_bytes(text->text + from, text->bytes - from));
}

void ls_shard_counts_note_change(ls_step_counts *counts, const char *place, const ls_passage *before,
                                 const ls_passage *after)
{
    const size_t shorter = before->bytes < after->bytes ? before->bytes : after->bytes;
    size_t at = 0;
    counts->changed++;
    counts->changed_before += before->bytes;
    counts->changed_after += after->bytes;
    if (json_array_size(counts->changes) >= LS_EXAMPLES_MAX) {
        return;
    }
    while (at < shorter && before->text[at] == after->text[at]) {
        at++;
    }
    json_t *change = json_pack("{s:s, s:o, s:o}", "place", place, "before", window_of(before, at), "after",
                               window_of(after, at));
    counts->changes = counts->changes ? counts->changes : json_array();
    json_array_append_new(counts->changes, change);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *step_to_json(const ls_step_counts *counts, ls_step_kind kind)
{
    json_t *reasons = json_object();
    for (size_t r = 1; r < LS_REASONS_MAX; r++) {
        if (counts->reasons[r] > 0) {
            json_object_set_new(reasons, ls_step_reason(kind, (uint8_t)r),
                                json_integer((json_int_t)counts->reasons[r]));
        }
    }
    json_t *object = json_pack("{s:s, s:I, s:I, s:o}", "step", ls_step_kind_name(kind), "removed",
                               (json_int_t)counts->removed, "removed_bytes",
                               (json_int_t)counts->removed_bytes, "reasons", reasons);
    json_object_set_new(object, "changed", json_integer((json_int_t)counts->changed));
    json_object_set_new(object, "changed_bytes_before", json_integer((json_int_t)counts->changed_before));
    json_object_set_new(object, "changed_bytes_after", json_integer((json_int_t)counts->changed_after));
    json_object_set_new(object, "examples", counts->examples ? json_incref(counts->examples) : json_array());
    json_object_set_new(object, "changes", counts->changes ? json_incref(counts->changes) : json_array());
    return object;
}

json_t *ls_shard_counts_to_json(const ls_shard_counts *counts, const ls_data_pipeline *pipeline)
{
    json_t *steps = json_array();
    for (size_t i = 0; i < pipeline->step_count; i++) {
        json_array_append_new(steps, step_to_json(&counts->steps[i], pipeline->steps[i].kind));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:o}", "documents", (json_int_t)counts->documents, "bytes",
                     (json_int_t)counts->bytes, "kept", (json_int_t)counts->kept, "kept_bytes",
                     (json_int_t)counts->kept_bytes, "steps", steps);
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void read_step(const json_t *object, ls_step_kind kind, ls_step_counts *counts)
{
    const json_t *reasons = json_object_get(object, "reasons");
    ls_step_counts from = {.removed = number_of(object, "removed"),
                           .removed_bytes = number_of(object, "removed_bytes"),
                           .changed = number_of(object, "changed"),
                           .changed_before = number_of(object, "changed_bytes_before"),
                           .changed_after = number_of(object, "changed_bytes_after"),
                           .examples = json_object_get(object, "examples"),
                           .changes = json_object_get(object, "changes")};
    for (size_t r = 1; r < LS_REASONS_MAX; r++) {
        from.reasons[r] = number_of(reasons, ls_step_reason(kind, (uint8_t)r));
    }
    add_step(counts, &from);
}

bool ls_shard_counts_from_json(const json_t *object, const ls_data_pipeline *pipeline,
                               ls_shard_counts *counts)
{
    const json_t *steps = json_object_get(object, "steps");
    if (json_array_size(steps) != pipeline->step_count) {
        return false;
    }
    counts->documents += number_of(object, "documents");
    counts->bytes += number_of(object, "bytes");
    counts->kept += number_of(object, "kept");
    counts->kept_bytes += number_of(object, "kept_bytes");
    for (size_t i = 0; i < pipeline->step_count; i++) {
        read_step(json_array_get(steps, i), pipeline->steps[i].kind, &counts->steps[i]);
    }
    return true;
}
