// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/hardware/site.h"
#include "planning/money/power.h"
#include "planning/shipped.h"

#include <string.h>

static const ls_accelerator h100 = {.name = "H100-SXM5-80GB", .tdp_w = 700.0};
static const ls_accelerator rtx4090 = {.name = "RTX-4090-24GB", .tdp_w = 450.0};
static const ls_accelerator gb200 = {.name = "GB200-186GB", .tdp_w = 1200.0};
static const ls_accelerator unknown = {.name = "TPU-v5p-95GB"};
static const ls_node dgx = {.name = "DGX-H100", .accelerator = &h100, .count = 8, .power_w = 10200.0};
static const ls_node box = {.name = "RTX-4090-24GB", .accelerator = &rtx4090, .count = 1};
static const ls_node nvl72 = {.name = "GB200-NVL72", .accelerator = &gb200, .count = 72, .power_w = 120000.0};
static const ls_node dark = {.name = "TPU-v5p-95GB", .accelerator = &unknown, .count = 1};

static ls_site site_of(const char *where)
{
    ls_site site;
    assert_int_equal(ls_site_load(&arena, &catalogue, where, &site), LS_OK);
    return site;
}

static ls_power power_of(const ls_node *node, int64_t gpus, const char *where)
{
    const ls_site site = site_of(where);
    ls_power power;
    ls_power_compute(&catalogue, node, gpus, &site, &power);
    return power;
}

/* 8.4 kW were measured on a DGX H100 of 10.2. */
static void power_of_a_dgx_is_what_was_measured(void **state)
{
    (void)state;
    const ls_power p = power_of(&dgx, 8, "colocation");
    assert_float_equal(p.node_w, 8400.0, 20.0);
    assert_float_equal(p.node_max_w, 10200.0, 1e-9);
    assert_float_equal(p.network_kw, 0.0, 0.0);
    assert_float_equal(p.facility_kw, p.it_kw * site_of("colocation").pue, 1e-9);
}

/* A rack of so many kW, of a place that has any cooling. */
static ls_power in_racks(const ls_node *node, int64_t gpus, double rack_w)
{
    ls_site site = site_of("hyperscale");
    site.rack_w = rack_w;
    ls_power power;
    ls_power_compute(&catalogue, node, gpus, &site, &power);
    return power;
}

/* 4 in a dense rack: 41 kW, at the rear door; 1 in an ordinary one. */
static void power_of_64_h100(void **state)
{
    (void)state;
    const ls_power dense = in_racks(&dgx, 64, 41e3);
    assert_int_equal(dense.nodes, 8);
    assert_float_equal(dense.it_max_kw, 81.6 * 1.045, 1e-9);
    assert_int_equal(dense.nodes_per_rack, 4);
    assert_float_equal(dense.rack_kw, 40.8, 1e-9);
    assert_string_equal(dense.cooling->name, "rear-door");
    assert_int_equal(dense.racks, 2);
    assert_true(dense.possible);
    const ls_power ordinary = in_racks(&dgx, 64, 15e3);
    assert_int_equal(ordinary.nodes_per_rack, 1);
    assert_string_equal(ordinary.cooling->name, "air");
    assert_int_equal(ordinary.racks, 8);
}

static void power_follows_racks_and_cooling(void **state)
{
    (void)state;
    const ls_power dense = power_of(&nvl72, 72, "colocation");
    assert_int_equal(dense.nodes_per_rack, 0);
    assert_string_equal(dense.cooling->name, "direct-liquid");
    assert_false(dense.possible);
    assert_non_null(
        strstr(dense.why_not, "a node draws up to 120 kW, and a rack of the site colocation supplies"));
    assert_true(power_of(&nvl72, 144, "hyperscale").possible);
    assert_int_equal(power_of(&nvl72, 144, "hyperscale").racks, 2);
}

/* power_kw, racks: 4 * 10.2 * 1.045 * 1.5 = 64 kW at the meter. */
static void power_stays_within_the_site(void **state)
{
    (void)state;
    ls_site site = site_of("enterprise");
    site.power_w = 60e3;
    ls_power p;
    ls_power_compute(&catalogue, &dgx, 32, &site, &p);
    assert_false(p.possible);
    assert_non_null(
        strstr(p.why_not, "64.0 kW at the electricity meter, and the site enterprise supplies 60.0 kW"));
    site.power_w = 65e3;
    ls_power_compute(&catalogue, &dgx, 32, &site, &p);
    assert_true(p.possible);
    site.racks = 3;
    ls_power_compute(&catalogue, &dgx, 32, &site, &p);
    assert_non_null(strstr(p.why_not, "4 racks of 10.2 kW, and the site enterprise has 3"));
}

static void power_from_a_wall_circuit(void **state)
{
    (void)state;
    const ls_power one = power_of(&box, 1, "office-230v");
    assert_float_equal(one.node_w, 450.0 * (0.875 + 0.35), 1e-9);
    assert_true(one.possible);
    const ls_power server = power_of(&dgx, 8, "office-230v"); /* 230 V * 16 A * 0.8 = 2.9 kW */
    assert_false(server.possible);
    assert_non_null(
        strstr(server.why_not, "10.2 kW at the electricity meter, and the site office-230v supplies 2.9"));
}

static void power_that_is_not_known_is_not_guessed(void **state)
{
    (void)state;
    const ls_power p = power_of(&dark, 64, "colocation");
    assert_false(p.known);
    assert_true(p.possible);
    assert_float_equal(p.facility_kw, 0.0, 0.0);
    ls_site site = site_of("");
    ls_text text = {0};
    ls_power_explain(&catalogue, &dark, 64, &site, &text);
    assert_non_null(strstr(ls_text_string(&text), "unknown"));
    ls_text_release(&text);
}

static bool carries(const ls_node *node, int64_t gpus, const ls_site *site)
{
    ls_power power;
    ls_power_compute(&catalogue, node, gpus, site, &power);
    return power.possible;
}

static void power_is_possible_up_to_what_the_site_feeds(void **state)
{
    (void)state;
    ls_site site = site_of("enterprise");
    site.power_w = 60e3;
    assert_true(carries(&dgx, 24, &site)); /* 3 * 10.2 * 1.045 * 1.5 = 48 kW */
    assert_false(carries(&dgx, 32, &site));
    site = site_of("hyperscale");
    assert_true(carries(&dgx, INT64_C(1) << 30, &site));
    site = site_of("colocation");
    assert_false(carries(&nvl72, 72, &site));
}

static void cooling_by_the_kilowatts_of_a_rack(void **state)
{
    (void)state;
    static const struct {
        double rack_w;
        const char *name;
    } cases[] = {{15e3, "air"},       {15.1e3, "contained-air"}, {30e3, "contained-air"},
                 {60e3, "rear-door"}, {60.1e3, "direct-liquid"}, {500e3, "direct-liquid"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(ls_site_cooling_for(&catalogue, cases[i].rack_w)->name, cases[i].name);
    }
}

static void power_explains_with_the_numbers_in(void **state)
{
    (void)state;
    ls_site site = site_of("colocation");
    ls_text text = {0};
    ls_power_explain(&catalogue, &dgx, 64, &site, &text);
    assert_non_null(strstr(ls_text_string(&text), "8 * 700 * 0.875 + (10200 - 8 * 700) * 0.76 = 8396 W"));
    assert_non_null(strstr(ls_text_string(&text), "4 racks"));
    ls_text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_of_a_dgx_is_what_was_measured),
        cmocka_unit_test(power_of_64_h100),
        cmocka_unit_test(power_follows_racks_and_cooling),
        cmocka_unit_test(power_stays_within_the_site),
        cmocka_unit_test(power_from_a_wall_circuit),
        cmocka_unit_test(power_that_is_not_known_is_not_guessed),
        cmocka_unit_test(power_is_possible_up_to_what_the_site_feeds),
        cmocka_unit_test(cooling_by_the_kilowatts_of_a_rack),
        cmocka_unit_test(power_explains_with_the_numbers_in),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
