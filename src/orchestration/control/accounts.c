// SPDX-License-Identifier: Apache-2.0
/*
 * Accounts: who is charged for a job, and who may charge whom. As with Slurm's associations:
 *
 *   - every user has an account of the same name, which is only for that user; an account named
 *     after another user belongs to that user
 *   - any other account is open to its members, or to everyone when it lists none; the user who
 *     first names a new one becomes its member. With accounts.strict `own`, only administrators
 *     make such accounts: each is a share of its own, and who could make shares would get more
 *   - an account that allows high priority and lists no members is open to administrators only
 *   - an account has a highest priority for its jobs; lower ones are always allowed
 *   - administrators may do all of this
 */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ls_caller_is_admin(const ls_caller *caller)
{
    return caller->is_admin || caller->uid == 0;
}

/* ---- names ---- */

bool ls_account_name_is_good(const char *name)
{
    return name[0] && name[0] != '.' && name[0] != '-' && strlen(name) <= LS_JOB_ACCOUNT_BYTES_MAX &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name);
}

static const char *own_account(const char *user, char account[LS_JOB_ACCOUNT_BYTES_MAX + 1])
{
    size_t bytes = 0;
    for (const char *at = user; *at && bytes < LS_JOB_ACCOUNT_BYTES_MAX; at++) {
        const bool is_plain =
            isalnum((unsigned char)*at) || *at == '_' || (bytes > 0 && (*at == '-' || *at == '.'));
        account[bytes++] = is_plain ? *at : '_';
    }
    account[bytes] = '\0';
    return bytes > 0 ? account : "default";
}

static ls_account_entry *find(const ls_controller *c, const char *name)
{
    for (uint32_t i = 0; i < c->account_count; i++) {
        if (strcmp(c->accounts[i]->account.name, name) == 0 && !c->accounts[i]->account.is_deleted) {
            return c->accounts[i];
        }
    }
    return NULL;
}

/* ---- members ---- */

ls_status ls_account_add_user(ls_account *account, const char *user)
{
    const size_t bytes = strlen(account->users), more = strlen(user);
    bool is_plain = more > 0;
    for (const unsigned char *at = (const unsigned char *)user; *at; at++) {
        is_plain = is_plain && *at > 0x20 && *at != 0x7f && *at != ',' && *at != '+' && *at != '"';
    }
    if (!is_plain) {
        return ls_fail(LS_ERR_INVALID,
                       "account %s: '%.64s' in its list of users cannot be a user name: it is empty or has "
                       "blanks, commas, '+' or quotes",
                       account->name, user);
    }
    if (bytes + more + 2 > sizeof account->users) {
        return ls_fail(LS_ERR_INVALID,
                       "account %s: the names in its list of users are too long; together they can have at "
                       "most %d bytes",
                       account->name, LS_ACCOUNT_USERS_BYTES_MAX);
    }
    snprintf(account->users + bytes, sizeof account->users - bytes, "%s%s", bytes > 0 ? "," : "", user);
    return LS_OK;
}

static bool has_member(const ls_account *account, const char *user)
{
    const size_t bytes = strlen(user);
    for (const char *at = account->users; *at;) {
        const size_t length = strcspn(at, ",");
        if (length == bytes && memcmp(at, user, bytes) == 0) {
            return true;
        }
        at += length + (at[length] == ',');
    }
    return false;
}

json_t *ls_accounts_users_json(const ls_account *account)
{
    if (!account->users[0]) {
        return json_null();
    }
    json_t *list = json_array();
    for (const char *at = account->users; *at;) {
        const size_t length = strcspn(at, ",");
        json_t *name = json_stringn(at, length);
        json_array_append_new(list, name ? name : json_string("?"));
        at += length + (at[length] == ',');
    }
    return list;
}

/* ---- what a job may ask for ---- */

static bool is_another_user(const ls_controller *c, const char *name)
{
    return c->calls.is_user && c->calls.is_user(c->calls.context, name);
}

static bool may_use(const ls_controller *c, const ls_caller *caller, const char *name, const char *own,
                    const ls_account_entry *account, ls_answer *refusal_out)
{
    if (ls_caller_is_admin(caller) || strcmp(name, own) == 0 ||
        (account && has_member(&account->account, caller->user))) {
        return true;
    }
    if (is_another_user(c, name)) {
        *refusal_out = ls_answer_fail(
            403, "you may not use account %s, which belongs to the user of that name; your own is %s", name,
            own);
        return false;
    }
    if (account && (account->account.users[0] || account->account.priority_max > LS_PRIORITY_NORMAL)) {
        *refusal_out = ls_answer_fail(403,
                                      "you may not use account %s; your own is %s. An administrator can add "
                                      "you: 'lockstep accounts %s --users ..'",
                                      name, own, name);
        return false;
    }
    return true;
}

const char *ls_accounts_open_to(const ls_controller *c, const ls_caller *caller, const ls_account *account)
{
    char own_name[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    if (strcmp(account->name, own_account(caller->user, own_name)) == 0 ||
        has_member(account, caller->user)) {
        return "you";
    }
    return account->users[0] || account->priority_max > LS_PRIORITY_NORMAL ||
                   is_another_user(c, account->name)
               ? "others"
               : "anyone";
}

bool ls_accounts_allow_priority(const ls_controller *c, const ls_caller *caller, const char *name,
                                ls_priority priority, ls_answer *refusal_out)
{
    const ls_account_entry *account = find(c, name);
    const ls_priority max = account ? account->account.priority_max : LS_PRIORITY_NORMAL;
    if (priority <= max || ls_caller_is_admin(caller)) {
        return true;
    }
    *refusal_out = ls_answer_fail(403,
                                  "priority is %s, but account %s allows at most %s. An administrator can "
                                  "change that: 'lockstep accounts %s --priority-max %s'",
                                  ls_priority_name(priority), name, ls_priority_name(max), name,
                                  ls_priority_name(priority));
    return false;
}

/*
 * Whether a user's own account has to be given back to that user: it lists no members, or only
 * another user, who named it first. (A user who is not listed on this machine, as with LDAP, is
 * unknown to is_another_user until the first call.) Several members were set by an administrator
 * and stay.
 */
static bool is_taken_from(const ls_account *account, const char *user)
{
    return !has_member(account, user) && !strchr(account->users, ',');
}

static void make_private(ls_account *account, const char *user, const char *own)
{
    account->users[0] = '\0';
    if (ls_account_add_user(account, user) != LS_OK) {
        /* the name cannot be in a list */
        snprintf(account->users, sizeof account->users, "%s", own);
        ls_error_clear();
    }
}

bool ls_accounts_admit(ls_controller *c, const ls_caller *caller, ls_job *job, ls_account_entry **account_out,
                       ls_answer *refusal_out)
{
    char own_name[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    const char *own = own_account(caller->user, own_name);
    if (!job->spec.account[0]) {
        ls_job_set_account(job, own);
    }
    const bool is_new = find(c, job->account) == NULL;
    if (!may_use(c, caller, job->account, own, find(c, job->account), refusal_out) ||
        !ls_accounts_allow_priority(c, caller, job->account, job->priority, refusal_out)) {
        return false;
    }
    if (is_new && c->settings.own_accounts_only && strcmp(job->account, own) != 0 &&
        !ls_caller_is_admin(caller)) {
        *refusal_out =
            ls_answer_fail(403,
                           "account %s does not exist; your own is %s. An administrator can create "
                           "it: 'lockstep accounts %s --users %s'",
                           job->account, own, job->account, caller->user);
        return false;
    }
    if (ls_queue_account(c, job->account, account_out) != LS_OK) {
        *refusal_out = ls_answer_error(LS_ERR_INVALID);
        return false;
    }
    ls_account *account = &(*account_out)->account;
    const bool is_own = strcmp(account->name, own) == 0;
    if ((is_new && (is_own || !is_another_user(c, account->name))) ||
        (is_own && caller->user[0] && is_taken_from(account, caller->user))) {
        make_private(account, caller->user, own);
    }
    return true;
}

void ls_accounts_forget_after(ls_controller *c, uint32_t count)
{
    while (c->account_count > count) {
        free(c->accounts[--c->account_count]);
    }
}

/* ---- change ---- */

ls_account ls_account_default(void)
{
    return (ls_account){.weight = 1,
                        .quota = UINT32_MAX,
                        .borrow = UINT32_MAX,
                        .lend = UINT32_MAX,
                        .priority_max = LS_PRIORITY_NORMAL};
}

static ls_status get_limit(const json_t *arguments, const char *key, uint32_t *limit)
{
    const json_t *value = json_object_get(arguments, key);
    uint64_t number = *limit;
    if (json_is_null(value)) { /* null: no limit */
        *limit = UINT32_MAX;
        return LS_OK;
    }
    LS_TRY(ls_json_get_u64(arguments, "an account", key, 0, UINT32_MAX - 1, number, &number));
    *limit = (uint32_t)number;
    return LS_OK;
}

static ls_status get_budget(const ls_controller *c, const json_t *arguments, ls_account *account)
{
    const json_t *value = json_object_get(arguments, "budget");
    if (!value || json_is_null(value)) { /* null: no budget */
        account->budget_usd = value ? 0.0 : account->budget_usd;
        return LS_OK;
    }
    LS_TRY(ls_json_get_f64(arguments, "an account", "budget", LS_BUDGET_USD_MIN, LS_BUDGET_USD_MAX, 0.0,
                           &account->budget_usd));
    return ls_money_is_known(c, "a budget");
}

static ls_status get_users(const json_t *arguments, ls_account *account)
{
    const json_t *list = json_object_get(arguments, "users"), *item;
    size_t i;
    if (!list) {
        return LS_OK;
    }
    if (!json_is_array(list) && !json_is_null(list)) {
        return ls_fail(LS_ERR_INVALID,
                       "field \"users\" of an account must be a list of user names, or null for everyone");
    }
    if (json_is_array(list) && json_array_size(list) == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "account %s: `users` must not be empty. Use null to let everyone use the account; to "
                       "restrict it, list at least one user (administrators can always use it)",
                       account->name);
    }
    account->users[0] = '\0';
    json_array_foreach(list, i, item)
    {
        LS_TRY(ls_account_add_user(account, json_is_string(item) ? json_string_value(item) : ""));
    }
    return LS_OK;
}

ls_status ls_account_set_priority(ls_account *account, const char *name)
{
    if (ls_priority_parse(name, &account->priority_max)) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID, "priority_max of account %s is '%.20s', allowed is low, normal or high",
                   account->name, name);
}

static ls_status read_changes(const ls_controller *c, const json_t *arguments, ls_account *account)
{
    uint64_t weight = account->weight;
    const char *priority = NULL;
    LS_TRY(ls_json_get_u64(arguments, "an account", "weight", 1, LS_ACCOUNT_WEIGHT_MAX, weight, &weight));
    account->weight = (uint32_t)weight;
    LS_TRY(get_limit(arguments, "quota", &account->quota));
    LS_TRY(get_limit(arguments, "borrow", &account->borrow));
    LS_TRY(get_limit(arguments, "lend", &account->lend));
    LS_TRY(get_budget(c, arguments, account));
    LS_TRY(get_users(arguments, account));
    LS_TRY(ls_json_get_string(arguments, "an account", "priority_max", NULL, &priority));
    return priority ? ls_account_set_priority(account, priority) : LS_OK;
}

/* Accounts of jobs that have not ended stay. */
static ls_answer delete_account(ls_controller *c, const char *name)
{
    ls_account_entry *entry = find(c, name);
    uint32_t live = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        live += !ls_job_state_is_final(job->state) && strcmp(job->account, name) == 0;
    }
    if (!entry) {
        return ls_answer_fail(404, "account %s does not exist", name);
    }
    if (live > 0) {
        return ls_answer_fail(409, "account %s has %u job%s that %s not ended: cancel %s, or wait", name,
                              live, live == 1 ? "" : "s", live == 1 ? "has" : "have",
                              live == 1 ? "it" : "them");
    }
    ls_account deleted = ls_account_default();
    snprintf(deleted.name, sizeof deleted.name, "%s", name);
    deleted.is_deleted = true;
    entry->account = deleted;
    entry->is_changed = true;
    c->has_work = true;
    return (ls_answer){200, json_pack("{s:s}", "account", name), 0};
}

ls_answer ls_accounts_change(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const char *name = json_string_value(json_object_get(arguments, "account"));
    if (!ls_caller_is_admin(caller)) {
        return ls_answer_fail(403, "only an administrator can change accounts");
    }
    if (!name || !ls_account_name_is_good(name)) {
        return ls_answer_fail(400,
                              "the name of an account must have 1 to %d letters, digits, '.', '_' and '-'",
                              LS_JOB_ACCOUNT_BYTES_MAX);
    }
    if (json_is_true(json_object_get(arguments, "delete"))) {
        return delete_account(c, name);
    }
    const ls_account_entry *entry = find(c, name);
    ls_account changed = entry ? entry->account : ls_account_default();
    snprintf(changed.name, sizeof changed.name, "%s", name);
    ls_status status = read_changes(c, arguments, &changed);
    status = status == LS_OK ? ls_controller_set_account(c, &changed) : status;
    if (status != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    return (ls_answer){200, json_pack("{s:s}", "account", name), 0};
}
