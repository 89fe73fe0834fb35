// SPDX-License-Identifier: Apache-2.0
/* A small training state and a folder to save it in, for the checkpoint tests. */
#ifndef LS_TESTS_STORAGE_CHECKPOINT_FIXTURE_H
#define LS_TESTS_STORAGE_CHECKPOINT_FIXTURE_H

#include "test.h"

#include "base/file.h"
#include "storage/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Three parameters, not in the order of their names: one larger than a block, one small, one empty
 * and frozen. */
enum { FIXTURE_TENSORS = 3, FIXTURE_LARGE = (5 << 20) / 4 + 3, FIXTURE_SMALL = 6 };

typedef struct fixture {
    char folder[64];
    char root[96]; /* <folder>/checkpoints */
    ls_checkpoint_tensor tensors[FIXTURE_TENSORS];
    ls_checkpoint_meta meta;
} fixture;

static inline float *fixture_floats(size_t count)
{
    float *data = calloc(count + 1, sizeof *data);
    assert_non_null(data);
    return data;
}

/* Values that depend on the step, so that two steps differ in every block; but for what is
 * frozen. */
static inline void fixture_fill(fixture *f, uint64_t step)
{
    f->meta.step = step;
    f->meta.data_position = step * 48;
    for (int t = 0; t < FIXTURE_TENSORS; t++) {
        uint64_t count = 0;
        assert_int_equal(ls_shape_elements("t", f->tensors[t].shape, f->tensors[t].rank, &count), LS_OK);
        for (uint64_t i = 0; i < count; i++) {
            f->tensors[t].value[i] = (float)(i * 7 + (f->tensors[t].frozen ? 0 : step)) * 0.25f;
            if (f->tensors[t].m) {
                f->tensors[t].m[i] = -(float)(i + step);
                f->tensors[t].v[i] = (float)(i ^ step);
            }
        }
    }
}

static inline void fixture_clear(fixture *f)
{
    for (int t = 0; t < FIXTURE_TENSORS; t++) {
        uint64_t count = 0;
        assert_int_equal(ls_shape_elements("t", f->tensors[t].shape, f->tensors[t].rank, &count), LS_OK);
        for (uint64_t i = 0; i < count; i++) {
            f->tensors[t].value[i] = 99;
            if (f->tensors[t].m) {
                f->tensors[t].m[i] = f->tensors[t].v[i] = 99;
            }
        }
    }
}

/* In `parent`: a real disk, or a file system in memory where many fsyncs cost nothing. */
static inline int fixture_create_in(void **state, const char *parent)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "%s/ls-checkpoint-XXXXXX", parent);
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->root, sizeof f->root, "%s/checkpoints", f->folder);
    f->tensors[0] = (ls_checkpoint_tensor){.name = "transformer.w", .rank = 1, .shape = {FIXTURE_LARGE}};
    f->tensors[1] = (ls_checkpoint_tensor){.name = "lm_head.bias", .rank = 2, .shape = {2, 3}};
    f->tensors[2] = (ls_checkpoint_tensor){.name = "a.frozen", .rank = 1, .shape = {4}};
    const size_t counts[FIXTURE_TENSORS] = {FIXTURE_LARGE, FIXTURE_SMALL, 4};
    for (int t = 0; t < FIXTURE_TENSORS; t++) {
        f->tensors[t].value = fixture_floats(counts[t]);
        f->tensors[t].m = t < 2 ? fixture_floats(counts[t]) : NULL;
        f->tensors[t].v = t < 2 ? fixture_floats(counts[t]) : NULL;
    }
    f->meta = (ls_checkpoint_meta){.seed = 1337, .leaves = 12, .identity = "f00d", .determinism = "test/1"};
    fixture_fill(f, 100);
    *state = f;
    return 0;
}

static inline int fixture_create(void **state)
{
    return fixture_create_in(state, "/tmp");
}

static inline int fixture_remove(void **state)
{
    fixture *f = *state;
    for (int t = 0; t < FIXTURE_TENSORS; t++) {
        free(f->tensors[t].value);
        free(f->tensors[t].m);
        free(f->tensors[t].v);
    }
    const ls_status status = ls_dir_remove(f->folder);
    free(f);
    return status == LS_OK ? 0 : -1;
}

static inline ls_checkpoint_save_options fixture_options(const fixture *f)
{
    return (ls_checkpoint_save_options){
        .root = f->root, .meta = &f->meta, .tensors = f->tensors, .tensor_count = FIXTURE_TENSORS};
}

static inline void fixture_save(fixture *f, uint64_t step)
{
    fixture_fill(f, step);
    const ls_checkpoint_save_options options = fixture_options(f);
    if (ls_checkpoint_save(&options, NULL) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
}

/* The state in memory is that of `step`. */
static inline void fixture_expect(fixture *f, uint64_t step)
{
    char found[LS_SHA256_HEX_BYTES], wanted[LS_SHA256_HEX_BYTES];
    assert_int_equal(ls_state_hash(f->tensors, FIXTURE_TENSORS, step, NULL, found), LS_OK);
    fixture_fill(f, step);
    assert_int_equal(ls_state_hash(f->tensors, FIXTURE_TENSORS, step, NULL, wanted), LS_OK);
    assert_string_equal(found, wanted);
}

/* Loading the newest usable checkpoint gives exactly `step`, after skipping `skipped` damaged
 * ones. */
static inline void fixture_expect_latest(fixture *f, uint64_t step, size_t skipped)
{
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    fixture_clear(f);
    const ls_status status =
        ls_checkpoint_load_latest(&arena, f->root, "f00d", f->tensors, FIXTURE_TENSORS, NULL, &latest);
    if (status != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    assert_non_null(latest.checkpoint);
    assert_int_equal(latest.checkpoint->meta.step, step);
    assert_int_equal(latest.skipped_count, skipped);
    fixture_expect(f, step);
    ls_checkpoint_close(latest.checkpoint);
    ls_arena_release(&arena);
}

#endif
