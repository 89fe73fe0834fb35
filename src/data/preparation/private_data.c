// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/private_data.h"

#include "base/octets.h"

#include <string.h>

enum { MAIL, PHONE, CARD, IBAN, IP, KEY, KINDS };
static const char *const names[KINDS] = {"mail", "phone", "card", "iban", "ip", "key"};
static const char *const masks[KINDS] = {"[MAIL]", "[PHONE]", "[CARD]", "[IBAN]", "[IP]", "[KEY]"};

/* The text, and a piece of it. */
typedef struct view {
    const char *text;
    size_t bytes;
} view;
typedef struct piece {
    size_t from, to;
    int kind;
} piece;

static char char_at(const view *v, size_t at)
{
    return at < v->bytes ? v->text[at] : '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}
static bool is_word(char c)
{
    return is_digit(c) || is_upper(c) || (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

/* ---- mail ------------------------------------------------------------------------------------ */

static bool is_local(char c)
{
    return is_digit(c) || is_upper(c) || (c >= 'a' && c <= 'z') || (c != '\0' && strchr("._%+-", c));
}

static bool find_mail(const view *v, size_t at, size_t least, piece *p)
{
    size_t from = at, to = at + 1, dot = 0;
    while (from > least && is_local(v->text[from - 1])) {
        from--;
    }
    while (from < at && (v->text[from] == '.' || v->text[from] == '-')) {
        from++;
    }
    while (is_word(char_at(v, to)) || char_at(v, to) == '.' || char_at(v, to) == '-') {
        to++;
    }
    while (to > at + 1 && (v->text[to - 1] == '.' || v->text[to - 1] == '-')) {
        to--;
    }
    size_t letters = to;
    while (letters > at + 1 && is_word(v->text[letters - 1]) && !is_digit(v->text[letters - 1])) {
        letters--;
    }
    dot = letters - 1;
    *p = (piece){from, to, MAIL};
    return from < at && to - letters >= 2 && dot > at + 1 && v->text[dot] == '.';
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool find_ip(const view *v, size_t at, piece *p)
{
    unsigned parts[4];
    size_t to = at;
    for (int i = 0; i < 4; i++) {
        size_t digits = 0;
        parts[i] = 0;
        while (is_digit(char_at(v, to)) && digits < 4) {
            parts[i] = parts[i] * 10 + (unsigned)(v->text[to++] - '0');
            digits++;
        }
        if (digits == 0 || digits > 3 || parts[i] > 255 || (i < 3 && char_at(v, to++) != '.')) {
            return false;
        }
    }
    const bool ends = !is_word(char_at(v, to)) && !(char_at(v, to) == '.' && is_digit(char_at(v, to + 1)));
    const bool is_private = parts[0] == 0 || parts[0] == 10 || parts[0] == 127 || parts[0] >= 224 ||
                            (parts[0] == 192 && parts[1] == 168) || (parts[0] == 169 && parts[1] == 254) ||
                            (parts[0] == 172 && parts[1] >= 16 && parts[1] < 32);
    *p = (piece){at, to, IP};
    return ends && !is_private && (at == 0 || v->text[at - 1] != '.');
}

static bool passes_luhn(const char *digits, size_t count)
{
    unsigned sum = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned digit = (unsigned)(digits[count - 1 - i] - '0'), twice = 2 * digit;
        sum += i % 2 == 0 ? digit : twice > 9 ? twice - 9 : twice;
    }
    return sum % 10 == 0;
}

static bool find_card(const view *v, size_t at, piece *p)
{
    char digits[20];
    size_t count = 0, to = at;
    while (count < 20) {
        const char c = char_at(v, to);
        if (is_digit(c)) {
            digits[count++] = c;
        } else if (!((c == ' ' || c == '-') && is_digit(char_at(v, to + 1)))) {
            break;
        }
        to++;
    }
    *p = (piece){at, to, CARD};
    return count >= 13 && count <= 19 && digits[0] >= '2' && digits[0] <= '6' && !is_word(char_at(v, to)) &&
           passes_luhn(digits, count);
}

/* Digits from `at` on with single separators, up to 15. Returns their number. */
static size_t count_phone_digits(const view *v, size_t at, size_t *end_out)
{
    size_t count = 0, gap = 0;
    for (*end_out = at; count < 16; at++) {
        const char c = char_at(v, at);
        if (is_digit(c)) {
            count++;
            gap = 0;
            *end_out = at + 1;
        } else if (c == '\0' || !strchr(" .-/()", c) || ++gap > 2) {
            break;
        }
    }
    return count;
}

/* A pattern in which 0 is a digit and a blank is a blank, dot or hyphen. */
static bool fits(const view *v, size_t at, const char *pattern)
{
    for (size_t i = 0; pattern[i]; i++) {
        const char c = char_at(v, at + i);
        const bool is_same = pattern[i] == '0'   ? is_digit(c)
                             : pattern[i] == ' ' ? c != '\0' && strchr(" .-", c)
                                                 : c == pattern[i];
        if (!is_same) {
            return false;
        }
    }
    return !is_word(char_at(v, at + strlen(pattern)));
}

static bool find_phone(const view *v, size_t at, piece *p)
{
    static const char *const forms[] = {"(000) 000 0000", "(000)000 0000", "000 000 0000", "1 000 000 0000"};
    p->from = at;
    p->kind = PHONE;
    if (v->text[at] == '+') {
        const size_t digits = is_digit(char_at(v, at + 1)) ? count_phone_digits(v, at + 1, &p->to) : 0;
        return digits >= 8 && digits <= 15 && !is_word(char_at(v, p->to));
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (fits(v, at, forms[i])) {
            p->to = at + strlen(forms[i]);
            return true;
        }
    }
    return false;
}

/* ---- IBAN ------------------------------------------------------------------------------------ */

/* Country and length. */
static const char countries[] =
    "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18FO18FR27GB22"
    "GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28LC32LI21LT20LU20LV21MC27MD24ME22MK19"
    "MR27MT31MU30NL18NO15PK24PL28PS29PT25QA29RO24RS22SA24SC31SE24SI19SK24SM27ST25SV28TL23TN24TR26UA29VA22"
    "VG24XK20";

static size_t iban_length(const char *country)
{
    for (size_t i = 0; i + 4 < sizeof countries; i += 4) {
        if (memcmp(countries + i, country, 2) == 0) {
            return (size_t)(countries[i + 2] - '0') * 10 + (size_t)(countries[i + 3] - '0');
        }
    }
    return 0;
}

static bool find_iban(const view *v, size_t at, piece *p)
{
    char code[36];
    size_t count = 0, to = at;
    const bool may = at + 4 < v->bytes && is_upper(v->text[at + 1]) && is_digit(v->text[at + 2]);
    const size_t length = may ? iban_length(v->text + at) : 0;
    if (length == 0) {
        return false;
    }
    for (; count < length; to++) {
        const char c = char_at(v, to);
        if (is_digit(c) || is_upper(c)) {
            code[count++] = c;
        } else if (c != ' ' || count % 4 != 0) {
            return false;
        }
    }
    unsigned rest = 0;
    for (size_t i = 0; i < length; i++) {
        const char c = code[(i + 4) % length];
        rest = is_digit(c) ? (rest * 10 + (unsigned)(c - '0')) % 97
                           : (rest * 100 + (unsigned)(c - 'A') + 10) % 97;
    }
    *p = (piece){at, to, IBAN};
    return rest == 1 && is_digit(code[2]) && is_digit(code[3]) && !is_word(char_at(v, to));
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool find_private_key(const view *v, size_t at, piece *p)
{
    static const char begin[] = "-----BEGIN ", middle[] = "PRIVATE KEY-----", end[] = "-----END ";
    if (v->bytes - at < sizeof begin || memcmp(v->text + at, begin, sizeof begin - 1) != 0) {
        return false;
    }
    const size_t line = v->bytes - at < 80 ? v->bytes - at : 80;
    const char *name = memmem(v->text + at, line, middle, sizeof middle - 1);
    if (!name) {
        return false;
    }
    size_t to = (size_t)(name - v->text) + sizeof middle - 1;
    const char *last = memmem(v->text + to, v->bytes - to, end, sizeof end - 1);
    const char *close =
        last ? memmem(last, v->bytes - (size_t)(last - v->text), middle, sizeof middle - 1) : NULL;
    to = close ? (size_t)(close - v->text) + sizeof middle - 1 : to;
    *p = (piece){at, to, KEY};
    return true;
}

static bool find_key(const view *v, size_t at, piece *p)
{
    static const struct {
        const char *begin;
        size_t least;
    } forms[] = {{"AKIA", 16},   {"ASIA", 16},        {"sk-", 20},   {"ghp_", 36},  {"gho_", 36},
                 {"ghs_", 36},   {"github_pat_", 22}, {"xoxb-", 20}, {"xoxp-", 20}, {"xoxa-", 20},
                 {"glpat-", 20}, {"AIza", 35},        {"hf_", 30},   {"npm_", 36}};
    if (v->text[at] == '-') {
        return find_private_key(v, at, p);
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const size_t bytes = strlen(forms[i].begin);
        if (v->bytes - at < bytes || memcmp(v->text + at, forms[i].begin, bytes) != 0) {
            continue;
        }
        size_t to = at + bytes;
        while ((is_word(char_at(v, to)) && (unsigned char)v->text[to] < 0x80) || char_at(v, to) == '_' ||
               char_at(v, to) == '-') {
            to++;
        }
        *p = (piece){at, to, KEY};
        const bool is_fixed = forms[i].least == 16;
        return is_fixed ? to - at - bytes == 16 : to - at - bytes >= forms[i].least;
    }
    return false;
}

/* ---- a text ---------------------------------------------------------------------------------- */

/* What may begin at a byte: a bit for each kind. */
enum { DIGITS = 1 << PHONE | 1 << CARD | 1 << IP, CAPITAL = 1 << IBAN | 1 << KEY };
static const uint8_t kinds_at[256] = {
    ['0' ... '9'] = DIGITS,  ['@'] = 1 << MAIL, ['+'] = 1 << PHONE, ['('] = 1 << PHONE,
    ['A' ... 'Z'] = CAPITAL, ['-'] = 1 << KEY,  ['s'] = 1 << KEY,   ['g'] = 1 << KEY,
    ['x'] = 1 << KEY,        ['h'] = 1 << KEY,  ['n'] = 1 << KEY};

/* What follows the first character of a key: a bit for each letter, and that of a hyphen. */
#define NEXT(c) (1u << ((c)&31))
static const uint32_t key_next[128] = {['A'] = NEXT('K') | NEXT('S') | NEXT('I'),
                                       ['g'] = NEXT('h') | NEXT('i') | NEXT('l'),
                                       ['s'] = NEXT('k'),
                                       ['x'] = NEXT('o'),
                                       ['h'] = NEXT('f'),
                                       ['n'] = NEXT('p'),
                                       ['-'] = NEXT('-')};

static uint32_t kinds_of(const view *v, size_t at, uint32_t kinds)
{
    const unsigned char c = (unsigned char)v->text[at];
    kinds &= kinds_at[c];
    if (kinds & CAPITAL) {
        const char next = char_at(v, at + 1);
        kinds &= key_next[c] & NEXT(next) ? kinds : ~(1u << KEY);
        kinds &= is_upper(next) ? kinds : ~(1u << IBAN);
    }
    return kinds;
}

static bool find_piece(const view *v, size_t at, size_t least, uint32_t kinds, piece *p)
{
    const bool begins = at == least || !is_word(v->text[at - 1]);
    return (kinds >> MAIL & 1 && find_mail(v, at, least, p)) ||
           (begins &&
            ((kinds >> KEY & 1 && find_key(v, at, p)) || (kinds >> IBAN & 1 && find_iban(v, at, p)) ||
             (kinds >> IP & 1 && find_ip(v, at, p)) || (kinds >> CARD & 1 && find_card(v, at, p)) ||
             (kinds >> PHONE & 1 && find_phone(v, at, p))));
}

ls_status ls_private_kinds(const ls_step *step, const char *place, uint32_t *kinds_out)
{
    uint32_t kinds = step->pii.kinds.count == 0 ? (1u << KINDS) - 1 : 0;
    for (size_t i = 0; i < step->pii.kinds.count; i++) {
        int kind = 0;
        while (kind < KINDS && strcmp(step->pii.kinds.items[i], names[kind]) != 0) {
            kind++;
        }
        if (kind == KINDS) {
            return ls_fail(LS_ERR_INVALID,
                           "%s: %.40s is not a kind of private data; allowed in kinds are mail, phone, card, "
                           "iban, ip, key",
                           place, step->pii.kinds.items[i]);
        }
        kinds |= 1u << kind;
    }
    *kinds_out = kinds;
    return LS_OK;
}

/* The end of the run of is_word from `at` on. */
static size_t skip_word(const view *v, size_t at)
{
    unsigned run = 8;
    while (run == 8 && at < v->bytes) {
        const uint64_t octets = ls_octets_load(v->text + at, v->bytes - at);
        run = ls_octets_run(ls_octets_letters(octets) | ls_octets_within(octets, '0', '9') | octets);
        at += run;
    }
    return at;
}

uint64_t ls_private_mask(uint32_t kinds, ls_step_scratch *scratch, ls_passage *passage)
{
    const view v = {passage->text, passage->bytes};
    ls_text *out = ls_scratch_spare(scratch, passage);
    uint64_t count = 0;
    size_t copied = 0;
    for (size_t at = 0; at < v.bytes;) {
        piece p = {0};
        const uint32_t wanted = kinds_of(&v, at, kinds);
        if (wanted && find_piece(&v, at, copied, wanted, &p)) {
            ls_text_append_bytes(out, v.text + copied, p.from - copied);
            ls_text_append(out, masks[p.kind]);
            at = copied = p.to;
            count++;
            continue;
        }
        const size_t from = at;
        at = skip_word(&v, at);
        /* Nothing but the mark of a mail address begins within a word or right after it. */
        at += at == from || (at < v.bytes && v.text[at] != '@');
    }
    if (count > 0) {
        ls_text_append_bytes(out, v.text + copied, v.bytes - copied);
        ls_scratch_take(scratch, out, passage);
    }
    return count;
}
