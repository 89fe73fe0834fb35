// SPDX-License-Identifier: Apache-2.0
/* nodes, accounts, usage: the machines of the queue, who shares them, and what was used of them. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue.h"
#include "cli/table.h"

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
static const ls_option_table json_table = LS_OPTIONS(json_options);

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
    .summary = "the machines of the queue and who has their devices",
    .details =
        "One line per machine: its devices (GPUs, or slots of a machine without), how many are used, and by "
        "which jobs (devices).",
    .options = &json_table,
    .settings_bytes = sizeof(json_settings),
    .run = run_nodes,
};

/* ---- accounts ---- */

typedef struct account_settings {
    uint64_t weight;
    const char *quota, *borrow, *lend, *users, *priority_max;
    bool json;
} account_settings;

#define FIELD(name) .offset = offsetof(account_settings, name)
#define LIMIT(name, text)                                                                                    \
    {                                                                                                        \
        .key = #name, .type = LS_OPTION_STRING, FIELD(name), .default_text = "\"\"", .value_name = "N",      \
        .value_needed = true, .help = (text)                                                                 \
    }

static const ls_option account_options[] = {
    {.key = "weight",
     .type = LS_OPTION_U64,
     FIELD(weight),
     .default_text = "auto",
     .allow_auto = true,
     .min = 1,
     .max = 1000000,
     .help = "with NAME: its share beside the others'; auto: as it is"},
    LIMIT(quota, "with NAME: devices that are its own, or 'any'"),
    LIMIT(borrow, "with NAME: devices of others that it may have beside these, or 'any'"),
    LIMIT(lend, "with NAME: how many of its own others may have, or 'any'"),
    {.key = "users",
     .type = LS_OPTION_STRING,
     FIELD(users),
     .default_text = "\"\"",
     .value_needed = true,
     .value_name = "A,B,..",
     .help = "with NAME: who may use it, or 'any'"},
    {.key = "priority_max",
     .type = LS_OPTION_STRING,
     FIELD(priority_max),
     .default_text = "\"\"",
     .value_needed = true,
     .value_name = "PRIORITY",
     .help = "with NAME: as far as its users may go: low, normal, high (high: name --users too)"},
    LS_ROW_JSON(account_settings),
};
static const ls_option_table account_table = LS_OPTIONS(account_options);

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
        return ls_fail(LS_ERR_INVALID, "--%s is %s, allowed is a number of devices, or 'any'", key, text);
    }
    uint64_t number = 0;
    for (const char *at = text; *at; at++) {
        number = 10 * number + (uint64_t)(*at - '0');
    }
    json_object_set_new(body, key, json_integer((json_int_t)number));
    return LS_OK;
}

/* "ann,bob", or "any" for everybody. */
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
            return ls_fail(LS_ERR_INVALID, "--users %s: write names with commas between, or 'any'", text);
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
        return ls_fail(LS_ERR_INVALID, "the account's name is not UTF-8");
    }
    json_t *body = json_pack("{s:o}", "account", account);
    if (settings->weight != LS_AUTO_U64) {
        json_object_set_new(body, "weight", json_integer((json_int_t)settings->weight));
    }
    ls_status status = put_limit(body, "quota", settings->quota);
    status = status != LS_OK ? status : put_limit(body, "borrow", settings->borrow);
    status = status != LS_OK ? status : put_limit(body, "lend", settings->lend);
    status = status != LS_OK ? status : put_users(body, settings->users);
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

/* Names for who runs the queue; for others a word. */
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
    static const char *const titles[] = {"ACCOUNT", "WEIGHT",  "QUOTA",   "BORROW",   "LEND",
                                         "DEVICES", "RUNNING", "WAITING", "PRIORITY", "USERS"};
    static const bool right[] = {false, true, true, true, true, true, true, true, false, false};
    ls_table table = {.titles = titles, .right = right, .columns = 10, .arena = arena};
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
        ls_table_add(&table, ls_queue_string(account, "priority_max"));
        add_users(&table, json_object_get(account, "users"), ls_queue_string(account, "open_to"));
    }
    ls_table_append(&table, ls_terminal_width(), text);
}

static ls_status run_accounts(const ls_invocation *invocation)
{
    const account_settings *settings = invocation->settings;
    const bool changes = settings->weight != LS_AUTO_U64 || settings->quota[0] || settings->borrow[0] ||
                         settings->lend[0] || settings->users[0] || settings->priority_max[0];
    if (changes != (invocation->word_count == 1)) {
        return ls_fail(LS_ERR_INVALID,
                       changes ? "which account? 'lockstep accounts NAME --quota 4'"
                               : "what about account %s? Give --weight, --quota, --borrow, --lend, --users "
                                 "or --priority-max",
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
    .words = "[NAME]",
    .summary = "who shares the machines: weights, quotas, use",
    .details =
        "Without NAME, one line per account. With NAME and an option, that account is made or changed "
        "first; that is "
        "for who runs the daemon.\n"
        "An account gets devices in proportion to its weight. Its quota is its own: others may use it "
        "only while it "
        "does not, up to 'lend'.\n"
        "Everybody has an account of his own name, which is his alone. Another is open to its users, to "
        "all when none are listed;\n"
        "who names a new one becomes its user. Its jobs have at most its priority: high needs an account "
        "that allows it,\n"
        "and such an account is open to its users alone: give --users with --priority-max high.\n"
        "\nExamples:\n"
        "  lockstep accounts\n"
        "  lockstep accounts research --weight 3 --quota 8 --borrow 4\n"
        "  lockstep accounts research --users ann,bob --priority-max high",
    .words_max = 1,
    .options = &account_table,
    .settings_bytes = sizeof(account_settings),
    .run = run_accounts,
};

/* ---- usage ---- */

static void add_hours(ls_table *table, const json_t *usage, const char *key)
{
    const double hours = ls_queue_number(usage, key);
    ls_table_add(table, isfinite(hours) ? ls_plain_of(hours).text : NULL);
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

static void add_usage(ls_table *table, const char *name, const json_t *usage)
{
    ls_table_add(table, name);
    add_hours(table, usage, "allocated_h");
    add_hours(table, usage, "idle_h");
    add_hours(table, usage, "lost_h");
    add_hours(table, usage, "waiting_h");
    add_money(table, usage, "cost");
    add_money(table, usage, "idle_cost");
    add_money(table, usage, "lost_cost");
}

static void append_usage(const json_t *answer, ls_arena *arena, ls_text *text)
{
    static const char *const titles[] = {"ACCOUNT", "DEVICE-H", "IDLE",      "LOST",
                                         "WAITED",  "COST",     "IDLE COST", "LOST COST"};
    static const bool right[] = {false, true, true, true, true, true, true, true};
    ls_table table = {.titles = titles, .right = right, .columns = 8, .arena = arena};
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
        ls_text_append(text, ".\n");
    } else {
        ls_text_append(text,
                       "\nNo money: config.yaml does not say what a device-hour costs (money.price).\n");
    }
}

/* "9 ends said beforehand, half of them right within 3 s" */
static void append_foresight(const json_t *foresight, const char *what, ls_text *text)
{
    const json_t *of = json_object_get(foresight, what);
    const int64_t count = ls_queue_integer(of, "count");
    if (count > 0) {
        const int letters = (int)strlen(what) - (count == 1); /* "1 start" */
        ls_text_printf(text, "%" PRId64 " %.*s said beforehand, half of them right within %s\n", count,
                       letters, what, ls_duration_of(ls_queue_number(of, "error_median_s")).text);
    }
}

static ls_status run_usage(const ls_invocation *invocation)
{
    const json_settings *settings = invocation->settings;
    json_t *answer = NULL;
    ls_text text = {0};
    LS_TRY(ls_queue_get(&answer, "/v1/usage"));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        append_usage(answer, invocation->arena, &text);
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
    .summary = "device-hours and their money by account: used, idle, lost, waited for",
    .details = "DEVICE-H is what jobs held; of that IDLE is what they held and did not use, LOST what was "
               "computed and "
               "thrown away (between\n"
               "the last checkpoint and a loss or a preemption). WAITED is what they asked for and did not "
               "get yet, in "
               "device-hours.",
    .options = &json_table,
    .settings_bytes = sizeof(json_settings),
    .run = run_usage,
};
