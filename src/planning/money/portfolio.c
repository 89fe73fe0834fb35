// SPDX-License-Identifier: Apache-2.0
#include "planning/money/portfolio.h"

#include "base/options.h"
#include "base/yaml.h"

#include <math.h>
#include <string.h>

/* A run as written in the file. */
typedef struct row {
    const char *name, *model;
    double tokens, runs_per_month, global_batch, sequence;
} row;

#define ROW(key_, type_, default_)                                                                           \
    .key = #key_, .type = type_, .offset = offsetof(row, key_), .default_text = default_

/* clang-format off */
static const ls_option options[] = {
    {ROW(name, LS_OPTION_STRING, "\"\""), .help = "name of the training run in the planner's answer; empty: the model's name"},
    {ROW(model, LS_OPTION_STRING, "\"\""), .help = "model to train: a preset, a config.json, a run file or a list of key=value"},
    {ROW(tokens, LS_OPTION_QUANTITY, "auto"), .allow_auto = true, .min = 1, .max = 1e18, .help = "number of tokens of each training run of this model"},
    {ROW(runs_per_month, LS_OPTION_QUANTITY, "auto"), .allow_auto = true, .min = 1e-4, .max = 1e6, .help = "number of training runs of this model per month"},
    {ROW(global_batch, LS_OPTION_QUANTITY, "0"), .min = 0, .max = 1e9, .help = "number of sequences per step; 0: chosen by the planner"},
    {ROW(sequence, LS_OPTION_QUANTITY, "0"), .min = 0, .max = 1e8, .help = "number of tokens per sequence; 0: the model's context"},
};
/* clang-format on */
static const ls_option_table table = {.options = options, .count = sizeof options / sizeof *options};

static int line_of(ls_arena *arena, const ls_document *doc, size_t index)
{
    return ls_document_line(doc, ls_arena_printf(arena, "runs.%zu", index));
}

static ls_status check_whole(ls_arena *arena, const ls_document *doc, size_t index, const char *key,
                             double value)
{
    return value == floor(value) ? LS_OK
                                 : ls_fail(LS_ERR_INVALID, "%s:%d: %s is %.6g, allowed is a whole number",
                                           doc->name, line_of(arena, doc, index), key, value);
}

static ls_status read_run(ls_arena *arena, const ls_document *doc, size_t index, ls_portfolio_run *run)
{
    row r;
    ls_options_defaults(&table, &r, arena);
    LS_TRY(ls_options_apply_item(&table, &r, doc, "runs", index, arena));
    const char *missing = !r.model[0]                       ? "model"
                          : r.tokens == LS_AUTO_F64         ? "tokens"
                          : r.runs_per_month == LS_AUTO_F64 ? "runs_per_month"
                                                            : NULL;
    if (missing) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s:%d: item %zu of the list runs has no key %s; an item needs model, tokens and runs_per_month",
            doc->name, line_of(arena, doc, index), index + 1, missing);
    }
    LS_TRY(check_whole(arena, doc, index, "global_batch", r.global_batch));
    LS_TRY(check_whole(arena, doc, index, "sequence", r.sequence));
    *run = (ls_portfolio_run){.name = r.name[0] ? r.name : r.model,
                              .model = r.model,
                              .tokens = r.tokens,
                              .runs_per_month = r.runs_per_month,
                              .global_batch = (uint64_t)r.global_batch,
                              .sequence = (uint64_t)r.sequence};
    return LS_OK;
}

static ls_status read_document(ls_arena *arena, const ls_document *doc, ls_portfolio *portfolio_out)
{
    const json_t *list = json_object_get(doc->root, "runs");
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > LS_PORTFOLIO_MOST) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the key runs must be a list of 1 to %d items (examples/plan/portfolio.yaml)",
                       doc->name, LS_PORTFOLIO_MOST);
    }
    const char *key;
    json_t *value;
    json_object_foreach(doc->root, key, value)
    {
        if (value != list) {
            return ls_fail(LS_ERR_INVALID, "%s:%d: unknown key %.60s; a portfolio has only the key runs",
                           doc->name, ls_document_line(doc, key), key);
        }
    }
    ls_portfolio_run *runs = ls_arena_new(arena, ls_portfolio_run, count);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_run(arena, doc, i, &runs[i]));
    }
    *portfolio_out = (ls_portfolio){.runs = runs, .count = count};
    return LS_OK;
}

ls_status ls_portfolio_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                             ls_portfolio *portfolio_out)
{
    ls_document doc;
    LS_TRY(text ? ls_yaml_parse(text, bytes, name, &doc) : ls_yaml_load(name, &doc));
    const ls_status status = read_document(arena, &doc, portfolio_out);
    ls_document_release(&doc);
    return status;
}

ls_status ls_portfolio_load(ls_arena *arena, const char *path, ls_portfolio *portfolio_out)
{
    return ls_portfolio_parse(arena, NULL, 0, path, portfolio_out);
}

int ls_portfolio_find(const ls_portfolio *portfolio, const char *name)
{
    for (size_t i = 0; i < portfolio->count; i++) {
        if (strcmp(portfolio->runs[i].name, name) == 0) {
            return (int)i;
        }
    }
    for (size_t i = 0; i < portfolio->count; i++) {
        if (strcmp(portfolio->runs[i].model, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}
