// SPDX-License-Identifier: Apache-2.0
/* The rules of C4. */
#include "data/preparation/quality.h"

#include "tokenizer/unicode.h"

#include <string.h>
#include <strings.h>

/* What a line mentions. */
enum { LOREM = 1, JAVASCRIPT = 2, POLICY = 4 };

/* A bit for each of them, whatever the case of ASCII. */
static unsigned find_phrases(ls_line line)
{
    static const struct {
        const char *words;
        unsigned bit;
    } phrases[] = {{"lorem ipsum", LOREM},     {"javascript", JAVASCRIPT}, {"terms of use", POLICY},
                   {"privacy policy", POLICY}, {"cookie policy", POLICY},  {"uses cookies", POLICY},
                   {"use of cookies", POLICY}, {"use cookies", POLICY}};
    /* First and second letters that belong together share a bit. */
    static const uint8_t first[32] = {['l' & 31] = 1, ['j' & 31] = 2, ['t' & 31] = 4,
                                      ['p' & 31] = 8, ['c' & 31] = 1, ['u' & 31] = 16};
    static const uint8_t second[32] = {
        ['o' & 31] = 1, ['a' & 31] = 2, ['e' & 31] = 4, ['r' & 31] = 8, ['s' & 31] = 16};
    unsigned found = 0;
    for (size_t at = 0; at + 1 < line.bytes; at++) {
        if (!(first[line.text[at] & 31] & second[line.text[at + 1] & 31])) {
            continue;
        }
        for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++) {
            const char *words = phrases[i].words;
            const size_t bytes = strlen(words);
            if (line.bytes - at >= bytes && strncasecmp(line.text + at, words, bytes) == 0) {
                found |= phrases[i].bit;
            }
        }
    }
    return found;
}

/* Length of a citation at the beginning: "[12]", "[edit]", "[citation needed]"; 0: there is none.
 * */
static size_t citation_bytes(const char *text, size_t bytes)
{
    static const char *const marks[] = {"[edit]", "[citation needed]"};
    for (size_t i = 0; i < 2; i++) {
        const size_t length = strlen(marks[i]);
        if (bytes >= length && memcmp(text, marks[i], length) == 0) {
            return length;
        }
    }
    size_t at = 1;
    while (at < bytes && text[at] >= '0' && text[at] <= '9') {
        at++;
    }
    return at < bytes && text[at] == ']' ? at + 1 : 0;
}

/* Appends the line without citations. */
static void append_line(ls_line line, ls_text *out)
{
    for (size_t at = 0; at < line.bytes;) {
        const char *bracket = memchr(line.text + at, '[', line.bytes - at);
        const size_t next = bracket ? (size_t)(bracket - line.text) : line.bytes;
        ls_text_append_bytes(out, line.text + at, next - at);
        const size_t mark = bracket ? citation_bytes(bracket, line.bytes - next) : 0;
        ls_text_append_bytes(out, bracket, bracket && mark == 0 ? 1 : 0);
        at = next + (mark > 0 ? mark : 1);
    }
}

/* Words between blanks, and characters of the longest one. */
static void count_words(ls_line line, size_t *count_out, size_t *longest_out)
{
    size_t count = 0, longest = 0, characters = 0;
    for (size_t at = 0; at < line.bytes;) {
        uint32_t c;
        at += ls_utf8_valid_decode(line.text + at, &c);
        if (ls_is_blank(c)) {
            characters = 0;
            continue;
        }
        count += characters == 0;
        characters++;
        longest = characters > longest ? characters : longest;
    }
    *count_out = count;
    *longest_out = longest;
}

/* What becomes of a line. */
typedef enum fate { KEPT, LEFT_OUT, DROPS_LOREM, DROPS_BRACKET } fate;

/* line: without citations; as_read: with them. */
static fate judge_line(const ls_step *step, ls_line line, ls_line as_read)
{
    static const char marks[] = ".?!\"'";
    size_t words, longest;
    const bool has_mark =
        line.bytes > 0 && line.text[line.bytes - 1] && strchr(marks, line.text[line.bytes - 1]);
    const bool has_dots = line.bytes >= 3 && memcmp(line.text + line.bytes - 3, "...", 3) == 0;
    if (step->c4.terminal && (!has_mark || has_dots)) {
        return LEFT_OUT;
    }
    count_words(as_read, &words, &longest);
    if ((step->c4.word_length_max && longest > step->c4.word_length_max) || words < step->c4.line_words_min) {
        return LEFT_OUT;
    }
    const unsigned phrases = find_phrases(line);
    if (phrases & LOREM) {
        return DROPS_LOREM;
    }
    if (step->c4.javascript && (phrases & JAVASCRIPT)) {
        return LEFT_OUT;
    }
    if (step->c4.bracket && memchr(line.text, '{', line.bytes)) {
        return DROPS_BRACKET;
    }
    return step->c4.policy && (phrases & POLICY) ? LEFT_OUT : KEPT;
}

ls_status ls_c4_apply(const ls_step *step, ls_step_scratch *scratch, bool judges, ls_passage *passage,
                      ls_removal *removal_out)
{
    ls_text *out = ls_scratch_spare(scratch, passage);
    uint64_t sentences = 0;
    ls_line raw;
    *removal_out = (ls_removal){0};
    scratch->words_text = NULL;
    for (size_t at = 0; ls_line_next(passage->text, passage->bytes, &at, &raw);) {
        const ls_line as_read = ls_line_strip(raw, true, true);
        const size_t from = out->bytes, begin = from + (from > 0);
        ls_text_append(out, from > 0 ? "\n" : "");
        append_line(as_read, out);
        const ls_line line = {ls_text_string(out) + begin, out->bytes - begin};
        const fate what = judge_line(step, line, as_read);
        if (what == DROPS_LOREM || what == DROPS_BRACKET) {
            removal_out->reason = what == DROPS_LOREM ? LS_C4_LOREM_IPSUM : LS_C4_BRACKET;
            return LS_OK;
        }
        if (what == LEFT_OUT) {
            out->bytes = from;
            continue;
        }
        uint64_t count = 0;
        if (judges && sentences < step->c4.sentences_min) {
            LS_TRY(ls_words_sentences(&scratch->words, line.text, line.bytes, &count));
        }
        sentences += count;
    }
    if (judges && sentences < step->c4.sentences_min) {
        *removal_out = ls_removal_of(LS_C4_SENTENCES, (double)sentences);
    }
    const ls_line whole = ls_line_strip((ls_line){ls_text_string(out), out->bytes}, true, true);
    ls_scratch_take(scratch, out, passage);
    *passage = (ls_passage){whole.text, whole.bytes};
    return LS_OK;
}
