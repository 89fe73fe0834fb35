// SPDX-License-Identifier: Apache-2.0
/* The settings train.compression of the run file. */
#include "config/run_file.h"

/* The fewest groups from 4 on that the leaves allow; with fewer than 4 leaves, one for each. */
static uint64_t auto_groups(uint64_t leaves)
{
    uint64_t groups = leaves;
    while (groups % 2 == 0 && groups / 2 >= 4) {
        groups /= 2;
    }
    return groups;
}

void ls_run_file_resolve_groups(ls_run_train *train)
{
    if (train->compression.kind != LS_COMPRESSION_NONE && train->compression.groups == LS_AUTO_U64) {
        train->compression.groups = auto_groups(train->leaves);
    }
}

ls_compression ls_run_file_compression(const ls_run_file *run)
{
    const ls_run_compression *compression = &run->train.compression;
    const double keep = compression->ratio * LS_COMPRESSION_BLOCK;
    return (ls_compression){.kind = compression->kind, .keep = keep < 1.0 ? 1 : (uint32_t)(keep + 0.5)};
}

uint32_t ls_run_file_zero(const ls_run_file *run)
{
    const ls_run_compression *compression = &run->train.compression;
    return compression->kind == LS_COMPRESSION_NONE ? (uint32_t)run->parallel.zero
                                                    : compression->weights != LS_COMPRESSION_NONE;
}

uint32_t ls_run_file_residuals(const ls_run_file *run)
{
    const ls_run_compression *compression = &run->train.compression;
    return ls_compression_flats(compression->kind, (uint32_t)compression->groups);
}

uint32_t ls_run_file_group(const ls_run_file *run)
{
    const ls_run_train *train = &run->train;
    return train->compression.kind == LS_COMPRESSION_NONE
               ? 0
               : (uint32_t)(train->leaves / train->compression.groups);
}

/* Compression in groups of leaves that are nodes of the tree (comm/transport/tree.h). */
static ls_status check_groups(const ls_run_train *train)
{
    const uint64_t groups = train->compression.groups, leaves = train->leaves;
    const uint64_t each = groups > 0 && leaves % groups == 0 ? leaves / groups : 0;
    if (each > 0 && (each & (each - 1)) == 0 && groups <= LS_COMPRESSION_GROUPS_MAX) {
        return LS_OK;
    }
    ls_text allowed = {0};
    for (uint64_t g = 1; g <= LS_COMPRESSION_GROUPS_MAX && g <= leaves; g++) {
        const uint64_t fits = leaves % g == 0 ? leaves / g : 0;
        if (fits > 0 && (fits & (fits - 1)) == 0) {
            ls_text_printf(&allowed, "%s%llu", allowed.bytes > 0 ? ", " : "", (unsigned long long)(g));
        }
    }
    const ls_status status = ls_fail(
        LS_ERR_INVALID,
        "train.compression.groups is %llu, but train.leaves, which is %llu, divided by it must be a "
        "power of two; %s%s",
        (unsigned long long)(groups), (unsigned long long)(leaves),
        allowed.bytes > 0 ? "allowed here: "
                          : "no number up to 16 fits these leaves: set train.leaves to a power of two",
        ls_text_string(&allowed));
    ls_text_release(&allowed);
    return status;
}

ls_status ls_run_file_check_compression(const ls_run_file *run)
{
    const ls_run_compression *compression = &run->train.compression;
    if (compression->kind == LS_COMPRESSION_NONE && compression->weights != LS_COMPRESSION_NONE) {
        return ls_fail(
            LS_ERR_INVALID,
            "train.compression.weights packs nothing while train.compression.kind has the value none: "
            "set kind to bf16, int8 or topk, or remove weights");
    }
    if (compression->kind == LS_COMPRESSION_NONE) {
        return LS_OK;
    }
    const ls_run_parallel *parallel = &run->parallel;
    if (run->train.local.steps > 0) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "train.compression.kind and train.local.steps are both set, but compression is of "
                       "gradients, which workers with local steps do not exchange: remove "
                       "train.compression, and set train.local.bits to 8 or 4 to send outer gradients in "
                       "fewer bits");
    }
    const char *key = parallel->tensor != 1     ? "parallel.tensor"
                      : parallel->context != 1  ? "parallel.context"
                      : parallel->pipeline != 1 ? "parallel.pipeline"
                      : parallel->expert != 1   ? "parallel.expert"
                                                : NULL;
    if (key) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "train.compression.kind is set, and %s is not 1; in this version ranks that compress "
                       "gradients each compute whole leaves: remove %s, or set train.compression.kind: none",
                       key, key);
    }
    return check_groups(&run->train);
}
