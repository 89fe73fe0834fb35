// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/curve.h"

#include <string.h>

void ls_curve_init(ls_curve *curve)
{
    ls_sha256_init(&curve->hash);
}

void ls_curve_release(ls_curve *curve)
{
    char unused[LS_SHA256_HEX_BYTES];
    ls_sha256_finish(&curve->hash, unused);
}

void ls_curve_add(ls_curve *curve, uint64_t step, float loss)
{
    unsigned char record[12];
    uint32_t bits = 0;
    memcpy(&bits, &loss, sizeof bits);
    for (int i = 0; i < 8; i++) {
        record[i] = (unsigned char)(step >> (8 * i));
    }
    for (int i = 0; i < 4; i++) {
        record[8 + i] = (unsigned char)(bits >> (8 * i));
    }
    ls_sha256_update(&curve->hash, record, sizeof record);
}

void ls_curve_hash(const ls_curve *curve, char hex_out[LS_SHA256_HEX_BYTES])
{
    ls_sha256 copy;
    ls_sha256_copy(&copy, &curve->hash);
    ls_sha256_finish(&copy, hex_out);
}
