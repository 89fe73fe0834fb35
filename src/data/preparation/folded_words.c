// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/folded_words.h"

#include "base/hash.h"
#include "base/octets.h"
#include "tokenizer/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ----------------------------------------------------------------------------------- */

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
    if (scratch->folded_capacity < needed) {
        free(scratch->folded);
        scratch->folded_capacity = 0;
        scratch->folded = malloc(needed * sizeof *scratch->folded);
        if (!scratch->folded) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for a document of %zu bytes", bytes);
        }
        scratch->folded_capacity = needed;
    }
    return LS_OK;
}

static uint64_t add_letter(uint64_t sum, uint32_t c)
{
    return (sum ^ c) * LS_LETTER_BASE;
}

/* Adds the first `count` octets. All eight are computed: how long a word is cannot be predicted. */
static inline uint64_t add_octets(uint64_t sum, uint64_t octets, unsigned count)
{
    uint64_t sums[9] = {sum};
    for (int i = 0; i < 8; i++) {
        sums[i + 1] = add_letter(sums[i], octets >> 8 * i & 0xff);
    }
    return sums[count];
}

/* The letters and digits of ASCII from `at` on, at most to the end of a word. Returns how many. */
static inline size_t fold_octets(const char *text, size_t at, size_t bytes, uint64_t *sum)
{
    size_t count = 0;
    unsigned run = 8;
    while (run == 8 && at + count < bytes) {
        const uint64_t octets = ls_octets_load(text + at + count, bytes - at - count);
        run = ls_octets_run(ls_octets_letters(octets) | ls_octets_within(octets, '0', '9'));
        *sum = run > 0 ? add_octets(*sum ? *sum : LS_GRAM_BASE, octets | LS_OCTETS(0x20), run) : *sum;
        count += run;
    }
    return count;
}

static void fold_text(ls_step_scratch *scratch, const char *text, size_t bytes)
{
    uint64_t sum = 0, *folded = scratch->folded;
    for (size_t at = 0; at < bytes;) {
        at += fold_octets(text, at, bytes, &sum);
        uint32_t c = SEPARATOR;
        if (at < bytes) {
            at += ls_utf8_valid_decode(text + at, &c);
            c = c < 0x80 ? SEPARATOR : fold(c); /* what is ASCII here is no letter */
        }
        if (c == LEFT_OUT) {
            continue;
        }
        const bool is_alone = stands_alone(c);
        if (sum != 0 && (c == SEPARATOR || is_alone)) {
            *folded++ = (sum ^ sum >> 32) * LS_GRAM_BASE;
            sum = 0;
        }
        if (c != SEPARATOR) {
            sum = add_letter(sum ? sum : LS_GRAM_BASE, c);
        }
        if (is_alone) {
            *folded++ = (sum ^ sum >> 32) * LS_GRAM_BASE;
            sum = 0;
        }
    }
    if (sum != 0) {
        *folded++ = (sum ^ sum >> 32) * LS_GRAM_BASE;
    }
    scratch->folded_count = (size_t)(folded - scratch->folded);
}

ls_status ls_fold_words(ls_step_scratch *scratch, const char *text, size_t bytes)
{
    if (scratch->folded_from != text || scratch->folded_bytes != bytes) {
        LS_TRY(reserve(scratch, bytes));
        fold_text(scratch, text, bytes);
        scratch->folded_from = text;
        scratch->folded_bytes = bytes;
    }
    return LS_OK;
}

/* ---- sequences ------------------------------------------------------------------------------- */

ls_gram ls_gram_begin(uint64_t n)
{
    ls_gram gram = {.power = 1};
    for (uint64_t i = 0; i < n; i++) {
        gram.power *= LS_GRAM_BASE;
    }
    return gram;
}

/* ---- signatures ------------------------------------------------------------------------------ */

enum { LANES = 16, BLOCK = 512 };
static uint32_t factors[LS_MINHASH_HASHES_MAX], terms[LS_MINHASH_HASHES_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_hashes(void)
{
    for (uint32_t i = 0; i < LS_MINHASH_HASHES_MAX; i++) {
        const uint64_t drawn = ls_xxh3(&i, sizeof i, LS_GRAM_BASE);
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
