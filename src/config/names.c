// SPDX-License-Identifier: Apache-2.0
#include "config/names.h"

#include "base/text.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct folded {
    char text[LS_NAME_MAX + 1];
} folded;

/* Keeps letters and digits only, in lower case; a name that is too long is cut. */
static folded fold(const char *name, size_t bytes)
{
    folded f = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < bytes && name[i] && count < LS_NAME_MAX; i++) {
        if (isalnum((unsigned char)name[i])) {
            f.text[count++] = (char)tolower((unsigned char)name[i]);
        }
    }
    return f;
}

bool ls_names_is_fit(const char *name)
{
    return strlen(name) <= LS_NAME_MAX && fold(name, strlen(name)).text[0];
}

bool ls_names_equal(const char *a, const char *b)
{
    return strcmp(fold(a, strlen(a)).text, fold(b, strlen(b)).text) == 0;
}

bool ls_names_has(const char *words, const char *name)
{
    const folded wanted = fold(name, strlen(name));
    while (*words) {
        const size_t bytes = strcspn(words, " ");
        if (bytes && wanted.text[0] && strcmp(fold(words, bytes).text, wanted.text) == 0) {
            return true;
        }
        words += bytes + (words[bytes] == ' ');
    }
    return false;
}

/* False if a number continues at this point of a folded name, so that "h20" is not part of
 * "H200". */
static void mark_ends(const char *name, bool ends[LS_NAME_MAX])
{
    for (size_t count = 0; *name && count < LS_NAME_MAX; name++) {
        if (isalnum((unsigned char)*name)) {
            ends[count++] = !isdigit((unsigned char)*name) || !isdigit((unsigned char)name[1]);
        }
    }
}

bool ls_names_matches(const char *name, const char *query)
{
    const folded whole = fold(name, strlen(name));
    bool ends[LS_NAME_MAX] = {false};
    mark_ends(name, ends);
    const char *at = whole.text;
    bool any = false;
    while (*query) {
        size_t bytes = 0;
        while (isalnum((unsigned char)query[bytes])) {
            bytes++;
        }
        if (bytes) {
            const folded part = fold(query, bytes);
            const size_t part_bytes = strlen(part.text);
            at = strstr(at, part.text);
            while (at && !ends[at - whole.text + (ptrdiff_t)part_bytes - 1]) {
                at = strstr(at + 1, part.text);
            }
            if (!at) {
                return false;
            }
            at += part_bytes;
            any = true;
        }
        query += bytes + (query[bytes] != 0);
    }
    return any;
}

/* ---- nearest ---- */

void ls_names_begin(ls_names *names, const char *query)
{
    *names = (ls_names){.query = query};
}

/* Distance of `alias` from what was typed: the whole of it, or its beginning of the same length,
 * which counts one more. If it contains what was typed, the distance is at most 1. */
static size_t distance_of(const char *query, const char *alias, size_t alias_bytes)
{
    const folded a = fold(query, strlen(query)), b = fold(alias, alias_bytes);
    const size_t a_bytes = strlen(a.text), b_bytes = strlen(b.text);
    size_t best = ls_edit_distance(a.text, b.text, LS_NAME_MAX);
    if (a_bytes >= 2 && best > 1 && strstr(b.text, a.text)) {
        best = 1; /* "70B" may be all that a user remembers of llama3-70b */
    }
    for (size_t bytes = a_bytes > 1 ? a_bytes - 1 : 1;
         a_bytes >= 2 && bytes <= a_bytes + 1 && bytes < b_bytes; bytes++) {
        const folded beginning = fold(b.text, bytes);
        const size_t distance = 1 + ls_edit_distance(a.text, beginning.text, LS_NAME_MAX);
        best = distance < best ? distance : best;
    }
    return best;
}

static void offer(ls_names *names, const char *name, size_t distance)
{
    size_t at = names->count;
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->nearest[i].name, name) == 0) {
            if (names->nearest[i].distance <= distance) {
                return;
            }
            memmove(&names->nearest[i], &names->nearest[i + 1],
                    (names->count - i - 1) * sizeof names->nearest[0]);
            at = --names->count;
            break;
        }
    }
    while (at > 0 && names->nearest[at - 1].distance > distance) {
        at--;
    }
    if (at == LS_NAMES_NEAREST) {
        return;
    }
    const size_t kept = names->count < LS_NAMES_NEAREST ? names->count : LS_NAMES_NEAREST - 1;
    memmove(&names->nearest[at + 1], &names->nearest[at], (kept - at) * sizeof names->nearest[0]);
    names->nearest[at].name = name;
    names->nearest[at].distance = distance;
    names->count = kept + 1;
}

void ls_names_offer(ls_names *names, const char *name, const char *alias)
{
    offer(names, name, distance_of(names->query, alias, strlen(alias)));
}

void ls_names_offer_words(ls_names *names, const char *name, const char *aliases)
{
    while (*aliases) {
        const size_t bytes = strcspn(aliases, " ");
        if (bytes) {
            offer(names, name, distance_of(names->query, aliases, bytes));
        }
        aliases += bytes + (aliases[bytes] == ' ');
    }
}

const char *ls_names_list(ls_names *names)
{
    size_t bytes = 0;
    names->list[0] = 0;
    for (size_t i = 0; i < names->count && bytes < sizeof names->list; i++) {
        bytes += (size_t)snprintf(names->list + bytes, sizeof names->list - bytes, "%s%s", i ? ", " : "",
                                  names->nearest[i].name);
    }
    return names->list;
}
