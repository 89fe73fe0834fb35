// SPDX-License-Identifier: Apache-2.0
#include "execution/integrity/audit.h"

#include "base/random.h"
#include "base/text.h"
#include "comm/transport/tree.h"
#include "compute/kernels/elementwise.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUB_LEAF, SUB_CHECKER }; /* counters within the random stream of a step */

static uint32_t owner_of(uint32_t leaves, uint32_t ranks, uint32_t leaf)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const ls_leaf_range range = ls_leaves_of_rank(leaves, ranks, rank);
        if (leaf < range.first + range.count) {
            return rank;
        }
    }
    return ranks - 1;
}

ls_audit_roles ls_audit_choose(uint64_t seed, uint64_t step, uint64_t every_steps, uint32_t leaves,
                               uint32_t ranks)
{
    ls_audit_roles roles = {0};
    if (every_steps == 0 || (step + 1) % every_steps != 0) {
        return roles;
    }
    const ls_random_key key = ls_random_stream(seed, LS_RANDOM_AUDIT);
    roles.due = true;
    roles.leaf = (uint32_t)ls_random_below(key, step, SUB_LEAF, leaves);
    roles.owner = ranks > 1 ? owner_of(leaves, ranks, roles.leaf) : 0;
    if (ranks > 1) {
        const uint32_t ahead = 1 + (uint32_t)ls_random_below(key, step, SUB_CHECKER, ranks - 1);
        roles.checker = (roles.owner + ahead) % ranks;
        roles.judge = (roles.checker + 1) % ranks;
        if (roles.judge == roles.owner && ranks > 2) {
            roles.judge = (roles.judge + 1) % ranks;
        }
    }
    return roles;
}

ls_status ls_audit_init(ls_audit *audit, ls_queue *queue, const ls_layout *layout)
{
    *audit = (ls_audit){.layout = layout, .queue = queue, .host = "localhost"};
    gethostname(audit->host, sizeof audit->host - 1);
    LS_TRY(ls_flat_hasher_init_buckets(&audit->hasher, layout));
    for (int i = 0; i < LS_CLAIM_COUNT; i++) {
        audit->claims[i].buckets = calloc(layout->bucket_count, sizeof(ls_hash128));
        if (!audit->claims[i].buckets) {
            ls_audit_release(audit);
            return ls_fail(LS_ERR_MEMORY, "not enough memory for the hashes that compare two computations of "
                                          "a leaf (a share of the batch)");
        }
    }
    return LS_OK;
}

void ls_audit_release(ls_audit *audit)
{
    ls_flat_hasher_release(&audit->hasher);
    for (int i = 0; i < LS_CLAIM_COUNT; i++) {
        free(audit->claims[i].buckets);
    }
    *audit = (ls_audit){0};
}

void ls_audit_claim(ls_audit *audit, int index, uint32_t rank, const float *gradient, double loss_sum,
                    uint64_t tokens)
{
    ls_leaf_claim *claim = &audit->claims[index];
    claim->rank = rank;
    claim->pid = (int32_t)getpid();
    memcpy(claim->host, audit->host, sizeof claim->host);
    claim->loss_sum = loss_sum;
    claim->tokens = tokens;
    const ls_master floats = {.values = (float *)gradient};
    ls_flat_hasher_run(&audit->hasher, audit->queue, &floats, claim->buckets);
    struct {
        ls_hash128 buckets;
        double loss_sum;
        uint64_t tokens;
    } all = {ls_xxh3_128(claim->buckets, audit->layout->bucket_count * sizeof *claim->buckets), loss_sum,
             tokens};
    claim->whole = ls_xxh3_128(&all, sizeof all);
}

void ls_audit_no_claim(ls_audit *audit, int index)
{
    ls_hash128 *buckets = audit->claims[index].buckets;
    audit->claims[index] = (ls_leaf_claim){.rank = LS_NO_RANK, .buckets = buckets};
}

static bool same(const ls_audit *audit, int a, int b)
{
    return ls_hash128_equal(audit->claims[a].whole, audit->claims[b].whole);
}

ls_audit_verdict_kind ls_audit_verdict(const ls_audit *audit)
{
    const uint32_t owner = audit->claims[LS_CLAIM_OWNER].rank, checker = audit->claims[LS_CLAIM_CHECKER].rank;
    const uint32_t judge = audit->claims[LS_CLAIM_JUDGE].rank;
    if (judge == LS_NO_RANK) {
        return LS_VERDICT_NOBODY;
    }
    if (same(audit, LS_CLAIM_JUDGE, LS_CLAIM_OWNER)) {
        return judge == owner && owner != checker ? LS_VERDICT_OPEN : LS_VERDICT_CHECKER;
    }
    if (same(audit, LS_CLAIM_JUDGE, LS_CLAIM_CHECKER)) {
        return judge == checker && owner != checker ? LS_VERDICT_LASTING : LS_VERDICT_OWNER;
    }
    return LS_VERDICT_NOBODY;
}

static uint32_t first_bucket(const ls_audit *audit)
{
    const ls_leaf_claim *a = &audit->claims[LS_CLAIM_OWNER], *b = &audit->claims[LS_CLAIM_CHECKER];
    for (uint32_t i = 0; i < audit->layout->bucket_count; i++) {
        if (!ls_hash128_equal(a->buckets[i], b->buckets[i])) {
            return i;
        }
    }
    return 0;
}

ls_step_fault ls_audit_fault(const ls_audit *audit, uint32_t leaf)
{
    const ls_leaf_claim *c = audit->claims;
    const ls_audit_verdict_kind verdict = ls_audit_verdict(audit);
    return (ls_step_fault){
        .kind = LS_STEP_FAULT_LEAF,
        .leaf = leaf,
        .bucket = first_bucket(audit),
        .rank = verdict == LS_VERDICT_OWNER     ? c[LS_CLAIM_OWNER].rank
                : verdict == LS_VERDICT_CHECKER ? c[LS_CLAIM_CHECKER].rank
                                                : LS_NO_RANK,
        .owner = c[LS_CLAIM_OWNER].rank,
        .checker = c[LS_CLAIM_CHECKER].rank,
        .judge = c[LS_CLAIM_JUDGE].rank,
    };
}

/* ---- in words ---- */

/* "layer 3 (bucket 4), layer 5 (bucket 6) and 2 more buckets" */
static void append_difference(const ls_audit *audit, ls_text *text)
{
    enum { NAMED_MAX = 4 };
    const ls_leaf_claim *a = &audit->claims[LS_CLAIM_OWNER], *b = &audit->claims[LS_CLAIM_CHECKER];
    uint32_t count = 0;
    for (uint32_t i = 0; i < audit->layout->bucket_count; i++) {
        if (ls_hash128_equal(a->buckets[i], b->buckets[i])) {
            continue;
        }
        char name[32];
        if (count++ < NAMED_MAX) {
            ls_text_printf(text, "%s%s (bucket %u)", count > 1 ? ", " : "",
                           ls_bucket_name(audit->layout, i, name), i);
        }
    }
    if (count == 0) {
        ls_text_append(text, "the loss alone");
    } else if (count > NAMED_MAX) {
        ls_text_printf(text, " and %u more buckets", count - NAMED_MAX);
    }
}

/* The verdict if one process made all three computations. */
static void append_verdict_alone(ls_audit_verdict_kind verdict, ls_text *text)
{
    switch (verdict) {
    case LS_VERDICT_OWNER:
    case LS_VERDICT_CHECKER:
        /* The process computes the checker's leaf first. */
        ls_text_printf(text,
                       "a third computation agrees with the %s one: the %s one was wrong, by a fault that "
                       "comes and goes",
                       verdict == LS_VERDICT_OWNER ? "first" : "second",
                       verdict == LS_VERDICT_OWNER ? "second" : "first");
        return;
    default:
        ls_text_append(
            text, "a third computation has yet other bits: this machine computes wrongly again and again");
    }
}

static void append_verdict(const ls_audit *audit, ls_text *text)
{
    const ls_leaf_claim *c = audit->claims;
    const uint32_t owner = c[LS_CLAIM_OWNER].rank, checker = c[LS_CLAIM_CHECKER].rank;
    const uint32_t judge = c[LS_CLAIM_JUDGE].rank;
    const ls_audit_verdict_kind verdict = ls_audit_verdict(audit);
    if (judge == LS_NO_RANK) {
        ls_text_append(text, "the third computation failed");
        return;
    }
    if (owner == checker) {
        append_verdict_alone(verdict, text);
        return;
    }
    switch (verdict) {
    case LS_VERDICT_OWNER:
    case LS_VERDICT_CHECKER: {
        const int wrong = verdict == LS_VERDICT_OWNER ? LS_CLAIM_OWNER : LS_CLAIM_CHECKER;
        const int right = verdict == LS_VERDICT_OWNER ? LS_CLAIM_CHECKER : LS_CLAIM_OWNER;
        ls_text_printf(
            text,
            "a third computation, by rank %u, agrees with rank %u: RANK %u COMPUTED WRONGLY (%s, process %d)",
            judge, c[right].rank, c[wrong].rank, c[wrong].host, c[wrong].pid);
        return;
    }
    case LS_VERDICT_OPEN:
    case LS_VERDICT_LASTING:
        ls_text_printf(
            text,
            "computed once more, each has its own bits again: rank %u (%s, process %d) or rank %u (%s, "
            "process %d) computes wrongly all the time",
            owner, c[LS_CLAIM_OWNER].host, c[LS_CLAIM_OWNER].pid, checker, c[LS_CLAIM_CHECKER].host,
            c[LS_CLAIM_CHECKER].pid);
        return;
    case LS_VERDICT_NOBODY:
        ls_text_printf(text,
                       "a third computation, by rank %u, has yet other bits: more than one of them is wrong",
                       judge);
    }
}

ls_status ls_audit_fail(const ls_audit *audit, uint64_t step, uint32_t leaf)
{
    const ls_leaf_claim *c = audit->claims;
    const ls_leaf_claim *owner = &c[LS_CLAIM_OWNER], *checker = &c[LS_CLAIM_CHECKER];
    char hex[2][LS_HASH128_HEX_BYTES];
    ls_text text = {0};
    ls_text_printf(&text,
                   "step %" PRIu64
                   ": silent corruption: leaf %u was computed twice from the same state, by rank %u "
                   "and by rank %u, and the bits differ in ",
                   step + 1, leaf, owner->rank, checker->rank);
    append_difference(audit, &text);
    ls_text_printf(&text, " (%s, loss sum %.17g; %s, loss sum %.17g); ", ls_hash128_hex(owner->whole, hex[0]),
                   owner->loss_sum, ls_hash128_hex(checker->whole, hex[1]), checker->loss_sum);
    append_verdict(audit, &text);
    ls_text_append(&text, ". Nothing was updated");
    const ls_status status = ls_fail(LS_ERR_MISMATCH, "%s", ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

ls_status ls_audit_clear_padding(ls_queue *queue, const ls_layout *layout, float *gradient)
{
    int64_t at = 0;
    for (uint32_t i = 0; i <= layout->trained_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        const int64_t next = i < layout->trained_count ? p->offset : layout->float_count;
        const ls_tensor gap = ls_tensor_f32(gradient + at, 1, next - at);
        LS_TRY(next > at ? ls_fill(queue, &gap, 0.0f) : LS_OK);
        at = i < layout->trained_count ? p->offset + p->rows * p->cols : at;
    }
    return LS_OK;
}
