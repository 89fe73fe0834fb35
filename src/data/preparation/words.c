// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/words.h"

#include "base/list.h"
#include "data/preparation/word_exceptions.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* A character of the chunk that is being cut. */
typedef struct ls_character {
    uint32_t c;
    /* Offset in the text. */
    uint32_t at;
    uint8_t traits;
} ls_character;

/* Traits of characters. */
enum {
    DIGIT = 1,
    LOWER = 2, /* and letters without case */
    UPPER = 4,
    LETTER = LOWER | UPPER,
    QUOTE = 8,
    PUNCT = 16,
    ICON = 32,
    CURRENCY = 64,
};

static bool is_one_of(uint32_t c, const uint16_t *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == c) {
            return true;
        }
    }
    return false;
}
#define IS_ONE_OF(c, list) is_one_of(c, list, sizeof(list) / sizeof(list)[0])

static const uint8_t ascii_traits[128] = {
    ['0' ... '9'] = DIGIT, ['a' ... 'z'] = LOWER, ['A' ... 'Z'] = UPPER, ['\''] = QUOTE, ['"'] = QUOTE,
    ['`'] = QUOTE,         ['$'] = CURRENCY,      ['!'] = PUNCT,         ['#'] = PUNCT,  ['&'] = PUNCT,
    ['(' ... '*'] = PUNCT, [','] = PUNCT,         [':' ... '<'] = PUNCT, ['>'] = PUNCT,  ['?'] = PUNCT,
    ['['] = PUNCT,         [']'] = PUNCT,         ['_'] = PUNCT,         ['{'] = PUNCT,  ['}'] = PUNCT};

static bool is_icon(uint32_t c)
{
    return c == 0xA6 || c == 0xA9 || c == 0xAE || c == 0xB0 || (c >= 0x2195 && c <= 0x21F3 && c != 0x21D2) ||
           (c >= 0x2300 && c <= 0x23DB) || (c >= 0x23E2 && c <= 0x2426) || (c >= 0x249C && c <= 0x24E9) ||
           (c >= 0x2500 && c <= 0x25F7 && c != 0x25B7 && c != 0x25C1) ||
           (c >= 0x2600 && c <= 0x2767 && c != 0x266F) || (c >= 0x2794 && c <= 0x27BF) ||
           (c >= 0x2800 && c <= 0x28FF) || (c >= 0x2B00 && c <= 0x2BFE) || c == 0x2116 || c == 0x2122 ||
           c == 0xFFFC || c == 0xFFFD || (c >= 0x1F000 && c <= 0x1FA6D && !(c >= 0x1F3FB && c <= 0x1F3FF));
}

static uint8_t traits_of(uint32_t c)
{
    static const uint16_t quotes[] = {0x201d, 0x201c, 0x2018, 0xb4,   0x2019, 0x201a, 0x201e, 0xbb,   0xab,
                                      0x300c, 0x300d, 0x300e, 0x300f, 0xff08, 0xff09, 0x3014, 0x3015, 0x3010,
                                      0x3011, 0x300a, 0x300b, 0x3008, 0x3009, 0x27e6, 0x27e7};
    static const uint16_t marks[] = {0x2026, 0xbf,   0x61f,  0xa1, 0x3002, 0xff1f, 0xff01, 0xff0c, 0x3001,
                                     0xff1b, 0xff1a, 0xff5e, 0xb7, 0x964,  0x60c,  0x6d4,  0x61b,  0x66a};
    if (c < 0x80) {
        return ascii_traits[c];
    }
    if (IS_ONE_OF(c, quotes)) {
        return QUOTE;
    }
    if (IS_ONE_OF(c, marks)) {
        return PUNCT;
    }
    if (c == 0xA3 || c == 0xA5 || (c >= 0x20A0 && c <= 0x20BF) || c == 0xE3F || c == 0xFDFC) {
        return CURRENCY;
    }
    const uint8_t category = ls_unicode_of(c) & LS_UNICODE_CATEGORY;
    return category == LS_UNICODE_LU || category == LS_UNICODE_LT   ? UPPER
           : category >= LS_UNICODE_LL && category <= LS_UNICODE_LO ? LOWER
           : is_icon(c)                                             ? ICON
                                                                    : 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

static ls_status add_word(ls_words *words, const char *text, uint32_t at, uint32_t bytes)
{
    ls_text_word word = {.hash = ls_word_hash(text + at, bytes), .at = at, .bytes = bytes};
    for (uint32_t i = 0; i < bytes;) {
        uint32_t c = (unsigned char)text[at + i];
        word.chars++;
        if (c < 0x80) {
            word.has_letter = word.has_letter || (ascii_traits[c] & LETTER);
            word.has_content = word.has_content || (ascii_traits[c] & (LETTER | DIGIT));
            i++;
            continue;
        }
        i += ls_utf8_valid_decode(text + at + i, &c);
        word.has_letter = word.has_letter || ls_unicode_is_letter(ls_unicode_of(c));
        word.has_content = word.has_content || !ls_is_punctuation(c);
    }
    if (words->count == words->capacity) {
        LS_TRY(ls_list_grow(&words->items, words->count, &words->capacity, sizeof *words->items));
    }
    words->items[words->count++] = word;
    return LS_OK;
}

static ls_status add_pieces(ls_words *words, const char *text, uint32_t at, const ls_word_exception *cuts)
{
    for (int i = 0; i < 3 && cuts->pieces[i]; i++) {
        LS_TRY(add_word(words, text, at, cuts->pieces[i]));
        at += cuts->pieces[i];
    }
    return LS_OK;
}

/* ---- affixes --------------------------------------------------------------------------------- */

/* The characters [first, last) of a chunk, which are followed by an end mark with the offset of the
 * end. */
typedef struct part {
    const ls_word_exceptions *exceptions;
    const char *text;
    const ls_character *chars;
    size_t first, last;
} part;

static const ls_word_exception *exception_of(const part *p, size_t first, size_t last)
{
    const uint32_t at = p->chars[first].at, bytes = p->chars[last].at - at;
    return bytes <= 24 ? ls_word_exception_find(p->exceptions, ls_word_hash(p->text + at, bytes)) : NULL;
}

static uint32_t char_at(const part *p, size_t i)
{
    return i < p->last ? p->chars[i].c : 0;
}

static uint8_t traits_at(const part *p, size_t i)
{
    return i < p->last ? p->chars[i].traits : 0;
}

/* Length of what is cut off at the beginning; 0: nothing. */
static size_t find_prefix(const part *p)
{
    const uint32_t c = char_at(p, p->first), next = char_at(p, p->first + 1);
    if (c == '.' && next == '.') {
        size_t end = p->first;
        while (char_at(p, end) == '.') {
            end++;
        }
        return end - p->first;
    }
    if (c == '+') {
        return !(traits_at(p, p->first + 1) & DIGIT);
    }
    if (next == '$' || char_at(p, p->first + 2) == '$') {
        if ((c == 'C' || c == 'A') && next == '$') {
            return 2;
        }
        if (c == 'U' && next == 'S' && char_at(p, p->first + 2) == '$') {
            return 3;
        }
    }
    const bool is_mark = c == 0xA7 || c == '%' || c == '=' || c == 0x2014 || c == 0x2013;
    return is_mark || (traits_at(p, p->first) & (PUNCT | QUOTE | CURRENCY | ICON));
}

static const char *const units[] = {
    "mbar",     "km\u00b2", "km\u00b3", "km/h",    "dm\u00b2", "dm\u00b3", "cm\u00b2", "cm\u00b3", "mm\u00b2",
    "mm\u00b3", "kmh",      "mph",      "hPa",     "m/s",      "m\u00b2",  "m\u00b3",  "km",       "dm",
    "cm",       "mm",       "ha",       "\u00b5m", "nm",       "yd",       "in",       "ft",       "kg",
    "mg",       "\u00b5g",  "lb",       "oz",      "Pa",       "mb",       "MB",       "kb",       "KB",
    "gb",       "GB",       "tb",       "TB",      "US$",      "C$",       "A$",       "m",        "g",
    "t",        "T",        "G",        "M",       "K",        "%"};

/* Length of a unit or currency after a digit at the end. */
static size_t find_unit(const part *p, size_t first)
{
    const uint32_t end = p->chars[p->last].at;
    size_t longest = 0, digit = p->last;
    while (digit > first && !(traits_at(p, digit - 1) & DIGIT) && p->last - digit < 5) {
        digit--;
    }
    if (digit == first || digit == p->last || !(traits_at(p, digit - 1) & DIGIT)) {
        return 0;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const uint32_t bytes = (uint32_t)strlen(units[i]);
        if (end - p->chars[first].at <= bytes || memcmp(p->text + end - bytes, units[i], bytes) != 0) {
            continue;
        }
        const size_t chars = ls_count_characters(units[i], bytes);
        if (chars > longest && (traits_at(p, p->last - chars - 1) & DIGIT)) {
            longest = chars;
        }
    }
    const bool is_currency =
        (traits_at(p, p->last - 1) & CURRENCY) && p->last - first > 1 && (traits_at(p, p->last - 2) & DIGIT);
    return longest > 0 ? longest : is_currency;
}

static size_t find_full_stop(const part *p, size_t first)
{
    size_t stops = 0;
    while (p->last - stops > first && char_at(p, p->last - stops - 1) == '.') {
        stops++;
    }
    if (stops != 1) {
        return stops;
    }
    if (p->last - first < 2) {
        return 0;
    }
    const uint32_t before = char_at(p, p->last - 2);
    const uint8_t traits = traits_at(p, p->last - 2);
    const bool is_after_mark =
        before == '%' || before == 0xB2 || before == '-' || before == '+' || before == '|';
    const bool is_after_capitals =
        (traits & UPPER) && p->last - first > 2 && (traits_at(p, p->last - 3) & UPPER);
    return (traits & (DIGIT | LOWER | QUOTE | PUNCT)) || is_after_mark || is_after_capitals;
}

/* Length of what is cut off at the end of [first, last); 0: nothing. */
static size_t find_suffix(const part *p, size_t first)
{
    if (p->last <= first) {
        return 0;
    }
    const uint32_t c = char_at(p, p->last - 1);
    const uint32_t before = p->last - first >= 2 ? char_at(p, p->last - 2) : 0;
    if (c == '.') {
        return find_full_stop(p, first);
    }
    if (c == 0x2026 && before == 0x2026) {
        return 2;
    }
    if ((c == 's' || c == 'S') && (before == '\'' || before == 0x2019)) {
        return 2;
    }
    if (c == 0x2014 || c == 0x2013 || (traits_at(p, p->last - 1) & (PUNCT | QUOTE | ICON))) {
        return 1;
    }
    if (c == '+') {
        return p->last - first >= 2 && (traits_at(p, p->last - 2) & DIGIT);
    }
    return find_unit(p, first);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool is_host_char(uint32_t c)
{
    return (c < 0x80 && (ascii_traits[c] & (DIGIT | LETTER))) || (c >= 0xA1 && c <= 0xFFFF);
}

/* The end of a host name, which ends with a label of lower case letters; `first`: there is none. */
static size_t find_host_end(const part *p, size_t first)
{
    size_t label = first, end = first, labels = 0;
    while (end < p->last) {
        const uint32_t c = char_at(p, end);
        const bool is_end_of_label = c == '.';
        if (is_end_of_label) {
            if (end == label || end - label > 64 || !is_host_char(char_at(p, label)) ||
                !is_host_char(char_at(p, end - 1))) {
                return first;
            }
            labels++;
            label = end + 1;
        } else if (!is_host_char(c) && c != '-' && c != '_') {
            break;
        }
        end++;
    }
    bool is_name = labels > 0 && end - label >= 2 && end - label <= 63;
    bool is_number = labels == 3 && end > label;
    for (size_t i = label; i < end; i++) {
        is_name = is_name && (traits_at(p, i) & LOWER);
    }
    for (size_t i = first; i < end; i++) {
        is_number = is_number && ((traits_at(p, i) & DIGIT) || char_at(p, i) == '.');
    }
    return is_name || is_number ? end : first;
}

/* An address of the web or of a mail, which is one word. */
static bool is_address(const part *p)
{
    size_t first = p->first;
    bool has_stop = false, is_scheme = true;
    for (size_t i = p->first; i < p->last; i++) {
        const uint32_t c = char_at(p, i);
        has_stop = has_stop || c == '.';
        if (c == ':' && i >= p->first + 2 && char_at(p, i + 1) == '/' && char_at(p, i + 2) == '/' &&
            first == p->first && is_scheme) {
            first = i + 3;
        } else if (c == '@' && i > first) {
            first = i + 1;
        } else if ((c == '/' || c == '?' || c == '#') && i >= first) {
            break;
        }
        is_scheme = is_scheme &&
                    ((traits_at(p, i) & (LETTER | DIGIT)) || c == '+' || c == '-' || c == '.' || c == '_');
    }
    if (!has_stop) {
        return false;
    }
    size_t end = find_host_end(p, first);
    if (end == first) {
        return false;
    }
    if (char_at(p, end) == ':') {
        size_t digits = end + 1;
        while (traits_at(p, digits) & DIGIT) {
            digits++;
        }
        end = digits - end - 1 >= 2 && digits - end - 1 <= 5 ? digits : end;
    }
    return end == p->last || char_at(p, end) == '/' || char_at(p, end) == '?' || char_at(p, end) == '#';
}

/* ---- within words ---------------------------------------------------------------------------- */

static size_t hyphen_length(const part *p, size_t i)
{
    const uint32_t c = char_at(p, i);
    if (c == '~' || c == 0x2013) {
        return 1;
    }
    if (c != '-' && c != 0x2014) {
        return 0;
    }
    size_t length = 1;
    while (char_at(p, i + length) == c) {
        length++;
    }
    return length <= (c == '-' ? 3u : 2u) ? length : 0;
}

/* Length of a mark at i, after the first character, which cuts the word around it; 0: none. */
static size_t find_infix(const part *p, size_t i)
{
    const uint32_t c = char_at(p, i);
    const uint8_t before = i > p->first ? traits_at(p, i - 1) : 0, after = traits_at(p, i + 1);
    if (c == '.' && char_at(p, i + 1) == '.') {
        size_t length = 2;
        while (char_at(p, i + length) == '.') {
            length++;
        }
        return length;
    }
    if (c == 0x2026 || (traits_at(p, i) & ICON)) {
        return 1;
    }
    if ((c == '+' || c == '-' || c == '*' || c == '^') && (before & DIGIT) &&
        ((after & DIGIT) || char_at(p, i + 1) == '-')) {
        return 1;
    }
    if (c == '.') {
        const bool is_lower = before & (LOWER | QUOTE);
        return is_lower && ((after & (UPPER | QUOTE)) || ((after & LOWER) && char_at(p, i + 1) >= 0x3040));
    }
    if (c == ',') {
        return (before & LETTER) && (after & LETTER);
    }
    if (c == ':' || c == '<' || c == '>' || c == '=' || c == '/') {
        return (before & (LETTER | DIGIT)) && (after & LETTER);
    }
    const size_t length = hyphen_length(p, i);
    return length > 0 && (before & (LETTER | DIGIT)) && (traits_at(p, i + length) & LETTER) ? length : 0;
}

static ls_status add_part(ls_words *words, const part *p, size_t first, size_t last)
{
    const uint32_t at = p->chars[first].at;
    return add_word(words, p->text, at, p->chars[last].at - at);
}

static ls_status cut_inside(ls_words *words, const part *p)
{
    const ls_word_exception *cuts = exception_of(p, p->first, p->last);
    if (cuts) {
        return add_pieces(words, p->text, p->chars[p->first].at, cuts);
    }
    if (is_address(p)) {
        return add_part(words, p, p->first, p->last);
    }
    size_t start = p->first;
    for (size_t i = p->first; i < p->last;) {
        const size_t length = find_infix(p, i);
        if (length == 0 || i == p->first) {
            i += length > 0 ? length : 1;
            continue;
        }
        if (i > start) {
            LS_TRY(add_part(words, p, start, i));
        }
        LS_TRY(add_part(words, p, i, i + length));
        i += length;
        start = i;
    }
    return start < p->last ? add_part(words, p, start, p->last) : LS_OK;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static ls_status decode_chunk(ls_words *words, const char *text, uint32_t first, uint32_t last, part *out)
{
    size_t count = 0;
    while (words->chunk_capacity < last - first + 1) {
        LS_TRY(
            ls_list_grow(&words->chunk, words->chunk_capacity, &words->chunk_capacity, sizeof *words->chunk));
    }
    for (uint32_t at = first; at < last; count++) {
        ls_character *c = &words->chunk[count];
        c->at = at;
        at += ls_utf8_valid_decode(text + at, &c->c);
        c->traits = traits_of(c->c);
    }
    words->chunk[count] = (ls_character){.at = last};
    *out = (part){.exceptions = words->exceptions, .text = text, .chars = words->chunk, .last = count};
    return LS_OK;
}

/* Cuts off what stands around the word; suffixes are counted from the chunk's end. */
static ls_status strip(ls_words *words, part *p, uint8_t *suffixes, size_t *suffix_count)
{
    enum { SUFFIXES_MAX = 64 };
    size_t before = 0;
    while (p->last > p->first && p->last - p->first != before && *suffix_count < SUFFIXES_MAX) {
        if (exception_of(p, p->first, p->last)) {
            break;
        }
        before = p->last - p->first;
        const size_t prefix = find_prefix(p);
        if (prefix > 0 && prefix < before && exception_of(p, p->first + prefix, p->last)) {
            LS_TRY(add_part(words, p, p->first, p->first + prefix));
            p->first += prefix;
            break;
        }
        size_t suffix = find_suffix(p, p->first + prefix);
        const bool ends = suffix > 0 && suffix < before && exception_of(p, p->first, p->last - suffix);
        if (prefix > 0 && !ends) {
            LS_TRY(add_part(words, p, p->first, p->first + prefix));
            p->first += prefix;
        }
        if (suffix > 0) {
            suffixes[(*suffix_count)++] = (uint8_t)(suffix < 255 ? suffix : 255);
            p->last -= suffix < 255 ? suffix : 255;
        }
        if (ends) {
            break;
        }
    }
    return LS_OK;
}

/* Pieces side by side that together are an exception become one word: ")" and ":". */
static void join_exceptions(ls_words *words, const char *text, size_t from)
{
    enum { PIECES = 4, BYTES = 8 };
    size_t kept = from;
    for (size_t i = from; i < words->count;) {
        const uint32_t at = words->items[i].at;
        size_t joined = 1;
        for (size_t k = 2; k <= PIECES && i + k <= words->count && !words->items[i].has_letter; k++) {
            const uint32_t bytes = words->items[i + k - 1].at + words->items[i + k - 1].bytes - at;
            const ls_word_exception *found =
                bytes <= BYTES ? ls_word_exception_find(words->exceptions, ls_word_hash(text + at, bytes))
                               : NULL;
            joined = found && found->pieces[0] == bytes ? k : joined;
        }
        ls_text_word word = words->items[i];
        for (size_t k = 1; k < joined; k++) {
            const ls_text_word *next = &words->items[i + k];
            word.bytes += next->bytes;
            word.chars += next->chars;
            word.has_content = word.has_content || next->has_content;
            word.has_letter = word.has_letter || next->has_letter;
        }
        word.hash = joined > 1 ? ls_word_hash(text + at, word.bytes) : word.hash;
        words->items[kept++] = word;
        i += joined;
    }
    words->count = kept;
}

static ls_status cut_chunk(ls_words *words, const char *text, uint32_t first, uint32_t last)
{
    const size_t before = words->count;
    part p;
    uint8_t suffixes[64];
    size_t suffix_count = 0;
    LS_TRY(decode_chunk(words, text, first, last, &p));
    LS_TRY(strip(words, &p, suffixes, &suffix_count));
    if (p.last > p.first) {
        LS_TRY(cut_inside(words, &p));
    }
    size_t at = p.last;
    while (suffix_count > 0) {
        const size_t length = suffixes[--suffix_count];
        LS_TRY(add_part(words, &p, at, at + length));
        at += length;
    }
    join_exceptions(words, text, before);
    return LS_OK;
}

/* The end of the chunk that begins at `at`, which is no blank; *blank_out: bytes of the blank after
 * it. */
static uint32_t find_chunk_end(const char *text, uint32_t at, uint32_t bytes, uint32_t *blank_out)
{
    *blank_out = 0;
    while (at < bytes) {
        const unsigned char byte = (unsigned char)text[at];
        uint32_t c = byte, length = 1;
        if (byte >= 0x80) {
            length = ls_utf8_valid_decode(text + at, &c);
        }
        if ((byte == ' ' || byte == '\n') || ((byte < ' ' || byte >= 0x80) && ls_is_blank(c))) {
            *blank_out = length;
            return at;
        }
        at += length;
    }
    return at;
}

/* Letters, perhaps with one mark after them, up to a space: most of all text. */
typedef struct plain {
    uint64_t hash;
    uint32_t letters;
    /* 0: none. */
    unsigned char mark;
} plain;

static bool is_end(const char *text, size_t at, size_t bytes)
{
    return at >= bytes || text[at] == ' ' || text[at] == '\n';
}

static inline bool find_plain(const char *text, size_t at, size_t bytes, plain *out)
{
    /* A full stop is part of a short word. */
    enum { STOPPED_MIN = 6 };
    static const uint32_t marks[128] = {[','] = 1, [';'] = 1, [':'] = 1, ['!'] = 1, ['?'] = 1,
                                        [')'] = 1, [']'] = 1, ['}'] = 1, ['"'] = 1, ['.'] = STOPPED_MIN};
    const size_t left = bytes - at;
    const uint64_t octets = ls_octets_load(text + at, left);
    const uint64_t more = left > 8 ? ls_octets_load(text + at + 8, left - 8) : 0;
    const unsigned run = ls_octets_run(ls_octets_letters(octets));
    const unsigned more_run = run < 8 ? 0 : ls_octets_run(ls_octets_letters(more));
    uint32_t letters = run + more_run;
    if (letters == 0) {
        return false;
    }
    if (letters < 16) {
        out->hash =
            ls_short_word_hash(ls_octets_first(octets, run), ls_octets_first(more, more_run), letters);
    } else {
        while (at + letters < bytes && (ascii_traits[text[at + letters] & 0x7f] & LETTER) &&
               (unsigned char)text[at + letters] < 0x80) {
            letters++;
        }
        out->hash = ls_word_hash(text + at, letters);
    }
    out->letters = letters;
    out->mark = 0;
    if (is_end(text, at + letters, bytes)) {
        return true;
    }
    out->mark = (unsigned char)text[at + letters];
    return out->mark < 128 && marks[out->mark] > 0 && letters >= marks[out->mark] &&
           is_end(text, at + letters + 1, bytes) && (out->mark != '.' || text[at + letters - 1] >= 'a');
}

static ls_status add_plain(ls_words *words, const char *text, uint32_t at, const plain *p)
{
    const ls_word_exception *cuts =
        p->letters <= 12 ? ls_word_exception_find(words->exceptions, p->hash) : NULL;
    if (cuts) {
        LS_TRY(add_pieces(words, text, at, cuts));
    }
    if (words->count + 2 > words->capacity) {
        LS_TRY(ls_list_grow(&words->items, words->capacity, &words->capacity, sizeof *words->items));
    }
    if (!cuts) {
        words->items[words->count++] = (ls_text_word){.hash = p->hash,
                                                      .at = at,
                                                      .bytes = p->letters,
                                                      .chars = p->letters,
                                                      .has_content = true,
                                                      .has_letter = true};
    }
    if (p->mark) {
        words->items[words->count++] = (ls_text_word){
            .hash = ls_short_word_hash(p->mark, 0, 1), .at = at + p->letters, .bytes = 1, .chars = 1};
    }
    return LS_OK;
}

ls_status ls_words_cut(ls_words *words, const char *text, size_t bytes)
{
    plain p;
    uint32_t blank;
    words->count = 0;
    words->exceptions = ls_word_exceptions_get();
    for (uint32_t at = 0; at < bytes;) {
        if (find_plain(text, at, bytes, &p)) {
            LS_TRY(add_plain(words, text, at, &p));
            at += p.letters + (p.mark != 0) + 1;
            continue;
        }
        const uint32_t end = find_chunk_end(text, at, (uint32_t)bytes, &blank);
        if (end > at) {
            LS_TRY(cut_chunk(words, text, at, end));
        }
        at = end + blank;
    }
    return LS_OK;
}

/* Whether the word is one mark that ends a sentence, and whether it is punctuation alone. */
static bool is_terminal_word(const char *text, const ls_text_word *word, bool *is_marks_out)
{
    uint32_t c = 0;
    *is_marks_out = true;
    for (uint32_t at = word->at; at < word->at + word->bytes;) {
        at += ls_utf8_valid_decode(text + at, &c);
        const bool is_mark = c < 0x80 ? c > ' ' && strchr("!\"#%&'()*,-./:;?@[\\]_{}", (int)c) != NULL
                                      : traits_of(c) & (QUOTE | PUNCT) || ls_is_punctuation(c);
        *is_marks_out = *is_marks_out && is_mark;
    }
    return word->chars == 1 && ls_is_terminal(c);
}

ls_status ls_words_sentences(ls_words *words, const char *text, size_t bytes, uint64_t *count_out)
{
    LS_TRY(ls_words_cut(words, text, bytes));
    uint64_t count = words->count > 0;
    bool has_ended = false, is_marks;
    for (size_t i = 0; i < words->count; i++) {
        const bool is_terminal = is_terminal_word(text, &words->items[i], &is_marks);
        const bool begins = has_ended && !is_terminal && !is_marks;
        count += begins;
        has_ended = (has_ended && !begins) || is_terminal;
    }
    *count_out = count;
    return LS_OK;
}

void ls_words_release(ls_words *words)
{
    free(words->items);
    free(words->chunk);
    *words = (ls_words){0};
}
