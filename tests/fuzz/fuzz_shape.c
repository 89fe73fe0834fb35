// SPDX-License-Identifier: Apache-2.0
/* What people hand to the planner: models, strategies, catalogues. The first byte says which. What
 * is accepted must estimate without a crash. */
#include "base/csv.h"
#include "planning/model/shape_internal.h"
#include "planning/step/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void use(const ls_shape *shape, const char *strategy)
{
    static const ls_accelerator card = {.name = "card", .memory_bytes = 80e9};
    static const ls_node node = {.accelerator = &card, .count = 1};
    static const ls_stack stack = {.name = "any", .gradient_bytes = 4, .logit_bytes = 10, .saved_factor = 1};
    ls_strategy_request request;
    if (ls_strategy_parse(strategy, &request) != LS_OK || !ls_strategy_is_complete(&request)) {
        return;
    }
    const ls_setting setting = {
        .shape = shape, .node = &node, .stack = &stack, .gpus = 64, .length = 4096, .global_batch = 256};
    const ls_strategy s = ls_strategy_resolve(&request, setting.gpus);
    char text[40];
    ls_strategy_describe(&s, text, sizeof text);
    if (ls_strategy_check(&s, shape, setting.gpus, setting.global_batch, setting.length) == LS_OK) {
        ls_memory_estimate memory;
        ls_memory_compute(&setting, &s, &memory);
        if (!isfinite(memory.total) || memory.total <= 0.0) {
            abort();
        }
    }
}

static void try_text(ls_arena *arena, char kind, const char *text, size_t bytes)
{
    ls_shape shape;
    ls_shape_sizes sizes;
    ls_csv csv;
    const char *unknown;
    if (kind == 'c') {
        (void)!ls_csv_parse(arena, text, bytes, "fuzz", &csv);
    } else if (kind == 'j') {
        if (ls_shape_read_config(arena, text, bytes, "fuzz", &sizes, &unknown) == LS_OK &&
            ls_shape_build(arena, "fuzz", &sizes, &shape) == LS_OK) {
            use(&shape, "tp=1,pp=2,cp=1,ep=1,vpp=1,mb=1,zero=3,recompute=none");
        }
    } else if (kind == 'm') {
        if (strchr(text, '=') && !strchr(text, '/') && !strchr(text, '.') &&
            ls_shape_parse(arena, text, &shape) == LS_OK) {
            use(&shape, "tp=1,pp=1,cp=2,ep=1,mb=4,zero=1,recompute=full");
        }
    } else if (ls_shape_parse(arena, "mixtral-8x7b", &shape) == LS_OK) {
        use(&shape, text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    ls_arena arena = {0};
    const char *text = ls_arena_strndup(&arena, (const char *)data + 1, size - 1);
    try_text(&arena, (char)data[0], text, size - 1);
    ls_arena_release(&arena);
    return 0;
}
