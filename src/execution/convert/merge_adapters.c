// SPDX-License-Identifier: Apache-2.0
/*
 * Adapters of one base become one: sum of w_i s_i B_i A_i = B A, with the matrices A_i one below
 * the other in A, and the matrices w_i s_i B_i side by side in B. The scale of the result is 1.
 */
#include "execution/convert/merge_internal.h"

#include "execution/train/adapter_file.h"

#include <string.h>

static ls_status check_adapter(const ls_merge_work *w, size_t index)
{
    const ls_model_file *first = w->files[0], *file = w->files[index];
    const char *name = w->options->paths[index];
    if (!file->adapter) {
        return ls_fail(
            LS_ERR_INVALID,
            "--adapter: %s is a whole model and has no adapter; leave out --adapter to merge models", name);
    }
    const char *digest = ls_adapter_file_digest(file->adapter),
               *wanted = ls_adapter_file_digest(first->adapter);
    if (digest && wanted
            ? strcmp(digest, wanted) != 0
            : strcmp(ls_adapter_file_base(file->adapter), ls_adapter_file_base(first->adapter)) != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s and %s were trained on different bases (%s and %s): leave out --adapter to merge each "
            "into its base, and the models with each other",
            w->options->paths[0], name, ls_adapter_file_base(first->adapter),
            ls_adapter_file_base(file->adapter));
    }
    bool is_alike =
        file->layout.trained_count == first->layout.trained_count && file->layout.base == first->layout.base;
    for (uint32_t i = 0; is_alike && i < file->layout.trained_count; i++) {
        is_alike = strcmp(file->layout.parameters[i].name, first->layout.parameters[i].name) == 0;
    }
    return is_alike
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "%s and %s have adapters on different layers, or bases kept in different formats: "
                         "leave out --adapter to merge the whole models",
                         w->options->paths[0], name);
}

/* Copies matrix `from`, times `factor`, into `to` from row `row` and column `col` on. */
static void place(const float *from, int64_t rows, int64_t cols, float *to, int64_t to_cols, int64_t row,
                  int64_t col, double factor)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            to[(row + r) * to_cols + col + c] = (float)(factor * (double)from[r * cols + c]);
        }
    }
}

/* Fills A and B of one layer of the result, parameter `index` of its layout, from all models. */
static void fill(const ls_merge_work *w, float *const *values, const ls_layout *layout, uint32_t index,
                 float *out)
{
    const ls_parameter *to = &layout->parameters[index];
    const bool is_a = strstr(to->name, ".lora_A.") != NULL;
    int64_t at = 0;
    for (size_t i = 0; i < w->options->count; i++) {
        const ls_layout *from = &w->files[i]->layout;
        const ls_parameter *p = ls_layout_find(from, to->name);
        const double factor = is_a ? 1.0 : w->weights[i] * (double)ls_adapter_scale(from->adapter);
        place(values[i] + p->offset, p->rows, p->cols, out + to->offset, to->cols, is_a ? at : 0,
              is_a ? 0 : at, factor);
        at += is_a ? p->rows : p->cols;
    }
}

ls_status ls_merge_adapters(const ls_merge_work *w)
{
    const ls_adapter_file *first = w->files[0]->adapter;
    float *values[LS_MERGE_MOST];
    uint64_t rank = 0;
    for (size_t i = 0; i < w->options->count; i++) {
        const ls_layout *layout = &w->files[i]->layout;
        LS_TRY(check_adapter(w, i));
        values[i] = ls_arena_new(w->arena, float, (size_t)layout->float_count);
        LS_TRY(ls_adapter_file_read(w->files[i]->adapter, layout, values[i]));
        rank += layout->adapter->rank;
    }
    if (rank > LS_ADAPTER_RANK_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the merged adapter would have rank %llu, allowed is up to %d: leave out --adapter to merge "
            "the whole models",
            (unsigned long long)rank, LS_ADAPTER_RANK_MAX);
    }
    ls_adapter adapter = *ls_adapter_file_settings(first);
    adapter.rank = (uint32_t)rank;
    adapter.alpha = (double)rank;
    adapter.rslora = false;
    const ls_base base = ls_base_of_kind(w->files[0]->layout.base);
    ls_model_file result = *w->files[0];
    LS_TRY(ls_layout_build_adapter(w->arena, &result.config, &adapter, &base, &result.layout));
    float *out = ls_arena_new(w->arena, float, (size_t)result.layout.float_count);
    for (uint32_t i = 0; i < result.layout.trained_count; i++) {
        fill(w, values, &result.layout, i, out);
    }
    return ls_adapter_export(&result, out, w->options->output);
}
