// SPDX-License-Identifier: Apache-2.0
/* The loss of records: the same bits packed and alone, however many windows run at once. */
#include "test.h"

#include "execution/train/evaluate.h"
#include "execution/train/model_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 24, RECORDS = 7 };

/* Rows of each record; all are packed into windows in this order. */
static const int rows_of[RECORDS] = {5, 1, 18, 7, 13, 24, 2};

typedef struct fixture {
    ls_model_file *file;
    ls_queue *queue;
    ls_state state;
} fixture;

static int fixture_setup(void **state)
{
    static fixture f;
    assert_int_equal(ls_model_file_open(LS_SOURCE_DIR "/tests/golden/models/llama", &f.file), LS_OK);
    assert_int_equal(ls_queue_create_cpu(2, &f.queue), LS_OK);
    assert_int_equal(ls_state_init(&f.state, f.queue, LS_F32, &f.file->layout, 1), LS_OK);
    assert_int_equal(ls_model_file_load(f.file, &f.file->layout, f.state.parameters), LS_OK);
    *state = &f;
    return 0;
}

static int fixture_teardown(void **state)
{
    fixture *f = *state;
    ls_state_release(&f->state);
    ls_queue_destroy(f->queue);
    ls_model_file_close(f->file);
    return 0;
}

/* Which records a window holds: [begin, end). */
typedef struct window {
    int begin, end;
} window;

/* Every third target is missing, and with `mute` all are. */
static bool mute;

static ls_status read_window(void *context, uint64_t index, const ls_sample *sample)
{
    const window *w = (const window *)context + index;
    int at = 0;
    for (int r = w->begin; r < w->end; r++) {
        const int first = at;
        for (int i = 0; i < rows_of[r]; i++, at++) {
            sample->tokens[at] = (r * 31 + i * 7) % 60;
            sample->targets[at] = i % 3 == 2 || mute ? LS_NO_TARGET : (r * 31 + (i + 1) * 7) % 60;
            sample->first[at] = first;
            sample->record[at] = r;
        }
    }
    for (int i = at; i < LENGTH; i++) {
        sample->tokens[i] = 0;
        sample->targets[i] = LS_NO_TARGET;
        sample->first[i] = at;
        sample->record[i] = LS_NO_RECORD;
    }
    return LS_OK;
}

static ls_status evaluate(const fixture *f, int64_t sequences, window *windows, uint64_t count,
                          ls_evaluation_part *parts_out, ls_evaluation *result_out)
{
    const ls_model_on_device model = {.queue = f->queue,
                                      .config = &f->file->config,
                                      .layout = &f->file->layout,
                                      .type = LS_F32,
                                      .weights = f->state.parameters};
    static const uint64_t ends[RECORDS] = {1, 2, 3, 4, 5, 6, 7};
    ls_evaluator *e = NULL;
    assert_int_equal(ls_evaluator_create(&model, sequences, LENGTH, &e), LS_OK);
    ls_evaluator_divide(e, ends, RECORDS);
    const ls_sample_list list = {read_window, windows, count};
    const ls_status status = ls_evaluator_run_samples(e, &list, 0, result_out);
    if (status == LS_OK) {
        memcpy(parts_out, result_out->parts, RECORDS * sizeof *parts_out);
    }
    ls_evaluator_destroy(e);
    return status;
}

static void evaluation_of_a_record_does_not_depend_on_its_window(void **state)
{
    const fixture *f = *state;
    window packed[] = {{0, 3}, {3, 5}, {5, 6}, {6, 7}}, alone[RECORDS];
    for (int r = 0; r < RECORDS; r++) {
        alone[r] = (window){r, r + 1};
    }
    ls_evaluation_part parts[4][RECORDS];
    ls_evaluation results[4];
    assert_int_equal(evaluate(f, 1, packed, 4, parts[0], &results[0]), LS_OK);
    assert_int_equal(evaluate(f, 2, packed, 4, parts[1], &results[1]), LS_OK);
    assert_int_equal(evaluate(f, 3, packed, 4, parts[2], &results[2]), LS_OK);
    assert_int_equal(evaluate(f, 4, alone, RECORDS, parts[3], &results[3]), LS_OK);
    double sum = 0.0;
    for (int r = 0; r < RECORDS; r++) {
        assert_int_equal(parts[0][r].tokens, (rows_of[r] / 3) * 2 + rows_of[r] % 3);
        sum += parts[0][r].loss_sum;
    }
    assert_true(results[0].tokens == 49 && results[0].loss == sum / 49.0 && isfinite(sum));
    for (int i = 1; i < 4; i++) {
        assert_memory_equal(parts[0], parts[i], sizeof parts[0]);
        assert_true(results[i].loss == results[0].loss && results[i].tokens == results[0].tokens);
    }
}

static void evaluation_without_targets_is_refused(void **state)
{
    const fixture *f = *state;
    window packed[] = {{0, 3}, {3, 5}};
    ls_evaluation_part parts[RECORDS];
    ls_evaluation result = {.loss = 7.0};
    mute = true;
    assert_int_equal(evaluate(f, 1, packed, 2, parts, &result), LS_ERR_DATA);
    mute = false;
    assert_non_null(strstr(ls_error_text(), "no token of the validation data counts in the loss"));
    assert_true(result.loss == 7.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_of_a_record_does_not_depend_on_its_window),
        cmocka_unit_test(evaluation_without_targets_is_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
