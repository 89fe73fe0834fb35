// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/elastic/host/preemption_notice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT(literal) (literal), sizeof(literal) - 1
#define NOW_S         1505721600.0 /* 2017-09-18 08:00:00 UTC */

static const ls_preemption_notice untouched = {.source = LS_PREEMPTION_SOURCES, .action = "untouched"};

static void assert_untouched(const ls_preemption_notice *notice)
{
    assert_int_equal(notice->source, LS_PREEMPTION_SOURCES);
    assert_false(notice->leave);
    assert_string_equal(notice->action, "untouched");
}

static void notice_source_names_go_both_ways(void **state)
{
    (void)state;
    for (int s = 0; s < LS_PREEMPTION_SOURCES; s++) {
        assert_int_equal(ls_preemption_source_named(ls_preemption_source_name((ls_preemption_source)s)), s);
    }
    assert_int_equal(ls_preemption_source_named("ibm"), LS_PREEMPTION_SOURCES);
}

static void notice_read_file_takes_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double grace_s;
    } cases[] = {{"30", 30.0}, {"", 0.0},    {" 2.5 seconds\n", 2.5}, {"soon", 0.0},
                 {"-4", 0.0},  {"nan", 0.0}, {"1e300", 0.0},          {"inf", 0.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_preemption_notice notice = {0};
        assert_true(ls_preemption_read_file(cases[i].text, strlen(cases[i].text), &notice));
        assert_true(notice.leave);
        assert_true(notice.grace_s == cases[i].grace_s);
    }
}

static void notice_read_aws_knows_when(void **state)
{
    (void)state;
    ls_preemption_notice notice = {0};
    assert_true(ls_preemption_read_aws(
        TEXT("{\"action\": \"terminate\", \"time\": \"2017-09-18T08:02:00Z\"}"), NOW_S, &notice));
    assert_true(notice.leave);
    assert_true(fabs(notice.grace_s - 120.0) < 1e-6);
    assert_string_equal(notice.action, "terminate at 2017-09-18T08:02:00Z");
    /* A time that has passed, or cannot be parsed, gives no seconds; it is a notice all the
     * same. */
    assert_true(ls_preemption_read_aws(TEXT("{\"action\": \"stop\", \"time\": \"2017-09-18T07:00:00Z\"}"),
                                       NOW_S, &notice));
    assert_true(notice.grace_s == 0.0);
    assert_true(ls_preemption_read_aws(TEXT("{\"action\": \"stop\", \"time\": \"later\"}"), NOW_S, &notice));
    assert_true(notice.grace_s == 0.0);
}

static void notice_read_aws_refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "[]",
                                        "{}",
                                        "<html>",
                                        "{\"action\": 4, \"time\": \"x\"}",
                                        "{\"action\": \"stop\"}",
                                        "{\"action\": \"terminate\", "};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ls_preemption_notice notice = untouched;
        assert_false(ls_preemption_read_aws(texts[i], strlen(texts[i]), NOW_S, &notice));
        assert_untouched(&notice);
    }
}

static void notice_read_gcp_maintenance_leaves_only_when_it_ends(void **state)
{
    (void)state;
    ls_preemption_notice notice = untouched;
    assert_false(ls_preemption_read_gcp_maintenance(TEXT("NONE"), &notice));
    assert_false(ls_preemption_read_gcp_maintenance(TEXT(""), &notice));
    assert_false(ls_preemption_read_gcp_maintenance(TEXT("TERMINATE_ON_HOST_MAINTENANCE_OR_NOT"), &notice));
    assert_untouched(&notice);
    assert_true(ls_preemption_read_gcp_maintenance(TEXT("MIGRATE_ON_HOST_MAINTENANCE\n"), &notice));
    assert_false(notice.leave);
    assert_true(ls_preemption_read_gcp_maintenance(TEXT("TERMINATE_ON_HOST_MAINTENANCE"), &notice));
    assert_true(notice.leave);
}

static void notice_read_azure_is_for_this_machine(void **state)
{
    (void)state;
    static const char events[] =
        "{\"DocumentIncarnation\": 2, \"Events\": ["
        "{\"EventType\": \"Preempt\", \"Resources\": [\"other\"], \"NotBefore\": \"\"},"
        "{\"EventType\": \"Freeze\", \"Resources\": [\"mine\"], \"NotBefore\": \"\"},"
        "{\"EventType\": \"Preempt\", \"Resources\": [\"x\", \"Mine\"], \"NotBefore\": \"Mon, 18 Sep 2017 "
        "08:00:30 GMT\"}]}";
    ls_preemption_notice notice = untouched;
    assert_false(ls_preemption_read_azure(TEXT(events), "third", NOW_S, &notice));
    assert_false(ls_preemption_read_azure(TEXT("{\"Events\": []}"), "mine", NOW_S, &notice));
    assert_false(
        ls_preemption_read_azure(TEXT("{\"Events\": [4, {}, {\"EventType\": 3}]}"), "mine", NOW_S, &notice));
    assert_false(ls_preemption_read_azure(TEXT("no"), "mine", NOW_S, &notice));
    assert_untouched(&notice);
    assert_true(ls_preemption_read_azure(TEXT(events), "mine", NOW_S, &notice));
    assert_true(notice.leave);
    assert_true(fabs(notice.grace_s - 30.0) < 1e-6);
}

static void notice_watch_sees_a_file_appear(void **state)
{
    (void)state;
    char path[] = "/tmp/lockstep-notice-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    /* nothing listens at this address: once the cloud is given up, the file has been looked for */
    setenv("LOCKSTEP_METADATA_URL", "http://127.0.0.1:1", 1);
    const ls_preemption_options options = {
        .sources = 1u << LS_PREEMPTION_AWS, .drop_absent = true, .file = path, .poll_s = 0.05};
    ls_preemption_watch *watch = NULL;
    ls_preemption_notice notice = untouched;
    assert_int_equal(ls_preemption_watch_start(&options, &watch), LS_OK);
    for (int i = 0; i < 1000 && ls_preemption_watch_sources(watch) != 1u << LS_PREEMPTION_FILE; i++) {
        usleep(10 * 1000);
    }
    assert_int_equal(ls_preemption_watch_sources(watch), 1u << LS_PREEMPTION_FILE);
    unsetenv("LOCKSTEP_METADATA_URL");
    assert_false(ls_preemption_watch_take(watch, &notice));
    FILE *file = fopen(path, "w");
    fputs("12\n", file);
    fclose(file);
    for (int i = 0; i < 1000 && !ls_preemption_watch_take(watch, &notice); i++) {
        usleep(10 * 1000);
    }
    assert_int_equal(notice.source, LS_PREEMPTION_FILE);
    assert_true(notice.leave && notice.grace_s == 12.0);
    assert_false(ls_preemption_watch_take(watch, &notice)); /* once */
    ls_preemption_watch_stop(watch);
    unlink(path);
    assert_false(ls_preemption_watch_take(NULL, &notice));
    ls_preemption_watch_stop(NULL);
}

/* Nothing listens at this address: with drop_absent the clouds are given up, otherwise they are
 * asked again. */
static void notice_watch_drops_clouds_that_are_none(void **state)
{
    (void)state;
    setenv("LOCKSTEP_METADATA_URL", "http://127.0.0.1:1", 1);
    const uint32_t clouds = 1u << LS_PREEMPTION_AWS | 1u << LS_PREEMPTION_GCP | 1u << LS_PREEMPTION_AZURE;
    const ls_preemption_options options = {.sources = clouds, .drop_absent = true, .poll_s = 0.05};
    ls_preemption_watch *watch = NULL;
    assert_int_equal(ls_preemption_watch_start(&options, &watch), LS_OK);
    for (int i = 0; i < 1000 && ls_preemption_watch_sources(watch) != 0; i++) {
        usleep(10 * 1000);
    }
    assert_int_equal(ls_preemption_watch_sources(watch), 0);
    ls_preemption_watch_stop(watch);
    unsetenv("LOCKSTEP_METADATA_URL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notice_source_names_go_both_ways),
        cmocka_unit_test(notice_read_file_takes_seconds),
        cmocka_unit_test(notice_read_aws_knows_when),
        cmocka_unit_test(notice_read_aws_refuses_what_makes_no_sense),
        cmocka_unit_test(notice_read_gcp_maintenance_leaves_only_when_it_ends),
        cmocka_unit_test(notice_read_azure_is_for_this_machine),
        cmocka_unit_test(notice_watch_sees_a_file_appear),
        cmocka_unit_test(notice_watch_drops_clouds_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
