// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "figures/drawings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static char *read_guide(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/docs/guide/%s", LS_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail_msg("%s is missing", path);
    }
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void assert_equals_guide(const char *name, ls_text *drawing)
{
    char *kept = read_guide(name);
    if (strcmp(kept, ls_text_string(drawing)) != 0) {
        fail_msg(
            "docs/guide/%s is not what the program draws now: make it again with the command in the chapter",
            name);
    }
    free(kept);
    ls_text_release(drawing);
}

/* Text between `before` and the next `end` after it; the caller frees. */
static char *cut_out(const char *text, const char *before, const char *end)
{
    const char *from = strstr(text, before);
    assert_non_null(from);
    from += strlen(before);
    const char *to = strstr(from, end);
    assert_non_null(to);
    return strndup(from, (size_t)(to - from));
}

static void drawing_step_equals_guide(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_step(&(ls_step_drawing){12, 1, 4, 4}, &text), LS_OK);
    assert_equals_guide("step.svg", &text);
    assert_int_equal(ls_drawing_step(&(ls_step_drawing){12, 3, 4, 4}, &text), LS_OK);
    assert_equals_guide("step-three-ranks.svg", &text);
}

/* The line that is drawn is the one the chapter quotes. */
static void drawing_progress_equals_guide(void **state)
{
    (void)state;
    char *chapter = read_guide("02-the-progress-line.md");
    char *line = cut_out(chapter, "```progress\n", "\n```");
    ls_text text = {0};
    assert_int_equal(ls_drawing_progress(line, &text), LS_OK);
    assert_equals_guide("progress.svg", &text);
    free(line);
    free(chapter);
}

/* Boxes: a page and a cell in a wave per leaf, 2 V - 1 nodes, 5 of the update. Arrows: time, 2 per
 * inner node, 4 of the update. */
static void drawing_step_counts_match_tree(void **state)
{
    (void)state;
    for (uint32_t leaves = 1; leaves <= LS_STEP_DRAWING_LEAVES_MAX; leaves++) {
        for (uint32_t ranks = 1; ranks <= leaves; ranks++) {
            ls_text text = {0};
            assert_int_equal(ls_drawing_step(&(ls_step_drawing){leaves, ranks, 2, 1}, &text), LS_OK);
            const char *svg = ls_text_string(&text);
            assert_int_equal(count_of(svg, "class=\"ls-box"), 4 * leaves - 1 + 5);
            assert_int_equal(count_of(svg, "class=\"ls-head"), 1 + 2 * (leaves - 1) + 4);
            assert_int_equal(count_of(svg, ">rank "), ranks);
            ls_text_release(&text);
        }
    }
}

static bool has(const ls_text *text, const char *part)
{
    return strstr(ls_text_string(text), part) != NULL;
}

/* [0, 12) splits at 8 (the largest power of two below 12), [8, 12) at 10, [0, 7) at 4, [4, 7) at
 * 6. */
static void drawing_step_splits_at_powers_of_two(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_step(&(ls_step_drawing){12, 1, 1, 1}, &text), LS_OK);
    assert_true(has(&text, ">0–7<") && has(&text, ">8–11<") && has(&text, ">10–11<") &&
                has(&text, ": 0–11<"));
    assert_false(has(&text, ">0–5<") || has(&text, ">6–11<"));
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_step(&(ls_step_drawing){7, 1, 1, 1}, &text), LS_OK);
    assert_true(has(&text, ">0–3<") && has(&text, ">4–6<") && has(&text, ">4–5<"));
    assert_false(has(&text, ">5–6<"));
    ls_text_release(&text);
}

/* With 5 ranks, rank k begins at leaf 12 k / 5: 0, 2, 4, 7, 9; three waves. */
static void drawing_step_spreads_leaves_over_ranks(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_step(&(ls_step_drawing){12, 5, 1, 1}, &text), LS_OK);
    assert_true(has(&text, ">wave 3<"));
    assert_false(has(&text, ">wave 4<"));
    ls_text_release(&text);
}

/* A box per leaf, one for the check, 5 of the comparison, 5 of the guard; the audited leaf is
 * underlined twice. */
static void drawing_audit_shows_the_leaf_twice(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 12; ranks++) {
        ls_text text = {0};
        const ls_audit_drawing audit = {12, ranks, 0, 0, 1, ranks > 2 ? 2 : 0};
        assert_int_equal(ls_drawing_audit(&audit, &text), LS_OK);
        assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), 12 + 1 + 5 + 5);
        /* into the comparison, out of it */
        assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-head"), 2 + 2);
        assert_int_equal(count_of(ls_text_string(&text), ">rank 1's hash<") +
                             count_of(ls_text_string(&text), ">rank 1&#39;s hash<"),
                         1);
        ls_text_release(&text);
    }
    static const ls_audit_drawing bad[] = {{12, 1, 0, 0, 0, 0}, {0, 2, 0, 0, 1, 0}, {4, 5, 0, 0, 1, 2},
                                           {4, 2, 4, 0, 1, 0},  {4, 2, 0, 2, 1, 0}, {17, 2, 0, 0, 1, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_text text = {0};
        assert_int_equal(ls_drawing_audit(&bad[i], &text), LS_ERR_INVALID);
        assert_int_equal(text.bytes, 0);
    }
}

/* In a ring each chunk is added in an order of its own; the exchange adds all in the tree's. */
static void drawing_ring_shows_both_orders(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_ring(3, &text), LS_OK);
    assert_true(has(&text, ">0+1+2<") && has(&text, ">1+2+0<") && has(&text, ">2+0+1<"));
    assert_true(has(&text, "Every number is (0+1)+2,"));
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_ring(4, &text), LS_OK);
    assert_true(has(&text, ">3+0+1+2<") && has(&text, "Every number is (0+1)+(2+3),"));
    /* Ring: a box per rank and row; owners of the exchange and of the host. Arrows: a hop per rank
     * and row but the last; each chunk to its owner and back; the columns. */
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), 4 * 4 + 4 + 4);
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-head"), 3 * 4 + 2 * 4 * 4 + 4);
    ls_text_release(&text);
    for (uint32_t ranks = 0; ranks <= 5; ranks += ranks == 1 ? 4 : 1) {
        assert_int_equal(ls_drawing_ring(ranks, &text), LS_ERR_INVALID);
        assert_int_equal(text.bytes, 0);
    }
}

/* 12 leaves on 5 ranks: 0-1, 2-3, 4-6, 7-8, 9-11. Per host a frame; per rank a box and a row of
 * slices, and an arrow to its own column. */
static void drawing_ranks_spreads_leaves_and_slices(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_ranks(&(ls_ranks_drawing){1, 5, 12}, &text), LS_OK);
    assert_true(has(&text, "4–6<") && has(&text, "9–11<"));
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), 1 + 5 + 5 * 5);
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-head"), 5);
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_ranks(&(ls_ranks_drawing){2, 4, 4}, &text), LS_OK);
    /* and to and from the other host */
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-head"), 4 + 2);
    assert_int_equal(count_of(ls_text_string(&text), ">leaf "), 4);
    ls_text_release(&text);
    static const ls_ranks_drawing bad[] = {{0, 2, 4}, {1, 0, 4}, {1, 9, 12}, {4, 4, 4}, {2, 3, 4}, {1, 5, 4}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_drawing_ranks(&bad[i], &text), LS_ERR_INVALID);
        assert_int_equal(text.bytes, 0);
    }
}

/* Three scenes of all ranks in which one is odd, and a circle of two. */
static void drawing_report_has_one_odd_rank(void **state)
{
    (void)state;
    ls_text text = {0};
    for (uint32_t ranks = 3; ranks <= LS_REPORT_DRAWING_RANKS_MAX; ranks++) {
        assert_int_equal(ls_drawing_report(ranks, &text), LS_OK);
        assert_int_equal(count_of(ls_text_string(&text), ">rank "), 3 * ranks + 2);
        assert_int_equal(count_of(ls_text_string(&text), ">all-gather<"), 1);
        assert_int_equal(count_of(ls_text_string(&text), ">all-reduce<"), ranks - 1);
        ls_text_clear(&text);
    }
    ls_text_release(&text);
    assert_int_equal(ls_drawing_report(2, &text), LS_ERR_INVALID);
    assert_int_equal(ls_drawing_report(LS_REPORT_DRAWING_RANKS_MAX + 1, &text), LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
}

static void drawing_step_refuses_numbers_out_of_range(void **state)
{
    (void)state;
    static const ls_step_drawing bad[] = {{0, 1, 1, 1}, {17, 1, 1, 1}, {4, 0, 1, 1}, {4, 5, 1, 1},
                                          {4, 1, 0, 1}, {4, 1, 9, 1},  {4, 1, 4, 0}, {4, 1, 4, 3}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_text text = {0};
        assert_int_equal(ls_drawing_step(&bad[i], &text), LS_ERR_INVALID);
        assert_int_equal(text.bytes, 0);
    }
}

static void drawing_progress_knows_every_piece(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(
        ls_drawing_progress(
            "step 7/9  77 %  loss 2.5000  val 2.6000  lr 0.001  norm 0.62  1,234 tok/s  MFU 40 %  "
            "12.5 GiB  3s left  "
            "61 % busy: 28 % waiting for data, try data on a local disk",
            &text),
        LS_OK);
    static const char *const pieces[] = {">step 7/9",   ">loss 2.5000<",  ">val 2.6000<", ">lr 0.001<",
                                         ">norm 0.62<", ">1,234 tok/s<",  ">MFU 40 %<",   ">12.5 GiB<",
                                         ">3s left<",   ">61 % busy ...<"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        /* in the line and in its call-out */
        assert_int_equal(count_of(ls_text_string(&text), pieces[i]), 2);
    }
    assert_int_equal(count_of(ls_text_string(&text), ">good: "), 10);
    ls_text_release(&text);
}

/* The last line of a run says how long it took. */
static void drawing_progress_knows_the_last_line(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_progress("step 9/9 100 %  loss 2.5000  in 1m05s", &text), LS_OK);
    assert_int_equal(count_of(ls_text_string(&text), ">in 1m05s<"), 2);
    assert_int_equal(count_of(ls_text_string(&text), "left<"), 1); /* only in what it says */
    ls_text_release(&text);
}

static void drawing_progress_refuses_other_lines(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "   ", "hello", "lossy  stepping  MFU", "\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_text text = {0};
        assert_int_equal(ls_drawing_progress(bad[i], &text), LS_ERR_INVALID);
        assert_int_equal(text.bytes, 0);
    }
}

static const char loss_events[] =
    "{\"time\":100,\"event\":\"rank_started\",\"rank\":0,\"pid\":11}\n"
    "{\"time\":100,\"event\":\"rank_started\",\"rank\":1,\"pid\":12}\n"
    "{\"time\":101,\"event\":\"checkpoint\",\"step\":9}\n"
    "{\"time\":103.0013,\"event\":\"rank_lost\",\"rank\":1,\"pid\":12,\"cause\":\"rank 1 (vm, pid 12) ended "
    "with signal 9 (Killed) "
    "while computing step 12 (backward of leaf 1); unless\",\"detected_ms\":1.3,\"step\":12,\"epoch\":1}\n"
    "this line is damaged\n"
    "{\"time\":103.0213,\"event\":\"recovered\",\"step\":12,\"ms\":2.1,\"finished_ms\":20,\"ranks\":1,"
    "\"how\":\"takeover\"}\n"
    "{\"time\":103.413,\"event\":\"rank_joined\",\"rank\":1,\"pid\":25,\"epoch\":4,\"step\":21}\n"
    "{\"time\":104,\"event\":\"rank_lost\",\"rank\":0,\"cause\":\"later\",\"detected_ms\":1,\"step\":30,"
    "\"epoch\":4}\n";

/* In the order of time, which is not that of the lines; times count from the last sign of life; the
 * second loss is another picture. */
static void drawing_takeover_tells_first_loss(void **state)
{
    (void)state;
    static const char *const parts[] = {">0<",
                                        "rank 1: last sign of life",
                                        "computing step 12 (backward of leaf 1)",
                                        ">1.3 ms<",
                                        "noticed: rank 1 is gone",
                                        "signal 9 (Killed)",
                                        ">3.4 ms<",
                                        "its work is handed over",
                                        ">21.3 ms<",
                                        "step 13 is finished",
                                        ">413 ms<",
                                        "rank 1 is back",
                                        "process 25"};
    ls_text text = {0};
    assert_int_equal(ls_drawing_takeover(loss_events, sizeof loss_events - 1, &text), LS_OK);
    const char *at = ls_text_string(&text);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *next = strstr(at, parts[i]);
        if (!next) {
            fail_msg("'%s' does not follow in the picture", parts[i]);
        }
        at = next;
    }
    assert_int_equal(count_of(ls_text_string(&text), "step 9"), 0);
    assert_int_equal(count_of(ls_text_string(&text), "rank 0"), 0);
    ls_text_release(&text);
}

static void drawing_takeover_without_loss_is_refused(void **state)
{
    (void)state;
    static const char quiet[] =
        "{\"time\":1,\"event\":\"rank_started\",\"rank\":0}\n{\"time\":2,\"event\":\"ended\"}\n";
    ls_text text = {0};
    assert_int_equal(ls_drawing_takeover(quiet, sizeof quiet - 1, &text), LS_ERR_INVALID);
    assert_int_equal(ls_drawing_takeover("", 0, &text), LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

static void drawing_queue_shows_who_has_what(void **state)
{
    (void)state;
    static const char events[] =
        "{\"time\":0,\"job\":1,\"name\":\"long\",\"account\":\"a\",\"ranks\":2,\"from\":\"QUEUED\",\"state\":"
        "\"STARTING\"}\n"
        "{\"time\":1,\"job\":2,\"name\":\"<b>\",\"account\":\"b\",\"ranks\":1,\"from\":\"QUEUED\",\"state\":"
        "\"QUEUED\"}\n"
        "not an event\n"
        "{\"time\":4,\"job\":1,\"ranks\":2,\"from\":\"RUNNING\",\"state\":\"PREEMPTING\"}\n"
        "{\"time\":5,\"job\":1,\"ranks\":2,\"from\":\"PREEMPTING\",\"state\":\"QUEUED\"}\n"
        "{\"time\":5,\"job\":2,\"ranks\":1,\"from\":\"QUEUED\",\"state\":\"STARTING\"}\n"
        "{\"time\":9,\"job\":2,\"ranks\":1,\"from\":\"RUNNING\",\"state\":\"SUCCEEDED\"}\n"
        "{\"time\":9,\"job\":3,\"ranks\":9999,\"from\":\"QUEUED\",\"state\":\"RUNNING\"}\n";
    ls_text text = {0};
    assert_int_equal(ls_drawing_queue(events, sizeof events - 1, &text), LS_OK);
    static const char *const parts[] = {">long<", "&lt;b&gt;", "long is stopped, saves, waits",
                                        "max 2",  "device 15", "</svg>"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(ls_text_string(&text), parts[i])) {
            fail_msg("no '%s' in the picture", parts[i]);
        }
    }
    assert_int_equal(count_of(ls_text_string(&text), "<b>"), 0);
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_queue("", 0, &text), LS_ERR_INVALID);
    assert_int_equal(ls_drawing_queue("{\"job\":1,\"state\":\"QUEUED\",\"time\":1}\n", 37, &text),
                     LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

/* The bubble is (p - 1) / (m + p - 1), whatever the order; what the first stage holds is not. */
static void drawing_pipeline_computes_idle_time(void **state)
{
    (void)state;
    ls_text text = {0};
    assert_int_equal(ls_drawing_pipeline(4, 8, &text), LS_OK);
    assert_int_equal(count_of(ls_text_string(&text), "Idle: 43 % of the time. GPU 0 holds activations of 4 "),
                     1);
    assert_int_equal(count_of(ls_text_string(&text), "Idle: 27 % of the time. GPU 0 holds activations of 8 "),
                     1);
    assert_int_equal(count_of(ls_text_string(&text), "Idle: 27 % of the time. GPU 0 holds activations of 4 "),
                     1);
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), 2 * 4 * (4 + 8 + 8));
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_pipeline(2, 2, &text), LS_OK);
    assert_int_equal(count_of(ls_text_string(&text), "Idle: 50 % of the time. GPU 0 holds activations of 1 "),
                     1);
    assert_int_equal(count_of(ls_text_string(&text), "Idle: 33 % of the time. GPU 0 holds activations of 2 "),
                     2);
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_pipeline(1, 8, &text), LS_ERR_INVALID);
    assert_int_equal(ls_drawing_pipeline(4, LS_PIPELINE_DRAWING_MICRO_BATCHES_MAX + 1, &text),
                     LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

/* Of n * n parts everybody holds all, or 1/n; the rest is drawn as missing. */
static void drawing_split_shares_the_model(void **state)
{
    (void)state;
    ls_text text = {0};
    for (uint32_t n = 2; n <= LS_SPLIT_DRAWING_GPUS_MAX; n++) {
        const uint32_t ways = n == 4 ? 4 : 3; /* that split; data parallel does not */
        ls_text_clear(&text);
        assert_int_equal(ls_drawing_split(n, &text), LS_OK);
        assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), ways * n * (n * n - n));
        assert_int_equal(count_of(ls_text_string(&text), "rx=\"5.5\""), n * n * n + ways * n * n);
    }
    ls_text_clear(&text);
    assert_int_equal(ls_drawing_split(1, &text), LS_ERR_INVALID);
    assert_int_equal(ls_drawing_split(LS_SPLIT_DRAWING_GPUS_MAX + 1, &text), LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

/* A box per token, and a bar for each model. */
static void drawing_record_shows_every_token(void **state)
{
    (void)state;
    static const char *const tokens[] = {"Why", "?", "Because", "."};
    ls_record_drawing d = {tokens, 4, 2, "two questions", {{0, 0, 0.6}, {1, 0.4, 1}}};
    ls_text text = {0};
    assert_int_equal(ls_drawing_record(&d, &text), LS_OK);
    assert_int_equal(count_of(ls_text_string(&text), "class=\"ls-box"), 4);
    assert_non_null(strstr(ls_text_string(&text), "100.0 %"));
    ls_text_clear(&text);
    d.first_learned = 4;
    assert_int_equal(ls_drawing_record(&d, &text), LS_ERR_INVALID);
    assert_int_equal(text.bytes, 0);
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawing_step_equals_guide),
        cmocka_unit_test(drawing_progress_equals_guide),
        cmocka_unit_test(drawing_step_counts_match_tree),
        cmocka_unit_test(drawing_step_splits_at_powers_of_two),
        cmocka_unit_test(drawing_step_spreads_leaves_over_ranks),
        cmocka_unit_test(drawing_audit_shows_the_leaf_twice),
        cmocka_unit_test(drawing_ring_shows_both_orders),
        cmocka_unit_test(drawing_ranks_spreads_leaves_and_slices),
        cmocka_unit_test(drawing_report_has_one_odd_rank),
        cmocka_unit_test(drawing_takeover_tells_first_loss),
        cmocka_unit_test(drawing_takeover_without_loss_is_refused),
        cmocka_unit_test(drawing_queue_shows_who_has_what),
        cmocka_unit_test(drawing_step_refuses_numbers_out_of_range),
        cmocka_unit_test(drawing_progress_knows_every_piece),
        cmocka_unit_test(drawing_progress_knows_the_last_line),
        cmocka_unit_test(drawing_progress_refuses_other_lines),
        cmocka_unit_test(drawing_pipeline_computes_idle_time),
        cmocka_unit_test(drawing_split_shares_the_model),
        cmocka_unit_test(drawing_record_shows_every_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
