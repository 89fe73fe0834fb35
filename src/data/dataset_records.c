// SPDX-License-Identifier: Apache-2.0
/* The records of a dataset. */
#include "data/dataset_internal.h"

#include "data/detect.h"

#include <stdarg.h>
#include <stdio.h>

typedef unsigned long long ull;

/* ---- forms ----------------------------------------------------------------------------------- */

bool ls_dataset_is_records(const ls_dataset_part *s)
{
    return s->file_count > 0 && s->files[0].form != LS_RECORD_TEXT;
}

/* Finds out the forms of the files' records, and tells the user. */
ls_status ls_dataset_detect(ls_dataset *d, const ls_dataset_options *o, const ls_dataset_part *s)
{
    for (size_t i = 0; i < s->file_count && o->recipe; i++) {
        ls_corpus_file *file = &s->files[i];
        if (i > 0 && file->shard &&
            ls_corpus_has_records(file->kind) == ls_corpus_has_records(s->files[0].kind)) {
            /* Looking would fetch it. Each record is compared with it when it is tokenised. */
            file->form = s->files[0].form;
            continue;
        }
        LS_TRY(ls_corpus_detect(file, ls_recipe_keys(o->recipe), ls_cache_folder(d->cache)));
        const ls_status status = ls_recipe_check_form(o->recipe, file->form);
        if (status != LS_OK) {
            return ls_fail_within(status, "%s", file->path);
        }
        if ((file->form == LS_RECORD_TEXT) == ls_dataset_is_records(s)) {
            const bool first_is_text = s->files[0].form == LS_RECORD_TEXT;
            return ls_fail(
                LS_ERR_INVALID,
                "%s is text, and %s holds records (%s): to mix the two, give each item of data.train "
                "a weight",
                first_is_text ? s->files[0].path : file->path, first_is_text ? file->path : s->files[0].path,
                ls_record_form_name(first_is_text ? file->form : s->files[0].form));
        }
    }
    d->has_records = d->has_records || ls_dataset_is_records(s);
    return LS_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

static void tell(const ls_dataset_options *o, const char *format, ...) LS_PRINTF(2, 3);
static void tell(const ls_dataset_options *o, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (o->tell) {
        o->tell(o->caller, line);
    }
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void tell_files(const ls_dataset_options *o, const ls_dataset_part *s)
{
    for (size_t i = 0; i < s->file_count; i++) {
        const ls_tokens *t = &s->tokens[i];
        tell(o, "%s: %s, %llu sample%s", s->files[i].path, ls_record_form_name(s->files[i].form),
             (ull)t->document_count, plural(t->document_count));
        if (t->left_count > 0) {
            tell(o, "%s: left out %llu record%s that cannot be used (data.bad_records: skip)",
                 s->files[i].path, (ull)t->left_count, plural(t->left_count));
        }
        if (t->is_loose) {
            tell(o,
                 "%s: the chat template writes a prompt with other white space when the answer follows than "
                 "when it asks for one",
                 s->files[i].path);
        }
    }
}

static void tell_set(const ls_dataset_options *o, const char *what, const ls_record_set *set)
{
    const ls_record_counts *c = ls_record_set_counts(set);
    tell(o, "%s: %llu sample%s in %llu sequence%s of %u tokens, %.1f %% full", what, (ull)c->samples,
         plural(c->samples), (ull)c->windows, plural(c->windows), o->context,
         c->windows ? 100.0 * (double)c->positions / (double)c->windows / (double)o->context : 0.0);
    if (c->left_count > 0) {
        tell(o, "%s: left out %llu sample%s, because nothing trained fits into %u tokens", what,
             (ull)c->left_count, plural(c->left_count), o->context);
    }
    if (c->long_count > 0) {
        tell(
            o,
            "%s: cut off %llu sample%s longer than the context of %u tokens, so the end of the answer is not "
            "trained; the first is line %llu of %s, with %llu tokens",
            what, (ull)c->long_count, plural(c->long_count), o->context, (ull)c->long_line, c->long_path,
            (ull)c->long_tokens);
    }
}

uint64_t ls_dataset_part_documents(const ls_dataset_part *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->file_count; i++) {
        sum += s->tokens[i].document_count;
    }
    return sum;
}

static ls_record_set_options set_options(const ls_dataset_options *o, const ls_dataset_part *s)
{
    return (ls_record_set_options){.files = s->tokens,
                                   .names = s->files,
                                   .file_count = s->file_count,
                                   .recipe = o->recipe,
                                   .context = o->context,
                                   .packing = o->packing,
                                   .skip_bad = ls_recipe_skips_bad(o->recipe)};
}

/* *validation_end: the first number of a record that no validation sample has yet. */
static ls_status make_record_sets(const ls_dataset_options *o, ls_dataset_part *s, uint64_t *validation_end)
{
    ls_record_set_options options = set_options(o, s);
    options.has_threshold =
        ls_held_out_threshold(s->tokens, s->file_count, o->validation_fraction, &options.threshold);
    tell_files(o, s);
    LS_TRY(ls_record_set_create(&options, &s->records));
    tell_set(o, "training", s->records);
    s->window_count = ls_record_set_counts(s->records)->windows;
    if (s->window_count == 0) {
        return ls_fail(LS_ERR_DATA, "no record of %s is left to train on", s->files[0].path);
    }
    if (options.has_threshold) {
        options.held_out = true;
        options.first_record = *validation_end;
        LS_TRY(ls_record_set_create(&options, &s->held_out));
        tell_set(o, "validation", s->held_out);
    }
    *validation_end += ls_dataset_part_documents(s);
    s->validation_end = *validation_end;
    return LS_OK;
}

/* Fails if there are records to train on, and the end of an answer is a target in none of them. */
static ls_status check_ends(const ls_dataset *d)
{
    uint64_t samples = 0, ends = 0;
    const ls_record_counts *first = NULL;
    for (uint32_t i = 0; i < d->source_count; i++) {
        if (d->sources[i].records) {
            const ls_record_counts *c = ls_record_set_counts(d->sources[i].records);
            first = first ? first : c;
            samples += c->samples;
            ends += c->end_count;
        }
    }
    if (!first || ends > 0) {
        return LS_OK;
    }
    return ls_fail(
        LS_ERR_DATA,
        "%llu of %llu training sample%s longer than the context of %u tokens, and no end of an "
        "answer is left when they are cut off, so the model would never learn to stop; the first is "
        "line %llu of %s, with %llu tokens: raise model.context, or shorten the records",
        (ull)samples, (ull)samples, samples == 1 ? " is" : "s are", d->context, (ull)first->long_line,
        first->long_path, (ull)first->long_tokens);
}

/* Sets of the records to train on, after the streams: validation numbers text first. */
ls_status ls_dataset_make_records(ls_dataset *d, const ls_dataset_options *o)
{
    uint64_t end = d->validation.token_count;
    for (uint32_t i = 0; i < d->source_count; i++) {
        ls_dataset_part *s = &d->sources[i];
        if (!ls_dataset_is_records(s) && i > 0 && d->sources[i - 1].records) {
            return ls_fail(
                LS_ERR_INVALID,
                "%s is text, but the item before it in data.train holds records: list text before records",
                s->files[0].path);
        }
        LS_TRY(ls_dataset_is_records(s) ? make_record_sets(o, s, &end) : LS_OK);
    }
    LS_TRY(check_ends(d));
    ls_dataset_part *v = &d->given_validation;
    if (ls_dataset_is_records(v)) {
        ls_record_set_options options = set_options(o, v);
        options.held_out = true;
        tell_files(o, v);
        LS_TRY(ls_record_set_create(&options, &v->held_out));
        tell_set(o, "validation", v->held_out);
    }
    return LS_OK;
}

bool ls_dataset_has_records(const ls_dataset *dataset)
{
    return dataset->has_records;
}

/* ---- records held out ------------------------------------------------------------------------ */

static ls_record_counts held_out_counts(const ls_dataset_part *part)
{
    return part->held_out ? *ls_record_set_counts(part->held_out) : (ls_record_counts){0};
}

uint64_t ls_dataset_held_out_windows(const ls_dataset *d)
{
    uint64_t sum = held_out_counts(&d->given_validation).windows;
    for (uint32_t i = 0; i < d->source_count; i++) {
        sum += held_out_counts(&d->sources[i]).windows;
    }
    return sum;
}

uint64_t ls_dataset_held_out_positions(const ls_dataset *d)
{
    uint64_t sum = held_out_counts(&d->given_validation).positions;
    for (uint32_t i = 0; i < d->source_count; i++) {
        sum += held_out_counts(&d->sources[i]).positions;
    }
    return sum;
}

ls_status ls_dataset_read_held_out(const ls_dataset *d, uint64_t window, const ls_sample *sample)
{
    const ls_record_set *set = d->given_validation.held_out;
    for (uint32_t i = 0; i < d->source_count; i++) {
        const uint64_t count = held_out_counts(&d->sources[i]).windows;
        if (window < count) {
            set = d->sources[i].held_out;
            break;
        }
        window -= count;
    }
    return ls_record_set_read(set, NULL, window, sample);
}
