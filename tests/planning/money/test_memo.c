// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/hardware/site.h"
#include "planning/money/memo.h"

#include <stdio.h>
#include <string.h>

static ls_arena arena;

static int release(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static void expect(const ls_text *text, const char *part)
{
    if (!strstr(ls_text_string(text), part)) {
        fail_msg("\"%s\" is not in\n%s", part, ls_text_string(text));
    }
}

static void memo_has_all_that_is_signed(void **state)
{
    (void)state;
    ls_catalogue catalogue;
    assert_int_equal(ls_catalogue_load(&arena, NULL, 0, &catalogue), LS_OK);
    const ls_node *node;
    assert_int_equal(ls_catalogue_find_node(&catalogue, "DGX-H100", &node), LS_OK);
    ls_assumptions assumptions = {.arena = &arena};
    ls_path_settings settings = {
        .arena = &arena, .assumptions = &assumptions, .catalogue = &catalogue, .lead_time_s = -1.0};
    assert_int_equal(ls_site_load(&arena, &catalogue, "", &settings.site), LS_OK);
    static ls_path paths[8];
    size_t count = 0, built = 0;
    static const ls_path_kind kinds[] = {LS_PATH_RENTED, LS_PATH_OWNED, LS_PATH_CLOUD};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(
            ls_path_build(&settings, &(ls_path_request){kinds[i], node, false, 1}, &paths[count], &built),
            LS_OK);
        count += built;
    }
    static const char offers[] =
        "offers:\n  - {name: a year, kind: reserved, months: 12, accelerator: h100, usd: 2}\n";
    ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, offers, sizeof offers - 1, "q.yaml", &quote), LS_OK);
    settings.quote = &quote;
    assert_int_equal(
        ls_path_build(&settings, &(ls_path_request){LS_PATH_RENTED, node, false, 4}, &paths[count], &built),
        LS_OK);
    count += built;
    const double tokens_ps = 64.0 * 900.0, too_large = 0.0;
    for (size_t i = 0; i < count; i++) {
        const bool fits = paths[i].kind != LS_PATH_CLOUD;
        ls_path_add_point(&paths[i], &arena,
                          &(ls_path_size){.gpus = 64,
                                          .tokens_ps = fits ? &tokens_ps : &too_large,
                                          .count = 1,
                                          .slow = 1.15,
                                          .parameters = 70e9});
    }
    const ls_workload workload = {
        .name = "m", .parameters = 70e9, .active_parameters = 70e9, .tokens = 140e9};
    ls_question question;
    ls_question_init(&question);
    question.workloads = &workload;
    question.workload_count = 1;
    question.paths = paths;
    question.path_count = count;
    ls_verdict verdict;
    ls_verdict_compute(&question, &verdict);
    const ls_failure_setting failing = {.gpus = 64, .gpus_per_node = 8, .parameters = 70e9};
    ls_failure_estimate failure;
    ls_failure_compute(&failing, &failure);
    const ls_ladder_setting climbing = {
        .node = node, .gpus = 64, .step_s = 10.0, .run_days = 28.0, .goodput = 0.99, .usd_per_gpu_hour = 3.0};
    ls_ladder ladder;
    ls_ladder_compute(&climbing, &ladder);
    const ls_memo memo = {.question = "train a 70B model on 140e9 tokens",
                          .date = "2026-11-21",
                          .command = "lockstep plan llama2-70b",
                          .verdict = &verdict,
                          .strategy = "TP 8 x DP 8",
                          .step_s = 10.0,
                          .step_band_s = {9.0, 11.5},
                          .tokens_ps = tokens_ps,
                          .mfu = 0.4,
                          .memory_gib = 61.0,
                          .memory_capacity_gib = 80.0,
                          .failure = &failure,
                          .ladder = &ladder,
                          .assumptions = &assumptions};
    ls_text text = {0};
    ls_memo_append(&memo, &text);
    expect(&text, "**Question** train a 70B model");
    expect(&text, "**Answer** RENT: 64 x H100 for ");
    expect(&text, "| a run on 64 GPUs takes | 28 days | 25 days to 32 days |");
    expect(&text, "| most that can be lost | ");
    expect(&text, "| H100, cloud | 64 | - | - | - | - | - | the model does not fit in memory |");
    expect(&text, "a reservation: 12 months of its GPUs are paid whether they are used or not");
    /* 28.2 days of 64 GPUs at 3.01 USD, and storage: 15 % more at the slow end, and no less may be
     * lost or signed for. */
    const ls_path_outcome *o = &verdict.outcomes[0];
    const double slow_usd = o->run_usd + 0.15 * o->compute_usd;
    char lost[64], signed_for[64], row[160];
    snprintf(lost, sizeof lost, "| most that can be lost | %s |", ls_usd_of(slow_usd).text);
    snprintf(signed_for, sizeof signed_for, "Money, up to %s: ____", ls_usd_of(slow_usd).text);
    snprintf(row, sizeof row, "| a run costs | %s | %s to %s |", ls_usd_of(o->run_usd).text,
             ls_usd_of(o->run_usd - 0.1 * o->compute_usd).text, ls_usd_of(slow_usd).text);
    expect(&text, lost);
    expect(&text, signed_for);
    expect(&text, row);
    expect(&text, "one run in ten is faster than the band, and one in ten is slower");
    expect(&text, "9 to 11.5 s");
    expect(&text, "61.0 of 80 GiB");
    expect(&text, "## Paths");
    expect(&text, "H100, rented (chosen)");
    expect(&text, "## Risks");
    expect(&text, "## What would change the answer");
    expect(&text, "## Stages");
    expect(&text, "## What this rests on");
    expect(&text, "2026-05");
    expect(&text, "Name ____");
    ls_text_release(&text);
}

static void memo_of_a_refusal_stays_whole(void **state)
{
    (void)state;
    const ls_verdict verdict = {
        .kind = LS_VERDICT_DONT, .reason = "no path is possible", .chosen = -1, .tokens_per_parameter = 20.0};
    const ls_memo memo = {.question = "train it", .verdict = &verdict};
    ls_text text = {0};
    ls_memo_append(&memo, &text);
    expect(&text, "**Date** ____");
    expect(&text, "**Answer** DON'T: no path is possible.");
    expect(&text, "within a factor of 16");
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memo_has_all_that_is_signed),
        cmocka_unit_test(memo_of_a_refusal_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
