// SPDX-License-Identifier: Apache-2.0
/* Fingerprints and claims of operations, and the error text when they differ. */
#include "comm/transport/reduce.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    /* The finalizer of MurmurHash3. It is a bijection, so different counts never collide. */
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

uint64_t ls_comm_fingerprint(const ls_comm_op *op)
{
    const bool is_pair = op->kind == LS_COMM_SEND || op->kind == LS_COMM_RECEIVE;
    const uint64_t kind = is_pair ? LS_COMM_SEND : op->kind, peer = is_pair ? 0 : op->peer;
    const uint64_t what = kind | (uint64_t)op->dtype << 8 | (uint64_t)op->reduction << 16 |
                          (uint64_t)(op->flags & 0xff) << 24 | peer << 32;
    return mix(what ^ mix(op->count));
}

void ls_comm_claim_fill(ls_comm_claim *claim, const ls_comm_op *op, const ls_transport *transport)
{
    *claim = (ls_comm_claim){
        .seq = op->seq,
        .fingerprint = op->fingerprint,
        .count = op->count,
        .rank = transport->rank,
        .peer = op->peer,
        .kind = (uint8_t)op->kind,
        .dtype = (uint8_t)op->dtype,
        .reduction = (uint8_t)op->reduction,
        .flags = (uint8_t)op->flags,
        .line = op->site.line,
        .pid = transport->members[transport->rank].pid,
        .world_rank = transport->members[transport->rank].world_rank,
    };
    const char *file = op->site.file ? ls_site_path(op->site.file) : "?";
    const size_t length = strlen(file), room = sizeof claim->file - 1;
    const char *end = length > room ? file + (length - room) : file;
    memcpy(claim->file, end, length > room ? room : length);
}

/* ---- words ---- */

static bool kind_reduces(uint32_t kind)
{
    return kind == LS_COMM_ALL_REDUCE || kind == LS_COMM_REDUCE_SCATTER || kind == LS_COMM_TREE_REDUCE;
}

void ls_comm_op_words(const ls_comm_op *op, char out[LS_COMM_WORDS_BYTES])
{
    const uint64_t count = op->count;
    uint32_t kind = (uint32_t)op->kind;
    if (kind == LS_COMM_ALL_GATHER && (op->flags & LS_COMM_FLAG_SPLIT)) {
        kind = LS_COMM_SPLIT;
    }
    const char *name = ls_comm_kind_name(kind < LS_COMM_KIND_COUNT ? (ls_comm_kind)kind : LS_COMM_NONE);
    if (kind == LS_COMM_BARRIER || kind == LS_COMM_SPLIT) {
        snprintf(out, LS_COMM_WORDS_BYTES, "%s", name);
        return;
    }
    if (kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        snprintf(out, LS_COMM_WORDS_BYTES, "%s of %s", name, ls_dtype_name(op->dtype));
        return;
    }
    if (kind == LS_COMM_ALLOC) {
        snprintf(out, LS_COMM_WORDS_BYTES, count ? "%s of %" PRIu64 " bytes" : "free", name, count);
        return;
    }
    const char *separator = kind_reduces(kind) ? " " : "";
    const char *how = kind_reduces(kind) ? ls_comm_reduction_name(op->reduction) : "";
    const int length = snprintf(out, LS_COMM_WORDS_BYTES, "%s%s%s of %" PRIu64 " %s", name, separator, how,
                                count, ls_dtype_name(op->dtype));
    if (op->peer != UINT32_MAX && length > 0 && length < LS_COMM_WORDS_BYTES) {
        const char *relation = kind == LS_COMM_SEND ? "to" : kind == LS_COMM_RECEIVE ? "from" : "root";
        snprintf(out + length, (size_t)(LS_COMM_WORDS_BYTES - length), " %s %" PRIu32, relation, op->peer);
    }
}

void ls_comm_claim_words(const ls_comm_claim *claim, char words_out[LS_COMM_WORDS_BYTES])
{
    const ls_comm_op op = {.kind = (ls_comm_kind)claim->kind,
                           .dtype = (ls_dtype)claim->dtype,
                           .reduction = (ls_comm_reduction)claim->reduction,
                           .flags = claim->flags,
                           .peer = claim->peer,
                           .count = claim->count};
    ls_comm_op_words(&op, words_out);
}

void ls_comm_member_words(const ls_transport *transport, uint32_t rank, char words_out[LS_COMM_WHO_BYTES])
{
    LS_ASSERT(rank < transport->size);
    const ls_comm_member *member = &transport->members[rank];
    snprintf(words_out, LS_COMM_WHO_BYTES, "rank %" PRIu32 " (%.*s, pid %d)", member->world_rank,
             (int)sizeof member->host_name, member->host_name, (int)member->pid);
}

/* ---- the text of a mismatch ---- */

static bool is_same_place(const ls_comm_claim *a, const ls_comm_claim *b)
{
    return a->line == b->line && strncmp(a->file, b->file, sizeof a->file) == 0;
}

/* A text of limited length; what does not fit is cut off. */
typedef struct short_text {
    char bytes[1900];
    size_t used;
} short_text;

static void append(short_text *text, const char *format, ...) LS_PRINTF(2, 3);
static void append(short_text *text, const char *format, ...)
{
    const size_t room = sizeof text->bytes - text->used;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text->bytes + text->used, room, format, args);
    va_end(args);
    if (length > 0) {
        text->used += (size_t)length < room ? (size_t)length : room - 1;
    }
}

static uint32_t votes_of(const ls_comm_claim *claims, uint32_t count, uint64_t fingerprint)
{
    uint32_t votes = 0;
    for (uint32_t i = 0; i < count; i++) {
        votes += claims[i].fingerprint == fingerprint;
    }
    return votes;
}

/* "rank 3 (node7, pid 4711), rank 5 (...) called all_reduce sum of 10 f32 (file.c:12)": all ranks
 * that made the same call at the same place as claims[first]. */
static void append_side(const ls_transport *transport, const ls_comm_claim *claims, uint32_t count,
                        uint32_t first, short_text *text)
{
    enum { NAMED_MAX = 4 };
    const ls_comm_claim *claim = &claims[first];
    char who[LS_COMM_WHO_BYTES], what[LS_COMM_WORDS_BYTES];
    ls_comm_claim_words(claim, what);
    uint32_t named = 0, others = 0;
    for (uint32_t i = first; i < count; i++) {
        if (claims[i].fingerprint != claim->fingerprint || !is_same_place(&claims[i], claim)) {
            continue;
        }
        if (named == NAMED_MAX) {
            others++;
            continue;
        }
        ls_comm_member_words(transport, claims[i].rank, who);
        append(text, "%s%s", named++ ? ", " : "", who);
    }
    if (others) {
        append(text, " and %" PRIu32 " more", others);
    }
    append(text, " called %s (%.*s:%" PRIu32 ")", what, (int)sizeof claim->file, claim->file, claim->line);
}

static bool is_first_of_its_kind(const ls_comm_claim *claims, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++) {
        if (claims[j].fingerprint == claims[i].fingerprint && is_same_place(&claims[j], &claims[i])) {
            return false;
        }
    }
    return true;
}

/* The first claim of the largest side; `count` if two sides are equally large. */
static uint32_t majority_of(const ls_comm_claim *claims, uint32_t count)
{
    uint32_t most = 0, winner = count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t votes = votes_of(claims, count, claims[i].fingerprint);
        if (votes > most) {
            most = votes;
            winner = i;
        } else if (votes == most && winner < count && claims[i].fingerprint != claims[winner].fingerprint) {
            winner = count;
        }
    }
    return winner;
}

ls_status ls_comm_fail_mismatch(const ls_transport *transport, const ls_comm_claim *claims, uint32_t count)
{
    enum { SIDES_MAX = 6 };
    short_text text = {.used = 0};
    uint32_t sides = 0;
    LS_ASSERT(count >= 1);
    append(&text, "ranks called different operations (call %" PRIu64 "): ", claims[0].seq);
    for (uint32_t i = 0; i < count; i++) {
        if (is_first_of_its_kind(claims, i) && sides++ < SIDES_MAX) {
            append(&text, sides > 1 ? "; " : "");
            append_side(transport, claims, count, i, &text);
        }
    }
    if (sides > SIDES_MAX) {
        append(&text, "; and %" PRIu32 " more", sides - SIDES_MAX);
    }
    const uint32_t winner = majority_of(claims, count);
    if (winner == count) {
        append(&text, "; no side is the majority");
    } else {
        char what[LS_COMM_WORDS_BYTES];
        ls_comm_claim_words(&claims[winner], what);
        append(&text, "; %" PRIu32 " of %" PRIu32 " agree on %s: look at the others",
               votes_of(claims, count, claims[winner].fingerprint), count, what);
    }
    return ls_fail(LS_ERR_MISMATCH, "%s", text.bytes);
}
