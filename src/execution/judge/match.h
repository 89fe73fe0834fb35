// SPDX-License-Identifier: Apache-2.0
/*
 * Comparing an answer with the one that was expected.
 *
 * Two texts match exactly when they are equal but for white space at the ends. They match after
 * normalisation when they differ only in what a person would not call a difference:
 *
 *   case         of the letters A to Z
 *   punctuation  is left out, except a sign, a decimal point or a slash of a number; one of
 *                - / , ; : parts words as a space does
 *   white space  any amount is one space; none at the ends
 *   numbers      "1,234.50", "$1234.5" and "+1234.5" are the same; leading and trailing zeros are
 *                left out
 *
 * Thread-safe; an ls_extractor may be shared.
 */
#ifndef LS_EXECUTION_JUDGE_MATCH_H
#define LS_EXECUTION_JUDGE_MATCH_H

#include "base/text.h"

#include <stdbool.h>

/* Appends the normal form of a text. */
void ls_answer_normalise(const char *answer, size_t bytes, ls_text *normal_out);

/* Finds the answer within a longer text by a regular expression (pcre2), for example
 * "#### *(-?[0-9.,]+)" for worked solutions that end with a result. */
typedef struct ls_extractor ls_extractor;

/* Errors: LS_ERR_INVALID for a pattern that is no regular expression, with the place. */
LS_MUST_CHECK ls_status ls_extractor_create(const char *pattern, ls_extractor **extractor_out);
void ls_extractor_destroy(ls_extractor *extractor);

/* The part of `text` that the pattern's first group matched, or the whole match when it has no
 * group. The first match counts. False: there is none, or finding it takes too much work. */
bool ls_extractor_find(const ls_extractor *extractor, const char *text, size_t bytes, size_t *first_out,
                       size_t *bytes_out);

#endif
