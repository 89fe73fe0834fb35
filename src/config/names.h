// SPDX-License-Identifier: Apache-2.0
/*
 * Names that people type: compared without regard to case and punctuation, and the nearest names if
 * none matches.
 *
 * Pure; nothing is allocated.
 */
#ifndef LS_CONFIG_NAMES_H
#define LS_CONFIG_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { LS_NAME_MAX = 95, LS_NAMES_NEAREST = 4, LS_NAMES_LIST_BYTES = 512 };

/* True if a name has letters or digits and is not too long. */
bool ls_names_is_fit(const char *name);

/* "H100 SXM" and "h100-sxm" are equal. */
bool ls_names_equal(const char *a, const char *b);

/* True if one of the words of `words` (separated by blanks) equals `name`. */
bool ls_names_has(const char *words, const char *name);

/* True if every part of `query` (separated by punctuation) is found in `name`, in order:
 * "a100-40gb" in "A100-SXM4-40GB". */
bool ls_names_matches(const char *name, const char *query);

/* The nearest of the offered names, best first. */
typedef struct ls_names {
    const char *query;
    struct {
        const char *name;
        size_t distance;
    } nearest[LS_NAMES_NEAREST];
    size_t count;
    char list[LS_NAMES_LIST_BYTES];
} ls_names;

void ls_names_begin(ls_names *names, const char *query);
/* Offers `name`, which is also known as `alias`. */
void ls_names_offer(ls_names *names, const char *name, const char *alias);
/* The same for each word of `aliases`. */
void ls_names_offer_words(ls_names *names, const char *name, const char *aliases);
/* "a, b, c": valid as long as `names`. */
const char *ls_names_list(ls_names *names);

#endif
