// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/settings.h"

#include "base/file.h"
#include "base/yaml.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const engines[] = {"local", "slurm", NULL};
static const char *const orders[] = {"fair", "fifo", "fifo-skip", "easy", "sjf-oracle", "las", NULL};

#define FIELD(name) .offset = offsetof(ls_daemon_settings, name)

/* clang-format off */
static const ls_option options[] = {
    {.key = "engine", .type = LS_OPTION_CHOICE, FIELD(engine), .default_text = "local", .choices = engines, .help = "who runs jobs: this machine, or the Slurm that it is part of"},
    {.key = "slots", .type = LS_OPTION_U64, FIELD(slots), .default_text = "0", .min = 0, .max = 4096, .help = "devices of this machine; 0: its GPUs, and where there are none one per core"},
    {.key = "spot", .type = LS_OPTION_BOOL, FIELD(spot), .default_text = "false", .help = "this machine may be taken away: only jobs of job.spot run here"},
    {.key = "listen", .type = LS_OPTION_STRING, FIELD(listen), .default_text = "127.0.0.1:0", .value_name = "HOST:PORT", .help = "address of the API and the page, port 0: any; \"\": the Unix socket alone. Beyond this machine it needs tls"},
    {.key = "jobs_max", .type = LS_OPTION_U64, FIELD(jobs_max), .default_text = "20000", .min = 1, .max = 1 << 20, .help = "jobs that have not ended; more are refused"},
    {.key = "user_jobs_max", .type = LS_OPTION_U64, FIELD(user_jobs_max), .default_text = "5000", .min = 1, .max = 1 << 20, .help = "the same of one user; not of who runs the queue"},
    {.key = "bytes_max", .type = LS_OPTION_BYTES, FIELD(bytes_max), .default_text = "1GiB", .min = 1 << 20, .max = 1e12, .help = "run files and variables of the jobs that have not ended; more are refused"},
    {.key = "user_bytes_max", .type = LS_OPTION_BYTES, FIELD(user_bytes_max), .default_text = "128MiB", .min = 1 << 20, .max = 1e12, .help = "the same of one user; not of who runs the queue"},
    {.key = "ended_max", .type = LS_OPTION_U64, FIELD(ended_max), .default_text = "2000", .min = 1, .max = 1 << 20, .help = "ended jobs that ps --all shows; all others that are kept can be asked for by number"},
    {.key = "start_timeout", .type = LS_OPTION_DURATION, FIELD(start_timeout_s), .default_text = "60s", .min = 1, .max = 86400, .help = "a job that has not begun so long behind its start is lost"},
    {.key = "keep.jobs", .type = LS_OPTION_U64, FIELD(jobs_kept), .default_text = "10000", .min = 1, .max = 1 << 30, .help = "ended jobs that are kept, with their journal and their folder under jobs; older ones go, but for those that a job waits for"},
    {.key = "keep.time", .type = LS_OPTION_DURATION, FIELD(kept_s), .default_text = "90d", .min = 0, .max = 1e9, .help = "and no longer than this behind their end; 0: for ever"},
    {.key = "slurm.accounts", .type = LS_OPTION_BOOL, FIELD(slurm_accounts), .default_text = "false", .help = "jobs name their account to Slurm, which must know it"},
    {.key = "tls.certificate", .type = LS_OPTION_STRING, FIELD(certificate), .default_text = "\"\"", .value_name = "FILE", .help = "PEM, for listen beyond this machine"},
    {.key = "tls.key", .type = LS_OPTION_STRING, FIELD(key), .default_text = "\"\"", .value_name = "FILE", .help = "PEM, of the certificate"},
    {.key = "policy.order", .type = LS_OPTION_CHOICE, FIELD(order), .default_text = "fair", .choices = orders, .help = "who comes first: fair weighs priority, share, age and size; las who had least; the others are for comparison"},
    {.key = "policy.preempt", .type = LS_OPTION_BOOL, FIELD(preempt), .default_text = "true", .help = "jobs may be stopped for others that come first"},
    {.key = "policy.reservations", .type = LS_OPTION_U64, FIELD(reservations), .default_text = "8", .min = 0, .max = 32, .help = "jobs at the head of the queue that nobody behind them delays"},
    {.key = "policy.half_life", .type = LS_OPTION_DURATION, FIELD(half_life_s), .default_text = "7d", .min = 0, .max = 1e9, .help = "what an account has used counts half behind so long; 0: for ever"},
    {.key = "policy.min_run", .type = LS_OPTION_DURATION, FIELD(min_run_s), .default_text = "60s", .min = 0, .max = 1e9, .help = "a job is not stopped for others before it has run so long"},
    {.key = "policy.resize_pause", .type = LS_OPTION_DURATION, FIELD(resize_pause_s), .default_text = "10m", .min = 0, .max = 1e9, .help = "an elastic job is not made larger sooner than this behind its start or its last change of size"},
    {.key = "idle.after", .type = LS_OPTION_DURATION, FIELD(idle_s), .default_text = "10m", .min = 0, .max = 1e9, .help = "devices that were held for so long and did nothing are reported; 0: never"},
    {.key = "idle.below", .type = LS_OPTION_F64, FIELD(idle_fraction), .default_text = "0.05", .min = 0, .max = 1, .help = "a device that is busy for less than this part of the time does nothing"},
    {.key = "idle.look", .type = LS_OPTION_DURATION, FIELD(look_s), .default_text = "10s", .min = 0.05, .max = 3600, .help = "time between two looks at what jobs do"},
    {.key = "money.price", .type = LS_OPTION_F64, FIELD(price), .default_text = "0", .min = 0, .max = 1e9, .help = "of a device for an hour; 0: not known"},
    {.key = "money.currency", .type = LS_OPTION_STRING, FIELD(currency), .default_text = "USD", .help = "of the price"},
    {.key = "accounts.strict", .type = LS_OPTION_BOOL, FIELD(strict_accounts), .default_text = "false", .help = "jobs of accounts that are not listed here are refused; else an account is made when it is first used"},
    {.key = "accounts.list", .type = LS_OPTION_STRINGS, FIELD(accounts), .default_text = "[]", .value_name = "NAME:...", .help = "accounts and what they may use: [\"research:weight=2,quota=8,borrow=4,lend=8,users=ann+bob,priority_max=high\"]; quota is in devices, borrow beyond it of what others leave, lend of it to others; users may use it, none listed: everybody; priority_max (normal) is as far as they may go"},
};
/* clang-format on */

static const ls_option_section sections[] = {
    {"keep", "what is kept of ended jobs"},
    {"slurm", "for engine slurm"},
    {"tls", "for an address beyond this machine"},
    {"policy", "who runs next"},
    {"idle", "devices that are held and do nothing"},
    {"money", "what device-hours cost"},
    {"accounts", "who is charged"},
};

const ls_option_table *ls_daemon_settings_table(void)
{
    static const ls_option_table table = {
        .options = options,
        .count = sizeof options / sizeof options[0],
        .sections = sections,
        .section_count = sizeof sections / sizeof sections[0],
    };
    return &table;
}

ls_status ls_daemon_settings_load(const char *path, ls_arena *arena, ls_daemon_settings *settings_out)
{
    const ls_option_table *table = ls_daemon_settings_table();
    ls_options_defaults(table, settings_out, arena);
    if (!ls_path_exists(path)) {
        return LS_OK;
    }
    ls_document doc;
    LS_TRY(ls_yaml_load(path, &doc));
    const ls_status status = ls_options_apply_document(table, settings_out, &doc, arena);
    ls_document_release(&doc);
    return status;
}

ls_controller_settings ls_daemon_controller_settings(const ls_daemon_settings *settings)
{
    return (ls_controller_settings){
        .order = orders[settings->order],
        .preempt = settings->preempt,
        .reservations = (uint32_t)settings->reservations,
        .half_life_s = settings->half_life_s,
        .min_run_s = settings->min_run_s,
        .resize_pause_s = settings->resize_pause_s,
        .idle_s = settings->idle_s,
        .idle_permille = (uint32_t)(1000.0 * settings->idle_fraction),
        .start_timeout_s = settings->start_timeout_s,
        .price_per_device_h = settings->price,
        .currency = settings->currency,
        .strict_accounts = settings->strict_accounts,
        .jobs_max = (uint32_t)settings->jobs_max,
        .user_jobs_max = (uint32_t)settings->user_jobs_max,
        .bytes_max = settings->bytes_max,
        .user_bytes_max = settings->user_bytes_max,
        .ended_max = (uint32_t)settings->ended_max,
    };
}

/* "ann+bob" */
static bool take_users(ls_account *account, const char *item, size_t bytes)
{
    char names[LS_ACCOUNT_USERS_BYTES_MAX + 1], *rest = NULL;
    if (bytes >= sizeof names) {
        return false;
    }
    memcpy(names, item, bytes);
    names[bytes] = '\0';
    bool is_good = names[strspn(names, "+")] != '\0'; /* none would be everybody */
    for (char *name = strtok_r(names, "+", &rest); name && is_good; name = strtok_r(NULL, "+", &rest)) {
        is_good = ls_account_add_user(account, name) == LS_OK;
    }
    return is_good;
}

/* One "key=value". */
static bool take_limit(ls_account *account, const char *item, size_t bytes)
{
    char text[64], key[16], *end = NULL;
    if (strncmp(item, "users=", 6) == 0) {
        return bytes >= 6 && take_users(account, item + 6, bytes - 6);
    }
    if (bytes >= sizeof text) {
        return false;
    }
    memcpy(text, item, bytes);
    text[bytes] = '\0';
    const char *equals = strchr(text, '=');
    if (strncmp(text, "priority_max=", 13) == 0) {
        return ls_account_set_priority(account, text + 13) == LS_OK;
    }
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof key || equals[1] < '0' ||
        equals[1] > '9') {
        return false;
    }
    memcpy(key, text, (size_t)(equals - text));
    key[equals - text] = '\0';
    const unsigned long long value = strtoull(equals + 1, &end, 10);
    uint32_t *place = strcmp(key, "weight") == 0   ? &account->weight
                      : strcmp(key, "quota") == 0  ? &account->quota
                      : strcmp(key, "borrow") == 0 ? &account->borrow
                      : strcmp(key, "lend") == 0   ? &account->lend
                                                   : NULL;
    if (*end != '\0' || value >= UINT32_MAX || !place ||
        (place == &account->weight && (value < 1 || value > LS_ACCOUNT_WEIGHT_MAX))) {
        return false;
    }
    *place = (uint32_t)value;
    return true;
}

ls_status ls_daemon_account_parse(const char *text, ls_account *account_out)
{
    ls_account account = ls_account_default();
    const size_t name_bytes = strcspn(text, ":");
    bool is_good = name_bytes < sizeof account.name;
    if (is_good) {
        memcpy(account.name, text, name_bytes);
        is_good = ls_account_name_is_good(account.name);
    }
    const char *at = text + name_bytes;
    while (is_good && *at) {
        at++; /* the colon, or a comma */
        const size_t bytes = strcspn(at, ",");
        is_good = take_limit(&account, at, bytes);
        at += bytes;
    }
    if (!is_good) {
        return ls_fail(LS_ERR_INVALID,
                       "accounts.list has '%.80s'; write NAME or "
                       "NAME:weight=N,quota=N,borrow=N,lend=N,users=ann+bob,priority_max=high with "
                       "whole numbers",
                       text);
    }
    *account_out = account;
    return LS_OK;
}
