// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/mismatch.h"

#include "execution/hang/rank_snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 };

/* What one rank called. */
typedef struct rank_claim {
    ls_flight_header header;
    ls_rank_snapshot_op op;
} rank_claim;

static ls_status find_record(ls_flight_reader *reader, uint32_t comm_id, uint64_t seq, bool *found_out,
                             ls_rank_snapshot_op *op_out)
{
    ls_flight_entry entries[CHUNK];
    uint32_t count = 0;
    uint64_t at = 0, next = 0;
    do {
        at = next;
        LS_TRY(ls_flight_reader_records(reader, at, CHUNK, entries, &count, &next));
        for (uint32_t i = 0; i < count; i++) {
            const ls_flight_record *record = &entries[i].record;
            if (record->comm_id == comm_id && record->seq == seq &&
                ls_comm_kind_is_collective((ls_comm_kind)record->kind) && record->kind != LS_COMM_ALLOC) {
                *found_out = true;
                return ls_rank_snapshot_op_fill(reader, record, op_out);
            }
        }
    } while (next > at);
    return LS_OK;
}

static ls_status find_name(ls_flight_reader *reader, uint32_t comm_id,
                           char name_out[LS_FLIGHT_COMM_NAME_BYTES])
{
    ls_flight_comm comms[LS_FLIGHT_COMMS];
    LS_TRY(ls_flight_reader_comms(reader, comms));
    for (uint32_t i = 1; i < LS_FLIGHT_COMMS; i++) {
        if (comms[i].state != LS_FLIGHT_COMM_FREE && comms[i].id == comm_id && comms[i].name[0]) {
            memcpy(name_out, comms[i].name, sizeof comms[i].name);
        }
    }
    return LS_OK;
}

static bool is_same_side(const rank_claim *a, const rank_claim *b)
{
    return a->op.fingerprint == b->op.fingerprint && strcmp(a->op.site, b->op.site) == 0;
}

static uint32_t votes(const rank_claim *claims, uint32_t count, uint64_t fingerprint)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        n += claims[i].op.fingerprint == fingerprint;
    }
    return n;
}

/* A claim of the majority; NULL if the two largest sides are equally large. */
static const rank_claim *find_majority(const rank_claim *claims, uint32_t count)
{
    const rank_claim *winner = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = votes(claims, count, claims[i].op.fingerprint);
        if (n > most) {
            most = n;
            winner = &claims[i];
        } else if (n == most && winner && winner->op.fingerprint != claims[i].op.fingerprint) {
            winner = NULL;
        }
    }
    return winner;
}

static json_t *describe_side(const rank_claim *claims, uint32_t count, uint32_t first, bool is_majority,
                             ls_text *text)
{
    enum { NAMED_MAX = 8 };
    json_t *ranks = json_array();
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
    const ls_rank_snapshot_op *op = &claims[first].op;
    uint32_t n = 0;
    for (uint32_t i = first; i < count; i++) {
        const ls_flight_header *h = &claims[i].header;
        if (!is_same_side(&claims[i], &claims[first])) {
            continue;
        }
        if (n < NAMED_MAX) {
            ls_text_printf(text, "%srank %" PRIu32 " (%s, pid %" PRId32 ")", n > 0 ? ", " : "", h->rank,
                           h->host, h->pid);
        }
        n++;
        json_array_append_new(ranks, json_pack("{s:I, s:s, s:I}", "rank", (json_int_t)h->rank, "host",
                                               h->host, "pid", (json_int_t)h->pid));
    }
    if (n > NAMED_MAX) {
        ls_text_printf(text, " and %" PRIu32 " more", n - NAMED_MAX);
    }
    ls_rank_snapshot_op_words(op, words);
    ls_text_printf(text, " called %s at %s", words, op->site);
    return json_pack("{s:o, s:s, s:s, s:I, s:s, s:b}", "ranks", ranks, "operation", words, "kind",
                     ls_comm_kind_name((ls_comm_kind)op->kind), "count", (json_int_t)op->count, "site",
                     op->site, "majority", is_majority);
}

static json_t *describe(const rank_claim *claims, uint32_t count, const char *name, uint64_t seq,
                        ls_text *text)
{
    json_t *sides = json_array();
    const rank_claim *majority = find_majority(claims, count);
    ls_text_printf(text, "ranks disagree about operation %" PRIu64 " of %s: ", seq, name);
    for (uint32_t i = 0; i < count; i++) {
        bool is_first = true;
        for (uint32_t j = 0; j < i; j++) {
            is_first = is_first && !is_same_side(&claims[j], &claims[i]);
        }
        if (is_first) {
            ls_text_append(text, i > 0 ? "; " : "");
            json_array_append_new(
                sides, describe_side(claims, count, i,
                                     majority && majority->op.fingerprint == claims[i].op.fingerprint, text));
        }
    }
    if (majority) {
        char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
        ls_rank_snapshot_op_words(&majority->op, words);
        ls_text_printf(text, "; %" PRIu32 " of %" PRIu32 " agree on %s: look at the others",
                       votes(claims, count, majority->op.fingerprint), count, words);
    } else {
        ls_text_append(text, "; no call has a majority");
    }
    return json_pack("{s:s, s:I, s:s, s:o}", "communicator", name, "seq", (json_int_t)seq, "text",
                     ls_text_string(text), "sides", sides);
}

static ls_status gather(ls_flight_reader *const *readers, uint32_t count, const ls_disagreement *d,
                        rank_claim *claims, uint32_t *found_out, char name_out[LS_FLIGHT_COMM_NAME_BYTES])
{
    for (uint32_t i = 0; i < count; i++) {
        bool found = false;
        rank_claim *claim = &claims[*found_out];
        if (!readers[i]) {
            continue;
        }
        LS_TRY(find_record(readers[i], d->comm_id, d->seq, &found, &claim->op));
        if (found) {
            LS_TRY(ls_flight_reader_header(readers[i], &claim->header));
            LS_TRY(find_name(readers[i], d->comm_id, name_out));
            (*found_out)++;
        }
    }
    return LS_OK;
}

ls_status ls_mismatch_describe(ls_flight_reader *const *readers, uint32_t count,
                               const ls_disagreement *disagreement, ls_text *text, json_t **fields_out)
{
    char name[LS_FLIGHT_COMM_NAME_BYTES] = "?";
    uint32_t found = 0;
    rank_claim *claims = calloc(count, sizeof *claims);
    if (!claims) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory to describe how the calls of %" PRIu32 " ranks differ", count);
    }
    ls_status status = gather(readers, count, disagreement, claims, &found, name);
    if (status == LS_OK && found < 2) {
        status =
            ls_fail(LS_ERR_NOT_FOUND,
                    "the differing calls cannot be shown: operation %" PRIu64
                    " is no longer in the flight recorders, which keep only the last operations of each rank",
                    disagreement->seq);
    }
    if (status == LS_OK) {
        *fields_out = describe(claims, found, name, disagreement->seq, text);
    }
    free(claims);
    return status;
}
