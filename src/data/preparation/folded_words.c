// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/folded_words.h"

#include "base/hash.h"
#include "tokenizer/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t GRAM_BASE = 0xD6E8FEB86659FD93, LETTER_BASE = 0x9FB21C651E98DF25;

/* ---- words ----------------------------------------------------------------------------------- */

/* Small letters and digits stand for themselves, capitals for small letters; 0: no word. */
static const uint8_t ascii_fold[128] = {
    ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5', ['6'] = '6', ['7'] = '7',
    ['8'] = '8', ['9'] = '9', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd', ['e'] = 'e', ['f'] = 'f',
    ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l', ['m'] = 'm', ['n'] = 'n',
    ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't', ['u'] = 'u', ['v'] = 'v',
    ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd',
    ['E'] = 'e', ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k', ['L'] = 'l',
    ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r', ['S'] = 's', ['T'] = 't',
    ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y', ['Z'] = 'z'};

enum { SEPARATOR = 0, LEFT_OUT = 1 };

static uint32_t fold(uint32_t c)
{
    const uint8_t category = ls_unicode_of(c) & LS_UNICODE_CATEGORY;
    if (category == LS_UNICODE_MN || category == LS_UNICODE_ME) {
        return LEFT_OUT;
    }
    if (category != LS_UNICODE_LU && category != LS_UNICODE_LT) {
        return (category >= LS_UNICODE_LL && category <= LS_UNICODE_LO) || category == LS_UNICODE_MC ||
                       (category >= LS_UNICODE_ND && category <= LS_UNICODE_NO)
                   ? c
                   : SEPARATOR;
    }
    if (c < 0x100 || (c >= 0x391 && c <= 0x3AB) || (c >= 0x410 && c <= 0x42F)) {
        return c + 0x20;
    }
    if (c >= 0x400 && c <= 0x40F) {
        return c + 0x50;
    }
    const bool is_odd_pair = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
    const bool is_pair =
        (c >= 0x100 && c <= 0x17F) || (c >= 0x460 && c <= 0x52F) || (c >= 0x1E00 && c <= 0x1EFF);
    return is_odd_pair ? c + (c & 1) : is_pair ? c | 1 : c;
}

/* Whether the letter is a word of its own. */
static bool stands_alone(uint32_t c)
{
    return (c >= 0x2E80 && c < 0xA4D0) || (c >= 0xAC00 && c < 0xD7B0) || (c >= 0xF900 && c < 0xFB00) ||
           (c >= 0x20000 && c < 0x40000);
}

static ls_status reserve(ls_step_scratch *scratch, size_t bytes)
{
    const size_t needed = bytes / 2 + 2;
    if (scratch->folded_capacity >= needed) {
        return LS_OK;
    }
    free(scratch->folded);
    free(scratch->folded_at);
    scratch->folded_capacity = 0;
    scratch->folded = malloc(needed * sizeof *scratch->folded);
    scratch->folded_at = malloc(needed * sizeof *scratch->folded_at);
    if (!scratch->folded || !scratch->folded_at) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a document of %zu bytes", bytes);
    }
    scratch->folded_capacity = needed;
    return LS_OK;
}

static void end_word(ls_step_scratch *scratch, uint64_t sum)
{
    scratch->folded[scratch->folded_count++] = (sum ^ sum >> 32) * GRAM_BASE;
}

ls_status ls_fold_words(ls_step_scratch *scratch, const char *text, size_t bytes)
{
    uint64_t sum = 0;
    LS_TRY(reserve(scratch, bytes));
    scratch->folded_count = 0;
    for (size_t at = 0; at < bytes;) {
        const size_t from = at;
        uint32_t c = (unsigned char)text[at];
        if (c < 0x80) {
            c = ascii_fold[c];
            at++;
        } else {
            at += ls_utf8_valid_decode(text + at, &c);
            c = fold(c);
        }
        if (c == LEFT_OUT) {
            continue;
        }
        if (sum != 0 && (c == SEPARATOR || stands_alone(c))) {
            end_word(scratch, sum);
            sum = 0;
        }
        if (c == SEPARATOR) {
            continue;
        }
        if (sum == 0) {
            scratch->folded_at[scratch->folded_count] = (uint32_t)from;
            sum = GRAM_BASE;
        }
        sum = (sum ^ c) * LETTER_BASE;
        if (stands_alone(c)) {
            end_word(scratch, sum);
            sum = 0;
        }
    }
    if (sum != 0) {
        end_word(scratch, sum);
    }
    return LS_OK;
}

/* ---- sequences ------------------------------------------------------------------------------- */

ls_gram ls_gram_begin(uint64_t n)
{
    ls_gram gram = {.power = 1};
    for (uint64_t i = 0; i < n; i++) {
        gram.power *= GRAM_BASE;
    }
    return gram;
}

uint64_t ls_gram_roll(ls_gram *gram, uint64_t word, uint64_t oldest)
{
    gram->sum = gram->sum * GRAM_BASE + word - oldest * gram->power;
    const uint64_t mixed = (gram->sum ^ gram->sum >> 31) * LETTER_BASE;
    return mixed ^ mixed >> 29;
}

/* ---- signatures ------------------------------------------------------------------------------ */

enum { LANES = 16, BLOCK = 512 };
static uint32_t factors[LS_MINHASH_HASHES_MAX], terms[LS_MINHASH_HASHES_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_hashes(void)
{
    for (uint32_t i = 0; i < LS_MINHASH_HASHES_MAX; i++) {
        const uint64_t drawn = ls_xxh3(&i, sizeof i, GRAM_BASE);
        factors[i] = (uint32_t)drawn | 1;
        terms[i] = (uint32_t)(drawn >> 32);
    }
}

/* LANES hashes of all x; the same bits whatever the instructions. */
__attribute__((always_inline)) static inline void least_of(const uint32_t *x, size_t count, size_t first,
                                                           uint32_t *least)
{
    uint32_t a[LANES], b[LANES], low[LANES];
    memcpy(a, factors + first, sizeof a);
    memcpy(b, terms + first, sizeof b);
    memcpy(low, least + first, sizeof low);
    for (size_t i = 0; i < count; i++) {
        for (int lane = 0; lane < LANES; lane++) {
            const uint32_t hash = x[i] * a[lane] + b[lane];
            low[lane] = hash < low[lane] ? hash : low[lane];
        }
    }
    memcpy(least + first, low, sizeof low);
}

static void sign_plain(const uint32_t *x, size_t count, size_t hashes, uint32_t *least)
{
    for (size_t first = 0; first < hashes; first += LANES) {
        least_of(x, count, first, least);
    }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void sign_avx2(const uint32_t *x, size_t count, size_t hashes,
                                                      uint32_t *least)
{
    for (size_t first = 0; first < hashes; first += LANES) {
        least_of(x, count, first, least);
    }
}
#endif

static void sign(const uint32_t *x, size_t count, size_t hashes, uint32_t *least)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        sign_avx2(x, count, hashes, least);
        return;
    }
#endif
    sign_plain(x, count, hashes, least);
}

bool ls_minhash_keys(const ls_step *step, const ls_step_scratch *scratch, uint64_t *keys_out)
{
    const size_t n = step->minhash.ngram, hashes = step->minhash.bands * step->minhash.rows;
    uint32_t least[LS_MINHASH_HASHES_MAX], x[BLOCK];
    size_t used = 0;
    if (scratch->folded_count < n) {
        return false;
    }
    pthread_once(&once, draw_hashes);
    memset(least, 0xff, sizeof least);
    ls_gram gram = ls_gram_begin(n);
    for (size_t i = 0; i < scratch->folded_count; i++) {
        const uint64_t hash = ls_gram_roll(&gram, scratch->folded[i], i >= n ? scratch->folded[i - n] : 0);
        if (i + 1 >= n) {
            x[used++] = (uint32_t)hash;
        }
        if (used == BLOCK || i + 1 == scratch->folded_count) {
            sign(x, used, hashes, least);
            used = 0;
        }
    }
    for (size_t band = 0; band < step->minhash.bands; band++) {
        keys_out[band] = ls_xxh3(least + band * step->minhash.rows, step->minhash.rows * sizeof *least, band);
    }
    return true;
}
