// SPDX-License-Identifier: Apache-2.0
/*
 * Leaf audit: one leaf of a step is computed by two ranks, and the results are compared bit by bit.
 *
 * A leaf is a pure function of (state, step, leaf). If two computations of it differ in a single
 * bit, one of them ran on a processor or memory that fails silently; a third computation tells
 * which. In every step that is due, the seeded random stream chooses a leaf. Its owner computes it
 * as usual; the checker, another rank, computes it before its own leaves. They are compared in the
 * agreement, before anything is updated. If they differ, the step is given up, and:
 *
 *   3 ranks or more   a third rank is the judge and names the rank that was wrong
 *   2 ranks           each computes the leaf once more: an intermittent fault is attributed to a
 *                     rank, a permanent one is only detected
 *   1 process         the process computes the leaf again itself, which finds intermittent faults
 *
 * Compared are an XXH3-128 hash of the gradient per bucket, the loss sum and the token count. Cost:
 * 1 / (leaves * every_steps) of the computation; ranks / (leaves * every_steps) of the time,
 * because the checker computes one leaf more than the others.
 */
#ifndef LS_EXECUTION_INTEGRITY_AUDIT_H
#define LS_EXECUTION_INTEGRITY_AUDIT_H

#include "execution/integrity/flat_hash.h"
#include "execution/team/fault.h"

#include <stdbool.h>

/* The roles in the audit of a step. */
typedef struct ls_audit_roles {
    bool due;
    uint32_t leaf;
    /* ranks; with one rank all 0, with two the judge is the owner */
    uint32_t owner, checker, judge;
} ls_audit_roles;

/* A pure function of its arguments, so all ranks choose the same without communication. Step s
 * (0-based) is due if every_steps divides s + 1; every_steps 0: never. ranks: 1..leaves. */
ls_audit_roles ls_audit_choose(uint64_t seed, uint64_t step, uint64_t every_steps, uint32_t leaves,
                               uint32_t ranks);

/* The result of one computation of the audited leaf. */
typedef struct ls_leaf_claim {
    uint32_t rank; /* LS_NO_RANK: it could not be computed */
    int32_t pid;
    char host[64];
    double loss_sum;
    uint64_t tokens;
    ls_hash128 whole;    /* over everything: compared first */
    ls_hash128 *buckets; /* one per bucket */
} ls_leaf_claim;

enum { LS_CLAIM_OWNER, LS_CLAIM_CHECKER, LS_CLAIM_JUDGE, LS_CLAIM_COUNT };

typedef struct ls_audit {
    const ls_layout *layout; /* borrowed */
    ls_queue *queue;         /* borrowed: hashes run on it */
    ls_flat_hasher hasher;
    ls_leaf_claim claims[LS_CLAIM_COUNT];
    char host[64];
} ls_audit;

/* Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_audit_init(ls_audit *audit, ls_queue *queue, const ls_layout *layout);
void ls_audit_release(ls_audit *audit); /* a zeroed one is allowed */

/* Fills claim `index` with what `rank` computed. Allocates nothing. */
void ls_audit_claim(ls_audit *audit, int index, uint32_t rank, const float *gradient, double loss_sum,
                    uint64_t tokens);

/* Records that claim `index` could not be computed. */
void ls_audit_no_claim(ls_audit *audit, int index);

/* Which rank was wrong, if owner and checker differ. */
typedef enum ls_audit_verdict_kind {
    LS_VERDICT_OWNER,   /* the judge agrees with the checker */
    LS_VERDICT_CHECKER, /* the judge agrees with the owner */
    LS_VERDICT_NOBODY,  /* the judge has a third result, or none: no rank can be named */
    LS_VERDICT_OPEN,    /* two ranks: the owner computed it again and got the same bits as before */
    LS_VERDICT_LASTING, /* and so did the checker: one of them is always wrong */
} ls_audit_verdict_kind;
ls_audit_verdict_kind ls_audit_verdict(const ls_audit *audit);

/* The three claims and the verdict: as a fault, and as the text of LS_ERR_MISMATCH. */
ls_step_fault ls_audit_fault(const ls_audit *audit, uint32_t leaf);
ls_status ls_audit_fail(const ls_audit *audit, uint64_t step, uint32_t leaf);

/* Zeroes the padding between the parameters of a flat gradient, so that a computation does not
 * inherit earlier damage there. */
LS_MUST_CHECK ls_status ls_audit_clear_padding(ls_queue *queue, const ls_layout *layout, float *gradient);

#endif
