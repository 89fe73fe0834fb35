// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <string.h>

static ls_line_reader reader_of(const char *text)
{
    return (ls_line_reader){.text = text, .bytes = strlen(text)};
}

static void metrics_reader_reads_every_number(void **state)
{
    (void)state;
    ls_line_reader reader =
        reader_of("{\"step\": 7, \"loss\": 1.5, \"lr\": 0.001, \"grad_norm\": 2, \"tokens\": 512, "
                  "\"tokens_per_s\": 1e4, \"step_s\": 0.5, \"data_s\": 0.25, \"mfu\": null, "
                  "\"rss_bytes\": 1048576, \"val_loss\": 2.5, \"later\": [1]}\n"
                  "{\"step\": 8, \"loss\": 1.5}\n");
    ls_step_metrics m = {0};
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_GOOD);
    assert_int_equal(m.step, 7);
    assert_true(m.loss == 1.5f && m.lr == 0.001 && m.grad_norm == 2.0 && m.tokens_per_s == 1e4);
    assert_true(m.step_s == 0.5 && m.data_s == 0.25);
    assert_int_equal(m.tokens, 512);
    assert_int_equal(m.rss_bytes, 1048576);
    assert_true(isnan(m.mfu) && isnan(m.hfu) && isnan(m.forward_s));
    assert_true(m.has_val_loss && m.val_loss == 2.5);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_GOOD);
    assert_false(m.has_val_loss);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_END);
}

static void metrics_reader_damaged_leaves_output(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "\n", "rubbish\n", "[1, 2]\n",
        /* no loss */
        "{\"step\": 1}\n",
        /* was not finite */
        "{\"step\": 1, \"loss\": null}\n", "{\"step\": 1, \"loss\": \"1.0\"}\n", /* text */
        "{\"step\": 1, \"loss\": 1e39}\n",                                       /* above float32 */
        "{\"step\": 0, \"loss\": 1.0}\n",                                        /* steps begin at 1 */
        "{\"step\": -1, \"loss\": 1.0}\n",                                       /* negative */
        "{\"step\": 1.5, \"loss\": 1.0}\n",                                      /* no integer */
        "{\"step\": 1, \"step\": 2, \"loss\": 1.0\n",                            /* cut, then continued */
        "{\"step\": 1, \"loss\": 1.0} {\"step\": 2}\n",                          /* two in one */
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ls_line_reader reader = reader_of(lines[i]);
        ls_step_metrics m = {.step = 99, .loss = 99.0f};
        assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_DAMAGED);
        assert_int_equal(m.step, 99);
        assert_true(m.loss == 99.0f);
        assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_END);
    }
}

static void metrics_reader_tells_where_lines_are(void **state)
{
    (void)state;
    ls_line_reader reader = reader_of("{\"step\":1,\"loss\":1}\nbad\n{\"step\":2,\"lo");
    ls_step_metrics m;
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_GOOD);
    assert_int_equal(reader.line_offset, 0);
    assert_int_equal(reader.offset, 20);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_DAMAGED);
    assert_int_equal(reader.line_number, 2);
    assert_int_equal(reader.line_offset, 20);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_TORN);
    assert_int_equal(reader.line_number, 3);
    assert_int_equal(reader.offset, reader.bytes);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_END);
}

static void event_reader_wants_a_name(void **state)
{
    (void)state;
    ls_line_reader reader =
        reader_of("{\"time\":1,\"event\":\"a\",\"step\":3}\n{\"event\":4}\n{\"event\":\"b\",\"step\":-3}\n");
    json_t *event = NULL;
    uint64_t step = 9;
    assert_int_equal(ls_event_reader_next(&reader, &event), LS_LINE_GOOD);
    assert_true(ls_event_step(event, &step));
    assert_int_equal(step, 3);
    json_decref(event);
    assert_int_equal(ls_event_reader_next(&reader, &event), LS_LINE_DAMAGED);
    assert_int_equal(ls_event_reader_next(&reader, &event), LS_LINE_GOOD);
    assert_false(ls_event_step(event, &step));
    assert_int_equal(step, 3);
    json_decref(event);
}

static void reader_of_nothing_ends(void **state)
{
    (void)state;
    ls_line_reader reader = {0};
    ls_step_metrics m;
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_END);
    assert_int_equal(ls_metrics_reader_next(&reader, &m), LS_LINE_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_reader_reads_every_number),
        cmocka_unit_test(metrics_reader_damaged_leaves_output),
        cmocka_unit_test(metrics_reader_tells_where_lines_are),
        cmocka_unit_test(event_reader_wants_a_name),
        cmocka_unit_test(reader_of_nothing_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
