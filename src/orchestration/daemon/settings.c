// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/settings.h"

#include "base/file.h"
#include "base/yaml.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const engines[] = {"local", "slurm", NULL};
static const char *const loopbacks[] = {"auto", "open", "token", NULL};
static const char *const stricts[] = {"auto", "false", "own", "true", NULL};
static const char *const formats[] = {"json", "slack", NULL};
static const char *const orders[] = {"fair", "fifo", "fifo-skip", "easy", "sjf-oracle", "las", NULL};

#define FIELD(name) .offset = offsetof(ls_daemon_settings, name)

/* clang-format off */
static const ls_option options[] = {
    {.key = "engine", .type = LS_OPTION_CHOICE, FIELD(engine), .default_text = "local", .choices = engines, .help = "what runs the jobs: this machine (local), or the Slurm cluster it belongs to (slurm)"},
    {.key = "slots", .type = LS_OPTION_U64, FIELD(slots), .default_text = "0", .min = 0, .max = 4096, .help = "number of devices this machine offers; 0: one per GPU, or one per core if there is no GPU"},
    {.key = "spot", .type = LS_OPTION_BOOL, FIELD(spot), .default_text = "false", .help = "whether this machine may be taken away at short notice; if so, only jobs with job.spot run on it"},
    {.key = "listen", .type = LS_OPTION_STRING, FIELD(listen), .default_text = "auto", .value_name = "HOST:PORT", .help = "address at which the daemon serves its API and web page; auto: 127.0.0.1:7600, or a free port if that one is taken; port 0: any free port; \"\": only the Unix socket. An address that other machines can reach needs tls.certificate and tls.key"},
    {.key = "jobs_max", .type = LS_OPTION_U64, FIELD(jobs_max), .default_text = "20000", .min = 1, .max = 1 << 20, .help = "maximum number of jobs in the queue that have not ended; further jobs are refused"},
    {.key = "user_jobs_max", .type = LS_OPTION_U64, FIELD(user_jobs_max), .default_text = "5000", .min = 1, .max = 1 << 20, .help = "maximum number of jobs of one user that have not ended; further jobs of that user are refused; the daemon\'s owner is exempt"},
    {.key = "bytes_max", .type = LS_OPTION_BYTES, FIELD(bytes_max), .default_text = "1GiB", .min = 1 << 20, .max = 1e12, .help = "maximum total size of the run files and environment variables of all jobs that have not ended; further jobs are refused"},
    {.key = "user_bytes_max", .type = LS_OPTION_BYTES, FIELD(user_bytes_max), .default_text = "128MiB", .min = 1 << 20, .max = 1e12, .help = "maximum total size of the run files and environment variables of one user\'s jobs that have not ended; further jobs of that user are refused; the daemon\'s owner is exempt"},
    {.key = "ended_max", .type = LS_OPTION_U64, FIELD(ended_max), .default_text = "2000", .min = 1, .max = 1 << 20, .help = "maximum number of ended jobs that `ps --all` lists; older ones that are kept can be shown by number"},
    {.key = "start_timeout", .type = LS_OPTION_DURATION, FIELD(start_timeout_s), .default_text = "60s", .min = 1, .max = 86400, .help = "a job still STARTING after this time is treated as failed to start and queued again"},
    {.key = "keep.jobs", .type = LS_OPTION_U64, FIELD(jobs_kept), .default_text = "10000", .min = 1, .max = 1 << 30, .help = "maximum number of ended jobs whose records and folders are kept on disk; older ones are removed, except those that a waiting job names in job.after"},
    {.key = "keep.time", .type = LS_OPTION_DURATION, FIELD(kept_s), .default_text = "90d", .min = 0, .max = 1e9, .help = "ended jobs are removed this long after their end; 0: never"},
    {.key = "slurm.accounts", .type = LS_OPTION_BOOL, FIELD(slurm_accounts), .default_text = "false", .help = "submit each job to Slurm under the Slurm account of the same name as the job\'s account; it must exist there"},
    {.key = "tls.certificate", .type = LS_OPTION_STRING, FIELD(certificate), .default_text = "\"\"", .value_name = "FILE", .help = "TLS certificate (PEM), required if other machines can reach the address in `listen`"},
    {.key = "tls.key", .type = LS_OPTION_STRING, FIELD(key), .default_text = "\"\"", .value_name = "FILE", .help = "private key (PEM) of the certificate in tls.certificate"},
    {.key = "policy.order", .type = LS_OPTION_CHOICE, FIELD(order), .default_text = "fair", .choices = orders, .help = "order in which waiting jobs start: fair weighs priority, the account\'s share, waiting time and size; las prefers jobs that have used the fewest device-hours; the others are simple orders to compare these two with"},
    {.key = "policy.preempt", .type = LS_OPTION_BOOL, FIELD(preempt), .default_text = "true", .help = "allow running jobs to be stopped to make room for jobs that come before them in the queue"},
    {.key = "policy.reservations", .type = LS_OPTION_U64, FIELD(reservations), .default_text = "8", .min = 0, .max = 32, .help = "number of jobs at the head of the queue for which devices are set aside at a planned time; jobs further back may start earlier only if that does not delay these"},
    {.key = "policy.half_life", .type = LS_OPTION_DURATION, FIELD(half_life_s), .default_text = "7d", .min = 0, .max = 1e9, .help = "time after which past usage of an account counts half as much in its fair share; 0: past usage never decays"},
    {.key = "policy.min_run", .type = LS_OPTION_DURATION, FIELD(min_run_s), .default_text = "60s", .min = 0, .max = 1e9, .help = "minimum time that a job runs before it may be stopped for another job"},
    {.key = "policy.resize_pause", .type = LS_OPTION_DURATION, FIELD(resize_pause_s), .default_text = "10m", .min = 0, .max = 1e9, .help = "minimum time after its start or its last change of size before an elastic job may be given more devices"},
    {.key = "idle.after", .type = LS_OPTION_DURATION, FIELD(idle_s), .default_text = "10m", .min = 0, .max = 1e9, .help = "devices that a job has held without using them for this long are reported as idle; 0: never"},
    {.key = "idle.stop", .type = LS_OPTION_DURATION, FIELD(idle_stop_s), .default_text = "0", .min = 0, .max = 1e9, .help = "a job whose devices have been idle for this long, and were reported as idle, saves and is held until it is released; one that cannot continue later ends; 0: never"},
    {.key = "idle.interactive", .type = LS_OPTION_DURATION, FIELD(idle_interactive_s), .default_text = "30m", .min = 0, .max = 1e9, .help = "an interactive job (job.interactive) whose devices and terminal have not been used for this long ends, gives its devices back and is held until somebody wants them again; 0: never"},
    {.key = "idle.below", .type = LS_OPTION_F64, FIELD(idle_fraction), .default_text = "0.05", .min = 0, .max = 1, .help = "a device that is busy for less than this fraction of the time counts as idle"},
    {.key = "idle.look", .type = LS_OPTION_DURATION, FIELD(look_s), .default_text = "10s", .min = 0.05, .max = 3600, .help = "time between two measurements of how much jobs use their devices"},
    {.key = "alerts.utilisation", .type = LS_OPTION_F64, FIELD(busy_below), .default_text = "0.7", .min = 0, .max = 1, .help = "share of the time that the devices of a job should be busy; below it for as long as alerts.utilisation_for says there is an alert"},
    {.key = "alerts.utilisation_for", .type = LS_OPTION_DURATION, FIELD(busy_for_s), .default_text = "0", .min = 0, .max = 1e9, .help = "time over which alerts.utilisation is measured, such as 10m; 0: never"},
    {.key = "alerts.disk", .type = LS_OPTION_BYTES, FIELD(disk_bytes), .default_text = "1GiB", .min = 0, .max = 1e15, .help = "alert when the disk of the daemon\'s folder has less space left than this; 0: never"},
    {.key = "alerts.webhook", .type = LS_OPTION_STRING, FIELD(webhook), .default_text = "\"\"", .value_name = "URL", .help = "address (http:// or https://) to which each alert is sent by POST; its path is a secret and appears in no log; \"\": none"},
    {.key = "alerts.webhook_format", .type = LS_OPTION_CHOICE, FIELD(webhook_format), .default_text = "json", .choices = formats, .help = "form of what is sent: an object with all members of the alert (json), or a text for Slack and programs that take its messages (slack)"},
    {.key = "alerts.webhook_secret", .type = LS_OPTION_STRING, FIELD(webhook_secret), .default_text = "\"\"", .value_name = "FILE", .help = "file whose first line is the secret that signs what is sent to the webhook (HMAC-SHA256, header X-Lockstep-Signature); \"\": it is not signed"},
    {.key = "alerts.mail", .type = LS_OPTION_STRINGS, FIELD(mail), .default_text = "[]", .value_name = "ADDRESSES", .help = "mail addresses to which each alert is sent"},
    {.key = "alerts.sendmail", .type = LS_OPTION_STRING, FIELD(sendmail), .default_text = "/usr/sbin/sendmail", .value_name = "FILE", .help = "program that sends mails, called as sendmail is: it reads the mail, with its head, from standard input"},
    {.key = "money.price", .type = LS_OPTION_F64, FIELD(price), .default_text = "0", .min = 0, .max = 1e9, .help = "price of one device (a GPU, or a slot of a machine without GPUs) for one hour; 0: unknown, costs are not shown, and jobs with job.max_cost are refused"},
    {.key = "money.kinds", .type = LS_OPTION_STRINGS, FIELD(kind_prices), .default_text = "[]", .value_name = "KIND=PRICE", .help = "prices of devices by the kind of their node, where kinds differ, for example [h100=3.50, a100=1.80]: kinds as `lockstep nodes` shows them; money.price is that of all other kinds"},
    {.key = "money.storage", .type = LS_OPTION_F64, FIELD(storage_price), .default_text = "0", .min = 0, .max = 1e6, .help = "price of keeping a GB for a month, for what the folders of training runs hold; 0: unknown"},
    {.key = "money.egress", .type = LS_OPTION_F64, FIELD(egress_price), .default_text = "0", .min = 0, .max = 1e6, .help = "price of sending a GB to a mirror (checkpoint.mirror); 0: unknown"},
    {.key = "money.currency", .type = LS_OPTION_STRING, FIELD(currency), .default_text = "USD", .help = "currency of all prices; job.max_cost and budgets are kept in USD only"},
    {.key = "access.loopback", .type = LS_OPTION_CHOICE, FIELD(loopback), .default_text = "auto", .choices = loopbacks, .help = "which processes of this machine may use the daemon over 127.0.0.1 without an access token, each as the user it runs as; auto: all, except that a daemon of root asks processes of root for a token; open: all; token: none. A daemon of an ordinary user never serves other users"},
    {.key = "access.names", .type = LS_OPTION_BOOL, FIELD(show_names), .default_text = "false", .help = "show the name and user of every job to every user; logs, run files and metrics stay private"},
    {.key = "accounts.strict", .type = LS_OPTION_CHOICE, FIELD(strict_accounts), .default_text = "auto", .choices = stricts, .help = "which accounts are created when a job first uses them; false: any; own: only the account with the name of the user who submits the job, or any if that user is an administrator; true: none; auto: own on a daemon of root, otherwise false. Each new account gets a share of the devices of its own"},
    {.key = "accounts.list", .type = LS_OPTION_STRINGS, FIELD(accounts), .default_text = "[]", .value_name = "NAME:...", .help = "accounts and their limits, for example [\"research:weight=2,quota=8,borrow=4,lend=8,users=ann+bob,priority_max=high\"]: weight is the account's share in relation to other accounts; quota is the number of devices that are its own; borrow is how many unused devices of other accounts it may use in addition; lend is how many of its own unused devices other accounts may use; users lists who may use the account (default: everyone); priority_max is the highest priority of its jobs (default: normal); budget is what its jobs may cost in a calendar month, in USD: at 80 % the account\'s state is told, at 100 % its jobs are stopped and held (default: no limit)"},
};
/* clang-format on */

static const ls_option_section sections[] = {
    {"access", "who sees what, and without a token"},
    {"keep", "how long ended jobs are kept"},
    {"slurm", "only for engine slurm"},
    {"tls", "for an address that other machines can reach"},
    {"policy", "which job runs next"},
    {"idle", "devices that a job holds and does not use"},
    {"alerts", "what people are told at once"},
    {"money", "what device-hours cost"},
    {"accounts", "accounts that jobs are charged to"},
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
    const char *strict = stricts[settings->strict_accounts];
    strict = strcmp(strict, "auto") != 0 ? strict : geteuid() == 0 ? "own" : "false";
    return (ls_controller_settings){
        .order = orders[settings->order],
        .preempt = settings->preempt,
        .reservations = (uint32_t)settings->reservations,
        .half_life_s = settings->half_life_s,
        .min_run_s = settings->min_run_s,
        .resize_pause_s = settings->resize_pause_s,
        .idle_s = settings->idle_s,
        .idle_stop_s = settings->idle_stop_s,
        .idle_interactive_s = settings->idle_interactive_s,
        .busy_below = settings->busy_below,
        .busy_for_s = settings->busy_for_s,
        .idle_permille = (uint32_t)(1000.0 * settings->idle_fraction),
        .start_timeout_s = settings->start_timeout_s,
        .price_per_device_h = settings->price,
        .kind_prices = settings->kind_prices,
        .storage_price = settings->storage_price,
        .egress_price = settings->egress_price,
        .currency = settings->currency,
        .strict_accounts = strcmp(strict, "true") == 0,
        .own_accounts_only = strcmp(strict, "own") == 0,
        .show_names = settings->show_names,
        .jobs_max = (uint32_t)settings->jobs_max,
        .user_jobs_max = (uint32_t)settings->user_jobs_max,
        .bytes_max = settings->bytes_max,
        .user_bytes_max = settings->user_bytes_max,
        .ended_max = (uint32_t)settings->ended_max,
    };
}

ls_messenger_settings ls_daemon_messenger_settings(const ls_daemon_settings *settings)
{
    return (ls_messenger_settings){.webhook = settings->webhook,
                                   .format = (ls_webhook_format)settings->webhook_format,
                                   .secret_file = settings->webhook_secret,
                                   .mail = settings->mail,
                                   .sendmail = settings->sendmail};
}

void ls_daemon_token_needs(const ls_daemon_settings *settings, bool *owner_out, bool *users_out)
{
    const char *loopback = loopbacks[settings->loopback];
    *users_out = strcmp(loopback, "token") == 0;
    *owner_out = *users_out || (strcmp(loopback, "auto") == 0 && geteuid() == 0);
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
    bool is_good = names[strspn(names, "+")] != '\0'; /* an empty list would mean everyone */
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
    if (strncmp(text, "budget=", 7) == 0) {
        account->budget_usd = strtod(text + 7, &end);
        return text[7] >= '0' && text[7] <= '9' && *end == '\0' && account->budget_usd >= LS_BUDGET_USD_MIN &&
               account->budget_usd <= LS_BUDGET_USD_MAX;
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
        return ls_fail(
            LS_ERR_INVALID,
            "accounts.list has an invalid entry '%.80s': write the account's name alone, or with settings as "
            "in NAME:weight=N,quota=N,borrow=N,lend=N,users=ann+bob,priority_max=high,budget=USD, where N is "
            "a "
            "whole number and USD an amount of 0.01 or more without a currency: budgets are in USD",
            text);
    }
    *account_out = account;
    return LS_OK;
}

static ls_status check_kind_prices(const ls_daemon_settings *settings)
{
    const ls_option_strings *prices = &settings->kind_prices;
    if (prices->count > 0 && !(settings->price > 0.0)) {
        return ls_fail(LS_ERR_INVALID,
                       "money.kinds needs money.price, the price of a device of any other kind");
    }
    for (uint64_t i = 0; i < prices->count; i++) {
        const char *item = prices->items[i];
        const size_t bytes = strcspn(item, "=");
        char *end = NULL;
        const double price = item[bytes] && item[bytes + 1] >= '0' && item[bytes + 1] <= '9'
                                 ? strtod(item + bytes + 1, &end)
                                 : 0.0;
        if (bytes == 0 || bytes > LS_JOB_KIND_BYTES_MAX || !(price > 0.0 && price <= 1e9) || *end) {
            return ls_fail(
                LS_ERR_INVALID,
                "money.kinds has an invalid entry '%.80s': write KIND=PRICE, such as h100=3.50, with "
                "a price above 0 and up to 1000000000, without a currency",
                item);
        }
        for (uint64_t j = 0; j < i; j++) {
            if (strncmp(item, prices->items[j], bytes + 1) == 0) {
                return ls_fail(LS_ERR_INVALID, "money.kinds has two prices for %.*s", (int)bytes, item);
            }
        }
    }
    return LS_OK;
}

ls_status ls_daemon_lists_check(const ls_daemon_settings *settings)
{
    LS_TRY(check_kind_prices(settings));
    for (uint64_t i = 0; i < settings->accounts.count; i++) {
        ls_account account, other;
        LS_TRY(ls_daemon_account_parse(settings->accounts.items[i], &account));
        for (uint64_t j = 0; j < i; j++) {
            LS_TRY(ls_daemon_account_parse(settings->accounts.items[j], &other));
            if (strcmp(account.name, other.name) == 0) {
                return ls_fail(LS_ERR_INVALID,
                               "accounts.list has two entries for account %s; write all its settings in one",
                               account.name);
            }
        }
    }
    return LS_OK;
}
