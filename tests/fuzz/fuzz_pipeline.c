// SPDX-License-Identifier: Apache-2.0
/* Pipelines of `data prepare` from arbitrary bytes: an error with text, or steps whose settings load
 * again to the same settings. */
#include "base/assert.h"
#include "data/preparation/pipeline.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
const char *__lsan_default_suppressions(void);

/* See fuzz_yaml.c. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static bool load(ls_arena *arena, const char *text, size_t bytes, ls_data_pipeline *pipeline)
{
    ls_document doc;
    if (ls_yaml_parse(text, bytes, "fuzz.yaml", &doc) != LS_OK) {
        return false;
    }
    const ls_status status = ls_data_pipeline_read(arena, &doc, pipeline);
    ls_document_release(&doc);
    return status == LS_OK;
}

/* The steps as items of a list. */
static void append_steps(const ls_data_pipeline *pipeline, ls_text *text)
{
    ls_text_append(text, "input: [a]\nsteps:\n");
    for (size_t i = 1; i < pipeline->step_count; i++) {
        ls_text step = {0};
        ls_data_pipeline_append_step(&pipeline->steps[i], &step);
        const char *before = "  - ";
        for (const char *line = ls_text_string(&step); *line; line += strcspn(line, "\n") + 1) {
            ls_text_append(text, before);
            ls_text_append_bytes(text, line, strcspn(line, "\n"));
            ls_text_append(text, "\n");
            before = "    ";
        }
        ls_text_release(&step);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_data_pipeline pipeline = {0}, again = {0};
    ls_text first = {0}, second = {0};
    ls_error_clear();
    if (load(&arena, (const char *)data, bytes, &pipeline)) {
        LS_ASSERT(pipeline.input.count > 0 && pipeline.step_count > 1 &&
                  pipeline.step_count <= LS_PIPELINE_STEPS_MAX);
        append_steps(&pipeline, &first);
        LS_ASSERT(load(&arena, first.data, first.bytes, &again));
        append_steps(&again, &second);
        LS_ASSERT(strcmp(ls_text_string(&first), ls_text_string(&second)) == 0);
    } else {
        LS_ASSERT(ls_error_text()[0] != '\0');
    }
    ls_text_release(&first);
    ls_text_release(&second);
    ls_arena_release(&arena);
    return 0;
}
