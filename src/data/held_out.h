// SPDX-License-Identifier: Apache-2.0
/*
 * Which records are held out for validation.
 *
 * Every record has a rank, a number of 64 bits, and the records with the smallest ranks are held
 * out. What the rank is decides what stays together:
 *
 *   by conversation  a hash of the record: records that are equal are on the same side
 *   by a key         a hash of the value of a key, for example of a customer: all records with that
 *                    value are on the same side
 *   by time          the complement of a time: the latest records are held out. Times are numbers,
 *                    or texts that begin with year, month and day ("2024-05-31", "2024-05-31
 *                    17:04:59"), of one kind in all records; time zones are ignored
 *
 * The threshold is the smallest rank up to which at least the wanted share of samples lies, so the
 * share is met within the samples of one rank. It depends on the records alone.
 *
 * Pure and thread-safe.
 */
#ifndef LS_DATA_HELD_OUT_H
#define LS_DATA_HELD_OUT_H

#include "base/json.h"
#include "base/status.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_HELD_OUT_VERSION = 1 };

typedef struct ls_held_out_rule {
    /* NULL or "": by conversation. */
    const char *key;
    /* The key is a time. */
    bool is_time;
} ls_held_out_rule;

/* The rank of a record: `object`, which is `bytes` of text in its file. Errors: LS_ERR_DATA if the
 * record lacks the key, or its value is no time. */
LS_MUST_CHECK ls_status ls_held_out_rank(const ls_held_out_rule *rule, const json_t *object, const char *data,
                                         size_t bytes, uint64_t *rank_out);

/* The threshold for `fraction` (0 to 0.5) of the samples of all files: samples with ranks up to
 * *threshold_out are held out. Returns false if none are: the fraction is 0, or no sample would be
 * left to train on. */
bool ls_held_out_threshold(const ls_tokens *files, size_t file_count, double fraction,
                           uint64_t *threshold_out);

#endif
