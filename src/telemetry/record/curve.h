// SPDX-License-Identifier: Apache-2.0
/*
 * Curve: the fingerprint of a loss curve.
 *
 * SHA-256 over 12 bytes per step, in order: step as u64, then the bits of the float32 loss, both
 * little-endian. Two runs with the same curve hash had the same loss, bit for
 * bit, at every step. It is updated with each step, and can be computed again from metrics.jsonl at
 * any time.
 *
 * One thread at a time.
 */
#ifndef LS_TELEMETRY_RECORD_CURVE_H
#define LS_TELEMETRY_RECORD_CURVE_H

#include "base/hash.h"

typedef struct ls_curve {
    ls_sha256 hash; /* private */
} ls_curve;

/* Makes an empty curve; the caller releases it with ls_curve_release. */
void ls_curve_init(ls_curve *curve);
void ls_curve_release(ls_curve *curve);

void ls_curve_add(ls_curve *curve, uint64_t step, float loss);

/* The hash of the steps so far. More steps may follow. */
void ls_curve_hash(const ls_curve *curve, char hex_out[LS_SHA256_HEX_BYTES]);

#endif
