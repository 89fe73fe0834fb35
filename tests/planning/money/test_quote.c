// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/money/portfolio.h"
#include "planning/money/quote.h"
#include "planning/shipped.h"

#include <math.h>
#include <string.h>

static const ls_node *node_of(const char *name)
{
    const ls_accelerator *accelerator;
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, name, &accelerator), LS_OK);
    return ls_catalogue_usual_node(&catalogue, &arena, accelerator);
}

static ls_quote parse(const char *text)
{
    ls_quote quote;
    if (ls_quote_parse(&arena, text, strlen(text), "q.yaml", &quote) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return quote;
}

static void refuse(const char *text, const char *message)
{
    ls_quote quote = {.count = 77};
    assert_int_equal(ls_quote_parse(&arena, text, strlen(text), "q.yaml", &quote), LS_ERR_INVALID);
    if (!strstr(ls_error_text(), message)) {
        fail_msg("\"%s\" is not in \"%s\"", message, ls_error_text());
    }
    assert_int_equal(quote.count, 77);
}

static const char two[] =
    "egress_usd_tb: 20\n"
    "offers:\n"
    "  - {name: a, kind: reserved, accelerator: h100, usd: 2.1, months: 12, gpus_min: 8, lead_time: 2w}\n"
    "  - {name: b, accelerator: H100, usd: 2.6}\n"
    "  - {name: c, kind: spot, accelerator: h100, usd: 1.45}\n"
    "  - {name: d, kind: capacity-block, cloud: true, node: AWS-p5.48xlarge, usd: 39.33, per: node}\n"
    "  - {name: e, kind: purchase, node: DGX-H100, usd: 312500, per: node}\n";

static void quote_parse_reads_all_kinds(void **state)
{
    (void)state;
    const ls_quote q = parse(two);
    assert_int_equal(q.count, 5);
    assert_float_equal(q.egress_usd_tb, 20.0, 0.0);
    assert_float_equal(q.storage_usd_gb_month, 0.023, 0.0);
    assert_true(q.has_egress && !q.has_storage && q.offers[0].is_own);
    assert_int_equal(q.offers[0].kind, LS_OFFER_RESERVED);
    assert_float_equal(q.offers[0].lead_time_s, 14.0 * 86400.0, 0.0);
    assert_float_equal(q.offers[2].preemptions_per_day, 1.0, 0.0);
    assert_float_equal(q.offers[1].preemptions_per_day, 0.0, 0.0);
    assert_int_equal(ls_quote_check(&q, &catalogue), LS_OK);
}

static void quote_find_sorts_the_offers_of_a_side(void **state)
{
    (void)state;
    const ls_quote q = parse(two);
    ls_offer offers[5];
    assert_int_equal(ls_quote_find(&q, &catalogue, node_of("h100"), false, false, offers), 3);
    assert_string_equal(offers[0].name, "c");
    assert_string_equal(offers[1].name, "a");
    assert_string_equal(offers[2].name, "b");
    assert_int_equal(ls_quote_find(&q, &catalogue, node_of("h100"), false, true, offers), 1);
    assert_float_equal(offers[0].usd, 39.33 / 8.0, 1e-12);
    assert_int_equal(ls_quote_find(&q, &catalogue, node_of("h100"), true, false, offers), 1);
    assert_float_equal(offers[0].usd, 312500.0 / 8.0, 1e-9);
    assert_int_equal(ls_quote_find(&q, &catalogue, node_of("a100"), false, false, offers), 0);
}

/* Of a kind and size the cheapest is first; those that are dearer and no different come behind all
 * others. */
static void quote_find_puts_the_dearer_twin_last(void **state)
{
    (void)state;
    const ls_quote q = parse("offers:\n"
                             "  - {name: twin, accelerator: h100, usd: 2.2}\n"
                             "  - {name: small, accelerator: h100, usd: 2.5, gpus_max: 8}\n"
                             "  - {name: cheap, accelerator: h100, usd: 2.1}\n"
                             "  - {name: soon, kind: reserved, accelerator: h100, usd: 2.6, months: 3}\n"
                             "  - {name: later, kind: reserved, accelerator: h100, usd: 2.0, months: 6}\n");
    static const char *const expected[] = {"later", "cheap", "small", "soon", "twin"};
    ls_offer offers[5];
    assert_int_equal(ls_quote_find(&q, &catalogue, node_of("h100"), false, false, offers), 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(offers[i].name, expected[i]);
    }
}

static void quote_parse_refuses_with_line_and_range(void **state)
{
    (void)state;
    refuse("offers: []\n", "1 to 256 items");
    refuse("offer: []\n", "offers must be a list");
    refuse("offers:\n  - {accelerator: h100, usd: -1}\n", "q.yaml:2: usd is -1");
    refuse("offers:\n  - {accelerator: h100}\n", "q.yaml:2: the offer has no key usd");
    refuse("offers:\n  - {usd: 2}\n", "either the key accelerator or the key node");
    refuse("offers:\n  - {usd: 2, accelerator: h100, node: dgx-h100}\n",
           "either the key accelerator or the key node");
    refuse("offers:\n  - {usd: 2, accelerator: h100, kind: gift}\n",
           "on-demand, reserved, capacity-block, spot, purchase");
    refuse("offers:\n  - {usd: 2, accelerator: h100, kind: reserved}\n",
           "of kind reserved needs the key months");
    refuse("offers:\n  - {usd: 2, accelerator: h100, months: 3}\n", "of kind reserved needs the key months");
    refuse("offers:\n  - {usd: 2, accelerator: h100, gpus_min: 8, gpus_max: 4}\n", "less than gpus_min 8");
    refuse("offers:\n  - {usd: 2, accelerator: h100, preemptions_per_day: 3}\n",
           "is allowed for kind spot only");
    refuse("offers:\n  - {usd: 2, acelerator: h100}\n", "did you mean accelerator?");
    refuse("offers:\n  - {usd: 2, accelerator: h100, lead_time: soon}\n", "lead_time");
    refuse("offers:\n  - {usd: .inf, accelerator: h100}\n", "q.yaml:2");
    refuse("offers:\n  - h100\n", "item 1 of offers");
    refuse("offers:\n  - {usd: 2, accelerator: h100}\nprice: 3\n", "q.yaml:3: unknown key price");
    refuse("offers:\n  - {usd: 2, accelerator: h100}\negress_usd_tb: -1\n", "egress_usd_tb is -1");
}

static void quote_check_knows_the_catalogue(void **state)
{
    (void)state;
    const ls_quote unknown = parse("offers:\n  - {name: x, usd: 2, accelerator: h1000}\n");
    assert_int_equal(ls_quote_check(&unknown, &catalogue), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "offer \"x\""));
    assert_non_null(strstr(ls_error_text(), "H100"));
    const ls_quote unit = parse("offers:\n  - {name: x, usd: 2, accelerator: h100, per: node}\n");
    assert_int_equal(ls_quote_check(&unit, &catalogue), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "must name the node"));
}

/* 1.99 to 6.88: a third of the way up in ratio is near the published median of 2.95. */
static void offer_from_the_catalogue(void **state)
{
    (void)state;
    ls_offer offer;
    assert_true(ls_offer_rented(node_of("h100"), &offer));
    assert_float_equal(offer.usd, 1.99 * cbrt(6.88 / 1.99), 1e-9);
    assert_float_equal(offer.usd, 2.95, 0.1);
    assert_true(ls_offer_cloud(node_of("h100"), &offer));
    assert_float_equal(offer.usd, 6.88, 1e-9);
    assert_true(offer.cloud);
    assert_true(ls_offer_purchase(node_of("h100"), &offer));
    assert_float_equal(offer.usd, 300e3 / 8.0 * cbrt(460.0 / 300.0), 1e-6);
    assert_false(ls_offer_rented(node_of("v100"), &offer));
    ls_assumptions list = {.arena = &arena};
    assert_true(ls_offer_rented(node_of("h100"), &offer));
    ls_offer_assume(&offer, &list);
    assert_non_null(strstr(list.items[0], "3.01 USD per GPU and hour (range 1.99 to 6.88, 2026-05"));
}

static void portfolio_parse_reads_runs(void **state)
{
    (void)state;
    static const char text[] =
        "runs:\n  - {model: llama3-8b, tokens: 200e9, runs_per_month: 4, sequence: 8192}\n"
        "  - model: gpt2-xl\n    tokens: 30000000000\n    runs_per_month: 0.5\n";
    ls_portfolio p;
    assert_int_equal(ls_portfolio_parse(&arena, text, sizeof text - 1, "p.yaml", &p), LS_OK);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.runs[0].model, "llama3-8b");
    assert_float_equal(p.runs[0].tokens, 200e9, 0.0);
    assert_int_equal(p.runs[0].sequence, 8192);
    assert_float_equal(p.runs[1].runs_per_month, 0.5, 0.0);
    assert_int_equal(p.runs[1].global_batch, 0);
}

static void portfolio_parse_reads_units_and_names(void **state)
{
    (void)state;
    static const char text[] =
        "runs:\n  - {name: mine, model: gpt2, tokens: 200B, runs_per_month: 4, global_batch: 1k}\n"
        "  - {model: gpt2, tokens: \"1.4T\", runs_per_month: 1}\n";
    ls_portfolio p;
    assert_int_equal(ls_portfolio_parse(&arena, text, sizeof text - 1, "p.yaml", &p), LS_OK);
    assert_float_equal(p.runs[0].tokens, 200e9, 0.0);
    assert_int_equal(p.runs[0].global_batch, 1000);
    assert_string_equal(p.runs[0].name, "mine");
    assert_float_equal(p.runs[1].tokens, 1.4e12, 0.0);
    assert_string_equal(p.runs[1].name, "gpt2");
    assert_int_equal(ls_portfolio_find(&p, "mine"), 0);
    assert_int_equal(ls_portfolio_find(&p, "gpt2"), 1); /* names before models */
    assert_int_equal(ls_portfolio_find(&p, "gpt3"), -1);
}

static void portfolio_parse_refuses_with_line_and_range(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"runs: []\n", "1 to 32 items"},
        {"models: []\n", "runs must be a list"},
        {"runs:\n  - {tokens: 1e9, runs_per_month: 1}\n",
         "p.yaml:2: item 1 of the list runs has no key model"},
        {"runs:\n  - {model: gpt2, runs_per_month: 1}\n", "has no key tokens"},
        {"runs:\n  - {model: gpt2, tokens: 1e9}\n", "has no key runs_per_month"},
        {"runs:\n  - {model: gpt2, tokens: -5, runs_per_month: 1}\n", "p.yaml:2: tokens is -5"},
        {"runs:\n  - {model: gpt2, tokens: 1e9, runs_per_month: 0}\n", "runs_per_month is 0"},
        {"runs:\n  - {model: gpt2, tokens: 1e9, runs_per_month: 1, batch: 3}\n", "unknown key batch"},
        {"runs:\n  - {model: gpt2, tokens: 1e9, runs_per_month: 1, sequence: 10.5}\n",
         "p.yaml:2: sequence is 10.5"},
        {"runs:\n  - {model: gpt2, tokens: 1X, runs_per_month: 1}\n",
         "p.yaml:2: tokens is \"1X\", allowed is auto or a number (300e9, 8k, 1.4T)"},
        {"runs:\n  - {model: 7, tokens: 1e9, runs_per_month: 1}\n", "model must be text"},
        {"runs:\n  - {model: gpt2, tokens: 1e9, runs_per_month: 1}\nname: x\n", "p.yaml:3: unknown key name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_portfolio p = {.count = 77};
        assert_int_equal(ls_portfolio_parse(&arena, cases[i].text, strlen(cases[i].text), "p.yaml", &p),
                         LS_ERR_INVALID);
        if (!strstr(ls_error_text(), cases[i].message)) {
            fail_msg("\"%s\" is not in \"%s\"", cases[i].message, ls_error_text());
        }
        assert_int_equal(p.count, 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quote_parse_reads_all_kinds),
        cmocka_unit_test(quote_find_sorts_the_offers_of_a_side),
        cmocka_unit_test(quote_find_puts_the_dearer_twin_last),
        cmocka_unit_test(quote_parse_refuses_with_line_and_range),
        cmocka_unit_test(quote_check_knows_the_catalogue),
        cmocka_unit_test(offer_from_the_catalogue),
        cmocka_unit_test(portfolio_parse_reads_runs),
        cmocka_unit_test(portfolio_parse_reads_units_and_names),
        cmocka_unit_test(portfolio_parse_refuses_with_line_and_range),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
