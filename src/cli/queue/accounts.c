// SPDX-License-Identifier: Apache-2.0
/* nodes, accounts, usage: the machines of the queue, who shares them, and how much was used. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"
#include "orchestration/client/client.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_text(ls_text *text)
{
    fputs(ls_text_string(text), stdout);
    ls_text_release(text);
}

/* ---- nodes ---- */

typedef struct json_settings {
    bool json;
} json_settings;

static const ls_option json_options[] = {LS_ROW_JSON(json_settings)};

static ls_status run_nodes(const ls_invocation *invocation)
{
    const json_settings *settings = invocation->settings;
    json_t *answer = NULL;
    ls_text text = {0};
    LS_TRY(ls_queue_get(&answer, "/v1/nodes"));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        ls_queue_append_nodes(json_object_get(answer, "nodes"), invocation->arena, ls_terminal_width(),
                              &text);
        print_text(&text);
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_nodes = {
    .name = "nodes",
    .words = "",
    .summary = "list the machines of the queue",
    .details = "Prints one line per machine: its devices (GPUs, or slots on a machine without\n"
               "GPUs), how many are in use, and the jobs that use them, with their number of\n"
               "devices in parentheses.\n"
               "\n"
               "Example:\n"
               "  lockstep nodes",
    LS_SETTINGS(json_settings, json_options),
    .run = run_nodes,
};

/* ---- accounts ---- */

typedef struct account_settings {
    uint64_t weight;
    const char *quota, *borrow, *lend, *users, *priority_max, *budget;
    bool delete, json;
} account_settings;

#define LIMIT(name, text) LS_ROW_TEXT(account_settings, name, "N", text, .value_needed = true)

static const ls_option account_options[] = {
    LS_ROW_U64(account_settings, weight, "auto", 1, 1000000,
               "with NAME: weight of the account's share of the devices, relative to other accounts; auto: "
               "unchanged",
               .allow_auto = true),
    LIMIT(quota, "with NAME: number of devices guaranteed to the account, or 'any'"),
    LIMIT(
        borrow,
        "with NAME: maximum number of unused devices of other accounts that the account may take, or 'any'"),
    LIMIT(lend,
          "with NAME: maximum number of the account's unused devices that other accounts may take, or 'any'"),
    LS_ROW_TEXT(account_settings, budget, "USD",
                "with NAME: what the account's jobs may cost in a calendar month (UTC), in USD, or 'none'. "
                "At 80 % that is told; at 100 % its jobs save, are held, and continue when the budget is "
                "raised or the next month begins",
                .value_needed = true),
    LS_ROW_TEXT(
        account_settings, users, "A,B,..",
        "with NAME: names of the users who may submit jobs for the account, or 'any' to let every user do so",
        .value_needed = true),
    LS_ROW_TEXT(account_settings, priority_max, "PRIORITY",
                "with NAME: highest priority that jobs of the account may have: low, normal or high (high "
                "needs --users)",
                .value_needed = true),
    LS_ROW_BOOL(account_settings, delete,
                "with NAME: delete the account and what is known of its use; refused while it has jobs that "
                "have not ended"),
    LS_ROW_JSON(account_settings),
};

static ls_status put_limit(json_t *body, const char *key, const char *text)
{
    if (!text[0]) {
        return LS_OK;
    }
    if (strcmp(text, "any") == 0) {
        json_object_set_new(body, key, json_null());
        return LS_OK;
    }
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 8) {
        return ls_fail(LS_ERR_INVALID, "--%s is %s, allowed is a number of devices or 'any'", key, text);
    }
    uint64_t number = 0;
    for (const char *at = text; *at; at++) {
        number = 10 * number + (uint64_t)(*at - '0');
    }
    json_object_set_new(body, key, json_integer((json_int_t)number));
    return LS_OK;
}

/* "ann,bob", or "any" for everyone. */
static ls_status put_users(json_t *body, const char *text)
{
    if (!text[0] || strcmp(text, "any") == 0) {
        if (text[0]) {
            json_object_set_new(body, "users", json_null());
        }
        return LS_OK;
    }
    json_t *list = json_array();
    json_object_set_new(body, "users", list);
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, ",");
        json_t *name = bytes > 0 ? json_stringn(at, bytes) : NULL;
        if (!name) {
            return ls_fail(LS_ERR_INVALID, "--users %s: write names separated by commas, or 'any'", text);
        }
        json_array_append_new(list, name);
        at += bytes;
        if (*at == '\0') {
            return LS_OK;
        }
    }
}

/* POST /v1/accounts */
static ls_status change_account(const account_settings *settings, const char *name)
{
    json_t *account = json_string(name), *answer = NULL;
    if (!account) {
        return ls_fail(LS_ERR_INVALID, "the name of the account is not UTF-8");
    }
    json_t *body = json_pack("{s:o}", "account", account);
    if (settings->delete) {
        json_object_set_new(body, "delete", json_true());
    }
    if (settings->weight != LS_AUTO_U64) {
        json_object_set_new(body, "weight", json_integer((json_int_t)settings->weight));
    }
    ls_status status = put_limit(body, "quota", settings->quota);
    status = status != LS_OK ? status : put_limit(body, "borrow", settings->borrow);
    status = status != LS_OK ? status : put_limit(body, "lend", settings->lend);
    status = status != LS_OK ? status : put_users(body, settings->users);
    status = status != LS_OK ? status : ls_queue_put_usd(body, "budget", "--budget", settings->budget);
    if (settings->priority_max[0]) {
        json_t *priority = json_string(settings->priority_max);
        json_object_set_new(body, "priority_max", priority ? priority : json_string("?"));
    }
    if (status != LS_OK) {
        json_decref(body);
        return status;
    }
    status = ls_queue_post(body, &answer, "/v1/accounts");
    json_decref(answer);
    return status;
}

static void add_limit(ls_table *table, const json_t *account, const char *key)
{
    const json_t *limit = json_object_get(account, key);
    if (json_is_integer(limit)) {
        ls_table_printf(table, "%" PRId64, (int64_t)json_integer_value(limit));
    } else {
        ls_table_add(table, "any");
    }
}

static void add_money(ls_table *table, const json_t *usage, const char *key)
{
    const double money = ls_queue_number(usage, key);
    if (isfinite(money)) {
        ls_table_printf(table, "%.2f", money);
    } else {
        ls_table_add(table, NULL);
    }
}

/* The names of the users; open_to, one word, for those who may not see the names. */
static void add_users(ls_table *table, const json_t *users, const char *open_to)
{
    ls_text names = {0};
    for (size_t i = 0; i < json_array_size(users); i++) {
        const char *name = json_string_value(json_array_get(users, i));
        ls_text_printf(&names, "%s%s", i > 0 ? ", " : "", name ? name : "?");
    }
    ls_table_add(table, names.bytes > 0 ? ls_text_string(&names) : open_to);
    ls_text_release(&names);
}

static void append_accounts(const json_t *accounts, ls_arena *arena, ls_text *text)
{
    static const char *const titles[] = {"ACCOUNT", "WEIGHT",  "QUOTA",  "BORROW", "LEND",     "DEVICES",
                                         "RUNNING", "WAITING", "BUDGET", "SPENT",  "PRIORITY", "USERS"};
    static const bool right[] = {false, true, true, true, true, true, true, true, true, true, false, false};
    ls_table table = {.titles = titles, .right = right, .columns = 12, .arena = arena};
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *account = json_array_get(accounts, i);
        ls_table_add(&table, ls_queue_string(account, "account"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(account, "weight"));
        add_limit(&table, account, "quota");
        add_limit(&table, account, "borrow");
        add_limit(&table, account, "lend");
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(account, "devices"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(account, "running"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(account, "waiting"));
        add_money(&table, account, "budget");
        add_money(&table, account, "month_cost");
        ls_table_add(&table, ls_queue_string(account, "priority_max"));
        add_users(&table, json_object_get(account, "users"), ls_queue_string(account, "open_to"));
    }
    ls_table_append(&table, ls_terminal_width(), text);
}

static ls_status run_accounts(const ls_invocation *invocation)
{
    const account_settings *settings = invocation->settings;
    const bool sets = settings->weight != LS_AUTO_U64 || settings->quota[0] || settings->borrow[0] ||
                      settings->lend[0] || settings->users[0] || settings->priority_max[0] ||
                      settings->budget[0];
    const bool changes = sets || settings->delete;
    if (sets && settings->delete) {
        return ls_fail(LS_ERR_INVALID, "--delete can't be combined with options that change the account");
    }
    if (changes != (invocation->word_count == 1)) {
        return ls_fail(
            LS_ERR_INVALID,
            changes ? "these options change an account, but none is named: write its name first, as in "
                      "'lockstep accounts NAME --quota 4'"
                    : "nothing to change in account %s: give --weight, --quota, --borrow, --lend, "
                      "--budget, --users, --priority-max or --delete",
            invocation->word_count == 1 ? invocation->words[0] : "");
    }
    if (changes) {
        LS_TRY(change_account(settings, invocation->words[0]));
    }
    json_t *answer = NULL;
    ls_text text = {0};
    LS_TRY(ls_queue_get(&answer, "/v1/accounts"));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        append_accounts(json_object_get(answer, "accounts"), invocation->arena, &text);
        print_text(&text);
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_accounts = {
    .name = "accounts",
    LS_WORDS("[NAME]", 0, 1),
    .summary = "list or change accounts: shares, quotas, budgets, users",
    .details = "Without NAME, prints one line per account. NAME with an option creates or\n"
               "changes that account; only the user who runs the daemon may do that.\n"
               "\n"
               "Accounts get devices in proportion to their weights. Devices of an account's\n"
               "quota are guaranteed to it: others may use them only while it does not, and only\n"
               "up to --lend. Every user has an account of the same name that no other user can\n"
               "use. Other accounts are open to the users listed, or to everyone when no users\n"
               "are listed. Setting accounts.strict says who may make new accounts by using them:\n"
               "on a daemon of root, only an administrator. Jobs may have at most the account's\n"
               "priority; with --priority-max high the account needs --users.\n"
               "\n"
               "Examples:\n"
               "  lockstep accounts\n"
               "  lockstep accounts research --weight 3 --quota 8 --borrow 4\n"
               "  lockstep accounts research --users ann,bob --priority-max high\n"
               "  lockstep accounts research --budget 500\n"
               "  lockstep accounts research --delete",
    LS_SETTINGS(account_settings, account_options),
    .run = run_accounts,
};

/* ---- usage ---- */

enum { USAGE_COLUMNS = 9 }; /* with USER */

static void add_hours(ls_table *table, const json_t *usage, const char *key)
{
    const double hours = ls_queue_number(usage, key);
    ls_table_add(table, isfinite(hours) ? ls_plain_of(hours).text : NULL);
}

static void add_usage(ls_table *table, const char *name, const json_t *usage)
{
    ls_table_add(table, name);
    if (table->columns == USAGE_COLUMNS) {
        ls_table_add(table, ls_queue_string(usage, "user"));
    }
    add_hours(table, usage, "allocated_h");
    add_hours(table, usage, "idle_h");
    add_hours(table, usage, "lost_h");
    add_hours(table, usage, "waiting_h");
    add_money(table, usage, "cost");
    add_money(table, usage, "idle_cost");
    add_money(table, usage, "lost_cost");
}

/* USER is left out where the answer has none. */
static void append_usage(const json_t *answer, ls_arena *arena, ls_text *text)
{
    static const char *const titles[] = {"ACCOUNT", "DEVICE-H", "IDLE",      "LOST",
                                         "WAITED",  "COST",     "IDLE COST", "LOST COST"};
    static const char *const titles_by_user[] = {"ACCOUNT", "USER", "DEVICE-H",  "IDLE",     "LOST",
                                                 "WAITED",  "COST", "IDLE COST", "LOST COST"};
    static const bool right[] = {false, true, true, true, true, true, true, true};
    static const bool right_by_user[] = {false, false, true, true, true, true, true, true, true};
    const bool by_user =
        ls_queue_string(json_array_get(json_object_get(answer, "accounts"), 0), "user") != NULL;
    ls_table table = {.titles = by_user ? titles_by_user : titles,
                      .right = by_user ? right_by_user : right,
                      .columns = by_user ? USAGE_COLUMNS : USAGE_COLUMNS - 1,
                      .arena = arena};
    const json_t *accounts = json_object_get(answer, "accounts");
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *account = json_array_get(accounts, i);
        add_usage(&table, ls_queue_string(account, "account"), account);
    }
    add_usage(&table, "all", json_object_get(answer, "total"));
    ls_table_append(&table, ls_terminal_width(), text);
    const double price = ls_queue_number(answer, "price_per_device_h");
    if (isfinite(price)) {
        const char *currency = ls_queue_string(answer, "currency");
        ls_text_printf(text, "\nA device-hour costs %.4g ", price);
        ls_text_append_printable(text, currency ? currency : "", strlen(currency ? currency : ""), "");
        const json_t *kinds = json_object_get(answer, "kind_prices");
        for (size_t i = 0; i < json_array_size(kinds); i++) {
            const char *kind = json_string_value(json_array_get(kinds, i));
            ls_text_append(text, i ? ", " : "; by kind of node: ");
            ls_text_append_printable(text, kind ? kind : "", strlen(kind ? kind : ""), "");
        }
        ls_text_append(text, ".\n");
    } else {
        ls_text_append(text, "\nNo cost: set the price of a device-hour in config.yaml (money.price).\n");
    }
}

/* "Stored: research 12.4 GB (0.29 USD a month), 3 GB sent to mirrors (0.27 USD)". */
static void append_storage(const json_t *answer, ls_text *text)
{
    const json_t *accounts = json_object_get(answer, "accounts");
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *account = json_array_get(accounts, i);
        const double stored = ls_queue_number(account, "stored_bytes"),
                     sent = ls_queue_number(account, "sent_bytes");
        const double kept_cost = ls_queue_number(account, "storage_cost"),
                     sent_cost = ls_queue_number(account, "egress_cost");
        if (!(stored + sent > 0.0)) {
            continue;
        }
        ls_text_printf(text, "Stored: %s %.3g GB", ls_queue_string(account, "account"), 1e-9 * stored);
        if (isfinite(kept_cost)) {
            ls_text_printf(text, " (%.2f %s a month)", kept_cost, ls_queue_string(answer, "currency"));
        }
        if (sent > 0.0) {
            ls_text_printf(text, ", %.3g GB sent to mirrors", 1e-9 * sent);
        }
        if (sent > 0.0 && isfinite(sent_cost)) {
            ls_text_printf(text, " (%.2f %s)", sent_cost, ls_queue_string(answer, "currency"));
        }
        ls_text_append(text, "\n");
    }
}

/* "This month: research 12.40 of 100.00 USD so far, about 80 at its end". */
static void append_months(const json_t *answer, ls_text *text)
{
    const json_t *accounts = json_object_get(answer, "accounts");
    const char *currency = ls_queue_string(answer, "currency");
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *account = json_array_get(accounts, i);
        const double spent = ls_queue_number(account, "month_cost");
        const double budget = ls_queue_number(account, "budget");
        const double forecast = ls_queue_number(account, "month_forecast");
        if (!isfinite(spent) || (spent <= 0.0 && !isfinite(budget))) {
            continue;
        }
        ls_text_printf(text, "This month: %s %.2f ", ls_queue_string(account, "account"), spent);
        if (isfinite(budget)) {
            ls_text_printf(text, "of %.2f ", budget);
        }
        ls_text_append_printable(text, currency ? currency : "", strlen(currency ? currency : ""), "");
        ls_text_printf(text, " so far, about %.2f expected at its end%s\n", forecast,
                       forecast > budget ? ": more than the budget" : "");
    }
}

/* "forecasts of ends: 9, median error 3 s" */
static void append_foresight(const json_t *foresight, const char *what, ls_text *text)
{
    const json_t *of = json_object_get(foresight, what);
    const int64_t count = ls_queue_integer(of, "count");
    if (count > 0) {
        ls_text_printf(text, "forecasts of %s: %" PRId64 ", median error %s\n", what, count,
                       ls_duration_of(ls_queue_number(of, "error_median_s")).text);
    }
}

typedef struct usage_settings {
    double since_s;
    const char *user;
    bool csv, json;
} usage_settings;

#undef FIELD

static const ls_option usage_options[] = {
    LS_ROW_DURATION(
        usage_settings, since, since_s, "auto", 1, 1e9,
        "print one line for each account and user, counting jobs that have not ended or that ended within "
        "this time, such as 30d; each job counts with all it has used since it began",
        .allow_auto = true),
    LS_ROW_TEXT(usage_settings, user, NULL,
                "count only jobs of this user; other users' are shown to administrators only",
                .value_needed = true),
    LS_ROW_BOOL(usage_settings, csv, "print comma-separated values with a line of titles"),
    LS_ROW_JSON(usage_settings),
};

static ls_status ask_usage(const usage_settings *settings, json_t **answer_out)
{
    ls_text path = {0};
    ls_text_append(&path, "/v1/usage");
    if (settings->since_s != LS_AUTO_F64) {
        ls_text_printf(&path, "?since=%.3f", ls_clock_wall_s() - settings->since_s);
    }
    if (settings->user[0]) {
        ls_text_append(&path, settings->since_s != LS_AUTO_F64 ? "&user=" : "?user=");
        ls_client_append_escaped(&path, settings->user);
    }
    const ls_status status = ls_queue_get(answer_out, "%s", ls_text_string(&path));
    ls_text_release(&path);
    return status;
}

/* Names of accounts and users have neither commas nor quotes. */
static void append_csv(const json_t *accounts, ls_text *text)
{
    static const char *const columns[] = {"allocated_h", "idle_h",    "lost_h",    "waiting_h",
                                          "cost",        "idle_cost", "lost_cost", "energy_j"};
    const size_t count = sizeof columns / sizeof columns[0];
    ls_text_append(text, "account,user,jobs");
    for (size_t k = 0; k < count; k++) {
        ls_text_printf(text, ",%s", columns[k]);
    }
    ls_text_append(text, "\n");
    for (size_t i = 0; i < json_array_size(accounts); i++) {
        const json_t *row = json_array_get(accounts, i);
        const char *account = ls_queue_string(row, "account"), *user = ls_queue_string(row, "user");
        ls_text_printf(text, "%s,%s,%" PRId64, account ? account : "", user ? user : "",
                       ls_queue_integer(row, "jobs"));
        for (size_t k = 0; k < count; k++) {
            const double value = ls_queue_number(row, columns[k]);
            ls_text_append(text, ",");
            if (isfinite(value)) {
                ls_text_printf(text, "%.6f", value);
            }
        }
        ls_text_append(text, "\n");
    }
}

static ls_status run_usage(const ls_invocation *invocation)
{
    const usage_settings *settings = invocation->settings;
    json_t *answer = NULL;
    ls_text text = {0};
    if (settings->csv && settings->json) {
        return ls_fail(LS_ERR_INVALID, "--csv and --json cannot be combined");
    }
    LS_TRY(ask_usage(settings, &answer));
    if (settings->json) {
        ls_print_json(answer);
    } else if (settings->csv) {
        append_csv(json_object_get(answer, "accounts"), &text);
        print_text(&text);
    } else {
        append_usage(answer, invocation->arena, &text);
        append_months(answer, &text);
        append_storage(answer, &text);
        append_foresight(json_object_get(answer, "foresight"), "starts", &text);
        append_foresight(json_object_get(answer, "foresight"), "ends", &text);
        append_foresight(json_object_get(answer, "foresight"), "plans", &text);
        print_text(&text);
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_usage = {
    .name = "usage",
    .words = "",
    .summary = "show device-hours and cost by account",
    .details = "DEVICE-H counts the device-hours that jobs held. IDLE is the part in which the\n"
               "devices were held but not used, LOST the part whose results were thrown away,\n"
               "computed between the last checkpoint and a loss or preemption. WAITED counts the\n"
               "device-hours that jobs asked for while they waited.\n"
               "\n"
               "Examples:\n"
               "  lockstep usage\n"
               "  lockstep usage --since 7d --user ann\n"
               "  lockstep usage --since 30d --csv",
    LS_SETTINGS(usage_settings, usage_options),
    .run = run_usage,
};
