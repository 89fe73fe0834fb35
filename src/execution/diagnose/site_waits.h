// SPDX-License-Identifier: Apache-2.0
/*
 * How long waits at a call site usually take: a histogram per site, with buckets of a quarter of an octave. Old waits fade: at 2,048
 * samples all counts are halved.
 *
 * Plain data, one owner.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SITE_WAITS_H
#define LS_EXECUTION_DIAGNOSE_SITE_WAITS_H

#include <stdint.h>

enum { LS_SITE_BUCKETS = 128 };

typedef struct ls_site_waits {
    uint32_t count;
    uint32_t buckets[LS_SITE_BUCKETS];
} ls_site_waits;

void ls_site_waits_add(ls_site_waits *waits, uint64_t wait_us);
/* At most 1 % of the waits took longer, up to the width of a bucket; 0 without any. */
uint64_t ls_site_waits_p99_us(const ls_site_waits *waits);

#endif
