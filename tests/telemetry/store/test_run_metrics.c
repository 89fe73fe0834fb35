// SPDX-License-Identifier: Apache-2.0
/* Files of metrics as they grow, are cut back and hold what they should not; answers made of them. */
#include "test.h"

#include "base/hash.h"
#include "base/json.h"
#include "telemetry/store/run_metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads what the "file" holds, in slices of `slice` bytes. True: it was rewound. */
static bool feed_all(ls_feed *feed, ls_run_metrics *data, const char *text, size_t bytes, size_t slice)
{
    for (;;) {
        const uint64_t from = ls_feed_from(feed);
        const size_t left = from < bytes ? bytes - (size_t)from : 0, part = left < slice ? left : slice;
        switch (ls_feed_take(feed, data, from, text + (left > 0 ? from : 0), part, slice)) {
        case LS_FEED_REWOUND:
            return true;
        case LS_FEED_END:
            return false;
        default:
            break;
        }
    }
}

static bool feed_text(ls_feed *feed, ls_run_metrics *data, const char *text)
{
    return feed_all(feed, data, text, strlen(text), 4096);
}

static json_t *answer_of(const ls_run_metrics *data, size_t points, const char *keys)
{
    ls_text text = {0};
    ls_run_metrics_append_metrics(
        data, &(ls_metrics_question){.to = UINT64_MAX, .points = points, .keys = keys}, &text);
    json_t *root = json_loadb(text.data, text.bytes, 0, NULL);
    assert_non_null(root);
    ls_text_release(&text);
    return root;
}

static void feed_takes_each_line_once_however_it_is_cut(void **state)
{
    (void)state;
    static const char text[] =
        "{\"step\": 1, \"loss\": 4, \"mfu\": null}\n"
        "not a line\n"
        "{\"step\": 2, \"loss\": 3.25, \"eval\": {\"acc\": 0.5}, \"list\": [1, {\"x\": 2}]}\n"
        "{\"step\": 3, \"loss\": NaN, \"note\": \"a \\\"b\\\" {\", \"ok\": true}\n"
        "{\"step\": 4, \"loss\": -1.5e-3}\n";
    for (size_t slice = 130; slice < 300; slice += 7) {
        for (size_t end = 0; end < sizeof text; end += 3) {
            ls_feed feed = {.kind = LS_FEED_JSON};
            ls_run_metrics data = {0};
            assert_false(feed_all(&feed, &data, text, end, slice));
            assert_false(feed_all(&feed, &data, text, sizeof text - 1, slice));
            const ls_series *loss = ls_run_metrics_find(&data, "loss");
            assert_int_equal(loss->points, 4);
            assert_true(loss->last.value == -1.5e-3 && loss->last.step == 4);
            assert_true(ls_run_metrics_last(&data, "eval.acc") == 0.5);
            assert_true(ls_run_metrics_last(&data, "ok") == 1.0);
            assert_null(ls_run_metrics_find(&data, "mfu")); /* never measured */
            assert_null(ls_run_metrics_find(&data, "x"));
            assert_int_equal(data.damaged, 1);
            ls_run_metrics_release(&data);
        }
    }
}

static void feed_notices_a_file_that_was_cut_back(void **state)
{
    (void)state;
    ls_feed feed = {.kind = LS_FEED_JSON};
    ls_run_metrics data = {0};
    assert_false(feed_text(&feed, &data, "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n"));
    assert_true(feed_text(&feed, &data, "{\"step\":1,\"loss\":4}\n"));
    /* Longer than before when it is looked at again. */
    assert_true(feed_text(&feed, &data,
                          "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":1}\n"));
    ls_run_metrics_release(&data);
}

static void steps_that_go_back_replace_what_came_after(void **state)
{
    (void)state;
    ls_feed feed = {.kind = LS_FEED_JSON};
    ls_run_metrics data = {0};
    feed_text(&feed, &data,
              "{\"step\":5,\"a\":1}\n{\"step\":6,\"a\":2}\n{\"step\":7,\"a\":3}\n{\"step\":6,\"a\":9}\n");
    const ls_series *a = ls_run_metrics_find(&data, "a");
    assert_int_equal(a->points, 2);
    assert_true(a->last.step == 6 && a->last.value == 9.0);
    assert_int_equal(data.cut, 2);
    ls_run_metrics_release(&data);
}

static void lines_of_text_give_pairs(void **state)
{
    (void)state;
    ls_feed feed = {.kind = LS_FEED_TEXT};
    ls_run_metrics data = {0};
    feed_text(&feed, &data,
              "2026-11-23 12:30:01 INFO step 7/100 loss=0.125 val/acc: 51.5%, lr=3e-4 host=n1\n"
              "Step: 8, loss = nan\n"
              "{\"step\": 9, \"loss\": 0.5}\n"
              "nothing here, version 1.2.3 of x=1.2.3b\n");
    assert_true(ls_run_metrics_last(&data, "val/acc") == 51.5);
    assert_true(ls_run_metrics_last(&data, "lr") == 3e-4);
    const ls_series *loss = ls_run_metrics_find(&data, "loss");
    assert_int_equal(loss->points, 3);
    assert_int_equal(loss->last.step, 9);
    assert_null(ls_run_metrics_find(&data, "host"));
    assert_null(ls_run_metrics_find(&data, "x"));
    ls_run_metrics_release(&data);
}

/* ---- names ---- */

static void names_are_limited_and_the_rest_is_counted(void **state)
{
    (void)state;
    ls_run_metrics data = {0};
    const ls_point point = {.step = 1, .value = 2.0};
    char name[32];
    for (int i = 0; i < 3 * LS_RUN_METRICS_MAX; i++) {
        const int bytes = snprintf(name, sizeof name, "m%d", i);
        assert_true(ls_run_metrics_add(&data, name, (size_t)bytes, &point) == (i < LS_RUN_METRICS_MAX));
    }
    assert_int_equal(data.count, LS_RUN_METRICS_MAX);
    assert_int_equal(data.refused, 2 * LS_RUN_METRICS_MAX);
    assert_true(ls_run_metrics_last(&data, "m77") == 2.0);
    ls_run_metrics_release(&data);
}

static void names_of_any_bytes_make_json(void **state)
{
    (void)state;
    ls_run_metrics data = {0};
    const ls_point point = {.step = 1, .value = 2.0};
    static const char *const names[] = {"<script>", "a\"b\\c", "\x1b[2J", "\xff\xfe", "a,b", "\xe2\x80\xae"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(ls_run_metrics_add(&data, names[i], strlen(names[i]), &point));
    }
    for (int i = 0; i < 2; i++) { /* the second time, the name is known */
        assert_true(ls_run_metrics_add(&data, "zero\0byte", 9, &point));
    }
    assert_true(ls_run_metrics_last(&data, "zero") == 2.0);
    json_t *root = answer_of(&data, 10, NULL);
    assert_int_equal(json_object_size(root), 7);
    assert_non_null(json_object_get(root, "\\x1b[2J"));
    json_decref(root);
    root = answer_of(&data, 10, "none,\\x1b[2J"); /* by the name that answers have */
    assert_int_equal(json_object_size(root), 1);
    json_decref(root);
    ls_run_metrics_release(&data);
}

/* ---- answers ---- */

static double item(const json_t *root, const char *name, const char *list, size_t index)
{
    return json_number_value(json_array_get(json_object_get(json_object_get(root, name), list), index));
}

static void answers_have_means_extremes_and_gaps(void **state)
{
    (void)state;
    ls_feed feed = {.kind = LS_FEED_JSON};
    ls_run_metrics data = {0};
    feed_text(&feed, &data,
              "{\"step\":0,\"a\":1,\"b\":1}\n{\"step\":1,\"a\":3.1}\n{\"step\":2,\"a\":NaN}\n{\"step\":3,"
              "\"a\":-Infinity}\n"
              "{\"step\":4,\"a\":0.1}\n{\"step\":5,\"a\":123456789.25}\n");
    json_t *root = answer_of(&data, 3, "a");
    assert_int_equal(json_object_size(root), 1);
    assert_true(item(root, "a", "step", 0) == 1 && item(root, "a", "step", 2) == 5);
    assert_float_equal(item(root, "a", "mean", 0), 2.05, 1e-6);
    assert_true(item(root, "a", "low", 0) == 1 && item(root, "a", "high", 0) == 3.1);
    assert_true(item(root, "a", "low", 2) == 0.1 && item(root, "a", "high", 2) == 123456789.25);
    const json_t *a = json_object_get(root, "a");
    assert_true(json_is_null(json_array_get(json_object_get(a, "mean"), 1)));
    json_t *odd = json_pack("[[i, s]]", 1, "nan");
    assert_true(json_equal(json_object_get(a, "odd"), odd));
    json_decref(odd);
    json_decref(root);
    ls_run_metrics_release(&data);
}

/* Numbers are printed as short as they can be and read back as they were. */
/* Columns of all metrics and runs of an answer, so that none needs gigabytes. */
static void answers_are_shared_by_metrics_and_runs(void **state)
{
    (void)state;
    ls_run_metrics data = {0};
    char name[32];
    for (int i = 0; i < 600; i++) {
        const int bytes = snprintf(name, sizeof name, "m%d", i);
        for (uint64_t step = 1; step <= 1000; step++) {
            const ls_point point = {.step = step, .value = (double)step};
            assert_true(ls_run_metrics_add(&data, name, (size_t)bytes, &point));
        }
    }
    static const struct {
        const char *keys;
        size_t runs, most, least;
    } wanted[] = {{NULL, 0, 436, 300}, {NULL, 100, 4, 3}, {NULL, 1000, 1, 1}, {"m599,m7", 2, 1000, 1000}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ls_text text = {0};
        ls_run_metrics_append_metrics(
            &data,
            &(ls_metrics_question){
                .to = UINT64_MAX, .points = 1000, .keys = wanted[i].keys, .runs = wanted[i].runs},
            &text);
        json_t *root = json_loadb(text.data, text.bytes, 0, NULL);
        const size_t count = json_array_size(json_object_get(json_object_get(root, "m599"), "mean"));
        assert_int_equal(json_object_size(root), wanted[i].keys ? 2 : 600);
        assert_in_range(count, wanted[i].least, wanted[i].most);
        json_decref(root);
        ls_text_release(&text);
    }
    ls_run_metrics other = {0};
    assert_true(ls_run_metrics_name(&other, "a", 1));
    assert_true(data.seed != other.seed); /* the places of names are not known beforehand */
    ls_run_metrics_release(&other);
    ls_run_metrics_release(&data);
}

static void answers_keep_every_bit_of_extremes(void **state)
{
    (void)state;
    ls_run_metrics data = {0};
    uint64_t bits = 88172645463325252u;
    double values[2000];
    for (size_t i = 0; i < 2000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&values[i], &bits, sizeof values[i]);
        values[i] = !isfinite(values[i]) ? 0.3
                    : i % 3 == 0         ? (double)(int64_t)(bits % 100000) / 1000.0
                                         : values[i];
        (void)ls_run_metrics_add(&data, "v", 1, &(ls_point){.step = i, .value = values[i]});
    }
    json_t *root = answer_of(&data, 2000, NULL);
    for (size_t i = 0; i < 2000; i++) {
        assert_true(item(root, "v", "high", i) == values[i]);
    }
    json_decref(root);
    ls_run_metrics_release(&data);
}

/* ---- event files ---- */

typedef struct bytes {
    char data[8192];
    size_t count;
} bytes;

static void put(bytes *b, const void *data, size_t count)
{
    memcpy(b->data + b->count, data, count);
    b->count += count;
}

static void put_sum(bytes *b, const void *data, size_t count)
{
    const uint32_t crc = ls_crc32c(0, data, count), masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
    put(b, &masked, sizeof masked);
}

/* A record with one value: its bytes after the tag are `value`. */
static void put_scalar(bytes *b, uint8_t step, const char *tag, const char *value, size_t value_bytes)
{
    bytes event = {0};
    const double time_s = 1.7e9;
    const uint8_t tag_bytes = (uint8_t)strlen(tag), inner = (uint8_t)(tag_bytes + 2 + value_bytes);
    put(&event, "\x09", 1);
    put(&event, &time_s, 8);
    put(&event, (const uint8_t[]){0x10, step, 0x2a, (uint8_t)(inner + 2), 0x0a, inner, 0x0a, tag_bytes}, 8);
    put(&event, tag, tag_bytes);
    put(&event, value, value_bytes);
    const uint64_t length = event.count;
    put(b, &length, 8);
    put_sum(b, &length, 8);
    put(b, event.data, event.count);
    put_sum(b, event.data, event.count);
}

static void make_events(bytes *b)
{
    put_scalar(b, 1, "loss", "\x15\x00\x00\x80\x3f", 5); /* 1.0f */
    put_scalar(b, 2, "loss", "\x15\x00\x00\x00\x40", 5);
    /* a tensor of one float, packed; of one double, as content; of an int64; of two floats */
    put_scalar(b, 2, "packed", "\x42\x0a\x08\x01\x12\x00\x2a\x04\x00\x00\x40\x40", 12);
    put_scalar(b, 2, "double", "\x42\x0c\x08\x02\x22\x08\x00\x00\x00\x00\x00\x00\xe0\x3f", 14);
    put_scalar(b, 2, "int", "\x42\x04\x08\x09\x50\x07", 6);
    put_scalar(b, 2, "two", "\x42\x0c\x08\x01\x2a\x08\x00\x00\x40\x40\x00\x00\x40\x40", 14);
    put_scalar(b, 3, "loss", "\x15\x00\x00\x40\x40", 5);
}

static void event_files_are_read_as_they_grow(void **state)
{
    (void)state;
    bytes b = {0};
    make_events(&b);
    for (size_t end = 0; end <= b.count; end++) {
        ls_feed feed = {.kind = ls_feed_kind_of("events.out.tfevents.17.host")};
        ls_run_metrics data = {0};
        assert_false(feed_all(&feed, &data, b.data, end, 512));
        assert_false(feed_all(&feed, &data, b.data, b.count, 512));
        assert_int_equal(ls_run_metrics_find(&data, "loss")->points, 3);
        assert_true(ls_run_metrics_last(&data, "loss") == 3.0);
        assert_true(ls_run_metrics_last(&data, "packed") == 3.0);
        assert_true(ls_run_metrics_last(&data, "double") == 0.5);
        assert_true(ls_run_metrics_last(&data, "int") == 7.0);
        assert_null(ls_run_metrics_find(&data, "two"));
        assert_int_equal(data.damaged, 0);
        ls_run_metrics_release(&data);
    }
}

/* A flipped bit anywhere ends the file there; what was before stays. */
static void event_files_that_are_damaged_end_there(void **state)
{
    (void)state;
    bytes b = {0};
    make_events(&b);
    for (size_t at = 0; at < b.count; at++) {
        ls_feed feed = {.kind = LS_FEED_TENSORBOARD};
        ls_run_metrics data = {0};
        b.data[at] ^= 0x10;
        assert_false(feed_all(&feed, &data, b.data, b.count, 512));
        assert_int_equal(data.damaged, 1);
        assert_true(data.points < 6);
        assert_false(feed_all(&feed, &data, b.data, b.count, 512));
        assert_int_equal(data.damaged, 1);
        b.data[at] ^= 0x10;
        ls_run_metrics_release(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feed_takes_each_line_once_however_it_is_cut),
        cmocka_unit_test(feed_notices_a_file_that_was_cut_back),
        cmocka_unit_test(steps_that_go_back_replace_what_came_after),
        cmocka_unit_test(lines_of_text_give_pairs),
        cmocka_unit_test(names_are_limited_and_the_rest_is_counted),
        cmocka_unit_test(names_of_any_bytes_make_json),
        cmocka_unit_test(answers_have_means_extremes_and_gaps),
        cmocka_unit_test(answers_are_shared_by_metrics_and_runs),
        cmocka_unit_test(answers_keep_every_bit_of_extremes),
        cmocka_unit_test(event_files_are_read_as_they_grow),
        cmocka_unit_test(event_files_that_are_damaged_end_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
