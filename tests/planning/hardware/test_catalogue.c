// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "planning/folder.h"
#include "planning/hardware/catalogue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ls_catalogue shipped(void)
{
    ls_catalogue catalogue;
    assert_int_equal(ls_catalogue_load(&arena, NULL, 0, &catalogue), LS_OK);
    return catalogue;
}

static void catalogue_load_has_figures_in_si_units(void **state)
{
    (void)state;
    const ls_catalogue catalogue = shipped();
    const ls_accelerator *h100 = NULL;
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, "h100", &h100), LS_OK);
    assert_string_equal(h100->name, "H100-SXM5-80GB");
    assert_string_equal(h100->generation, "h100");
    assert_true(fabs(h100->bf16_flops - 989.4e12) < 1.0);
    assert_true(h100->memory_bytes == 80.0 * 1024 * 1024 * 1024);
    assert_true(fabs(h100->memory_bytes_ps - 3.35e12) < 1.0);
    assert_int_equal(h100->sms, 132);
    assert_true(h100->nic_bytes_ps == 50e9); /* of the node it comes in */
    assert_true(h100->rent_hour.low == 1.99 && h100->rent_hour.typical == 2.95 &&
                h100->rent_hour.high == 6.88);
    const ls_node *node = ls_catalogue_usual_node(&catalogue, &arena, h100);
    assert_string_equal(node->name, "DGX-H100");
    assert_int_equal(node->count, 8);
    assert_true(node->power_w == 10200.0 && node->nic_bytes_ps == 50e9);
}

/* Nodes repeat some figures of their accelerators: they must agree. */
static void catalogue_rows_agree_with_each_other(void **state)
{
    (void)state;
    const ls_catalogue catalogue = shipped();
    assert_true(catalogue.accelerator_count >= 22 && catalogue.node_count >= 20 && catalogue.site_count >= 5);
    for (size_t i = 0; i < catalogue.accelerator_count; i++) {
        const ls_accelerator *a = &catalogue.accelerators[i], *found = NULL;
        assert_int_equal(ls_catalogue_find_accelerator(&catalogue, a->name, &found), LS_OK);
        assert_ptr_equal(a, found);
        assert_true(a->generation[0] != 0);
        const ls_node *node = ls_catalogue_usual_node(&catalogue, &arena, a);
        assert_ptr_equal(node->accelerator, a);
        assert_true(node->count >= 1);
    }
    for (size_t i = 0; i < catalogue.node_count; i++) {
        const ls_node *n = &catalogue.nodes[i], *found = NULL;
        assert_int_equal(ls_catalogue_find_node(&catalogue, n->name, &found), LS_OK);
        assert_ptr_equal(n, found);
        assert_true(n->power_w == 0.0 || n->power_w >= 0.99 * (double)n->count * n->accelerator->tdp_w);
    }
    for (size_t i = 0; i < catalogue.site_count; i++) {
        assert_true(catalogue.sites[i].rack_w <= catalogue.sites[i].cooling->rack_w);
    }
}

static void catalogue_find_takes_short_and_partial_names(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a100", "A100-SXM4-80GB"},  {"A100-40GB", "A100-SXM4-40GB"}, {"h100 sxm5", "H100-SXM5-80GB"},
        {"H200", "H200-SXM-141GB"},  {"4090", "RTX-4090-24GB"},       {"rtx-5090", "RTX-5090-32GB"},
        {"gb300", "GB300-288GB"},    {"m3-ultra", "M3-Ultra-80c"},    {"h100pcie", "H100-PCIe-80GB"},
        {"v100", "V100-SXM2-32GB"},  {"mi300x", "MI300X-192GB"},      {"b200", "B200-SXM-180GB"},
        {"tpu-v5p", "TPU-v5p-95GB"},
    };
    const ls_catalogue catalogue = shipped();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_accelerator *found = NULL;
        assert_int_equal(ls_catalogue_find_accelerator(&catalogue, cases[i][0], &found), LS_OK);
        assert_string_equal(found->name, cases[i][1]);
    }
    const ls_accelerator *untouched = NULL;
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, "h1000", &untouched), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "H100-SXM5-80GB"));
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, "rtx", &untouched), LS_ERR_NOT_FOUND);
    assert_non_null(strstr(ls_error_text(), "\"rtx\" matches 2 entries; choose one: RTX-"));
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, "", &untouched), LS_ERR_NOT_FOUND);
    assert_null(untouched);
}

static void catalogue_files_add_and_replace_rows(void **state)
{
    (void)state;
    const char *files[] = {
        write_file("mine.csv", "kind,name,bf16_dense_tflops,mem_gb,mem_tbs,tdp_w,accelerator,count\n"
                               "gpu,h100 sxm5 80gb,500,80,3,400,,\n"
                               "gpu,My-Card,10,8,0.3,100,,\n"
                               "node,My-Box,,,,900,my-card,4\n"),
        write_file("site.csv", "kind,name,rack_kw,pue,cooling\nsite,cellar,2,1.2,air\n"),
    };
    ls_catalogue catalogue;
    assert_int_equal(ls_catalogue_load(&arena, files, 2, &catalogue), LS_OK);
    assert_int_equal(catalogue.accelerator_count, shipped().accelerator_count + 1);
    const ls_node *node = NULL;
    assert_int_equal(ls_catalogue_find_node(&catalogue, "DGX-H100", &node), LS_OK);
    assert_true(node->accelerator->bf16_flops == 500e12); /* the shipped node holds the new row */
    assert_int_equal(ls_catalogue_find_node(&catalogue, "my-box", &node), LS_OK);
    assert_string_equal(node->accelerator->name, "My-Card");
    const ls_site *site = NULL;
    assert_int_equal(ls_catalogue_find_site(&catalogue, "cellar", &site), LS_OK);
    assert_string_equal(site->cooling->name, "air");
}

static void catalogue_load_refuses_broken_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"kind,name\nrocket,x\n", "broken.csv:2: kind is \"rocket\""},
        {"kind,name,bf16_dense_tflops\ngpu,x,-3\n", "broken.csv:2: bf16_dense_tflops is \"-3\""},
        {"kind,name,bf16_dense_tflops,mem_gb\ngpu,x,3,8\n", "mem_tbs of gpu x is missing"},
        {"kind,name,count,accelerator\nnode,x,8,nosuch\n", "broken.csv:2: accelerator of node x"},
        {"kind,name,tdp\ngpu,x,3\n", "nearest: tdp_w"},
        {"name,mem_gb\nx,3\n", "needs the columns `kind` and `name`"},
        {"kind,name\ngpu,---\n", "letters or digits"},
        {"kind,name,rack_kw,pue,cooling\nsite,x,3,0.9,air\n", "pue of site x is 0.9"},
        {"kind,name,count,accelerator,price_usd_low,price_usd_high\nnode,x,8,h100,9,3\n",
         "the first must not be larger than the second"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *file = write_file("broken.csv", cases[i].text);
        ls_catalogue catalogue = {.node_count = 77};
        assert_int_equal(ls_catalogue_load(&arena, &file, 1, &catalogue), LS_ERR_DATA);
        if (!strstr(ls_error_text(), cases[i].error)) {
            fail_msg("case %zu: %s", i, ls_error_text());
        }
        assert_int_equal(catalogue.node_count, 77);
    }
    const char *file = "/nonexistent/catalogue.csv";
    ls_catalogue catalogue;
    assert_int_equal(ls_catalogue_load(&arena, &file, 1, &catalogue), LS_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalogue_load_has_figures_in_si_units),
        cmocka_unit_test(catalogue_rows_agree_with_each_other),
        cmocka_unit_test(catalogue_find_takes_short_and_partial_names),
        cmocka_unit_test(catalogue_files_add_and_replace_rows),
        cmocka_unit_test(catalogue_load_refuses_broken_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
