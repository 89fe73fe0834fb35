// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/hardware/site.h"
#include "planning/shipped.h"

#include <string.h>

static ls_status parse(const char *text, ls_site *site)
{
    return ls_site_parse(&arena, &catalogue, text, strlen(text), "here.yaml", site);
}

static void refuse(const char *text, const char *message)
{
    ls_site site = {.pue = 7.0};
    assert_int_equal(parse(text, &site), LS_ERR_INVALID);
    if (!strstr(ls_error_text(), message)) {
        fail_msg("\"%s\" is not in \"%s\"", message, ls_error_text());
    }
    assert_float_equal(site.pue, 7.0, 0.0);
}

static void site_parse_starts_from_a_site_of_the_catalogue(void **state)
{
    (void)state;
    ls_site site;
    assert_int_equal(parse("like: enterprise\nname: cellar\npower_kw: 40\nracks: 2\n", &site), LS_OK);
    assert_string_equal(site.name, "cellar");
    assert_float_equal(site.power_w, 40e3, 0.0);
    assert_int_equal(site.racks, 2);
    assert_string_equal(site.cooling->name, "air");
    assert_float_equal(site.rack_w, 15e3, 0.0);
    assert_float_equal(site.pue, 1.5, 0.0);
    /* Other cooling, other racks. */
    assert_int_equal(parse("cooling: rear-door\n", &site), LS_OK);
    assert_string_equal(site.name, "here.yaml");
    assert_float_equal(site.rack_w, 60e3, 0.0);
    assert_int_equal(parse("cooling: rear-door\nrack_kw: 41\n", &site), LS_OK);
    assert_float_equal(site.rack_w, 41e3, 0.0);
}

static void site_parse_of_a_wall_circuit(void **state)
{
    (void)state;
    ls_site site;
    assert_int_equal(parse("circuit: {volts: 120, amps: 15}\n", &site), LS_OK);
    assert_float_equal(site.power_w, 1440.0, 1e-9);
    assert_int_equal(parse("circuit: {volts: 400, amps: 32}\npower_kw: 5\n", &site), LS_OK);
    assert_float_equal(site.power_w, 5000.0, 1e-9);
}

static void site_parse_refuses_with_line_and_range(void **state)
{
    (void)state;
    refuse("name: x\npue: 0.7\n", "here.yaml:2: pue is 0.7");
    refuse("pue: 9\n", "1 to 3");
    refuse("energy_usd_kw: 0.1\n", "unknown key energy_usd_kw, did you mean energy_usd_kwh?");
    refuse("cooling: ice\n", "contained-air");
    refuse("power_kw: -3\n", "power_kw is -3");
    refuse("racks: 1.5\n", "racks is 1.5");
    /* no power is no machine, and not any number of them */
    refuse("power_kw: 0\n", "power_kw is 0");
    refuse("racks: 0\n", "racks is 0");
    refuse("power_kw: lots\n", "power_kw is \"lots\"");
    refuse("\nlike: moon\n", "here.yaml:2: key `like`");
    refuse("circuit: {volts: 230}\n", "both `volts` and `amps`");
    refuse("cooling: air\nrack_kw: 40\n", "air supports up to 15 kW");
    refuse("- a\n", "key: value");
}

static void site_load_knows_names_and_files(void **state)
{
    (void)state;
    ls_site site;
    assert_int_equal(ls_site_load(&arena, &catalogue, "", &site), LS_OK);
    assert_string_equal(site.name, LS_SITE_USUAL);
    assert_int_equal(ls_site_load(&arena, &catalogue, "office-230v", &site), LS_OK);
    assert_float_equal(site.power_w, 2900.0, 1.0);
    assert_int_equal(ls_site_load(&arena, &catalogue, "colocations", &site), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "colocation"));
    assert_int_equal(ls_site_load(&arena, &catalogue, "./nowhere.yaml", &site), LS_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(site_parse_starts_from_a_site_of_the_catalogue),
        cmocka_unit_test(site_parse_of_a_wall_circuit),
        cmocka_unit_test(site_parse_refuses_with_line_and_range),
        cmocka_unit_test(site_load_knows_names_and_files),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
