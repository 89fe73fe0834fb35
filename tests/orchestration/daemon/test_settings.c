// SPDX-License-Identifier: Apache-2.0
/* Settings of the daemon, and the tables of settings and states in docs/orchestration.md. */
#include "test.h"

#include "base/file.h"
#include "base/text.h"
#include "orchestration/daemon/settings.h"

#include <string.h>

static const char *read_docs(ls_arena *arena)
{
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_file_read(arena, LS_SOURCE_DIR "/docs/orchestration.md", 1 << 20, &text, &bytes),
                     LS_OK);
    return text;
}

/* Every key with its values, default and meaning, as the program prints them. */
static void settings_are_documented(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_text table = {0};
    const char *docs = read_docs(&arena);
    uint32_t rows = 0;
    ls_options_append_markdown(ls_daemon_settings_table(), &table);
    for (char *save = NULL, *line = strtok_r(table.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '|' && line[2] == '`') {
            rows++;
            if (!strstr(docs, line)) {
                fail_msg("docs/orchestration.md lacks the row\n%s", line);
            }
        }
    }
    assert_int_equal(rows, ls_daemon_settings_table()->count);
    ls_text_release(&table);
    ls_arena_release(&arena);
}

static void states_and_causes_are_documented(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const char *docs = read_docs(&arena);
    for (int i = 0; i < LS_JOB_STATES + LS_CAUSES; i++) {
        const bool is_state = i < LS_JOB_STATES;
        const char *name = is_state ? ls_job_state_name((ls_job_state)i)
                                    : ls_job_cause_name((ls_job_cause)(i - LS_JOB_STATES));
        /* RECOVERING keeps its devices until nothing of it is left. */
        const bool holds =
            is_state && !ls_job_state_is_waiting((ls_job_state)i) && !ls_job_state_is_final((ls_job_state)i);
        const char *row = is_state ? ls_arena_printf(&arena, "| `%s` | %s | ", name, holds ? "yes" : "no")
                                   : ls_arena_printf(&arena, "| `%s` | ", name);
        if (!strstr(docs, row)) {
            fail_msg("docs/orchestration.md lacks a row that begins with\n%s", row);
        }
    }
    ls_arena_release(&arena);
}

static void settings_are_a_table(void **state)
{
    (void)state;
    ls_options_check(ls_daemon_settings_table(), sizeof(ls_daemon_settings));
}

static void accounts_are_parsed(void **state)
{
    (void)state;
    ls_account account;
    assert_int_equal(
        ls_daemon_account_parse("research:weight=2,quota=8,users=ann+bob,priority_max=high", &account),
        LS_OK);
    assert_string_equal(account.name, "research");
    assert_string_equal(account.users, "ann,bob");
    assert_int_equal(account.priority_max, LS_PRIORITY_HIGH);
    assert_int_equal(account.weight, 2);
    assert_int_equal(account.quota, 8);
    assert_int_equal(ls_daemon_account_parse("plain", &account), LS_OK);
    assert_string_equal(account.users, "");
    assert_int_equal(account.priority_max, LS_PRIORITY_NORMAL);
    static const char *const bad[] = {"",          "../x",        "a:weight=0",         "a:users=",
                                      "a:users=+", "a:users=b c", "a:priority_max=top", "a:quota=many",
                                      "a:x=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_daemon_account_parse(bad[i], &account), LS_ERR_INVALID);
        assert_string_equal(account.name, "plain");
    }
}

static void account_listed_twice_is_refused(void **state)
{
    (void)state;
    char *two[] = {"a:weight=1", "b", "a:weight=2"};
    ls_daemon_settings settings = {.accounts = {.items = (void *)two, .count = 2}};
    assert_int_equal(ls_daemon_lists_check(&settings), LS_OK);
    settings.accounts.count = 3;
    assert_int_equal(ls_daemon_lists_check(&settings), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "two entries for account a"));
}

static void prices_of_kinds_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"h100",      "=3",        "h100=",    "h100=0",  "h100=-1",
                                      "h100=3USD", "h100=1e10", "h100=nan", "h100=3=4"};
    char *good[] = {"H100 PCIe=3.5", "cpu=0.02"}, *twice[] = {"a=1", "ab=1", "a=2"};
    ls_daemon_settings settings = {.price = 1.0, .kind_prices = {.items = (void *)good, .count = 2}};
    assert_int_equal(ls_daemon_lists_check(&settings), LS_OK);
    settings.price = 0.0;
    assert_int_equal(ls_daemon_lists_check(&settings), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "money.price"));
    settings.price = 1.0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        settings.kind_prices = (ls_option_strings){.items = (void *)(uintptr_t)&bad[i], .count = 1};
        assert_int_equal(ls_daemon_lists_check(&settings), LS_ERR_INVALID);
        assert_non_null(strstr(ls_error_text(), "KIND=PRICE"));
    }
    settings.kind_prices = (ls_option_strings){.items = (void *)twice, .count = 3};
    assert_int_equal(ls_daemon_lists_check(&settings), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "two prices for a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_documented),     cmocka_unit_test(states_and_causes_are_documented),
        cmocka_unit_test(prices_of_kinds_are_checked), cmocka_unit_test(settings_are_a_table),
        cmocka_unit_test(accounts_are_parsed),         cmocka_unit_test(account_listed_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
