// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/step.h"

#include "base/assert.h"

#include <string.h>

/* ---- settings -------------------------------------------------------------------------------- */

#define ROW(key_, field, type_, default_, help_, ...)                                                        \
    {                                                                                                        \
        .key = key_, .type = type_, .offset = offsetof(ls_step, field), .default_text = default_,            \
        .help = help_, __VA_ARGS__                                                                           \
    }
#define ROW_STEP ROW("step", name, LS_OPTION_STRING, "\"\"", "name of the step")
#define ROW_COUNT(key_, field, default_, help_)                                                              \
    ROW(key_, field, LS_OPTION_U64, default_, help_, .min = 0, .max = 1e12)
#define ROW_SHARE(key_, field, default_, help_)                                                              \
    ROW(key_, field, LS_OPTION_F64, default_, help_, .min = 0, .max = 1)
#define ROW_FLAG(key_, field, default_, help_) ROW(key_, field, LS_OPTION_BOOL, default_, help_)
#define ROW_LIST(key_, field, help_)           ROW(key_, field, LS_OPTION_STRINGS, "[]", help_)

static const ls_option no_rows[] = {ROW_STEP};

static const ls_option normalise_rows[] = {
    ROW_STEP,
    ROW_FLAG("nfc", normalise.nfc, "true", "compose characters (Unicode NFC)"),
    ROW_FLAG("blanks", normalise.blanks, "true",
             "tidy blanks: one space for several, none at line ends, at most one empty line"),
};

static const ls_option language_rows[] = {
    ROW_STEP,
    ROW("model", language.model, LS_OPTION_STRING, "\"\"",
        "a fastText model that labels languages (.bin or .ftz)"),
    ROW_LIST("keep", language.keep, "languages to keep, by the model's labels: [en, de]"),
    ROW_SHARE("probability_min", language.probability_min, "0.65",
              "drop documents whose language is less probable than this"),
};

static const ls_option gopher_rows[] = {
    ROW_STEP,
    ROW_COUNT("words_min", gopher.words_min, "50", "drop documents with fewer words"),
    ROW_COUNT("words_max", gopher.words_max, "100000", "drop documents with more words"),
    ROW("word_length_min", gopher.length_min, LS_OPTION_F64, "3",
        "drop documents whose words have fewer characters on average", .min = 0, .max = 1000),
    ROW("word_length_max", gopher.length_max, LS_OPTION_F64, "10",
        "drop documents whose words have more characters on average", .min = 0, .max = 1000),
    ROW_SHARE("symbols_max", gopher.symbols_max, "0.1", "most hash signs, and most ellipses, per word"),
    ROW_SHARE("bullets_max", gopher.bullets_max, "0.9", "largest share of lines that begin with a bullet"),
    ROW_SHARE("ellipses_max", gopher.ellipses_max, "0.3", "largest share of lines that end with an ellipsis"),
    ROW_SHARE("alphabetic_min", gopher.alphabetic_min, "0.8", "least share of words with a letter"),
    ROW_COUNT("stop_words_min", gopher.stop_words_min, "2",
              "fewest different words of the list the, be, to, of, and, that, have, with"),
};

static const ls_option c4_rows[] = {
    ROW_STEP,
    ROW_COUNT("sentences_min", c4.sentences_min, "5", "drop documents with fewer sentences"),
    ROW_COUNT("line_words_min", c4.line_words_min, "3", "remove lines with fewer words"),
    ROW_COUNT("word_length_max", c4.word_length_max, "1000", "remove lines with a longer word"),
    ROW_FLAG("terminal_punctuation", c4.terminal, "true", "remove lines that end without . ? ! \" or '"),
    ROW_FLAG("javascript", c4.javascript, "true", "remove lines that mention javascript"),
    ROW_FLAG("policy", c4.policy, "true", "remove lines on cookies, privacy policies and terms of use"),
    ROW_FLAG("curly_bracket", c4.bracket, "true", "drop documents with the character {"),
};

static const ls_option fineweb_rows[] = {
    ROW_STEP,
    ROW_SHARE("punctuation_min", fineweb.punctuated_min, "0.12", "least share of lines that end a sentence"),
    ROW_SHARE("short_lines_max", fineweb.short_max, "0.67", "largest share of short lines"),
    ROW_COUNT("short_line", fineweb.short_length, "30", "a line of so many characters is short"),
    ROW_SHARE("duplicates_max", fineweb.duplicates_max, "0.01",
              "largest share of characters in lines that were there before"),
    ROW_SHARE("line_breaks_max", fineweb.breaks_max, "0.3", "most line breaks per word"),
};

static const ls_option lines_rows[] = {
    ROW_STEP,
    ROW_COUNT("length_min", lines.length_min, "40", "leave shorter lines (in bytes) alone"),
};

static const ls_option exact_rows[] = {
    ROW_STEP,
    ROW_FLAG("normalised", exact.normalised, "true",
             "ignore case (of ASCII) and the kind and number of blanks"),
};

static const ls_option minhash_rows[] = {
    ROW_STEP,
    ROW("ngram", minhash.ngram, LS_OPTION_U64, "5", "compare sequences of so many words", .min = 1,
        .max = 64),
    ROW("bands", minhash.bands, LS_OPTION_U64, "14",
        "number of bands; documents that agree in one of them are duplicates", .min = 1, .max = 64),
    ROW("rows", minhash.rows, LS_OPTION_U64, "8", "hashes in each band", .min = 1, .max = 32),
};

static const char *const actions[] = {"mask", "drop", NULL};
static const ls_option pii_rows[] = {
    ROW_STEP,
    ROW("action", pii.action, LS_OPTION_CHOICE, "mask", "mask private data, or drop the document",
        .choices = actions),
    ROW_LIST("kinds", pii.kinds, "what to look for: mail, phone, card, iban, ip, key; default: all of them"),
};

static const ls_option decontaminate_rows[] = {
    ROW_STEP,
    ROW_LIST("against", decontaminate.against, "evaluation files, folders or patterns"),
    ROW("ngram", decontaminate.ngram, LS_OPTION_U64, "13",
        "so many words in a row that an evaluation file has too make a document contaminated", .min = 3,
        .max = 64),
};

/* ---- kinds and reasons ----------------------------------------------------------------------- */

typedef enum detail_form { NO_DETAIL, NUMBER, SHARE } detail_form;

typedef struct reason {
    const char *key;
    detail_form form;
    /* After the number, if there is one. */
    const char *words;
} reason;

typedef struct kind_row {
    const char *name;
    ls_option_table table;
    reason reasons[LS_REASONS_MAX];
} kind_row;

#define ROWS(array)                                                                                          \
    {                                                                                                        \
        .options = (array), .count = sizeof(array) / sizeof((array)[0])                                      \
    }
#define GRAMS(kind, n, words)                                                                                \
    {                                                                                                        \
        kind "_" n "_words", SHARE, "of the characters are in " words                                        \
    }

static const kind_row kinds[LS_STEP_KINDS] = {
    [LS_STEP_READ] = {"read",
                      ROWS(no_rows),
                      {[LS_READ_BROKEN] = {"broken", NO_DETAIL, "the record is not a JSON object"},
                       [LS_READ_NO_TEXT] = {"no_text", NO_DETAIL, "the record has no text under the field"},
                       [LS_READ_NOT_UTF8] = {"not_utf8", NO_DETAIL, "the record is not valid UTF-8"},
                       [LS_READ_TOO_LONG] = {"too_long", NUMBER, "MiB, more than document_bytes_max"}}},
    [LS_STEP_NORMALISE] = {"normalise", ROWS(normalise_rows), {{0}}},
    [LS_STEP_LANGUAGE] = {"language",
                          ROWS(language_rows),
                          {[LS_LANGUAGE_OTHER] = {"other", SHARE, "sure of a language that is not kept"},
                           [LS_LANGUAGE_UNSURE] = {"unsure", SHARE, "sure, less than probability_min"}}},
    [LS_STEP_GOPHER_QUALITY] =
        {"gopher_quality",
         ROWS(gopher_rows),
         {[LS_GOPHER_SHORT] = {"words_few", NUMBER, "words, fewer than words_min"},
          [LS_GOPHER_LONG] = {"words_many", NUMBER, "words, more than words_max"},
          [LS_GOPHER_SHORT_WORDS] = {"words_short", NUMBER, "characters per word, below word_length_min"},
          [LS_GOPHER_LONG_WORDS] = {"words_long", NUMBER, "characters per word, above word_length_max"},
          [LS_GOPHER_HASHES] = {"hash_signs", NUMBER, "hash signs per word, above symbols_max"},
          [LS_GOPHER_ELLIPSES] = {"ellipses", NUMBER, "ellipses per word, above symbols_max"},
          [LS_GOPHER_BULLETS] = {"bullets", SHARE, "of the lines begin with a bullet"},
          [LS_GOPHER_END_ELLIPSES] = {"end_ellipses", SHARE, "of the lines end with an ellipsis"},
          [LS_GOPHER_ALPHABETIC] = {"not_alphabetic", SHARE, "of the words have a letter"},
          [LS_GOPHER_STOP_WORDS] = {"stop_words", NUMBER,
                                    "different stop words, fewer than stop_words_min"}}},
    [LS_STEP_GOPHER_REPETITION] =
        {"gopher_repetition",
         ROWS(no_rows),
         {[LS_REPETITION_EMPTY] = {"empty", NO_DETAIL, "no text"},
          [LS_REPETITION_PARAGRAPHS] = {"paragraphs", SHARE, "of the paragraphs are repeated"},
          [LS_REPETITION_PARAGRAPH_CHARACTERS] = {"paragraph_characters", SHARE,
                                                  "of the characters are in repeated paragraphs"},
          [LS_REPETITION_LINES] = {"lines", SHARE, "of the lines are repeated"},
          [LS_REPETITION_LINE_CHARACTERS] = {"line_characters", SHARE,
                                             "of the characters are in repeated lines"},
          [LS_REPETITION_TOP] = GRAMS("top", "2", "the most frequent 2 words"),
          [LS_REPETITION_TOP + 1] = GRAMS("top", "3", "the most frequent 3 words"),
          [LS_REPETITION_TOP + 2] = GRAMS("top", "4", "the most frequent 4 words"),
          [LS_REPETITION_DUPLICATE] = GRAMS("repeated", "5", "repeated sequences of 5 words"),
          [LS_REPETITION_DUPLICATE + 1] = GRAMS("repeated", "6", "repeated sequences of 6 words"),
          [LS_REPETITION_DUPLICATE + 2] = GRAMS("repeated", "7", "repeated sequences of 7 words"),
          [LS_REPETITION_DUPLICATE + 3] = GRAMS("repeated", "8", "repeated sequences of 8 words"),
          [LS_REPETITION_DUPLICATE + 4] = GRAMS("repeated", "9", "repeated sequences of 9 words"),
          [LS_REPETITION_DUPLICATE + 5] = GRAMS("repeated", "10", "repeated sequences of 10 words")}},
    [LS_STEP_C4] = {"c4",
                    ROWS(c4_rows),
                    {[LS_C4_LOREM_IPSUM] = {"lorem_ipsum", NO_DETAIL, "has the words lorem ipsum"},
                     [LS_C4_BRACKET] = {"curly_bracket", NO_DETAIL, "has the character {"},
                     [LS_C4_SENTENCES] = {"sentences_few", NUMBER,
                                          "sentences in the lines that are kept, fewer than sentences_min"}}},
    [LS_STEP_FINEWEB] =
        {"fineweb",
         ROWS(fineweb_rows),
         {[LS_FINEWEB_EMPTY] = {"empty", NO_DETAIL, "no text"},
          [LS_FINEWEB_PUNCTUATION] = {"punctuation", SHARE, "of the lines end a sentence"},
          [LS_FINEWEB_SHORT_LINES] = {"short_lines", SHARE, "of the lines are short"},
          [LS_FINEWEB_DUPLICATES] = {"duplicates", SHARE, "of the characters are in repeated lines"},
          [LS_FINEWEB_BREAKS] = {"line_breaks", NUMBER, "line breaks per word, above line_breaks_max"}}},
    [LS_STEP_DEDUP_LINES] = {"dedup_lines",
                             ROWS(lines_rows),
                             {[LS_DEDUP_COPY] = {"empty", NO_DETAIL,
                                                 "earlier documents have all of its lines"}}},
    [LS_STEP_DEDUP_EXACT] = {"dedup_exact",
                             ROWS(exact_rows),
                             {[LS_DEDUP_COPY] = {"copy", NO_DETAIL, "the same text as an earlier document"}}},
    [LS_STEP_DEDUP_MINHASH] = {"dedup_minhash",
                               ROWS(minhash_rows),
                               {[LS_DEDUP_COPY] = {"similar", NO_DETAIL, "similar to an earlier document"}}},
    [LS_STEP_PII] = {"pii", ROWS(pii_rows), {[LS_PII_FOUND] = {"found", NUMBER, "pieces of private data"}}},
    [LS_STEP_DECONTAMINATE] = {"decontaminate",
                               ROWS(decontaminate_rows),
                               {[LS_CONTAMINATED] = {"contaminated", NO_DETAIL, "holds text of"}}},
};

const char *ls_step_kind_name(ls_step_kind kind)
{
    return kinds[kind].name;
}

ls_step_kind ls_step_kind_find(const char *name)
{
    for (int kind = LS_STEP_READ + 1; kind < LS_STEP_KINDS; kind++) {
        if (strcmp(kinds[kind].name, name) == 0) {
            return (ls_step_kind)kind;
        }
    }
    return LS_STEP_KINDS;
}

void ls_step_kinds_append(ls_text *text)
{
    for (int kind = LS_STEP_READ + 1; kind < LS_STEP_KINDS; kind++) {
        ls_text_printf(text, "%s%s", kind > LS_STEP_READ + 1 ? ", " : "", kinds[kind].name);
    }
}

const ls_option_table *ls_step_table(ls_step_kind kind)
{
    return &kinds[kind].table;
}

bool ls_step_is_dedup(ls_step_kind kind)
{
    return kind == LS_STEP_DEDUP_EXACT || kind == LS_STEP_DEDUP_MINHASH;
}

ls_removal ls_removal_of(uint8_t reason_number, double value)
{
    ls_removal removal = {.reason = reason_number};
    const float narrow = (float)value;
    memcpy(&removal.detail, &narrow, sizeof narrow);
    return removal;
}

static const reason *reason_of(ls_step_kind kind, uint8_t number)
{
    static const reason unknown = {"unknown", NO_DETAIL, "for a reason that this version does not know"};
    const bool is_known = kind < LS_STEP_KINDS && number < LS_REASONS_MAX && kinds[kind].reasons[number].key;
    return is_known ? &kinds[kind].reasons[number] : &unknown;
}

const char *ls_step_reason(ls_step_kind kind, uint8_t reason_number)
{
    return reason_of(kind, reason_number)->key;
}

void ls_step_reason_append(ls_step_kind kind, ls_removal removal, ls_text *text)
{
    const reason *why = reason_of(kind, removal.reason);
    float value;
    memcpy(&value, &removal.detail, sizeof value);
    if (why->form == NUMBER) {
        ls_text_printf(text, "%.4g ", (double)value);
    } else if (why->form == SHARE) {
        ls_text_printf(text, "%.3g %% ", 100.0 * (double)value);
    }
    ls_text_append(text, why->words);
}
