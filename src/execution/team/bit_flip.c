// SPDX-License-Identifier: Apache-2.0
#include "execution/team/bit_flip.h"

#include "execution/team/fault_injection.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"gradient", "parameter", "m", "v"};

static bool read_kind(const char *value, ls_bit_flip_kind *kind_out)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(value, kinds[i]) == 0) {
            *kind_out = (ls_bit_flip_kind)i;
            return true;
        }
    }
    return false;
}

static bool read_number(const char *value, uint64_t max, uint64_t *number_out)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || number > max) {
        return false;
    }
    *number_out = number;
    return true;
}

static bool read_field(const char *key, const char *value, void *bit_flip)
{
    ls_bit_flip *flip = bit_flip;
    uint64_t number = 0;
    if (strcmp(key, "flip") == 0) {
        return read_kind(value, &flip->kind);
    }
    if (!read_number(value, strcmp(key, "bit") == 0 ? 31 : UINT32_MAX, &number)) {
        return false;
    }
    if (strcmp(key, "step") == 0) {
        flip->step = number;
    } else if (strcmp(key, "rank") == 0) {
        flip->rank = (uint32_t)number;
    } else if (strcmp(key, "leaf") == 0) {
        flip->leaf = (uint32_t)number;
    } else if (strcmp(key, "at") == 0) {
        flip->at = number;
    } else if (strcmp(key, "bit") == 0) {
        flip->bit = (uint32_t)number;
    } else if (strcmp(key, "after") == 0) {
        flip->after = number != 0;
    } else if (strcmp(key, "times") == 0) {
        flip->times = (uint32_t)number;
    } else {
        return false;
    }
    return true;
}

ls_status ls_bit_flip_parse(const char *text, ls_bit_flip *flip_out)
{
    static const char usage[] =
        "flip=gradient|parameter|m|v,step=N[,rank=N][,leaf=N][,at=N][,bit=0..31][,after=1][,times=N]";
    ls_bit_flip flip = {.leaf = UINT32_MAX, .bit = 30, .times = 1};
    LS_TRY(ls_test_fault_parse(text, usage, read_field, &flip));
    if (flip.step == 0) {
        return ls_fail(LS_ERR_INVALID, "LS_TEST_FAULT is '%s': step=N is missing (N is 1 or more)", text);
    }
    *flip_out = flip;
    return LS_OK;
}

ls_status ls_bit_flip_from_environment(ls_bit_flip *flip_out)
{
    const char *text = getenv("LS_TEST_FAULT");
    *flip_out = (ls_bit_flip){0};
    return text && strncmp(text, "flip=", 5) == 0 ? ls_bit_flip_parse(text, flip_out) : LS_OK;
}

void ls_bit_flip_apply(ls_bit_flip *flip, const ls_bit_flip_site *site, float *flat, int64_t count)
{
    if (!flip || flip->times == 0 || flip->kind != site->kind || flip->step != site->step + 1 ||
        flip->rank != site->rank ||
        (site->kind == LS_BIT_FLIP_GRADIENT && flip->leaf != UINT32_MAX && flip->leaf != site->leaf)) {
        return;
    }
    flip->times--;
    uint32_t word;
    float *at = flat + flip->at % (uint64_t)count;
    memcpy(&word, at, sizeof word);
    word ^= UINT32_C(1) << flip->bit;
    memcpy(at, &word, sizeof word);
}
