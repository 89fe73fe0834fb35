// SPDX-License-Identifier: Apache-2.0
/* Reads the frozen base of an adapter, a few tensors at a time, and its digest. */
#include "base/assert.h"
#include "compute/kernels/packed.h"
#include "execution/train/adapter_file.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 64, SCRATCH_BYTES = 16 << 20 };

/* One tensor of a batch: where it is in the file's layout and in the caller's, and where its
 * float32 values go. */
typedef struct member {
    const ls_parameter *from, *to; /* to NULL: only its digest is wanted */
    float *values;
} member;

typedef struct loader {
    ls_arena arena;
    const ls_model_file *file;
    const ls_layout *layout; /* the caller's */
    float *parameters;
    ls_layout stored; /* the plain layout of the file */
    ls_safetensors *tensors;
    float *scratch;
    int64_t scratch_floats;
    member batch[BATCH_MAX];
    uint32_t count;
    int64_t used; /* floats of scratch */
    ls_sha256 digest;
} loader;

static bool needs_scratch(const loader *l, const ls_parameter *to)
{
    return !l->parameters || to->packed;
}

static ls_status read_checkpoint(loader *l)
{
    ls_checkpoint_tensor tensors[BATCH_MAX];
    for (uint32_t i = 0; i < l->count; i++) {
        const ls_parameter *p = l->batch[i].from;
        tensors[i] = (ls_checkpoint_tensor){.name = p->name,
                                            .rank = (uint32_t)p->shape_rank,
                                            .shape = {(uint64_t)(p->shape_rank == 2 ? p->rows : p->cols),
                                                      (uint64_t)(p->shape_rank == 2 ? p->cols : 0)},
                                            .value = l->batch[i].values};
    }
    const ls_checkpoint_load_options options = {.allow_partial = true};
    return ls_checkpoint_load(l->file->checkpoint, tensors, l->count, &options);
}

ls_status ls_base_packed(const ls_safetensors *tensors, const ls_parameter *p, ls_base_kind kind,
                         ls_bnb_matrix *matrix_out)
{
    ls_bnb_matrix matrix = {0};
    if (tensors) {
        LS_TRY(ls_hf_packed_parameter(tensors, p, &matrix));
    }
    const bool is_kind = matrix.nf4 ? kind == LS_BASE_NF4 && matrix.scale_codes : kind == LS_BASE_INT8;
    *matrix_out = is_kind ? matrix : (ls_bnb_matrix){0};
    return LS_OK;
}

static ls_status pack(const loader *l, const member *m)
{
    ls_bnb_matrix as_stored;
    const bool in_out = l->file->config.family == LS_FAMILY_GPT2;
    const ls_parameter *p = m->to;
    const ls_packed packed = ls_packed_of((ls_packed_kind)l->layout->base, in_out ? p->cols : p->rows,
                                          in_out ? p->rows : p->cols, l->parameters + p->offset);
    LS_TRY(ls_base_packed(l->tensors, m->from, l->layout->base, &as_stored));
    if (as_stored.codes) {
        ls_packed_take(&packed, &as_stored);
        return LS_OK;
    }
    const ls_tensor matrix = ls_tensor_f32(m->values, p->rows, p->cols);
    const ls_status status = ls_packed_pack(&packed, &matrix, in_out ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s: tensor %s", l->file->path, p->name);
}

/* Reads the members of the batch, adds them to the digest and packs those that are to be packed. */
static ls_status flush(loader *l)
{
    if (l->count == 0) {
        return LS_OK;
    }
    if (l->file->checkpoint) {
        LS_TRY(read_checkpoint(l));
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const member *m = &l->batch[i];
        char hex[LS_SHA256_HEX_BYTES];
        if (!l->file->checkpoint) {
            LS_TRY(ls_hf_read_parameter(l->tensors, m->from, m->values));
        }
        ls_sha256_hex(m->values, (size_t)(m->from->rows * m->from->cols) * sizeof(float), hex);
        ls_sha256_update(&l->digest, hex, strlen(hex));
        if (l->parameters && m->to->packed) {
            LS_TRY(pack(l, m));
        }
    }
    l->count = 0;
    l->used = 0;
    return LS_OK;
}

static ls_status add_member(loader *l, const ls_parameter *from)
{
    const ls_parameter *to = ls_layout_find(l->layout, from->name);
    const int64_t floats = from->rows * from->cols;
    if (!to || to->rows != from->rows || to->cols != from->cols) {
        return ls_fail(LS_ERR_DATA,
                       "%s: tensor %s does not have the shape that the model's config.json gives it",
                       l->file->path, from->name);
    }
    const bool in_scratch = needs_scratch(l, to);
    if (l->count == BATCH_MAX || (in_scratch && l->used + floats > l->scratch_floats)) {
        LS_TRY(flush(l));
    }
    l->batch[l->count++] = (member){
        .from = from, .to = to, .values = in_scratch ? l->scratch + l->used : l->parameters + to->offset};
    l->used += in_scratch ? floats : 0;
    return LS_OK;
}

static ls_status alloc_scratch(loader *l)
{
    int64_t largest = 0, all = 0;
    for (uint32_t i = 0; i < l->stored.parameter_count; i++) {
        const ls_parameter *p = &l->stored.parameters[i];
        const ls_parameter *to = ls_layout_find(l->layout, p->name);
        const int64_t floats = to && needs_scratch(l, to) ? p->rows * p->cols : 0;
        largest = floats > largest ? floats : largest;
        all += floats;
    }
    const int64_t most = SCRATCH_BYTES / (int64_t)sizeof(float);
    const int64_t enough = all < most ? all : most;
    l->scratch_floats = largest > enough ? largest : enough;
    l->scratch = malloc((size_t)l->scratch_floats * sizeof(float) + 1);
    return l->scratch ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to read %s", l->file->path);
}

static ls_status load_all(loader *l)
{
    ls_layout_build(&l->arena, &l->file->config, &l->stored);
    LS_TRY(alloc_scratch(l));
    if (!l->file->checkpoint) {
        LS_TRY(ls_hf_open_parameters(l->file->path, &l->file->config, &l->stored, &l->tensors));
    }
    const uint32_t *order = ls_layout_by_name(&l->arena, &l->stored);
    for (uint32_t i = 0; i < l->stored.parameter_count; i++) {
        LS_TRY(add_member(l, &l->stored.parameters[order[i]]));
    }
    return flush(l);
}

ls_status ls_base_load(const ls_model_file *file, const ls_layout *layout, float *parameters,
                       char digest_out[LS_SHA256_HEX_BYTES])
{
    loader l = {.file = file->base ? file->base : file, .layout = layout, .parameters = parameters};
    if (l.file->adapter && l.file != file) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is an adapter itself; merge it first with 'lockstep export'",
                       l.file->path);
    }
    ls_sha256_init(&l.digest);
    const ls_status status = load_all(&l);
    ls_sha256_finish(&l.digest, digest_out);
    ls_safetensors_close(l.tensors);
    free(l.scratch);
    ls_arena_release(&l.arena);
    return status;
}
