// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/run_bundle.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "config/run_file.h"
#include "data/corpus.h"
#include "storage/blob/blob.h"
#include "storage/checkpoint/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH_MAX = 8, BASE_NAME_BYTES = 48 };

typedef struct gathering {
    ls_arena *arena;
    const ls_run_bundle_options *options;
    ls_run_file run;     /* as in the run directory */
    ls_run_file changed; /* for resume.yaml */
    ls_bundle_file *files;
    size_t count, room;
    json_t *about, *data;
} gathering;

static void add(gathering *g, ls_bundle_file file)
{
    if (g->count == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->files = realloc(g->files, g->room * sizeof *g->files);
        LS_ASSERT(g->files != NULL);
    }
    g->files[g->count++] = file;
}

static void add_path(gathering *g, const char *name, const char *path)
{
    add(g, (ls_bundle_file){.name = name, .path = path});
}

/* A file, or everything in a folder but hidden names. */
static ls_status add_tree(gathering *g, const char *name, const char *path, unsigned depth)
{
    char **names = NULL;
    size_t count = 0;
    if (!ls_path_is_dir(path)) {
        add_path(g, name, path);
        return LS_OK;
    }
    if (depth == DEPTH_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s has folders in more than %d levels", path, DEPTH_MAX);
    }
    LS_TRY(ls_dir_list(g->arena, path, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (names[i][0] != '.') {
            LS_TRY(add_tree(g, ls_arena_printf(g->arena, "%s/%s", name, names[i]),
                            ls_path_join(g->arena, path, names[i]), depth + 1));
        }
    }
    return LS_OK;
}

/* ---- the run and its checkpoint ---- */

static ls_status add_run(gathering *g)
{
    static const char *const names[] = {"run.yaml",     "metrics.jsonl", "events.jsonl",
                                        "summary.json", "time.jsonl",    "tokenizer.json"};
    const char *path = ls_path_join(g->arena, g->options->run, "run.yaml");
    if (!ls_path_exists(path)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a run directory: it has no run.yaml", g->options->run);
    }
    LS_TRY(ls_run_file_load(path, NULL, 0, g->arena, &g->run));
    g->changed = g->run;
    g->changed.checkpoint.mirror = ""; /* another site has a mirror of its own, or none */
    g->changed.data.cache_dir = "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path = ls_path_join(g->arena, g->options->run, names[i]);
        if (ls_path_exists(path)) {
            add_path(g, ls_arena_printf(g->arena, "run/%s", names[i]), path);
        }
    }
    return LS_OK;
}

static ls_status find_checkpoint(const gathering *g, const char **path_out)
{
    const char *which = g->options->checkpoint, *run = g->options->run;
    if (strcmp(which, "newest") == 0) {
        return ls_checkpoint_resolve(g->arena, run, path_out);
    }
    if (strcmp(which, "best") == 0) {
        return ls_checkpoint_resolve_best(g->arena, run, path_out);
    }
    if (!*which || strspn(which, "0123456789") != strlen(which)) {
        return ls_fail(LS_ERR_INVALID, "'%s' names no checkpoint; use newest, best, none or a step", which);
    }
    *path_out = ls_arena_printf(g->arena, "%s/checkpoints/%s", run, which);
    return ls_path_is_dir(*path_out)
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND,
                         "there is no checkpoint %s; 'lockstep checkpoint ls %s' lists them", *path_out, run);
}

static void add_checkpoint_files(gathering *g, const ls_checkpoint *c)
{
    const ls_manifest *m = c->manifest;
    const char *below = ls_arena_printf(g->arena, "run/checkpoints/%" PRIu64, c->meta.step);
    const char *path = ls_arena_strdup(g->arena, c->path);
    for (size_t i = 0; i < m->file_count + m->attachment_count; i++) {
        const char *name = ls_arena_strdup(
            g->arena, i < m->file_count ? m->files[i].name : m->attachments[i - m->file_count].name);
        add_path(g, ls_path_join(g->arena, below, name), ls_path_join(g->arena, path, name));
    }
    add_path(g, ls_path_join(g->arena, below, LS_MANIFEST_NAME),
             ls_path_join(g->arena, path, LS_MANIFEST_NAME));
}

static ls_status add_checkpoint(gathering *g)
{
    const char *path = NULL;
    ls_checkpoint *c = NULL;
    if (strcmp(g->options->checkpoint, "none") == 0) {
        return LS_OK;
    }
    LS_TRY(find_checkpoint(g, &path));
    LS_TRY(ls_checkpoint_open(path, &c));
    const ls_status status = ls_checkpoint_verify(c, 0);
    if (status == LS_OK) {
        const json_t *data_hash = json_object_get(c->meta.extra, "data_hash");
        add_checkpoint_files(g, c);
        json_object_set_new(g->about, "step", json_integer((json_int_t)c->meta.step));
        json_object_set_new(g->about, "identity", json_string(c->meta.identity));
        json_object_set_new(g->about, "data_hash", json_string(json_string_value(data_hash)));
    }
    ls_checkpoint_close(c);
    return status;
}

/* ---- what the run file names ---- */

static ls_status add_tokenizer(gathering *g)
{
    const char *path = g->run.tokenizer.file;
    if (g->run.tokenizer.kind != LS_TOKENIZER_FILE || !ls_path_exists(path)) {
        return LS_OK;
    }
    g->changed.tokenizer.file = ls_arena_printf(g->arena, "tokenizer/%s", ls_path_basename(path));
    return add_tree(g, g->changed.tokenizer.file, path, 0);
}

static ls_status add_base(gathering *g)
{
    const char *from = g->run.model.from, *path = from;
    if (!*from) {
        return LS_OK;
    }
    if (!g->options->base) {
        json_object_set_new(g->about, "needs", json_string(from));
        return LS_OK;
    }
    if (ls_bundle_check_name(from) != LS_OK || strncmp(from, "run/", 4) == 0 ||
        strncmp(from, "data/", 5) == 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "model.from is %s; that path is part of the run's identity and can't be one in a bundle. "
            "Leave out --base, and put the model at this path at the other site",
            from);
    }
    if (ls_path_is_dir(ls_path_join(g->arena, from, "checkpoints"))) {
        LS_TRY(ls_checkpoint_resolve(g->arena, from, &path));
    }
    return add_tree(g, path, path, 0);
}

/* The last part of a path as a name that no shell and no file system objects to. */
static const char *plain_name(ls_arena *arena, const char *path)
{
    const char *base = ls_path_basename(path);
    const size_t bytes = strlen(base);
    char *name = ls_arena_strdup(arena, bytes > BASE_NAME_BYTES ? base + bytes - BASE_NAME_BYTES : base);
    for (char *at = name; *at; at++) {
        const bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                              (*at >= '0' && *at <= '9') || strchr("._-", *at);
        *at = is_plain ? *at : '_';
    }
    return name;
}

/* Notes a file of the data; packs it if asked to. */
static ls_status add_data_file(gathering *g, const char *name, const char *path)
{
    ls_bundle_file file = {.name = name, .path = path};
    LS_TRY(ls_bundle_measure(&(ls_bundle){.files = &file, .count = 1}));
    if (g->options->data) {
        add(g, file);
    }
    json_array_append_new(g->data, json_pack("{s:s, s:s, s:I, s:s}", "name", name, "path", path, "bytes",
                                             (json_int_t)file.bytes, "sha256", file.sha256));
    return LS_OK;
}

/* A corpus file; of Megatron's x.bin also its x.idx. */
static ls_status add_corpus_file(gathering *g, const char *below, size_t number, const char *path,
                                 const char **name_out)
{
    const char *name = ls_arena_printf(g->arena, "%s/%04zu-%s", below, number, plain_name(g->arena, path));
    LS_TRY(add_data_file(g, name, path));
    *name_out = name;
    if (ls_path_has_suffix(path, ".bin")) {
        const char *other = ls_arena_printf(g->arena, "%.*s.idx", (int)strlen(path) - 4, path);
        if (ls_path_exists(other)) {
            return add_data_file(g, ls_arena_printf(g->arena, "%.*s.idx", (int)strlen(name) - 4, name),
                                 other);
        }
    }
    return LS_OK;
}

/* The files of one item of data.train or data.validation, which then means their place in the
 * bundle. Files that `seen` has are left out. */
static ls_status add_item(gathering *g, const char *below, ls_option_weighted *item, json_t *seen)
{
    const ls_corpus_query query = {.patterns = &item->path, .pattern_count = 1};
    ls_corpus_file *files = NULL;
    size_t count = 0, taken = 0;
    const char *name = NULL;
    const ls_status status = ls_corpus_expand(g->arena, &query, &files, &count);
    if (status == LS_ERR_NOT_FOUND && !g->options->data) {
        ls_error_clear();
        json_array_append_new(g->data, json_pack("{s:s, s:s, s:n, s:n}", "name", item->path, "path",
                                                 item->path, "bytes", "sha256"));
        return LS_OK;
    }
    LS_TRY(status);
    for (size_t i = 0; i < count; i++) {
        if (!seen || !json_object_get(seen, files[i].path)) {
            LS_TRY(add_corpus_file(g, below, taken++, files[i].path, &name));
            json_object_set_new(seen, files[i].path, json_true());
        }
    }
    item->path = taken == 1 ? name : taken > 1 ? ls_arena_printf(g->arena, "%s/*", below) : "";
    return LS_OK;
}

/* list: "train" or "validation" */
static ls_status add_data(gathering *g, const char *list, const ls_option_weighted_list *from,
                          ls_option_weighted_list *to)
{
    bool is_weighted = false;
    to->items = ls_arena_new(g->arena, ls_option_weighted, from->count);
    to->count = 0;
    for (uint64_t i = 0; i < from->count; i++) {
        is_weighted = is_weighted || from->items[i].weight > 0.0;
    }
    json_t *seen = is_weighted ? NULL : json_object(); /* without weights a file counts once */
    ls_status status = LS_OK;
    for (uint64_t i = 0; status == LS_OK && i < from->count; i++) {
        ls_option_weighted *item = &to->items[to->count];
        *item = from->items[i];
        if (!ls_blob_is_remote(item->path)) {
            status = add_item(g, ls_arena_printf(g->arena, "data/%s-%" PRIu64, list, i), item, seen);
        }
        to->count += item->path[0] != '\0';
    }
    json_decref(seen);
    return status;
}

/* ---- all of it ---- */

static void add_resume(gathering *g)
{
    ls_text text = {0};
    ls_run_file_append(&g->changed, &text);
    const char *kept = ls_arena_strndup(g->arena, text.data, text.bytes);
    add(g, (ls_bundle_file){.name = "resume.yaml", .data = kept, .bytes = text.bytes});
    ls_text_release(&text);
}

static ls_status add_further(gathering *g)
{
    for (size_t i = 0; i < g->options->added_count; i++) {
        const char *path = g->options->added[i];
        const char *name = ls_arena_printf(g->arena, "added/%s", plain_name(g->arena, path));
        if (!ls_path_exists(path)) {
            return ls_fail(LS_ERR_NOT_FOUND, "%s, which is to be added, does not exist", path);
        }
        LS_TRY(add_tree(g, name, path, 0));
    }
    return LS_OK;
}

static ls_status gather(gathering *g)
{
    char made[32];
    struct tm parts;
    const time_t now = (time_t)ls_clock_wall_s();
    LS_TRY(add_run(g));
    gmtime_r(&now, &parts);
    LS_ASSERT(strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0);
    g->data = json_array();
    g->about = json_pack("{s:s, s:s, s:s, s:n, s:n, s:n, s:n, s:o, s:b}", "run", g->run.name, "lockstep",
                         LS_VERSION, "made", made, "step", "identity", "data_hash", "needs", "data", g->data,
                         "has_data", g->options->data);
    LS_TRY(add_checkpoint(g));
    LS_TRY(add_tokenizer(g));
    LS_TRY(add_base(g));
    LS_TRY(add_data(g, "train", &g->run.data.train, &g->changed.data.train));
    LS_TRY(add_data(g, "validation", &g->run.data.validation, &g->changed.data.validation));
    LS_TRY(add_further(g));
    add_resume(g);
    return LS_OK;
}

ls_status ls_run_bundle_gather(ls_arena *arena, const ls_run_bundle_options *options, ls_bundle *bundle_out)
{
    gathering g = {.arena = arena, .options = options};
    ls_status status = gather(&g);
    ls_bundle bundle = {
        .about = g.about, .count = g.count, .files = ls_arena_new(arena, ls_bundle_file, g.count)};
    if (g.count > 0) {
        memcpy(bundle.files, g.files, g.count * sizeof *g.files);
    }
    free(g.files);
    status = status == LS_OK ? ls_bundle_measure(&bundle) : status;
    if (status != LS_OK) {
        json_decref(g.about);
        return status;
    }
    *bundle_out = bundle;
    return LS_OK;
}
