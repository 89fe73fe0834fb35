// SPDX-License-Identifier: Apache-2.0
#include "planning/money/verdict_world.h"

/* ---- each verdict ---- */

/* 70B on 1.4 T tokens at 900 tokens a second and GPU: weeks on hundreds of GPUs, once. */
static void verdict_rent_for_a_single_large_run(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(900.0);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    const ls_path_outcome *o = &w.verdict.outcomes[w.verdict.chosen];
    assert_int_equal(o->path->kind, LS_PATH_RENTED);
    assert_true(o->days <= 60.0 && o->gpus >= 256);
    /* By hand. */
    const double hours =
        1.4e12 / (900.0 * (double)o->gpus * pow(0.98, log2((double)o->gpus)) * o->goodput) / 3600.0;
    assert_float_equal(o->days, hours / 24.0, 1e-9 * hours);
    assert_float_equal(o->compute_usd, hours * (double)o->gpus * o->usd_per_gpu_hour, 1.0);
    assert_float_equal(o->storage_usd,
                       (10.0 * 14.0 * 70e9 + 4.0 * 1.4e12) / 1e9 * 0.023 * fmax(1.0, hours / 730.0), 1e-6);
    assert_float_equal(o->egress_usd, 0.14 * 90.0, 1e-6);
    assert_float_equal(o->max_loss_usd, o->run_usd, 1e-6);
    assert_true(o->run_usd_low < o->run_usd && o->run_usd < o->run_usd_high);
    assert_true(outcome(LS_PATH_CLOUD)->run_usd > 2.0 * o->run_usd);
    assert_int_equal(outcome(LS_PATH_LOCAL)->obstacle, LS_OBSTACLE_DEADLINE);
    assert_non_null(strstr(w.verdict.reason, "x H100"));
}

static void verdict_local_for_what_fits_under_a_desk(void **state)
{
    (void)state;
    begin(124e6, 2.5e9);
    add_sizes(add(LS_PATH_LOCAL, "RTX-4090-24GB", true), 1, 1, 60e3);
    add_sizes(add(LS_PATH_RENTED, "h100", false), 1, 64, 400e3);
    assert_int_equal(decide(), LS_VERDICT_LOCAL);
    const ls_path_outcome *o = outcome(LS_PATH_LOCAL);
    assert_float_equal(o->upfront_usd, 0.0, 0.0);
    /* 11.6 hours of 551 W at the office's price. */
    const double hours = 2.5e9 / 60e3 / 3600.0 / o->goodput;
    assert_float_equal(o->run_usd, hours * o->power.facility_kw * o->path->site.energy_usd_kwh, 1e-9);
    assert_true(o->max_loss_usd == o->energy_usd);
    assert_non_null(strstr(w.verdict.reason, "this machine"));
}

/* A card that must be bought loses against eight hours of renting. */
static void verdict_rent_when_the_card_must_be_bought(void **state)
{
    (void)state;
    begin(124e6, 2.5e9);
    add_sizes(add(LS_PATH_LOCAL, "RTX-4090-24GB", false), 1, 1, 60e3);
    add_sizes(add(LS_PATH_RENTED, "h100", false), 1, 64, 400e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_true(outcome(LS_PATH_LOCAL)->upfront_usd > 1600.0);
    w.question.runs_per_month = 50.0; /* but not when it is used most of the time */
    assert_int_equal(decide(), LS_VERDICT_LOCAL);
}

static void verdict_own_when_it_is_used(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    quote_for_buyers();
    add_all(10e3);
    w.question.runs_per_month = 0.2;
    assert_int_equal(decide(), LS_VERDICT_RENT); /* 23 days of 8 GPUs, every five months */
    w.question.runs_per_month = 20.0;
    assert_int_equal(decide(), LS_VERDICT_OWN);
    const ls_path_outcome *o = outcome(LS_PATH_OWNED);
    assert_true(o->break_even_months <= 24.0 && o->utilization <= 0.9 && o->utilization > 0.4);
    assert_non_null(strstr(w.verdict.reason, "pay back after"));
    /* The use that was stated counts too, without runs. */
    w.question.runs_per_month = 0.0;
    w.question.utilization = 0.85;
    assert_int_equal(decide(), LS_VERDICT_OWN);
    w.question.utilization = 0.1;
    assert_int_equal(decide(), LS_VERDICT_RENT);
}

/* The break-even that is shown is that of the formula, for what is shown. */
static void verdict_break_even_is_that_of_cost(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    w.question.utilization = 0.7;
    decide();
    const ls_path_outcome *o = outcome(LS_PATH_OWNED), *rent = outcome(LS_PATH_RENTED);
    const ls_ownership own = ls_path_ownership(o->path, o->gpus, 1.0, 1.0, 1.0);
    ls_ownership_year year;
    ls_ownership_compute(&own, 0.7, &year);
    const double idle_usd = rent->storage_usd * (1.0 - rent->gpu_hours / (double)rent->gpus / 730.0);
    assert_float_equal(o->rent_usd_per_gpu_hour, (rent->run_usd - idle_usd) / o->gpu_hours, 1e-9);
    const double rent_usd = ls_cost_rent_usd_year(own.gpus, 0.7, o->rent_usd_per_gpu_hour);
    assert_float_equal(o->break_even_months, ls_cost_break_even_months(own.capex_usd, rent_usd, year.running),
                       1e-9);
    assert_float_equal(w.verdict.break_even_months, o->break_even_months, 0.0);
    assert_float_equal(o->usd_per_gpu_hour, year.usd_per_gpu_hour, 1e-9);
}

/* 405B on 15.6 T tokens within 60 days. */
static void verdict_frontier_for_what_nobody_has_in_stock(void **state)
{
    (void)state;
    begin(405e9, 15.6e12);
    add_all(160.0);
    assert_int_equal(decide(), LS_VERDICT_FRONTIER);
    const ls_path_outcome *o = &w.verdict.outcomes[w.verdict.chosen];
    assert_true(o->gpus > LS_OFFER_GPUS_MOST && o->frontier);
    assert_non_null(strstr(w.verdict.reason, "network"));
    assert_non_null(strstr(w.verdict.reason, "MW"));
    assert_non_null(strstr(w.verdict.reason, "staff"));
}

static void verdict_dont_with_too_little_data(void **state)
{
    (void)state;
    begin(70e9, 1e9);
    add_all(900.0);
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_non_null(strstr(w.verdict.reason, "fine-tune"));
    assert_int_equal(w.verdict.chosen, -1);
    /* With a token for each parameter it is another question. */
    const ls_tipping_point *tokens = NULL;
    for (size_t i = 0; i < w.verdict.flip_count; i++) {
        tokens = w.verdict.flips[i].lever == LS_LEVER_TOKENS ? &w.verdict.flips[i] : tokens;
    }
    assert_non_null(tokens);
    assert_int_equal(tokens->becomes, LS_VERDICT_RENT);
    assert_float_equal(tokens->to, 70.0, 0.1);
}

static void verdict_dont_names_what_is_nearest(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(900.0);
    w.question.budget_usd = 100e3;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_non_null(strstr(w.verdict.reason, "the budget is $100k"));
    w.question.budget_usd = 0.0;
    w.question.deadline_s = 3600.0;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_int_equal(outcome(LS_PATH_RENTED)->obstacle, LS_OBSTACLE_DEADLINE);
    assert_int_equal(outcome(LS_PATH_OWNED)->obstacle, LS_OBSTACLE_DEADLINE);
    assert_non_null(strstr(outcome(LS_PATH_OWNED)->why_not, "delivery takes 120 days"));
}

static void verdict_dont_when_nothing_fits(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(0.0);
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_non_null(strstr(w.verdict.reason, "does not fit in memory"));
}

/* ---- what is asked beside ---- */

static void verdict_data_control_shuts_paths(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    w.question.data_control = LS_DATA_OWN;
    assert_int_equal(decide(), LS_VERDICT_OWN);
    assert_int_equal(outcome(LS_PATH_RENTED)->obstacle, LS_OBSTACLE_CONTROL);
    assert_non_null(strstr(w.verdict.reason, "only "));
    /* Also where the smallest sizes don't hold the model; and owning is still set against what
     * renting would cost. */
    begin(8e9, 160e9);
    add_sizes(add(LS_PATH_RENTED, "h100", false), 8, 8, 0.0);
    add_sizes(&w.paths[0], 16, 64, 10e3);
    add_sizes(add(LS_PATH_OWNED, "h100", false), 16, 64, 10e3);
    w.question.data_control = LS_DATA_OWN;
    assert_int_equal(decide(), LS_VERDICT_OWN);
    assert_int_equal(outcome(LS_PATH_RENTED)->obstacle, LS_OBSTACLE_CONTROL);
    assert_true(outcome(LS_PATH_RENTED)->run_usd > 0.0);
    assert_true(outcome(LS_PATH_OWNED)->rent_usd_per_gpu_hour > 1.0);
}

/* A short run is rented while the machine would still be on its way. */
static void verdict_deadline_takes_more_gpus(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(900.0);
    decide();
    const int64_t patient = w.verdict.outcomes[w.verdict.chosen].gpus;
    w.question.deadline_s = 20.0 * 86400.0;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_true(w.verdict.outcomes[w.verdict.chosen].gpus > patient);
    assert_true(w.verdict.outcomes[w.verdict.chosen].days <= 20.0);
}

static void verdict_site_shuts_own_machines(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    quote_for_buyers();
    assert_int_equal(ls_site_load(&arena, &catalogue, "office-230v", &w.settings.site), LS_OK);
    add_all(10e3);
    w.question.runs_per_month = 200.0;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_int_equal(outcome(LS_PATH_OWNED)->obstacle, LS_OBSTACLE_SITE);
    assert_non_null(strstr(outcome(LS_PATH_OWNED)->why_not, "kW"));
}

static void verdict_api_against_training(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    add(LS_PATH_API, NULL, false);
    w.question.api_usd_per_million = 0.2;
    w.question.api_tokens_month = 100e6; /* 20 USD a month */
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_int_equal(w.verdict.outcomes[w.verdict.chosen].path->kind, LS_PATH_API);
    assert_float_equal(w.verdict.api_usd_month, 20.0, 1e-9);
    /* that would be chosen */
    assert_int_equal(w.verdict.outcomes[w.verdict.told].path->kind, LS_PATH_RENTED);
    assert_non_null(strstr(w.verdict.reason, "API"));
    /* On both sides of the break-even. */
    const double even = w.verdict.api_break_even_tokens_month;
    assert_true(isfinite(even) && even > 1e9);
    w.question.api_tokens_month = 1.01 * even;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    w.question.api_tokens_month = 0.99 * even;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    /* Data that may not go there stays, whatever it costs. */
    w.question.data_control = LS_DATA_CONTRACT;
    assert_int_equal(decide(), LS_VERDICT_RENT);
}

static void verdict_reserved_costs_its_commitment(void **state)
{
    (void)state;
    static const char text[] =
        "offers:\n  - {name: r, kind: reserved, accelerator: h100, usd: 2, months: 6, gpus_max: 64}\n";
    ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, text, sizeof text - 1, "q.yaml", &quote), LS_OK);
    begin(8e9, 160e9);
    w.settings.quote = &quote;
    add_sizes(add(LS_PATH_RENTED, "h100", false), 64, 128, 10e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    /* Three days of work are no reason to pay for six months: the catalogue's price by the hour is
     * still there. */
    assert_string_equal(w.verdict.outcomes[w.verdict.chosen].name, "H100, rented");
    const ls_path_outcome *o = outcome_named("H100, r");
    assert_true(o->possible);
    assert_int_equal(o->gpus, 64);
    assert_float_equal(o->max_loss_usd, fmax(64.0 * 730.0 * 6.0 * 2.0, o->run_usd), 1e-6);
    assert_float_equal(o->upfront_usd, 64.0 * 730.0 * 6.0 * 2.0, 1e-6);
}

/* The cheapest hour is not the cheapest run: 12 months of it must be paid, and spot machines go
 * away. */
static void verdict_takes_the_offer_that_suits(void **state)
{
    (void)state;
    static const char text[] =
        "offers:\n"
        "  - {name: spot, kind: spot, accelerator: h100, usd: 2.5, preemptions_per_day: 8}\n"
        "  - {name: year, kind: reserved, accelerator: h100, usd: 2, months: 12}\n"
        "  - {name: hours, accelerator: h100, usd: 2.8}\n";
    ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, text, sizeof text - 1, "q.yaml", &quote), LS_OK);
    begin(8e9, 160e9);
    w.settings.quote = &quote;
    add_sizes(add(LS_PATH_RENTED, "h100", false), 64, 64, 10e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(outcome(LS_PATH_RENTED)->offer->name, "hours");
    assert_string_equal(outcome(LS_PATH_RENTED)->name, "H100, hours");
    w.question.runs_per_month = 9.0; /* busy all day */
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(outcome(LS_PATH_RENTED)->offer->name, "year");
    assert_float_equal(outcome(LS_PATH_RENTED)->month_usd - 9.0 * outcome(LS_PATH_RENTED)->storage_usd -
                           9.0 * outcome(LS_PATH_RENTED)->egress_usd,
                       64.0 * 730.0 * 2.0, 1.0);
    w.question.runs_per_month = 17.0; /* two at a time */
    decide();
    assert_string_equal(outcome(LS_PATH_RENTED)->offer->name, "year");
    assert_int_equal(outcome(LS_PATH_RENTED)->copies, 2);
}

static void verdict_spot_is_slower(void **state)
{
    (void)state;
    static const char text[] =
        "offers:\n  - {kind: spot, accelerator: h100, usd: 2, preemptions_per_day: 4}\n";
    ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, text, sizeof text - 1, "q.yaml", &quote), LS_OK);
    begin(8e9, 160e9);
    w.settings.quote = &quote;
    add_sizes(add(LS_PATH_RENTED, "h100", false), 64, 64, 10e3);
    add_sizes(add(LS_PATH_CLOUD, "h100", false), 64, 64, 10e3);
    decide();
    const ls_path_outcome *spot = outcome_named("H100, offer 1");
    assert_true(spot->goodput < outcome(LS_PATH_CLOUD)->goodput - 0.05);
    assert_true(spot->days > outcome(LS_PATH_CLOUD)->days);
}

static void ask_with_quote(const char *text, size_t bytes, int64_t from, int64_t to)
{
    static ls_quote quote;
    assert_int_equal(ls_quote_parse(&arena, text, bytes, "q.yaml", &quote), LS_OK);
    begin(8e9, 160e9);
    w.settings.quote = &quote;
    add_sizes(add(LS_PATH_RENTED, "h100", false), from, to, 10e3);
}

/* An offer that can't be taken has a row with the reason, and the catalogue's price is there for
 * what it leaves open. */
static void verdict_keeps_the_market_beside_an_offer_that_does_not_apply(void **state)
{
    (void)state;
    static const char many[] = "offers:\n  - {name: many, accelerator: h100, usd: 2, gpus_min: 512}\n";
    ask_with_quote(many, sizeof many - 1, 64, 64);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(w.verdict.outcomes[w.verdict.chosen].name, "H100, rented");
    assert_int_equal(outcome_named("H100, many")->obstacle, LS_OBSTACLE_SIZE);
    assert_non_null(strstr(outcome_named("H100, many")->why_not, "the offer starts at 512"));
    /* Where it applies it stands for the catalogue's price, dearer or not. */
    static const char dear[] = "offers:\n  - {name: dear, accelerator: h100, usd: 5, gpus_max: 64}\n";
    ask_with_quote(dear, sizeof dear - 1, 64, 64);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(w.verdict.outcomes[w.verdict.chosen].name, "H100, dear");
    assert_int_equal(outcome_named("H100, rented")->obstacle, LS_OBSTACLE_OFFER);
    /* And beyond its reach the catalogue's price is what there is. */
    ask_with_quote(dear, sizeof dear - 1, 8, 1024);
    w.question.deadline_s = 1.5 * 86400.0;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(w.verdict.outcomes[w.verdict.chosen].name, "H100, rented");
    assert_true(w.verdict.outcomes[w.verdict.chosen].gpus > 64);
}

/* The ninth offer is no worse than the eighth; what is left out is said. */
static void path_build_says_what_it_leaves_out(void **state)
{
    (void)state;
    char text[4096] = "offers:\n";
    for (int i = 0; i < 20; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "  - {name: o%d, accelerator: h100, usd: %d, gpus_min: %d}\n", i, 20 - i, i + 1);
    }
    ask_with_quote(text, strlen(text), 64, 64);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_string_equal(w.verdict.outcomes[w.verdict.chosen].name, "H100, o19");
    assert_int_equal(w.verdict.outcome_count, LS_PATH_OFFERS_MOST + 1);
    bool is_said = false;
    for (size_t i = 0; i < w.assumptions.count; i++) {
        is_said =
            is_said || strstr(w.assumptions.items[i], "8 of 20 own offers for H100-SXM5-80GB are left out");
    }
    assert_true(is_said);
}

/* A deadline is held against the slow end of the band. */
static void verdict_deadline_is_held_by_one_run_in_ten_too(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    ls_path *path = add(LS_PATH_RENTED, "h100", false);
    const double tokens_ps = 64.0 * 10e3;
    const ls_path_size size = {
        .gpus = 64, .tokens_ps = &tokens_ps, .count = 1, .slow = 1.25, .parameters = 8e9};
    ls_path_add_point(path, &arena, &size);
    decide();
    const double days = w.verdict.outcomes[0].days;
    assert_float_equal(w.verdict.outcomes[0].days_slow, 1.25 * days, 1e-9);
    w.question.deadline_s = 1.26 * days * 86400.0;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    w.question.deadline_s = 1.2 * days * 86400.0;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_non_null(strstr(w.verdict.reason, "one run in ten takes more than"));
    w.question.deadline_s = 0.9 * days * 86400.0;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_null(strstr(w.verdict.reason, "one run in ten"));
}

/* A card whose speed is a guess must be cheaper by more than the guess may miss. */
static void verdict_prefers_what_was_measured(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    const double sure = 64.0 * 10e3, guessed = 1.1 * sure;
    ls_path *h100 = add(LS_PATH_RENTED, "h100", false);
    const ls_path_size measured = {
        .gpus = 64, .tokens_ps = &sure, .count = 1, .slow = 1.1, .parameters = 8e9};
    ls_path_add_point(h100, &arena, &measured);
    ls_path *other = add(LS_PATH_RENTED, "mi300x", false);
    ls_path_size guess = {.gpus = 64, .tokens_ps = &guessed, .count = 1, .slow = 1.5, .parameters = 8e9};
    ls_path_add_point(other, &arena, &guess);
    decide();
    assert_true(w.verdict.outcomes[1].run_usd < w.verdict.outcomes[0].run_usd);
    assert_int_equal(w.verdict.chosen, 0);
    guess.slow = 1.15;
    other->point_count = 0;
    ls_path_add_point(other, &arena, &guess);
    decide();
    assert_int_equal(w.verdict.chosen, 1);
}

/* Forty days on a card under a desk are sooner than a machine that comes in a hundred and
 * twenty. */
static void verdict_local_is_slow_but_sooner_than_buying(void **state)
{
    (void)state;
    begin(1e9, 20e9);
    add_sizes(add(LS_PATH_LOCAL, "RTX-4090-24GB", false), 1, 1, 20e9 / (40.0 * 86400.0));
    add_sizes(add(LS_PATH_RENTED, "h100", false), 8, 8, 20e3);
    add_sizes(add(LS_PATH_OWNED, "h100", false), 8, 8, 20e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    w.question.data_control = LS_DATA_OWN;
    assert_int_equal(decide(), LS_VERDICT_LOCAL);
    assert_non_null(strstr(w.verdict.reason, "sooner than bought machines could"));
    w.question.data_control = LS_DATA_ANYWHERE;
    assert_int_equal(decide(), LS_VERDICT_RENT);
}

/* What is bought is what is shown: whole nodes. */
static void verdict_buys_whole_nodes(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_sizes(add(LS_PATH_OWNED, "h100", false), 4, 4, 10e3);
    decide();
    const ls_path_outcome *o = outcome(LS_PATH_OWNED);
    assert_int_equal(o->gpus, 4);
    assert_int_equal(o->machines, 8);
    assert_float_equal(o->upfront_usd, 8.0 * o->path->offer.usd, 1e-6);
    /* Where whole nodes are among the sizes, half a one is none. */
    begin(8e9, 160e9);
    add_sizes(add(LS_PATH_OWNED, "h100", false), 1, 64, 10e3);
    decide();
    assert_int_equal(outcome(LS_PATH_OWNED)->gpus, 8);
}

/* What a frontier run takes in power is what planning/money/power.h says, and staff grows with
 * GPUs, not with boxes. */
static void verdict_frontier_counts_gpus(void **state)
{
    (void)state;
    static const char *const kinds[] = {"h100", "gb200"};
    for (int i = 0; i < 2; i++) {
        begin(405e9, 15.6e12);
        add_sizes(add(LS_PATH_RENTED, kinds[i], false), 16384, 16384, 160.0);
        assert_int_equal(decide(), LS_VERDICT_FRONTIER);
        ls_power power;
        ls_power_of_machines(node_of(kinds[i]), 16384, &power);
        char megawatts[32];
        snprintf(megawatts, sizeof megawatts, "up to %.1f MW", power.it_max_kw / 1e3);
        assert_non_null(strstr(w.verdict.reason, megawatts));
        assert_non_null(strstr(w.verdict.reason, "$16.0M of staff"));
    }
}

/* ---- an API, and nothing else ---- */

static void verdict_api_when_no_way_to_train_is_open(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    add(LS_PATH_API, NULL, false);
    w.question.api_usd_per_million = 2.0;
    w.question.api_tokens_month = 100e6;
    w.question.deadline_s = 60.0;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_int_equal(w.verdict.outcomes[w.verdict.chosen].path->kind, LS_PATH_API);
    assert_non_null(strstr(w.verdict.reason, "training is not possible"));
    assert_non_null(strstr(w.verdict.reason, "costs $200 a month"));
    assert_null(strstr(w.verdict.reason, "no path is possible"));
    /* the soonest */
    assert_int_equal(w.verdict.outcomes[w.verdict.told].path->kind, LS_PATH_RENTED);
    /* Nor is the API taken where it is over the budget. */
    w.question.budget_usd = 100.0;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_int_equal(w.verdict.chosen, -1);
    assert_non_null(strstr(w.verdict.reason, "no path is possible"));
}

static void verdict_api_without_tokens_has_no_bill(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    add(LS_PATH_API, NULL, false);
    w.question.api_usd_per_million = 2.0;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    assert_int_equal(outcome(LS_PATH_API)->obstacle, LS_OBSTACLE_TOKENS);
    assert_non_null(strstr(outcome(LS_PATH_API)->why_not, "training is cheaper above"));
}

/* Every rule with a number in it is among the assumptions when it was used. */
static void verdict_assume_lists_its_rules(void **state)
{
    (void)state;
    static const char *const rules[] = {"at most 30 days",
                                        "within 60 days",
                                        "2048 GPUs",
                                        "24 months",
                                        "20 % of the GPUs",
                                        "are idle draw 25 %",
                                        "is sold without a host",
                                        "paid by its only run",
                                        "90 % end",
                                        "delivered after 7 days"};
    begin(8e9, 160e9);
    add_all(10e3);
    add_sizes(add(LS_PATH_OWNED, "l40s", false), 8, 64, 1e3);
    add(LS_PATH_API, NULL, false);
    w.question.api_usd_per_million = 2.0;
    w.question.api_tokens_month = 100e6;
    decide();
    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        if (!is_assumed(rules[k])) {
            fail_msg("not among the assumptions: %s", rules[k]);
        }
    }
}

static void verdict_portfolio_adds_runs_up(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    static const ls_workload two[] = {
        {.name = "a", .parameters = 8e9, .active_parameters = 8e9, .tokens = 160e9, .runs_per_month = 3.0},
        {.name = "b", .parameters = 1e9, .active_parameters = 1e9, .tokens = 20e9, .runs_per_month = 9.0}};
    w.question.workloads = two;
    w.question.workload_count = 2;
    const double speeds[] = {64.0 * 10e3, 64.0 * 50e3};
    const ls_path_size size = {.gpus = 64, .tokens_ps = speeds, .count = 2, .parameters = 8e9};
    ls_path_add_point(add(LS_PATH_RENTED, "h100", false), &arena, &size);
    ls_path_add_point(add(LS_PATH_OWNED, "h100", false), &arena, &size);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    const ls_path_outcome *o = outcome(LS_PATH_RENTED);
    assert_float_equal(w.verdict.runs_per_month, 12.0, 0.0);
    const double mean_h = (0.25 * 160e9 / speeds[0] + 0.75 * 20e9 / speeds[1]) / o->goodput / 3600.0;
    assert_float_equal(o->gpu_hours, 64.0 * mean_h, 1e-6);
    assert_float_equal(o->days, 160e9 / speeds[0] / o->goodput / 86400.0, 1e-9);
    assert_float_equal(o->month_usd, 12.0 * o->run_usd, 1e-6);
    assert_true(o->max_loss_usd > 3.0 * o->run_usd); /* the dearer of both, not their mean */
    /* The month is what is told, and the runs add up to it. */
    assert_non_null(strstr(w.verdict.reason, " a month for 12 runs of 2 models, the longest takes "));
    for (size_t i = 0; i < w.verdict.outcome_count; i++) {
        ls_runs runs;
        const ls_path_outcome *one = &w.verdict.outcomes[i];
        ls_runs_compute(&w.question, one, &runs);
        assert_int_equal(runs.count, 2);
        assert_int_equal(runs.longest, 0);
        assert_float_equal(runs.items[0].runs_per_month, 3.0, 1e-12);
        assert_float_equal(runs.items[0].days, 160e9 / speeds[0] / one->goodput / 86400.0, 1e-9);
        assert_float_equal(runs.items[1].days, 20e9 / speeds[1] / one->goodput / 86400.0, 1e-9);
        assert_float_equal(3.0 * runs.items[0].usd + 9.0 * runs.items[1].usd, 12.0 * one->run_usd,
                           1e-9 * runs.month_usd);
        assert_float_equal(runs.items[0].share + runs.items[1].share, 1.0, 1e-12);
        assert_true(runs.items[0].share > 0.9);
    }
    /* One that is only trained further does not make it a DON'T; all of them do. */
    static ls_workload few[2];
    memcpy(few, two, sizeof few);
    few[1].tokens = 0.1e9;
    w.question.workloads = few;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    few[0].tokens = 1e9;
    assert_int_equal(decide(), LS_VERDICT_DONT);
}

/* ---- flips ---- */

static const ls_tipping_point *flip(ls_lever lever)
{
    for (size_t i = 0; i < w.verdict.flip_count; i++) {
        if (w.verdict.flips[i].lever == lever) {
            return &w.verdict.flips[i];
        }
    }
    return NULL;
}

/* Just beyond each flip the verdict is the other one; just before, the same. */
static void verdict_flips_are_where_it_changes(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    quote_for_buyers();
    add_all(10e3);
    w.question.runs_per_month = 20.0;
    const ls_verdict_kind kind = decide();
    const ls_tipping_point *rent = flip(LS_LEVER_RENT_PRICE), *runs = flip(LS_LEVER_RUNS);
    assert_non_null(rent);
    assert_non_null(runs);
    assert_int_equal(rent->becomes, kind == LS_VERDICT_RENT ? LS_VERDICT_OWN : LS_VERDICT_RENT);
    ls_verdict v;
    ls_question q = w.question;
    q.rent_factor = rent->to;
    ls_verdict_decide(&q, &v);
    assert_int_equal(v.kind, rent->becomes);
    q.rent_factor = 1.0 + (rent->to - 1.0) * 0.99;
    ls_verdict_decide(&q, &v);
    assert_int_equal(v.kind, kind);
    q.rent_factor = 1.0;
    q.runs_per_month = runs->to;
    ls_verdict_decide(&q, &v);
    assert_int_equal(v.kind, runs->becomes);
    assert_non_null(strstr(rent->text, "rented GPUs cost"));
}

static void verdict_flips_are_nearest_first(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    quote_for_buyers();
    add_all(10e3);
    w.question.runs_per_month = 20.0;
    w.question.deadline_s = 200.0 * 86400.0;
    w.question.budget_usd = 5e6;
    decide();
    assert_true(w.verdict.flip_count >= 3);
    double before = 0.0;
    for (size_t i = 0; i < w.verdict.flip_count; i++) {
        const ls_tipping_point *f = &w.verdict.flips[i];
        const double far = f->from > 0.0 && f->utilization == 0.0 ? fabs(log(f->to / f->from)) : 1e6;
        assert_true(far >= before);
        assert_true(f->becomes != w.verdict.kind || f->lever == LS_LEVER_OFFER_PRICE);
        assert_true(f->becomes != w.verdict.kind || f->path != w.verdict.chosen);
        before = far;
    }
}

/* The chosen offer's own price: which other path it loses to, and where. */
static void verdict_flips_name_the_offer(void **state)
{
    (void)state;
    static const char text[] = "offers:\n  - {name: A, accelerator: h100, usd: 2.5}\n"
                               "  - {name: B, accelerator: h100, usd: 3}\n";
    ask_with_quote(text, sizeof text - 1, 64, 64);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    const ls_tipping_point *offer = flip(LS_LEVER_OFFER_PRICE);
    assert_non_null(offer);
    assert_int_equal(offer->becomes, LS_VERDICT_RENT);
    assert_string_equal(w.verdict.outcomes[offer->path].name, "H100, B");
    assert_float_equal(offer->to, 1.2, 0.01);
    assert_non_null(strstr(offer->text, "RENT (H100, B) when"));
    assert_non_null(strstr(offer->text, "H100, A alone costs 2"));
}

/* A use, runs, a deadline that were not given can flip it too. */
static void verdict_flips_of_what_was_not_given(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    quote_for_buyers();
    add_all(10e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    const ls_tipping_point *use = flip(LS_LEVER_UTILIZATION);
    assert_non_null(use);
    assert_float_equal(use->from, 0.0, 0.0);
    assert_int_equal(use->becomes, LS_VERDICT_OWN);
    assert_float_equal(use->to, outcome(LS_PATH_OWNED)->break_even_utilization, 0.002);
    assert_non_null(flip(LS_LEVER_RUNS));
    assert_null(flip(LS_LEVER_DEADLINE)); /* a 16th of the time takes 256 GPUs: still rented */
    assert_null(flip(LS_LEVER_BUDGET));
    assert_int_equal(outcome(LS_PATH_OWNED)->gpus, 8); /* nobody knows of work for more */
}

/* At the catalogue's prices no use makes owning pay; then the price is told at which a use of 90 %
 * would. */
static void verdict_flips_of_a_price_with_a_use(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_all(10e3);
    assert_int_equal(decide(), LS_VERDICT_RENT);
    const ls_tipping_point *rent = flip(LS_LEVER_RENT_PRICE);
    assert_non_null(rent);
    assert_int_equal(rent->becomes, LS_VERDICT_OWN);
    assert_float_equal(rent->utilization, 0.9, 1e-12);
    assert_non_null(strstr(rent->text, "and own machines are in use 90 % of the hours"));
    ls_question q = w.question;
    ls_verdict v;
    q.utilization = 0.9;
    q.rent_factor = rent->to;
    ls_verdict_decide(&q, &v);
    assert_int_equal(v.kind, LS_VERDICT_OWN);
    q.rent_factor = rent->to * 0.99;
    ls_verdict_decide(&q, &v);
    assert_int_equal(v.kind, LS_VERDICT_RENT);
}

static void verdict_paths_are_a_table(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(900.0);
    decide();
    ls_text text = {0};
    ls_verdict_append_paths(&w.verdict, &text);
    assert_non_null(strstr(ls_text_string(&text), "* H100, rented"));
    assert_non_null(strstr(ls_text_string(&text), "RTX-4090 under a desk"));
    ls_text_release(&text);
}

/* Every price used is named with its date. */
static void path_names_its_prices(void **state)
{
    (void)state;
    begin(70e9, 1.4e12);
    add_all(900.0);
    size_t prices = 0;
    for (size_t i = 0; i < w.assumptions.count; i++) {
        const char *line = w.assumptions.items[i];
        if (strstr(line, "USD per GPU")) {
            prices++;
            assert_non_null(strstr(line, "202"));
        }
    }
    assert_int_equal(prices, 4);
    ls_path path;
    size_t count;
    const ls_path_request request = {LS_PATH_RENTED, node_of("v100"), false, 1};
    assert_int_equal(ls_path_build(&w.settings, &request, &path, &count), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "--quote"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdict_rent_for_a_single_large_run),
        cmocka_unit_test(verdict_local_for_what_fits_under_a_desk),
        cmocka_unit_test(verdict_rent_when_the_card_must_be_bought),
        cmocka_unit_test(verdict_own_when_it_is_used),
        cmocka_unit_test(verdict_break_even_is_that_of_cost),
        cmocka_unit_test(verdict_frontier_for_what_nobody_has_in_stock),
        cmocka_unit_test(verdict_dont_with_too_little_data),
        cmocka_unit_test(verdict_dont_names_what_is_nearest),
        cmocka_unit_test(verdict_dont_when_nothing_fits),
        cmocka_unit_test(verdict_data_control_shuts_paths),
        cmocka_unit_test(verdict_deadline_takes_more_gpus),
        cmocka_unit_test(verdict_site_shuts_own_machines),
        cmocka_unit_test(verdict_api_against_training),
        cmocka_unit_test(verdict_reserved_costs_its_commitment),
        cmocka_unit_test(verdict_takes_the_offer_that_suits),
        cmocka_unit_test(verdict_spot_is_slower),
        cmocka_unit_test(verdict_keeps_the_market_beside_an_offer_that_does_not_apply),
        cmocka_unit_test(path_build_says_what_it_leaves_out),
        cmocka_unit_test(verdict_deadline_is_held_by_one_run_in_ten_too),
        cmocka_unit_test(verdict_prefers_what_was_measured),
        cmocka_unit_test(verdict_local_is_slow_but_sooner_than_buying),
        cmocka_unit_test(verdict_buys_whole_nodes),
        cmocka_unit_test(verdict_frontier_counts_gpus),
        cmocka_unit_test(verdict_api_when_no_way_to_train_is_open),
        cmocka_unit_test(verdict_api_without_tokens_has_no_bill),
        cmocka_unit_test(verdict_assume_lists_its_rules),
        cmocka_unit_test(verdict_flips_name_the_offer),
        cmocka_unit_test(verdict_portfolio_adds_runs_up),
        cmocka_unit_test(verdict_flips_are_where_it_changes),
        cmocka_unit_test(verdict_flips_are_nearest_first),
        cmocka_unit_test(verdict_flips_of_what_was_not_given),
        cmocka_unit_test(verdict_flips_of_a_price_with_a_use),
        cmocka_unit_test(verdict_paths_are_a_table),
        cmocka_unit_test(path_names_its_prices),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
