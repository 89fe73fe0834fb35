// SPDX-License-Identifier: Apache-2.0
/* What the files of the shape share: shape.c builds one from sizes, shape_parse.c reads sizes,
 * shape_presets.c has known ones. */
#ifndef LS_PLANNING_MODEL_SHAPE_INTERNAL_H
#define LS_PLANNING_MODEL_SHAPE_INTERNAL_H

#include "planning/model/shape.h"

/* What decides a shape. */
typedef struct ls_shape_sizes {
    ls_model_config config; /* family gpt2 or a llama-like one; swiglu false is allowed for all */
    ls_shape_moe moe;
    ls_shape_latent latent;
    double dropout;
    /* parameters of a layer that its family does not have: sinks, biases */
    int64_t more_layer_vectors;
} ls_shape_sizes;

/* Errors: LS_ERR_INVALID with field, value and range. */
LS_MUST_CHECK ls_status ls_shape_build(ls_arena *arena, const char *name, const ls_shape_sizes *sizes,
                                       ls_shape *shape_out);

/* The sizes of a preset; false: the name is unknown. */
bool ls_shape_preset(const char *name, ls_shape_sizes *sizes_out, const char **name_out);

/* Reads the text of a config.json; `name` is the file's name in errors. *unknown_out: a model_type
 * that was read as a Llama because it is unknown, in `arena`; else NULL. */
LS_MUST_CHECK ls_status ls_shape_read_config(ls_arena *arena, const char *text, size_t bytes,
                                             const char *name, ls_shape_sizes *sizes_out,
                                             const char **unknown_out);

#endif
