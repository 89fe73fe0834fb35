// SPDX-License-Identifier: Apache-2.0
/*
 * What a share of right answers says: intervals for a sample of its size, and the comparison of two
 * models on the same questions.
 *
 * Pure functions, safe to call from any thread.
 */
#ifndef LS_EXECUTION_JUDGE_PROPORTION_H
#define LS_EXECUTION_JUDGE_PROPORTION_H

#include <stdint.h>

typedef struct ls_interval {
    double low, high;
} ls_interval;

/* The 95 % interval of a share of `right` in `count` >= 1 (Wilson, "Probable inference, the law of
 * succession, and statistical inference", 1927). It stays within [0, 1], also for 0 and all. */
ls_interval ls_share_interval(uint64_t right, uint64_t count);

/* Standard error of the share, sqrt(p (1 - p) / (count - 1)), as evaluation harnesses print it; 0
 * for one question. */
double ls_share_error(uint64_t right, uint64_t count);

/* Two models, the same questions. */
typedef struct ls_paired {
    /* questions only the first, or only the second, answered rightly; all questions, >= 1 */
    uint64_t lost, gained, count;
} ls_paired;

/* The 95 % interval of the difference of the shares, second less first (Bonett and Price,
 * "Adjusted Wald confidence interval for a difference of binomial proportions based on paired
 * data", 2012). */
ls_interval ls_paired_interval(const ls_paired *paired);

/* The probability of a split of gained and lost at least as uneven as this one if both models were
 * equally good: the exact two-sided test of McNemar (1947). 1 when no answer changed. */
double ls_paired_p_value(const ls_paired *paired);

#endif
