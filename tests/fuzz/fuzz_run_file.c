// SPDX-License-Identifier: Apache-2.0
/* Run files from arbitrary bytes: an error with text, or a run whose resolved YAML loads again to
 * the same YAML and identity. */
#include "base/assert.h"
#include "config/run_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
const char *__lsan_default_suppressions(void);

/* See fuzz_yaml.c. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfyaml.so";
}

static void check_round_trip(const ls_run_file *run, ls_arena *arena)
{
    ls_text first = {0}, second = {0};
    ls_run_file again;
    ls_options_append_yaml(ls_run_file_table(), run, false, &first);
    LS_ASSERT(ls_run_file_parse(first.data, first.bytes, "again.yaml", NULL, 0, arena, &again) == LS_OK);
    ls_options_append_yaml(ls_run_file_table(), &again, false, &second);
    LS_ASSERT(strcmp(ls_text_string(&first), ls_text_string(&second)) == 0);
    ls_text_clear(&second);
    LS_ASSERT(ls_run_file_diff(run, &again, &second) == 0);
    ls_text_release(&first);
    ls_text_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_run_file run;
    ls_error_clear();
    if (ls_run_file_parse((const char *)data, bytes, "fuzz.yaml", NULL, 0, &arena, &run) == LS_OK) {
        LS_ASSERT(run.train.global_batch % run.train.leaves == 0);
        LS_ASSERT(run.train.global_batch / run.train.leaves % run.train.micro_batch == 0);
        check_round_trip(&run, &arena);
    } else {
        LS_ASSERT(ls_error_text()[0] != '\0');
    }
    ls_arena_release(&arena);
    return 0;
}
