// SPDX-License-Identifier: Apache-2.0
/*
 * Finds added tokens in a text: a trie over their bytes, of which the longest match counts. The
 * edges of the trie are kept in a table of merges, keyed by node and byte.
 */
#include "tokenizer/tokenizer_internal.h"

#include "tokenizer/unicode.h"

#include <string.h>

void ls_matcher_init(ls_matcher *matcher, ls_arena *arena, const ls_added_pattern *patterns, size_t count)
{
    size_t edges = 0;
    for (size_t i = 0; i < count; i++) {
        edges += patterns[i].bytes;
    }
    *matcher = (ls_matcher){.empty = edges == 0, .single_first = -1};
    if (matcher->empty) {
        return;
    }
    matcher->patterns = ls_arena_new(arena, ls_added_pattern, count);
    memcpy(matcher->patterns, patterns, count * sizeof *patterns);
    matcher->pattern_count = count;
    ls_merge_table_init(&matcher->edges, arena, edges);
    matcher->leaf = ls_arena_new(arena, int32_t, edges + 1);
    memset(matcher->leaf, 0xff, (edges + 1) * sizeof *matcher->leaf);

    int32_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        int32_t node = 0;
        for (uint32_t b = 0; b < patterns[i].bytes; b++) {
            const unsigned char byte = (unsigned char)patterns[i].text[b];
            const ls_merge *edge = ls_merge_find(&matcher->edges, node, byte);
            if (!edge) {
                ls_merge_table_put(&matcher->edges, node, byte, 0, nodes);
                node = nodes++;
            } else {
                node = edge->id;
            }
        }
        if (node > 0 && matcher->leaf[node] < 0) {
            matcher->leaf[node] = (int32_t)i;
            matcher->first[(unsigned char)patterns[i].text[0]] = true;
        }
    }
    int firsts = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (matcher->first[byte]) {
            matcher->single_first = byte;
            firsts++;
        }
    }
    matcher->single_first = firsts == 1 ? matcher->single_first : -1;
}

int32_t ls_matcher_at(const ls_matcher *matcher, const char *text, size_t at, size_t bytes)
{
    int32_t node = 0, found = -1;
    for (size_t i = at; i < bytes; i++) {
        const ls_merge *edge = ls_merge_find(&matcher->edges, node, (unsigned char)text[i]);
        if (!edge) {
            break;
        }
        node = edge->id;
        found = matcher->leaf[node] >= 0 ? matcher->leaf[node] : found;
    }
    return found;
}

/* The next place from `at` on where a pattern may begin; `bytes` if there is none. */
static size_t next_start(const ls_matcher *matcher, const char *text, size_t at, size_t bytes)
{
    if (matcher->single_first >= 0) {
        const char *found = at < bytes ? memchr(text + at, matcher->single_first, bytes - at) : NULL;
        return found ? (size_t)(found - text) : bytes;
    }
    while (at < bytes && !matcher->first[(unsigned char)text[at]]) {
        at++;
    }
    return at;
}

static uint8_t properties_before(const char *text, size_t at, size_t *start_out)
{
    uint32_t c;
    *start_out = ls_utf8_previous(text, at - 1);
    ls_utf8_valid_decode(text + *start_out, &c);
    return ls_unicode_of(c);
}

static uint8_t properties_after(const char *text, size_t at, size_t *stop_out)
{
    uint32_t c;
    *stop_out = at + ls_utf8_valid_decode(text + at, &c);
    return ls_unicode_of(c);
}

static bool stands_alone(const char *text, size_t bytes, const ls_match *match)
{
    size_t unused;
    const bool word_before =
        match->start > 0 && (properties_before(text, match->start, &unused) & LS_UNICODE_WORD);
    const bool word_after =
        match->stop < bytes && (properties_after(text, match->stop, &unused) & LS_UNICODE_WORD);
    return !word_before && !word_after;
}

/* lstrip and rstrip add the white space next to the token to the match. */
static void widen(const char *text, size_t bytes, size_t done, uint32_t flags, ls_match *match)
{
    size_t next;
    if (flags & LS_ADDED_LSTRIP) {
        while (match->start > done && (properties_before(text, match->start, &next) & LS_UNICODE_SPACE)) {
            match->start = next;
        }
        match->start = match->start < done ? done : match->start;
    }
    if (flags & LS_ADDED_RSTRIP) {
        while (match->stop < bytes && (properties_after(text, match->stop, &next) & LS_UNICODE_SPACE)) {
            match->stop = next;
        }
    }
}

bool ls_matcher_next(const ls_matcher *matcher, const char *text, size_t bytes, size_t *search_at,
                     size_t done, ls_match *match_out)
{
    if (matcher->empty) {
        return false;
    }
    for (;;) {
        const size_t at = next_start(matcher, text, *search_at, bytes);
        if (at >= bytes) {
            *search_at = bytes;
            return false;
        }
        const int32_t found = ls_matcher_at(matcher, text, at, bytes);
        if (found < 0) {
            *search_at = at + 1;
            continue;
        }
        const ls_added_pattern *pattern = &matcher->patterns[found];
        ls_match match = {.start = at, .stop = at + pattern->bytes, .id = pattern->id};
        *search_at = match.stop;
        if ((pattern->flags & LS_ADDED_SINGLE_WORD) && !stands_alone(text, bytes, &match)) {
            continue;
        }
        widen(text, bytes, done, pattern->flags, &match);
        *match_out = match;
        return true;
    }
}
