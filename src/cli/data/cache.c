// SPDX-License-Identifier: Apache-2.0
/* cache ls|clear|verify|limit: the cache of tokenized datasets. */
#include "storage/cache/cache.h"

#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/table.h"
#include "data/token_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROW_DIR(record)                                                                                      \
    LS_ROW_TEXT(record, dir, "DIR",                                                                          \
                "folder of the cache (data.cache_dir of a run file); default $LOCKSTEP_HOME/cache/tokens",   \
                .value_needed = true)

/* Opens the cache in `dir` ("": the usual folder) for the work of a command. */
static ls_status with_cache(const ls_invocation *invocation, const char *dir,
                            ls_status (*work)(const ls_invocation *invocation, ls_cache *cache))
{
    const char *folder = dir[0] ? dir : ls_token_cache_default_folder(invocation->arena);
    ls_cache *cache = NULL;
    if (!folder[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "no cache folder: neither LOCKSTEP_HOME nor HOME is set; give --dir DIR");
    }
    LS_TRY(ls_cache_open(&(ls_cache_options){.folder = folder, .suffix = LS_TOKEN_CACHE_SUFFIX}, &cache));
    const ls_status status = work(invocation, cache);
    ls_cache_close(cache);
    return status;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* Chooses the entries whose keys begin with one of the words; all entries when there are no words.
 * Each word must match exactly one entry. */
static ls_status choose(const ls_invocation *invocation, ls_cache_entry *entries, size_t count,
                        bool *chosen_out)
{
    for (size_t i = 0; i < count; i++) {
        chosen_out[i] = invocation->word_count == 0;
    }
    for (size_t w = 0; w < invocation->word_count; w++) {
        size_t found = 0;
        const char *word = invocation->words[w];
        for (size_t i = 0; i < count; i++) {
            if (strncmp(entries[i].key, word, strlen(word)) == 0) {
                chosen_out[i] = true;
                found++;
            }
        }
        if (found != 1) {
            return ls_fail(
                LS_ERR_NOT_FOUND, "%s that begins with '%s'; 'lockstep cache ls' lists all keys",
                found == 0 ? "no cached dataset has a key" : "more than one cached dataset has a key", word);
        }
    }
    return LS_OK;
}

/* ---- ls ---- */

typedef struct ls_settings {
    const char *dir;
    bool json;
} ls_settings;

static const ls_option ls_rows[] = {ROW_DIR(ls_settings), LS_ROW_JSON(ls_settings)};

static json_t *users_to_json(const ls_cache_entry *e)
{
    json_t *users = json_array();
    for (size_t i = 0; i < e->user_count; i++) {
        json_t *job = e->users[i].job > 0 ? json_integer((json_int_t)e->users[i].job) : json_null();
        json_array_append_new(users, json_pack("{s:i, s:o}", "pid", (int)e->users[i].pid, "job", job));
    }
    return users;
}

static void print_json(ls_cache *cache, const ls_cache_limits *limits, const ls_cache_entry *entries,
                       size_t count)
{
    json_t *list = json_array();
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_cache_entry *e = &entries[i];
        bytes += e->bytes;
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:s, s:f, s:I, s:b, s:b, s:b, s:o}", "key", e->key,
                                        "bytes", (json_int_t)e->bytes, "what", e->what, "used_s", e->used_s,
                                        "uid", (json_int_t)e->uid, "believed", e->believed, "making",
                                        e->is_making, "pinned", e->is_pinned, "users", users_to_json(e)));
    }
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:o}", "folder", ls_cache_folder(cache), "bytes",
                             (json_int_t)bytes, "quota_bytes", (json_int_t)limits->quota_bytes,
                             "keep_free_bytes", (json_int_t)limits->keep_free_bytes, "entries", list);
    ls_print_json(root);
    json_decref(root);
}

/* "job 12, pid 4711 and 3 more"; the processes of one job count once. */
static const char *users_text(ls_arena *arena, const ls_cache_entry *e)
{
    enum { SHOWN = 2 };
    const char *text = e->is_making ? "being made by " : "";
    size_t named = 0, more = 0;
    for (size_t i = 0; i < e->user_count; i++) {
        const ls_cache_user *u = &e->users[i];
        bool is_new = true;
        for (size_t k = 0; k < i; k++) {
            is_new = is_new && (u->job == 0 || e->users[k].job != u->job);
        }
        if (is_new && named < SHOWN) {
            text = u->job > 0
                       ? ls_arena_printf(arena, "%s%sjob %" PRIu64, text, named > 0 ? ", " : "", u->job)
                       : ls_arena_printf(arena, "%s%spid %" PRId32, text, named > 0 ? ", " : "", u->pid);
            named++;
        } else {
            more += is_new;
        }
    }
    if (named == 0) {
        return e->is_making || e->is_pinned ? "others" : "";
    }
    return more == 0 ? text : ls_arena_printf(arena, "%s and %zu more", text, more);
}

static void print_entries(ls_arena *arena, const ls_cache_entry *entries, size_t count)
{
    static const char *const titles[] = {"KEY", "MIB", "LAST USED", "IN USE BY", "WHAT"};
    static const bool right[] = {false, true, true, false, false};
    ls_table table = {.titles = titles, .right = right, .columns = 5, .arena = arena};
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < count; i++) {
        const ls_cache_entry *e = &entries[i];
        ls_table_printf(&table, "%.12s", e->key);
        ls_table_printf(&table, "%.1f", mib(e->bytes));
        ls_table_printf(&table, "%s ago", ls_duration_of(now_s > e->used_s ? now_s - e->used_s : 0.0).text);
        ls_table_add(&table, users_text(arena, e));
        ls_table_printf(&table, "%s%s", e->believed ? "" : "(other user's, not used) ", e->what);
    }
    ls_table_print(&table);
}

static ls_status list_cache(const ls_invocation *invocation, ls_cache *cache)
{
    const ls_settings *settings = invocation->settings;
    ls_cache_entry *entries = NULL;
    ls_cache_limits limits;
    size_t count = 0;
    uint64_t bytes = 0;
    LS_TRY(ls_cache_limits_load(invocation->arena, ls_cache_folder(cache), &limits));
    LS_TRY(ls_cache_list(cache, invocation->arena, &entries, &count));
    if (settings->json) {
        print_json(cache, &limits, entries, count);
        return LS_OK;
    }
    for (size_t i = 0; i < count; i++) {
        bytes += entries[i].bytes;
    }
    if (count > 0) {
        print_entries(invocation->arena, entries, count);
    }
    printf("%zu %s, %.1f MiB of %.1f in %s\n", count, count == 1 ? "entry" : "entries", mib(bytes),
           mib(limits.quota_bytes), ls_cache_folder(cache));
    return LS_OK;
}

static ls_status run_ls(const ls_invocation *invocation)
{
    const ls_settings *settings = invocation->settings;
    return with_cache(invocation, settings->dir, list_cache);
}

const ls_command ls_command_cache_ls = {
    .name = "cache ls",
    .words = "",
    .summary = "list tokenized datasets on this machine and who uses them",
    .details = "Each text is tokenized once per tokenizer and kept under a key of its content.\n"
               "Runs on the same text share the entry; jobs that start together wait for the\n"
               "first to make it. Entries in use are kept. The others are removed, least\n"
               "recently used first, when the space is needed ('lockstep cache limit'). IN USE\n"
               "BY shows jobs of the queue and processes; those of other users cannot be seen.\n"
               "\n"
               "Example:\n"
               "  lockstep cache ls",
    LS_SETTINGS(ls_settings, ls_rows),
    .run = run_ls,
};

/* ---- clear ---- */

typedef struct clear_settings {
    const char *dir;
    double older_s;
    bool json;
} clear_settings;

static const ls_option clear_rows[] = {
    LS_ROW_DURATION(clear_settings, older, older_s, "0", 0, 1e9,
                    "remove only datasets that have not been used for this long, such as 7d",
                    .unit_needed = true),
    ROW_DIR(clear_settings),
    LS_ROW_JSON(clear_settings),
};

typedef struct clearing {
    size_t removed, used;
    uint64_t bytes;
} clearing;

static ls_status clear_entry(ls_cache *cache, const ls_cache_entry *e, clearing *total)
{
    bool removed = false;
    LS_TRY(ls_cache_remove(cache, e->key, &removed));
    total->removed += removed;
    total->used += !removed;
    total->bytes += removed ? e->bytes : 0;
    return LS_OK;
}

static ls_status clear_cache(const ls_invocation *invocation, ls_cache *cache)
{
    const clear_settings *settings = invocation->settings;
    ls_cache_entry *entries = NULL;
    size_t count = 0;
    clearing total = {0};
    const double now_s = ls_clock_wall_s();
    LS_TRY(ls_cache_list(cache, invocation->arena, &entries, &count));
    bool *chosen = ls_arena_new(invocation->arena, bool, count);
    LS_TRY(choose(invocation, entries, count, chosen));
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] && now_s - entries[i].used_s >= settings->older_s) {
            LS_TRY(clear_entry(cache, &entries[i], &total));
        }
    }
    LS_TRY(ls_cache_sweep(cache));
    if (settings->json) {
        json_t *root = json_pack("{s:I, s:I, s:I}", "removed", (json_int_t)total.removed, "bytes",
                                 (json_int_t)total.bytes, "in_use", (json_int_t)total.used);
        ls_print_json(root);
        json_decref(root);
    } else {
        printf("removed %zu %s, %.1f MiB", total.removed, total.removed == 1 ? "entry" : "entries",
               mib(total.bytes));
        printf(total.used > 0 ? "; kept %zu in use\n" : "\n", total.used);
    }
    return total.used > 0 && invocation->word_count > 0
               ? ls_fail(LS_ERR_FAILED, "cached datasets that are in use were not removed; 'lockstep cache "
                                        "ls' shows who uses them")
               : LS_OK;
}

static ls_status run_clear(const ls_invocation *invocation)
{
    const clear_settings *settings = invocation->settings;
    return with_cache(invocation, settings->dir, clear_cache);
}

const ls_command ls_command_cache_clear = {
    .name = "cache clear",
    LS_WORDS("[KEY...]", 0, 1000000),
    .summary = "remove tokenized datasets that are not in use",
    .details = "KEY is the beginning of a key that 'lockstep cache ls' shows. Without KEY all\n"
               "entries are removed, or with --older those that were not used for that time.\n"
               "Entries in use are never removed; naming one is an error (exit code 1). Runs\n"
               "make removed entries again when they need them.\n"
               "\n"
               "Examples:\n"
               "  lockstep cache clear --older 7d\n"
               "  lockstep cache clear 3f2a91",
    LS_SETTINGS(clear_settings, clear_rows),
    .run = run_clear,
};

/* ---- verify ---- */

typedef struct verify_settings {
    const char *dir;
    bool remove, json;
} verify_settings;

static const ls_option verify_rows[] = {
    LS_ROW_BOOL(verify_settings, remove, "remove damaged datasets; runs then tokenize the text again"),
    ROW_DIR(verify_settings),
    LS_ROW_JSON(verify_settings),
};

/* NULL when the entry is good. */
static const char *problem_of(const ls_invocation *invocation, ls_cache *cache, const ls_cache_entry *e)
{
    const char *path =
        ls_cache_entry_path(invocation->arena, ls_cache_folder(cache), e->key, LS_TOKEN_CACHE_SUFFIX);
    const ls_status status =
        e->believed
            ? ls_token_cache_verify(path, e->key)
            : ls_fail(
                  LS_ERR_DATA,
                  "%s belongs to another user (user id %u), and you do not use that user's cached datasets",
                  path, e->uid);
    return status == LS_OK ? NULL : ls_arena_strdup(invocation->arena, ls_error_text());
}

static ls_status verify_cache(const ls_invocation *invocation, ls_cache *cache)
{
    const verify_settings *settings = invocation->settings;
    ls_cache_entry *entries = NULL;
    size_t count = 0, damaged = 0;
    LS_TRY(ls_cache_list(cache, invocation->arena, &entries, &count));
    bool *chosen = ls_arena_new(invocation->arena, bool, count);
    LS_TRY(choose(invocation, entries, count, chosen));
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        if (!chosen[i] || entries[i].is_making) {
            continue;
        }
        bool removed = false;
        const char *problem = problem_of(invocation, cache, &entries[i]);
        damaged += problem != NULL;
        if (problem && settings->remove && ls_cache_remove(cache, entries[i].key, &removed) != LS_OK) {
            problem = ls_arena_printf(invocation->arena, "%s; %s", problem, ls_error_text());
        }
        json_array_append_new(list, json_pack("{s:s, s:s?, s:b}", "key", entries[i].key, "problem", problem,
                                              "removed", removed));
        if (!settings->json) {
            ls_text text = {0};
            ls_text_printf(&text, "%.12s: %s%s", entries[i].key, problem ? problem : "good",
                           removed ? "; removed" : "");
            ls_text line = {0};
            ls_text_append_printable(&line, ls_text_string(&text), text.bytes, "");
            printf("%s\n", ls_text_string(&line));
            ls_text_release(&line);
            ls_text_release(&text);
        }
    }
    if (settings->json) {
        json_t *root = json_pack("{s:O}", "entries", list);
        ls_print_json(root);
        json_decref(root);
    }
    json_decref(list);
    return damaged == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%zu of %zu %s damaged%s", damaged, count,
                         damaged == 1 ? "cached datasets is" : "cached datasets are",
                         settings->remove
                             ? ""
                             : "; --remove removes them, and the next run that needs one makes it again");
}

static ls_status run_verify(const ls_invocation *invocation)
{
    const verify_settings *settings = invocation->settings;
    return with_cache(invocation, settings->dir, verify_cache);
}

const ls_command ls_command_cache_verify = {
    .name = "cache verify",
    LS_WORDS("[KEY...]", 0, 1000000),
    .summary = "read every byte of tokenized datasets and check it",
    .details = "Reads all entries, or those named; KEY is the beginning of a key that 'lockstep\n"
               "cache ls' shows. Runs also check what they read. The exit code is 3 when an\n"
               "entry is damaged.\n"
               "\n"
               "Example:\n"
               "  lockstep cache verify --remove",
    LS_SETTINGS(verify_settings, verify_rows),
    .run = run_verify,
};

/* ---- limit ---- */

typedef struct limit_settings {
    const char *quota, *keep_free, *group, *dir;
    bool json;
} limit_settings;

static const ls_option limit_rows[] = {
    LS_ROW_TEXT(limit_settings, quota, "BYTES",
                "maximum size of the cache, such as 200GiB or 500MB; auto: a fifth of the disk. Above it, "
                "datasets not in use are removed",
                .value_needed = true),
    LS_ROW_TEXT(limit_settings, keep_free, "BYTES",
                "disk space that the cache leaves free for other files; auto: a twentieth of the disk, at "
                "most 10 GiB",
                .value_needed = true),
    LS_ROW_TEXT(limit_settings, group, "NAME",
                "name of a group of users who use each other's cached datasets; none: users use only their "
                "own and root's",
                .value_needed = true),
    ROW_DIR(limit_settings),
    LS_ROW_JSON(limit_settings),
};

static ls_status change_limit(const ls_invocation *invocation, ls_cache_limits *limits, const char *key,
                              const char *value)
{
    return value[0] ? ls_options_apply_value(ls_cache_limits_table(), limits, key, value, "cache limit",
                                             invocation->arena)
                    : LS_OK;
}

static ls_status change_limits(const ls_invocation *invocation, ls_cache *cache)
{
    const limit_settings *s = invocation->settings;
    ls_cache_limits limits;
    if (!s->quota[0] && !s->keep_free[0] && !s->group[0]) {
        return LS_OK;
    }
    LS_TRY(ls_cache_limits_read(invocation->arena, ls_cache_folder(cache), &limits));
    LS_TRY(change_limit(invocation, &limits, "quota", s->quota));
    LS_TRY(change_limit(invocation, &limits, "keep_free", s->keep_free));
    if (strcmp(s->group, "none") == 0) {
        limits.group = "";
    } else {
        LS_TRY(change_limit(invocation, &limits, "group", s->group));
    }
    LS_TRY(ls_cache_limits_write(ls_cache_folder(cache), &limits));
    return ls_cache_trim(cache);
}

static ls_status limit_cache(const ls_invocation *invocation, ls_cache *cache)
{
    const limit_settings *settings = invocation->settings;
    ls_cache_limits limits;
    LS_TRY(change_limits(invocation, cache));
    LS_TRY(ls_cache_limits_load(invocation->arena, ls_cache_folder(cache), &limits));
    if (settings->json) {
        json_t *root =
            json_pack("{s:s, s:I, s:I, s:s?}", "folder", ls_cache_folder(cache), "quota_bytes",
                      (json_int_t)limits.quota_bytes, "keep_free_bytes", (json_int_t)limits.keep_free_bytes,
                      "group", limits.group[0] ? limits.group : NULL);
        ls_print_json(root);
        json_decref(root);
        return LS_OK;
    }
    printf("%s\n  quota      %.1f MiB\n  keep free  %.1f MiB\n  group      %s\n", ls_cache_folder(cache),
           mib(limits.quota_bytes), mib(limits.keep_free_bytes), limits.group[0] ? limits.group : "none");
    return LS_OK;
}

static ls_status run_limit(const ls_invocation *invocation)
{
    const limit_settings *settings = invocation->settings;
    return with_cache(invocation, settings->dir, limit_cache);
}

const ls_command ls_command_cache_limit = {
    .name = "cache limit",
    .words = "",
    .summary = "show or set the disk space of tokenized datasets",
    .details = "Without options, prints the limits. Limits are stored in the folder (cache.yaml)\n"
               "and apply to everyone who uses it.\n"
               "\n"
               "Entries made by other users are not used, because their content can only be\n"
               "checked by tokenizing the text again. Members of a team who trust each other\n"
               "share a folder that belongs to root, has mode 2770 and the team's group, and is\n"
               "limited with --group; run files name it in data.cache_dir.\n"
               "\n"
               "Examples:\n"
               "  lockstep cache limit --quota 200GiB\n"
               "  lockstep cache limit --dir /data/tokens --group research",
    LS_SETTINGS(limit_settings, limit_rows),
    .run = run_limit,
};
