// SPDX-License-Identifier: Apache-2.0
#include "data/record_set.h"

#include "base/assert.h"
#include "data/bins.h"
#include "data/conversation/samples.h"
#include "data/order.h"

#include <stdlib.h>

typedef unsigned long long ull;

static const uint64_t SAMPLES_MAX = INT32_MAX;

struct ls_record_set {
    ls_record_set_options options;
    ls_record_counts counts;
    /* file_count + 1 entries: the number of the first sample of each file. */
    uint64_t *file_starts;
    /* The samples by length: those of length n are numbers[starts[n]] to numbers[starts[n + 1]]. */
    uint32_t *numbers;
    uint64_t *starts;
    ls_bins *bins;
};

/* One sample: tokens [first, first + count) of a file, not cut. */
typedef struct piece {
    const ls_tokens *file;
    uint64_t document, first, count;
} piece;

static piece piece_of(const ls_tokens *file, uint64_t document)
{
    const uint64_t first = file->document_starts[document];
    const uint64_t end =
        document + 1 < file->document_count ? file->document_starts[document + 1] : file->count;
    return (piece){.file = file, .document = document, .first = first, .count = end - first};
}

static uint64_t positions_of(const ls_record_set *set, const piece *p)
{
    return p->count - 1 < set->options.context ? p->count - 1 : set->options.context;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool is_chosen(const ls_record_set_options *o, const piece *p)
{
    const bool held_out = o->has_threshold && p->file->origins[p->document].rank <= o->threshold;
    return o->held_out == held_out || (o->held_out && !o->has_threshold);
}

/* What the targets in a sample's window have. */
typedef struct targets {
    bool trained, end;
} targets;

static ls_status find_targets(const ls_record_set *set, const piece *p, targets *found_out)
{
    enum { BLOCK = 1024 };
    int32_t ids[BLOCK];
    const uint64_t count = positions_of(set, p) + 1;
    /* The recipe sees to it that the whole sample has both. */
    *found_out = (targets){.trained = count == p->count, .end = count == p->count};
    for (uint64_t at = 1; at < count && !found_out->end; at += BLOCK) {
        const uint64_t here = count - at < BLOCK ? count - at : BLOCK;
        LS_TRY(ls_tokens_read(p->file, p->first + at, here, ids));
        for (uint64_t i = 0; i < here; i++) {
            const bool trained = ls_token_is_trained(ids[i]);
            found_out->trained = found_out->trained || trained;
            found_out->end =
                found_out->end || (trained && ls_recipe_is_end(set->options.recipe, ls_token_id(ids[i])));
        }
    }
    return LS_OK;
}

/* What a pass over all samples has found so far. */
typedef struct survey {
    uint64_t lost_count;
    const char *lost_path;
    uint64_t lost_line;
} survey;

/* Counts a sample. */
static void look_at(ls_record_set *set, const piece *p, const char *path, targets has, survey *found)
{
    ls_record_counts *c = &set->counts;
    const uint64_t line = p->file->origins[p->document].line;
    if (!has.trained) {
        found->lost_line = found->lost_count++ ? found->lost_line : line;
        found->lost_path = found->lost_path ? found->lost_path : path;
        return;
    }
    if (p->count - 1 > set->options.context && c->long_count++ == 0) {
        c->long_path = path;
        c->long_line = line;
        c->long_tokens = p->count;
    }
    c->samples++;
    c->end_count += has.end;
    c->positions += positions_of(set, p);
}

static ls_status judge(ls_record_set *set, const survey *found)
{
    set->counts.left_count = found->lost_count;
    if (found->lost_count == 0 || set->options.skip_bad) {
        return LS_OK;
    }
    const bool is_one = found->lost_count == 1;
    return ls_fail(LS_ERR_DATA,
                   "%llu record%s longer than the context of %u tokens, and nothing that is trained is left "
                   "when %s cut off; the %s in line %llu of %s: raise model.context, shorten %s, or set "
                   "data.bad_records: skip to leave %s out",
                   (ull)found->lost_count, is_one ? " is" : "s are", set->options.context,
                   is_one ? "it is" : "they are", is_one ? "record is" : "first is", (ull)found->lost_line,
                   found->lost_path, is_one ? "it" : "them", is_one ? "it" : "them");
}

/* ---- making ---------------------------------------------------------------------------------- */

static ls_status no_memory(const ls_record_set *set)
{
    return ls_fail(LS_ERR_MEMORY, "not enough memory for the order of %llu samples",
                   (ull)set->counts.samples);
}

/* Samples that do not share windows count as if they filled one. */
static uint32_t length_of(const ls_record_set *set, const piece *p)
{
    return set->options.packing ? (uint32_t)positions_of(set, p) : set->options.context;
}

/* The length as which a sample is packed; 0: it is not in the set. */
static ls_status find_length(const ls_record_set *set, const piece *p, uint32_t *length_out, targets *has_out)
{
    *has_out = (targets){0};
    LS_TRY(is_chosen(&set->options, p) ? find_targets(set, p, has_out) : LS_OK);
    *length_out = has_out->trained ? length_of(set, p) : 0;
    return LS_OK;
}

/* Counts the samples of each length, and those that are cut or lost. */
static ls_status survey_files(ls_record_set *set, uint64_t *counts)
{
    const ls_record_set_options *o = &set->options;
    survey found = {0};
    for (size_t f = 0; f < o->file_count; f++) {
        for (uint64_t i = 0; i < o->files[f].document_count; i++) {
            const piece p = piece_of(&o->files[f], i);
            uint32_t length = 0;
            targets has;
            LS_TRY(find_length(set, &p, &length, &has));
            if (is_chosen(o, &p)) {
                look_at(set, &p, o->names[f].path, has, &found);
                counts[length]++;
            }
        }
    }
    counts[0] = 0;
    return judge(set, &found);
}

/* Puts the number of each sample to those of its length. next: for each length, where the next
 * number goes. */
static ls_status sort_numbers(ls_record_set *set, uint64_t *next)
{
    const ls_record_set_options *o = &set->options;
    for (size_t f = 0; f < o->file_count; f++) {
        for (uint64_t i = 0; i < o->files[f].document_count; i++) {
            const piece p = piece_of(&o->files[f], i);
            uint32_t length = 0;
            targets has;
            LS_TRY(find_length(set, &p, &length, &has));
            if (length > 0) {
                set->numbers[next[length]++] = (uint32_t)(set->file_starts[f] + i);
            }
        }
    }
    return LS_OK;
}

/* A counting sort in two passes over the files, which are mapped. */
static ls_status sort_by_length(ls_record_set *set, uint64_t *counts)
{
    const uint32_t context = set->options.context;
    LS_TRY(survey_files(set, counts));
    LS_TRY(ls_bins_create(counts, context, &set->bins));
    set->starts = malloc(((size_t)context + 2) * sizeof *set->starts);
    set->numbers = malloc((set->counts.samples + 1) * sizeof *set->numbers);
    if (!set->starts || !set->numbers) {
        return no_memory(set);
    }
    uint64_t sum = 0;
    for (uint32_t n = 0; n <= context; n++) {
        set->starts[n] = sum;
        sum += counts[n];
        counts[n] = set->starts[n];
    }
    set->starts[context + 1] = sum;
    set->counts.windows = ls_bins_count(set->bins);
    return sort_numbers(set, counts);
}

static ls_status count_files(ls_record_set *set)
{
    const ls_record_set_options *o = &set->options;
    set->file_starts = calloc(o->file_count + 1, sizeof *set->file_starts);
    if (!set->file_starts) {
        return no_memory(set);
    }
    for (size_t f = 0; f < o->file_count; f++) {
        LS_ASSERT(o->files[f].origins);
        set->file_starts[f + 1] = set->file_starts[f] + o->files[f].document_count;
    }
    const uint64_t total = set->file_starts[o->file_count];
    return o->first_record <= SAMPLES_MAX && total <= SAMPLES_MAX - o->first_record
               ? LS_OK
               : ls_fail(LS_ERR_INVALID, "there are %llu samples of records; at most %llu are allowed",
                         (ull)(o->first_record + total), (ull)SAMPLES_MAX);
}

static ls_status make(ls_record_set *set)
{
    LS_TRY(count_files(set));
    uint64_t *counts = calloc((size_t)set->options.context + 1, sizeof *counts);
    const ls_status status = counts ? sort_by_length(set, counts) : no_memory(set);
    free(counts);
    return status;
}

ls_status ls_record_set_create(const ls_record_set_options *options, ls_record_set **set_out)
{
    ls_record_set *set = calloc(1, sizeof *set);
    if (!set) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a set of records");
    }
    set->options = *options;
    const ls_status status = make(set);
    if (status != LS_OK) {
        ls_record_set_destroy(set);
        return status;
    }
    *set_out = set;
    return LS_OK;
}

void ls_record_set_destroy(ls_record_set *set)
{
    if (set) {
        ls_bins_destroy(set->bins);
        free(set->file_starts);
        free(set->numbers);
        free(set->starts);
        free(set);
    }
}

const ls_record_counts *ls_record_set_counts(const ls_record_set *set)
{
    return &set->counts;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Streams of random orders: windows of source s have s, the samples of length n (s + 1) << 32 | n.
 * */
static uint64_t shuffled(const ls_record_shuffle *shuffle, uint64_t stream, uint64_t count, uint64_t at)
{
    const ls_order order = ls_order_make(shuffle->seed, stream, count);
    return ls_order_at(&order, shuffle->epoch, at);
}

/* The number of the sample that has `rank` among those of its length. */
static uint32_t number_at(const ls_record_set *set, const ls_record_shuffle *shuffle, uint32_t length,
                          uint64_t rank)
{
    const uint64_t first = set->starts[length], count = set->starts[length + 1] - first;
    const uint64_t stream = shuffle ? ((uint64_t)shuffle->source + 1) << 32 | length : 0;
    return set->numbers[first + (shuffle ? shuffled(shuffle, stream, count, rank) : rank)];
}

static piece piece_at(const ls_record_set *set, uint32_t number)
{
    size_t low = 0, high = set->options.file_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (set->file_starts[middle] <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return piece_of(&set->options.files[low], number - set->file_starts[low]);
}

/* Where a sample begins anew: entries [at, at + count) of one record. */
static void mark_record(const ls_sample *sample, size_t at, size_t count, int32_t record)
{
    for (size_t i = at; i < at + count; i++) {
        if (sample->first) {
            sample->first[i] = (int32_t)at;
        }
        if (sample->record) {
            sample->record[i] = record;
        }
    }
}

static ls_status read_piece(const ls_record_set *set, uint32_t number, const ls_sample *sample, size_t *at)
{
    const piece p = piece_at(set, number);
    const size_t count = (size_t)positions_of(set, &p), begin = *at;
    LS_ASSERT(count <= set->options.context - begin);
    LS_TRY(ls_tokens_read(p.file, p.first, count, sample->tokens + begin));
    LS_TRY(ls_tokens_read(p.file, p.first + 1, count, sample->targets + begin));
    for (size_t i = begin; i < begin + count; i++) {
        const int32_t next = sample->targets[i];
        sample->tokens[i] = ls_token_id(sample->tokens[i]);
        sample->targets[i] = ls_token_is_trained(next) ? ls_token_id(next) : LS_NO_TARGET;
    }
    mark_record(sample, begin, count, (int32_t)(set->options.first_record + number));
    *at += count;
    return LS_OK;
}

ls_status ls_record_set_read(const ls_record_set *set, const ls_record_shuffle *shuffle, uint64_t window,
                             const ls_sample *sample)
{
    size_t at = 0;
    uint64_t repeat = 0;
    const ls_bins_slot *slots = NULL;
    const size_t count = ls_bins_window(set->bins, window, &slots, &repeat);
    for (size_t i = 0; i < count; i++) {
        const uint64_t rank = slots[i].rank + repeat * slots[i].count;
        for (uint32_t k = 0; k < slots[i].count; k++) {
            LS_TRY(read_piece(set, number_at(set, shuffle, slots[i].length, rank + k), sample, &at));
        }
    }
    const size_t left = set->options.context - at;
    for (size_t i = at; i < at + left; i++) {
        sample->tokens[i] = 0;
        sample->targets[i] = LS_NO_TARGET;
    }
    mark_record(sample, at, left, LS_NO_RECORD);
    return LS_OK;
}
