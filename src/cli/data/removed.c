// SPDX-License-Identifier: Apache-2.0
/* data removed: which documents a preparation removed, and why. */
#include "base/file.h"
#include "cli/command.h"
#include "data/preparation/preparation.h"
#include "data/unpack.h"

#include <stdio.h>
#include <string.h>

typedef struct removed_settings {
    const char *step, *reason;
    uint64_t count;
    bool json;
} removed_settings;

static const ls_option removed_options[] = {
    LS_ROW_TEXT(removed_settings, step, "NAME",
                "show only documents that this step removed: gopher_quality, dedup_minhash, ..."),
    LS_ROW_TEXT(removed_settings, reason, "NAME",
                "show only documents removed for this reason, as named in the report: words_few, ..."),
    LS_ROW_U64(removed_settings, count, "20", 0, 1e15, "maximum number of documents to show; 0: all",
               .letter = 'n'),
    LS_ROW_JSON(removed_settings),
};

/* What is shown, and of how many. */
typedef struct show {
    const removed_settings *settings;
    uint64_t found, shown;
    json_t *list;
} show;

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static void print_record(const json_t *record)
{
    ls_text line = {0};
    const json_t *survivor = json_object_get(record, "survivor");
    const char *excerpt = text_of(record, "text");
    ls_text_printf(&line, "%s:%lld  %s, %s: %s", text_of(record, "file"),
                   (long long)json_integer_value(json_object_get(record, "line")), text_of(record, "step"),
                   text_of(record, "reason"), text_of(record, "why"));
    if (survivor) {
        ls_text_printf(&line, ", kept: %s:%lld", text_of(survivor, "file"),
                       (long long)json_integer_value(json_object_get(survivor, "line")));
    }
    ls_text shown = {0};
    ls_text_append_printable(&shown, ls_text_string(&line), line.bytes, "");
    ls_text_append(&shown, "\n    ");
    for (const char *at = excerpt; *at; at += strcspn(at, "\r\n\t")) {
        at += strspn(at, "\r\n\t");
        ls_text_append(&shown, at > excerpt ? " " : "");
        ls_text_append_printable(&shown, at, strcspn(at, "\r\n\t"), "");
    }
    puts(ls_text_string(&shown));
    ls_text_release(&shown);
    ls_text_release(&line);
}

static void show_record(show *s, json_t *record)
{
    const removed_settings *settings = s->settings;
    if ((settings->step[0] && strcmp(settings->step, text_of(record, "step")) != 0) ||
        (settings->reason[0] && strcmp(settings->reason, text_of(record, "reason")) != 0)) {
        return;
    }
    s->found++;
    if (settings->count > 0 && s->shown == settings->count) {
        return;
    }
    s->shown++;
    if (settings->json) {
        json_array_append(s->list, record);
    } else {
        print_record(record);
    }
}

static ls_status show_lines(show *s, const char *path, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(data + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - data) - at : bytes - at;
        json_t *record = NULL;
        LS_TRY(ls_json_parse(data + at, length, path, &record));
        show_record(s, record);
        json_decref(record);
        at += length + 1;
    }
    return LS_OK;
}

static ls_status show_file(show *s, const char *path)
{
    ls_file_map packed, map;
    LS_TRY(ls_file_map_open(path, &packed));
    if (ls_packing_of(packed.data, packed.bytes) != LS_PACKING_ZSTD) {
        ls_file_map_close(&packed);
        return ls_fail(LS_ERR_DATA, "%s is not a file that data prepare has written", path);
    }
    const ls_unpack_options options = {.folder = "", .limit_bytes = UINT64_MAX};
    ls_status status = ls_unpack(path, packed, &options, &map);
    ls_file_map_close(&packed);
    LS_TRY(status);
    status = show_lines(s, path, (const char *)map.data, map.bytes);
    ls_file_map_close(&map);
    return status;
}

/* Refuses the name of a step that the preparation does not have. */
static ls_status check_step(const json_t *report, const char *name)
{
    ls_text names = {0};
    bool is_there = !name[0];
    size_t index;
    const json_t *step;
    json_array_foreach(json_object_get(report, "steps"), index, step)
    {
        is_there = is_there || strcmp(text_of(step, "step"), name) == 0;
        ls_text_printf(&names, "%s%s", index > 0 ? ", " : "", text_of(step, "step"));
    }
    const ls_status status =
        is_there ? LS_OK
                 : ls_fail(LS_ERR_INVALID, "this preparation has no step %.60s; its steps: %s", name,
                           ls_text_string(&names));
    ls_text_release(&names);
    return status;
}

static ls_status show_folder(const ls_invocation *invocation, show *s)
{
    char **names;
    size_t count;
    json_t *report;
    const char *folder = ls_path_join(invocation->arena, invocation->words[0], "removed");
    LS_TRY(ls_preparation_report(invocation->words[0], &report));
    const ls_status status = check_step(report, s->settings->step);
    json_decref(report);
    LS_TRY(status);
    LS_TRY(ls_dir_list(invocation->arena, folder, &names, &count));
    for (size_t i = 0; i < count; i++) {
        LS_TRY(show_file(s, ls_path_join(invocation->arena, folder, names[i])));
    }
    return LS_OK;
}

static ls_status run_removed(const ls_invocation *invocation)
{
    show s = {.settings = invocation->settings, .list = json_array()};
    const ls_status status = show_folder(invocation, &s);
    if (status == LS_OK && s.settings->json) {
        json_t *root = json_pack("{s:I, s:O}", "count", (json_int_t)s.found, "documents", s.list);
        ls_print_json(root);
        json_decref(root);
    } else if (status == LS_OK) {
        printf("%s%llu of %llu removed documents\n", s.shown > 0 ? "\n" : "", (unsigned long long)s.shown,
               (unsigned long long)s.found);
    }
    json_decref(s.list);
    return status;
}

const ls_command ls_command_data_removed = {
    .name = "data removed",
    LS_WORDS("DIR", 1, 1),
    .summary = "show what a preparation removed, and why",
    .details = "DIR is a folder that 'lockstep data prepare PIPELINE.yaml --output DIR' has written.\n"
               "For each removed document, prints its file and line, the step, the reason and the\n"
               "beginning of its text; for a duplicate, also the document that was kept.\n"
               "\n"
               "Example:\n"
               "  lockstep data removed clean --step dedup_minhash -n 5",
    LS_SETTINGS(removed_settings, removed_options),
    .run = run_removed,
};
