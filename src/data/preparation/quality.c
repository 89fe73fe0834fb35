// SPDX-License-Identifier: Apache-2.0
/* The rules of Gopher's quality filter and of FineWeb. */
#include "data/preparation/quality.h"

#include "base/hash.h"
#include "base/octets.h"
#include "tokenizer/unicode.h"

#include <string.h>

static const char bullet[] = "\u2022", ellipsis[] = "\u2026";

/* ---- lines ----------------------------------------------------------------------------------- */

/* Length of the line end at `at`, 0: there is none. */
static size_t line_end_bytes(const char *text, size_t at, size_t bytes)
{
    const unsigned char c = (unsigned char)text[at];
    if (c == '\r') {
        return at + 1 < bytes && text[at + 1] == '\n' ? 2 : 1;
    }
    if (c < 0x80) {
        return (c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e);
    }
    if (c == 0xc2) {
        return (unsigned char)text[at + 1] == 0x85 ? 2 : 0;
    }
    return c == 0xe2 && (unsigned char)text[at + 1] == 0x80 && ((unsigned char)text[at + 2] & 0xfe) == 0xa8
               ? 3
               : 0;
}

bool ls_line_next(const char *text, size_t bytes, size_t *at, ls_line *line_out)
{
    const size_t from = *at;
    if (from >= bytes) {
        return false;
    }
    size_t end = from, mark = 0;
    while (end < bytes) {
        const unsigned run =
            ls_octets_run(ls_octets_within(ls_octets_load(text + end, bytes - end), ' ', '~'));
        end += run;
        if (run < 8 && end < bytes) {
            mark = line_end_bytes(text, end, bytes);
            if (mark > 0) {
                break;
            }
            end++;
        }
    }
    *line_out = (ls_line){text + from, end - from};
    *at = end + mark;
    return true;
}

ls_line ls_line_strip(ls_line line, bool first, bool last)
{
    uint32_t c;
    while (first && line.bytes > 0) {
        const unsigned length = ls_utf8_valid_decode(line.text, &c);
        if (!ls_is_blank(c)) {
            break;
        }
        line.text += length;
        line.bytes -= length;
    }
    while (last && line.bytes > 0) {
        const size_t at = ls_utf8_previous(line.text, line.bytes - 1);
        ls_utf8_valid_decode(line.text + at, &c);
        if (!ls_is_blank(c)) {
            break;
        }
        line.bytes = at;
    }
    return line;
}

static bool begins_with(ls_line line, const char *prefix)
{
    const size_t bytes = strlen(prefix);
    return line.bytes >= bytes && memcmp(line.text, prefix, bytes) == 0;
}

static bool ends_with(ls_line line, const char *suffix)
{
    const size_t bytes = strlen(suffix);
    return line.bytes >= bytes && memcmp(line.text + line.bytes - bytes, suffix, bytes) == 0;
}

/* How often `part` is in the text, without overlaps. */
static size_t count_parts(const ls_passage *passage, const char *part)
{
    const size_t bytes = strlen(part);
    const char *at = passage->text, *end = passage->text + passage->bytes;
    size_t count = 0;
    while ((at = memchr(at, part[0], (size_t)(end - at))) != NULL) {
        const bool is_part = (size_t)(end - at) >= bytes && memcmp(at, part, bytes) == 0;
        count += is_part;
        at += is_part ? bytes : 1;
    }
    return count;
}

/* ---- Gopher ---------------------------------------------------------------------------------- */

static ls_removal judge_words(const ls_step *step, const ls_words *words)
{
    size_t content = 0, characters = 0;
    for (size_t i = 0; i < words->count; i++) {
        content += words->items[i].has_content;
        characters += words->items[i].has_content ? words->items[i].chars : 0;
    }
    const double mean = content > 0 ? (double)characters / (double)content : 0.0;
    if (content < step->gopher.words_min) {
        return ls_removal_of(LS_GOPHER_SHORT, (double)content);
    }
    if (step->gopher.words_max && content > step->gopher.words_max) {
        return ls_removal_of(LS_GOPHER_LONG, (double)content);
    }
    if (content > 0 && mean < step->gopher.length_min) {
        return ls_removal_of(LS_GOPHER_SHORT_WORDS, mean);
    }
    if (step->gopher.length_max > 0.0 && mean > step->gopher.length_max) {
        return ls_removal_of(LS_GOPHER_LONG_WORDS, mean);
    }
    return (ls_removal){0};
}

static ls_removal judge_symbols(const ls_step *step, const ls_passage *passage, size_t words)
{
    const double hashes = (double)count_parts(passage, "#") / (double)words;
    const size_t dots = count_parts(passage, "...") + count_parts(passage, ellipsis);
    const double ellipses = (double)dots / (double)words, most = step->gopher.symbols_max;
    return most > 0.0 && hashes > most     ? ls_removal_of(LS_GOPHER_HASHES, hashes)
           : most > 0.0 && ellipses > most ? ls_removal_of(LS_GOPHER_ELLIPSES, ellipses)
                                           : (ls_removal){0};
}

static ls_removal judge_lines(const ls_step *step, const ls_passage *passage)
{
    size_t lines = 0, bullets = 0, ellipses = 0;
    ls_line line;
    for (size_t at = 0; ls_line_next(passage->text, passage->bytes, &at, &line); lines++) {
        const ls_line left = ls_line_strip(line, true, false), right = ls_line_strip(line, false, true);
        bullets += begins_with(left, bullet) || begins_with(left, "-");
        ellipses += ends_with(right, "...") || ends_with(right, ellipsis);
    }
    const double with_bullet = (double)bullets / (double)lines, with_dots = (double)ellipses / (double)lines;
    return step->gopher.bullets_max > 0.0 && with_bullet > step->gopher.bullets_max
               ? ls_removal_of(LS_GOPHER_BULLETS, with_bullet)
           : step->gopher.ellipses_max > 0.0 && with_dots > step->gopher.ellipses_max
               ? ls_removal_of(LS_GOPHER_END_ELLIPSES, with_dots)
               : (ls_removal){0};
}

/* Different stop words, up to `enough`. */
static size_t count_stop_words(const ls_passage *passage, const ls_words *words, uint64_t enough)
{
    static const char stop_words[][5] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    uint32_t seen = 0;
    for (size_t i = 0; i < words->count && (uint64_t)__builtin_popcount(seen) < enough; i++) {
        const ls_text_word *word = &words->items[i];
        char padded[5] = "";
        if (word->bytes < 2 || word->bytes > 4) {
            continue;
        }
        memcpy(padded, passage->text + word->at, word->bytes);
        for (size_t k = 0; k < sizeof stop_words / sizeof stop_words[0]; k++) {
            seen |= memcmp(stop_words[k], padded, 4) == 0 ? 1u << k : 0;
        }
    }
    return (size_t)__builtin_popcount(seen);
}

ls_status ls_gopher_judge(const ls_step *step, ls_step_scratch *scratch, const ls_passage *passage,
                          ls_removal *removal_out)
{
    LS_TRY(ls_scratch_words(scratch, passage));
    const ls_words *words = &scratch->words;
    ls_removal removal = judge_words(step, words);
    if (!removal.reason && words->count > 0) {
        removal = judge_symbols(step, passage, words->count);
    }
    if (!removal.reason && passage->bytes > 0) {
        removal = judge_lines(step, passage);
    }
    if (!removal.reason && words->count > 0) {
        size_t with_letter = 0;
        for (size_t i = 0; i < words->count; i++) {
            with_letter += words->items[i].has_letter;
        }
        const double share = (double)with_letter / (double)words->count;
        removal = share < step->gopher.alphabetic_min ? ls_removal_of(LS_GOPHER_ALPHABETIC, share) : removal;
    }
    if (!removal.reason) {
        const size_t stops = count_stop_words(passage, words, step->gopher.stop_words_min);
        removal = stops < step->gopher.stop_words_min ? ls_removal_of(LS_GOPHER_STOP_WORDS, (double)stops)
                                                      : removal;
    }
    *removal_out = removal;
    return LS_OK;
}

/* ---- FineWeb --------------------------------------------------------------------------------- */

typedef struct line_counts {
    size_t lines, breaks, punctuated, short_lines, repeated_characters, characters;
} line_counts;

static void count_line(const ls_step *step, ls_step_scratch *scratch, size_t slots, ls_line line,
                       line_counts *counts)
{
    uint32_t c;
    const size_t characters = ls_count_characters(line.text, line.bytes);
    counts->characters += characters;
    if (ls_line_strip(line, true, false).bytes == 0) {
        return;
    }
    counts->lines++;
    ls_utf8_valid_decode(line.text + ls_utf8_previous(line.text, line.bytes - 1), &c);
    counts->punctuated += ls_is_terminal(c);
    counts->short_lines += characters <= step->fineweb.short_length;
    const size_t slot = ls_scratch_slot(scratch, slots, ls_xxh3(line.text, line.bytes, 0));
    counts->repeated_characters += scratch->counts[slot] > 0 ? characters : 0;
    scratch->counts[slot] = 1;
}

ls_status ls_fineweb_judge(const ls_step *step, ls_step_scratch *scratch, const ls_passage *passage,
                           ls_removal *removal_out)
{
    line_counts counts = {.breaks = count_parts(passage, "\n")};
    size_t slots;
    LS_TRY(ls_scratch_table(scratch, counts.breaks + 1, &slots));
    for (size_t at = 0; at <= passage->bytes;) {
        const char *from = passage->text + at;
        const char *end = memchr(from, '\n', passage->bytes - at);
        const size_t bytes = end ? (size_t)(end - from) : passage->bytes - at;
        count_line(step, scratch, slots, (ls_line){from, bytes}, &counts);
        at += bytes + 1;
    }
    if (counts.lines == 0) {
        *removal_out = (ls_removal){.reason = LS_FINEWEB_EMPTY};
        return LS_OK;
    }
    LS_TRY(ls_scratch_words(scratch, passage));
    const double lines = (double)counts.lines, punctuated = (double)counts.punctuated / lines;
    const double short_share = (double)counts.short_lines / lines;
    const double repeated = (double)counts.repeated_characters / (double)counts.characters;
    const double breaks = (double)counts.breaks / (double)scratch->words.count;
    *removal_out =
        punctuated < step->fineweb.punctuated_min ? ls_removal_of(LS_FINEWEB_PUNCTUATION, punctuated)
        : short_share > step->fineweb.short_max   ? ls_removal_of(LS_FINEWEB_SHORT_LINES, short_share)
        : repeated > step->fineweb.duplicates_max ? ls_removal_of(LS_FINEWEB_DUPLICATES, repeated)
        : breaks > step->fineweb.breaks_max       ? ls_removal_of(LS_FINEWEB_BREAKS, breaks)
                                                  : (ls_removal){0};
    return LS_OK;
}
