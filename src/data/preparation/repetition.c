// SPDX-License-Identifier: Apache-2.0
/*
 * The repetition rules of Gopher.
 *
 * Sequences of words are compared by hash: the most frequent ones word by word, repeated ones as
 * datatrove does, by their letters without the borders of the words. Most documents repeat little,
 * and one table of pairs decides about them: the count of the most frequent pair is a bound for
 * triples and fours, and a sequence of five words or more is repeated only where all of its pairs
 * are.
 */
#include "data/preparation/quality.h"

#include "base/hash.h"
#include "tokenizer/unicode.h"

#include <string.h>

static const double paragraph_max = 0.3, paragraph_characters_max = 0.2, line_max = 0.3,
                    line_characters_max = 0.2;
static const double top_max[] = {0.2, 0.18, 0.16};
static const double duplicate_max[] = {0.15, 0.14, 0.13, 0.12, 0.11, 0.10};

/* ---- lines and paragraphs -------------------------------------------------------------------- */

typedef struct repeats {
    size_t elements, repeated, repeated_characters;
} repeats;

/* Counts the elements of a text that are there before. They are separated by at least
 * `breaks` line feeds. */
static ls_status count_repeats(ls_step_scratch *scratch, ls_line text, size_t breaks, repeats *out)
{
    size_t slots, line_feeds = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        line_feeds += text.text[i] == '\n';
    }
    LS_TRY(ls_scratch_table(scratch, line_feeds + 1, &slots));
    *out = (repeats){0};
    for (size_t at = 0, from = 0; at <= text.bytes;) {
        size_t run = 0;
        while (at + run < text.bytes && text.text[at + run] == '\n') {
            run++;
        }
        if (at < text.bytes && run < breaks) {
            at += run > 0 ? run : 1;
            const char *next = memchr(text.text + at, '\n', text.bytes - at);
            at = next ? (size_t)(next - text.text) : text.bytes;
            continue;
        }
        const size_t slot = ls_scratch_slot(scratch, slots, ls_xxh3(text.text + from, at - from, 0));
        if (scratch->counts[slot]++ > 0) {
            out->repeated++;
            out->repeated_characters += ls_count_characters(text.text + from, at - from);
        }
        out->elements++;
        if (at == text.bytes) {
            break;
        }
        at += run;
        from = at;
    }
    return LS_OK;
}

static ls_status judge_elements(ls_step_scratch *scratch, const ls_passage *passage, ls_removal *removal_out)
{
    repeats paragraphs, lines;
    const ls_line text = {passage->text, passage->bytes};
    const double characters = (double)scratch->characters;
    LS_TRY(count_repeats(scratch, ls_line_strip(text, true, true), 2, &paragraphs));
    LS_TRY(count_repeats(scratch, text, 1, &lines));
    const double paragraph = (double)paragraphs.repeated / (double)paragraphs.elements;
    const double line = (double)lines.repeated / (double)lines.elements;
    const double in_paragraphs = (double)paragraphs.repeated_characters / characters;
    const double in_lines = (double)lines.repeated_characters / characters;
    *removal_out = paragraph > paragraph_max ? ls_removal_of(LS_REPETITION_PARAGRAPHS, paragraph)
                   : in_paragraphs > paragraph_characters_max
                       ? ls_removal_of(LS_REPETITION_PARAGRAPH_CHARACTERS, in_paragraphs)
                   : line > line_max                ? ls_removal_of(LS_REPETITION_LINES, line)
                   : in_lines > line_characters_max ? ls_removal_of(LS_REPETITION_LINE_CHARACTERS, in_lines)
                                                    : (ls_removal){0};
    return LS_OK;
}

/* ---- sequences of words ---------------------------------------------------------------------- */

static uint64_t gram_of(const ls_words *words, size_t at, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = at; i < at + n; i++) {
        sum = sum * 0x9E3779B97F4A7C15 + words->items[i].hash;
    }
    return (sum ^ sum >> 29) * 0xBF58476D1CE4E5B9;
}

static size_t gram_characters(const ls_words *words, size_t at, size_t n)
{
    size_t characters = 0;
    for (size_t i = at; i < at + n; i++) {
        characters += words->items[i].chars;
    }
    return characters;
}

/* What pairs of words tell about longer sequences. */
typedef struct pairs {
    /* How often the most frequent one is there. */
    uint32_t most;
    /* Characters in sequences of at least 5 words all of whose pairs are there before. */
    size_t covered;
} pairs;

/* The count of the most frequent sequence of n words; of pairs, also what repeats cover. The table
 * of the scratch then has the counts. */
static ls_status count_top(ls_step_scratch *scratch, size_t n, size_t *slots_out, pairs *found)
{
    enum { PAIRS = 4 };
    const ls_words *words = &scratch->words;
    size_t run = 0;
    LS_TRY(ls_scratch_table(scratch, words->count, slots_out));
    found->most = 0;
    for (size_t i = 0; i + n <= words->count; i++) {
        const uint32_t count = ++scratch->counts[ls_scratch_slot(scratch, *slots_out, gram_of(words, i, n))];
        run = count > 1 ? run + 1 : 0;
        if (count > 1) {
            found->most = count > found->most ? count : found->most;
            found->covered += n > 2 || run < PAIRS ? 0
                              : run == PAIRS       ? gram_characters(words, i - (PAIRS - 1), PAIRS + 1)
                                                   : words->items[i + 1].chars;
        }
    }
    found->most = found->most > 0 ? found->most : 1;
    return LS_OK;
}

/* The characters of the first sequence that is there `most` times, with n - 1 spaces. */
static size_t top_characters(ls_step_scratch *scratch, size_t n, size_t slots, uint32_t most)
{
    size_t best = 0;
    while (scratch->counts[ls_scratch_slot(scratch, slots, gram_of(&scratch->words, best, n))] < most) {
        best++;
    }
    return gram_characters(&scratch->words, best, n) + n - 1;
}

/* covered_out: as of pairs; all characters if some sequences may have the same letters together
 * although their words differ. */
static ls_status judge_top(ls_step_scratch *scratch, size_t *covered_out, ls_removal *removal_out)
{
    const double characters = (double)scratch->characters;
    const ls_words *words = &scratch->words;
    size_t longest = 0;
    pairs found = {.most = UINT32_MAX};
    bool has_marks = false;
    for (size_t i = 0; i < words->count; i++) {
        longest = words->items[i].chars > longest ? words->items[i].chars : longest;
        has_marks = has_marks || (!words->items[i].has_content && words->items[i].chars > 3);
    }
    for (size_t k = 0; k < 3 && words->count >= k + 2 && !removal_out->reason; k++) {
        const size_t n = k + 2, sequence_max = (longest + 1) * n;
        /* A longer sequence is not more frequent than a shorter one. */
        if ((double)found.most * (double)sequence_max / characters <= top_max[k]) {
            continue;
        }
        size_t slots;
        LS_TRY(count_top(scratch, n, &slots, &found));
        if ((double)found.most * (double)sequence_max / characters > top_max[k]) {
            const double share =
                (double)(top_characters(scratch, n, slots, found.most) * found.most) / characters;
            *removal_out =
                share > top_max[k] ? ls_removal_of((uint8_t)(LS_REPETITION_TOP + k), share) : *removal_out;
        }
    }
    *covered_out = has_marks ? scratch->characters : found.covered;
    return LS_OK;
}

/* Characters in sequences of n words, n <= words, whose letters were there before; each repeat is
 * passed as a whole. letters: those of all words. */
static ls_status count_duplicates(ls_step_scratch *scratch, const char *letters, size_t n,
                                  size_t *characters_out)
{
    const ls_words *words = &scratch->words;
    size_t slots, repeated = 0, bytes = 0;
    LS_TRY(ls_scratch_table(scratch, words->count, &slots));
    for (size_t i = 0; i < n; i++) {
        bytes += words->items[i].bytes;
    }
    for (size_t i = 0; i + n <= words->count;) {
        const size_t slot = ls_scratch_slot(scratch, slots, ls_xxh3(letters, bytes, 0));
        const bool is_there = scratch->counts[slot] > 0;
        repeated += is_there ? gram_characters(words, i, n) : 0;
        scratch->counts[slot] = 1;
        for (size_t end = i + (is_there ? n : 1); i < end; i++) {
            letters += words->items[i].bytes;
            bytes -= words->items[i].bytes;
            bytes += i + n < words->count ? words->items[i + n].bytes : 0;
        }
    }
    *characters_out = repeated;
    return LS_OK;
}

static ls_status judge_duplicates(ls_step_scratch *scratch, const ls_passage *passage,
                                  ls_removal *removal_out)
{
    const double characters = (double)scratch->characters;
    const ls_words *words = &scratch->words;
    ls_text *letters = ls_scratch_spare(scratch, passage);
    for (size_t i = 0; i < words->count; i++) {
        ls_text_append_bytes(letters, passage->text + words->items[i].at, words->items[i].bytes);
    }
    for (size_t k = 0; k < 6 && k + 5 <= words->count && !removal_out->reason; k++) {
        size_t repeated;
        LS_TRY(count_duplicates(scratch, letters->data, k + 5, &repeated));
        const double share = (double)repeated / characters;
        if (share > duplicate_max[k]) {
            *removal_out = ls_removal_of((uint8_t)(LS_REPETITION_DUPLICATE + k), share);
        }
    }
    return LS_OK;
}

ls_status ls_repetition_judge(ls_step_scratch *scratch, const ls_passage *passage, ls_removal *removal_out)
{
    ls_removal removal = {.reason = LS_REPETITION_EMPTY};
    if (passage->bytes > 0) {
        LS_TRY(ls_scratch_words(scratch, passage));
        LS_TRY(judge_elements(scratch, passage, &removal));
    }
    size_t covered = 0;
    if (!removal.reason && scratch->words.count > 0) {
        LS_TRY(judge_top(scratch, &covered, &removal));
    }
    /* No rule allows less than the last one. */
    if (!removal.reason && (double)covered / (double)scratch->characters > duplicate_max[5]) {
        LS_TRY(judge_duplicates(scratch, passage, &removal));
    }
    *removal_out = removal;
    return LS_OK;
}
