// SPDX-License-Identifier: Apache-2.0
/*
 * Leaf audit: one leaf of a step computed by two, and compared by bits.
 *
 * A leaf is a pure function of (state, step, leaf). So when two computations of it differ in a single bit, one of them was done by a
 * processor or memory that fails silently, and a third says which. In every step that is due, the seeded stream chooses a leaf. Its owner computes it
 * as always; the checker, another rank, computes it before its own leaves. They compare in the agreement, before anything is updated: when
 * they differ the step is given up, and a third rank is the judge. Of two ranks, each computes the leaf once more: a fault that comes and goes is
 * named, one that stays is only found. One process alone computes the leaf again itself, which finds faults that come and go.
 *
 * Compared are an XXH3-128 hash of the gradient per bucket, the loss sum and the token count. Cost: 1 / (leaves * every_steps) of the
 * computing; of the time, as the checker does one leaf more, ranks / (leaves * every_steps).
 */
#ifndef LS_EXECUTION_DIAGNOSE_AUDIT_H
#define LS_EXECUTION_DIAGNOSE_AUDIT_H

#include "execution/diagnose/fault.h"
#include "execution/diagnose/flat_hash.h"

#include <stdbool.h>

/* Who does what in the audit of a step. */
typedef struct ls_audit_roles {
    bool due;
    uint32_t leaf;
    uint32_t owner, checker, judge; /* ranks; with one rank all 0, with two judge is owner */
} ls_audit_roles;

/* A pure function of its arguments: all ranks agree without a word. every_steps 0: never due. Step s (0-based) is due when every_steps
 * divides s + 1. ranks: 1..leaves. */
ls_audit_roles ls_audit_choose(uint64_t seed, uint64_t step, uint64_t every_steps, uint32_t leaves,
                               uint32_t ranks);

/* What somebody computed of the audited leaf. */
typedef struct ls_leaf_claim {
    uint32_t rank; /* LS_NO_RANK: it could not be computed */
    int32_t pid;
    char host[64];
    double loss_sum;
    uint64_t tokens;
    ls_hash128 whole;    /* over everything: what is compared first */
    ls_hash128 *buckets; /* one per bucket */
} ls_leaf_claim;

enum { LS_CLAIM_OWNER, LS_CLAIM_CHECKER, LS_CLAIM_JUDGE, LS_CLAIM_COUNT };

typedef struct ls_audit {
    const ls_layout *layout; /* borrowed */
    ls_flat_hasher hasher;
    ls_leaf_claim claims[LS_CLAIM_COUNT];
    char host[64];
} ls_audit;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_audit_init(ls_audit *audit, const ls_layout *layout);
void ls_audit_release(ls_audit *audit); /* a zeroed one is fine */

/* Fills claim `index` from what this rank computed. Allocates nothing. */
void ls_audit_claim(ls_audit *audit, int index, ls_queue *queue, uint32_t rank, const float *gradient,
                    double loss_sum, uint64_t tokens);

/* Files that claim `index` could not be computed. */
void ls_audit_no_claim(ls_audit *audit, int index);

/* Who was wrong, when owner and checker differ. */
typedef enum ls_audit_verdict_kind {
    LS_VERDICT_OWNER,   /* the judge agrees with the checker */
    LS_VERDICT_CHECKER, /* the judge agrees with the owner */
    LS_VERDICT_NOBODY,  /* the judge has a third result, or none */
    LS_VERDICT_OPEN,    /* of two ranks, the owner computed it again and has its own bits again */
    LS_VERDICT_LASTING, /* and so has the checker: one of them is always wrong */
} ls_audit_verdict_kind;
ls_audit_verdict_kind ls_audit_verdict(const ls_audit *audit);

/* The three claims and the verdict: in numbers, and in words as LS_ERR_MISMATCH. */
ls_step_fault ls_audit_fault(const ls_audit *audit, uint32_t leaf);
ls_status ls_audit_fail(const ls_audit *audit, uint64_t step, uint32_t leaf);

/* Zeroes what no parameter of a flat gradient covers, so that a computation does not inherit what went wrong there before. */
void ls_audit_clear_padding(const ls_layout *layout, float *gradient);

#endif
