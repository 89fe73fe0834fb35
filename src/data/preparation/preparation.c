// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/preparation.h"

#include "base/clock.h"
#include "data/preparation/preparation_internal.h"
#include "data/preparation/shard_counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* ---- paths ----------------------------------------------------------------------------------- */

const char *ls_preparation_findings_path(ls_preparation *p, uint32_t pass, size_t unit)
{
    return ls_arena_printf(&p->arena, "%s/findings-%u-%05zu", p->work, pass, unit);
}

const char *ls_preparation_done_path(ls_preparation *p, size_t unit)
{
    return ls_arena_printf(&p->arena, "%s/done-%05zu.json", p->work, unit);
}

const char *ls_preparation_removed_path(ls_preparation *p, size_t unit)
{
    return ls_arena_printf(&p->arena, "%s/removed/%05zu.jsonl.zst", p->options->folder, unit);
}

const char *ls_preparation_output_path(ls_preparation *p, size_t unit)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *name = ls_path_basename(p->pipeline->files[unit].path);
    size_t bytes = strcspn(name, ".");
    bytes = bytes < 60 ? bytes : 60;
    char *stem = ls_arena_strndup(&p->arena, name, bytes);
    for (size_t i = 0; i < bytes; i++) {
        stem[i] = strchr(safe, stem[i]) ? stem[i] : '_';
    }
    return ls_arena_printf(&p->arena, "%s/data/%05zu-%s.jsonl.zst", p->options->folder, unit, stem);
}

static const char *verdicts_path(ls_preparation *p, uint32_t pass)
{
    return ls_arena_printf(&p->arena, "%s/verdicts-%u", p->work, pass);
}

static const char *lines_path(ls_preparation *p, uint32_t pass)
{
    return ls_arena_printf(&p->arena, "%s/lines-%u", p->work, pass);
}

static const char *report_path(ls_arena *arena, const char *folder)
{
    return ls_arena_printf(arena, "%s/report.json", folder);
}

/* ---- claims ---------------------------------------------------------------------------------- */

/* A part of the work: done when `marker` exists. */
typedef struct claim {
    const char *name, *marker;
    ls_status (*run)(ls_preparation *p, const ls_pass *pass, size_t unit);
    const ls_pass *pass;
    size_t unit;
} claim;

/* Does a part unless it is done; waits: until a process that does it has ended. *done_out: whether
 * it is done. */
static ls_status do_part(ls_preparation *p, const claim *c, bool waits, bool *done_out)
{
    const char *path = ls_arena_printf(&p->arena, "%s/lock-%s", p->work, c->name);
    *done_out = ls_path_exists(c->marker);
    if (*done_out) {
        return LS_OK;
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        *done_out = errno == ENOENT && ls_path_exists(report_path(&p->arena, p->options->folder));
        return *done_out ? LS_OK : ls_fail_errno(errno, "can't open %s", path);
    }
    int locked;
    do {
        locked = flock(fd, waits ? LOCK_EX : LOCK_EX | LOCK_NB);
    } while (locked != 0 && errno == EINTR);
    ls_status status = LS_OK;
    if (locked == 0) {
        status = ls_path_exists(c->marker) ? LS_OK : c->run(p, c->pass, c->unit);
        *done_out = status == LS_OK;
    } else if (errno != EWOULDBLOCK) {
        status = ls_fail_errno(errno, "can't lock %s", path);
    }
    close(fd);
    return status;
}

/* All files: first those that nobody works on, then the rest. */
static ls_status do_files(ls_preparation *p, const ls_pass *pass)
{
    const size_t count = p->pipeline->file_count;
    for (int waits = 0; waits < 2; waits++) {
        for (size_t unit = 0; unit < count; unit++) {
            claim c = {.pass = pass, .unit = unit, .run = pass ? ls_preparation_scan : ls_preparation_write};
            c.name = ls_arena_printf(&p->arena, "%s-%u-%05zu", pass ? "scan" : "write",
                                     pass ? pass->number : 0, unit);
            c.marker = pass ? ls_preparation_findings_path(p, pass->number, unit)
                            : ls_preparation_done_path(p, unit);
            bool done;
            if (p->options->progress) {
                p->options->progress(p->options->context, pass ? "read" : "write", unit, count);
            }
            LS_TRY(do_part(p, &c, waits, &done));
        }
    }
    return LS_OK;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static ls_status find_bases(ls_preparation *p, const ls_pass *pass, ls_file_map *findings)
{
    uint64_t total = 0;
    p->bases = p->bases ? p->bases : ls_arena_new(&p->arena, uint64_t, p->pipeline->file_count + 1);
    for (size_t i = 0; i < p->pipeline->file_count; i++) {
        ls_findings_trailer trailer;
        const char *path = ls_preparation_findings_path(p, pass->number, i);
        LS_TRY(ls_findings_open(path, &findings[i], &trailer));
        p->bases[i] = total;
        total += trailer.count;
    }
    p->bases[p->pipeline->file_count] = total;
    return total < UINT32_MAX ? LS_OK
                              : ls_fail(LS_ERR_UNSUPPORTED,
                                        "the input has %llu documents; at most %u are "
                                        "prepared together: prepare parts of it",
                                        (unsigned long long)total, UINT32_MAX - 1);
}

static ls_status write_lines(ls_preparation *p, const ls_pass *pass, const ls_file_map *findings,
                             const ls_finding *verdicts)
{
    ls_first_table table = {0};
    LS_TRY(ls_verdicts_find_lines(p->pipeline, pass, findings, verdicts, &table));
    const size_t slots = table.slots ? table.mask + 1 : 0;
    const ls_status status =
        ls_file_write_atomic(lines_path(p, pass->number), table.slots, slots * sizeof *table.slots);
    free(table.slots);
    return status;
}

static ls_status decide(ls_preparation *p, const ls_pass *pass, const ls_file_map *findings)
{
    const uint64_t count = p->bases[p->pipeline->file_count];
    ls_finding *verdicts = calloc(count + 1, sizeof *verdicts);
    ls_status status = verdicts
                           ? ls_verdicts_decide(p->pipeline, pass, findings, verdicts, count)
                           : ls_fail(LS_ERR_MEMORY, "not enough memory for the verdicts of %llu documents",
                                     (unsigned long long)count);
    if (status == LS_OK && pass->collects_lines) {
        status = write_lines(p, pass, findings, verdicts);
    }
    status = status == LS_OK
                 ? ls_file_write_atomic(verdicts_path(p, pass->number), verdicts, count * sizeof *verdicts)
                 : status;
    free(verdicts);
    return status;
}

static ls_status with_findings(ls_preparation *p, const ls_pass *pass, bool decides)
{
    ls_file_map *findings = calloc(p->pipeline->file_count, sizeof *findings);
    if (!findings) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %zu files", p->pipeline->file_count);
    }
    ls_status status = find_bases(p, pass, findings);
    status = status == LS_OK && decides ? decide(p, pass, findings) : status;
    for (size_t i = 0; i < p->pipeline->file_count; i++) {
        ls_file_map_close(&findings[i]);
    }
    free(findings);
    return status;
}

static ls_status run_decide(ls_preparation *p, const ls_pass *pass, size_t unit)
{
    (void)unit;
    return with_findings(p, pass, true);
}

static ls_status do_pass(ls_preparation *p, const ls_pass *pass)
{
    const claim c = {.name = ls_arena_printf(&p->arena, "verdicts-%u", pass->number),
                     .marker = verdicts_path(p, pass->number),
                     .run = run_decide,
                     .pass = pass};
    bool done;
    if (!ls_path_exists(c.marker)) {
        LS_TRY(do_files(p, pass));
    }
    if (p->options->progress) {
        p->options->progress(p->options->context, "compare", 0, 1);
    }
    LS_TRY(do_part(p, &c, true, &done));
    LS_TRY(with_findings(p, pass, false));
    ls_file_map_close(&p->verdicts_map);
    p->verdicts = NULL;
    LS_TRY(ls_file_map_open(c.marker, &p->verdicts_map));
    if (p->verdicts_map.bytes != p->bases[p->pipeline->file_count] * sizeof(ls_finding)) {
        return ls_fail(LS_ERR_DATA, "%s is damaged: remove it and prepare again", c.marker);
    }
    p->verdicts = (const ls_finding *)(const void *)p->verdicts_map.data;
    return pass->collects_lines ? ls_step_chain_set_lines(p->chain, pass->last, lines_path(p, pass->number))
                                : LS_OK;
}

/* ---- the report ------------------------------------------------------------------------------ */

static ls_status add_unit(ls_preparation *p, size_t unit, ls_shard_counts *counts, json_t *files)
{
    json_t *done = NULL;
    const char *path = ls_preparation_done_path(p, unit);
    LS_TRY(ls_json_load(path, 64 << 20, &done));
    const bool is_whole = ls_shard_counts_from_json(done, p->pipeline, counts);
    if (is_whole) {
        json_array_append_new(files, json_pack("{s:O, s:O}", "input", json_object_get(done, "input"),
                                               "output", json_object_get(done, "output")));
    }
    json_decref(done);
    return is_whole ? LS_OK : ls_fail(LS_ERR_DATA, "%s is damaged: remove it and prepare again", path);
}

/* Adds to each step its settings and the documents that reach it. */
static void complete_steps(const ls_data_pipeline *pipeline, uint64_t documents, json_t *steps)
{
    for (size_t i = 0; i < pipeline->step_count; i++) {
        ls_text settings = {0};
        json_t *step = json_array_get(steps, i);
        ls_data_pipeline_append_step(&pipeline->steps[i], &settings);
        json_object_set_new(step, "documents", json_integer((json_int_t)documents));
        json_object_set_new(step, "settings", json_string(ls_text_string(&settings)));
        ls_text_release(&settings);
        documents -= (uint64_t)json_integer_value(json_object_get(step, "removed"));
    }
}

/* Adds the counts of all files and writes DIR/report.json. */
static ls_status write_report(ls_preparation *p)
{
    ls_shard_counts counts = {0};
    json_t *files = json_array();
    ls_status status = LS_OK;
    for (size_t unit = 0; status == LS_OK && unit < p->pipeline->file_count; unit++) {
        status = add_unit(p, unit, &counts, files);
    }
    json_t *report = ls_shard_counts_to_json(&counts, p->pipeline);
    json_object_set_new(report, "version", json_integer(1));
    json_object_set_new(report, "identity", json_string(p->pipeline->identity));
    json_object_set_new(report, "files", files);
    complete_steps(p->pipeline, counts.documents, json_object_get(report, "steps"));
    if (status == LS_OK && p->options->page) {
        status = p->options->page(p->options->folder, report);
    }
    status = status == LS_OK ? ls_json_save(report_path(&p->arena, p->options->folder), report) : status;
    json_decref(report);
    ls_shard_counts_release(&counts);
    return status;
}

ls_status ls_preparation_report(const char *folder, json_t **report_out)
{
    ls_arena arena = {0};
    const char *path = report_path(&arena, folder);
    const ls_status status =
        ls_path_exists(path)
            ? ls_json_load(path, 256 << 20, report_out)
            : ls_fail(LS_ERR_NOT_FOUND,
                      "%s has no report.json: 'data prepare' has not finished in this folder", folder);
    ls_arena_release(&arena);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The folder belongs to one pipeline and its input. */
static ls_status claim_folder(ls_preparation *p)
{
    const char *folder = p->options->folder, *path = ls_arena_printf(&p->arena, "%s/pipeline", p->work);
    char *found;
    size_t bytes;
    json_t *report = NULL;
    if (ls_path_exists(report_path(&p->arena, folder))) {
        LS_TRY(ls_preparation_report(folder, &report));
        const char *identity = json_string_value(json_object_get(report, "identity"));
        const bool is_ours = identity && strcmp(identity, p->pipeline->identity) == 0;
        json_decref(report);
        return is_ours ? LS_OK
                       : ls_fail(LS_ERR_INVALID,
                                 "%s was made by another pipeline, or its input, evaluation files or models "
                                 "have changed since: name another folder, or remove it",
                                 folder);
    }
    LS_TRY(ls_dir_create(p->work));
    LS_TRY(ls_dir_create(ls_arena_printf(&p->arena, "%s/data", folder)));
    LS_TRY(ls_dir_create(ls_arena_printf(&p->arena, "%s/removed", folder)));
    if (!ls_path_exists(path)) {
        return ls_file_write_atomic(path, p->pipeline->identity, strlen(p->pipeline->identity));
    }
    LS_TRY(ls_file_read(&p->arena, path, 4096, &found, &bytes));
    return strcmp(found, p->pipeline->identity) == 0
               ? LS_OK
               : ls_fail(
                     LS_ERR_INVALID,
                     "%s holds an unfinished preparation by another pipeline, or its input, evaluation files "
                     "or models have changed since: name another folder, or remove it",
                     folder);
}

/* Files that a killed process was writing (NAME.tmp.PROCESS, base/file.h) stay behind. All output
 * is there now, so no other process writes. */
static ls_status sweep(ls_preparation *p, const char *name)
{
    char **names = NULL;
    size_t count = 0;
    const char *folder = ls_arena_printf(&p->arena, "%s/%s", p->options->folder, name);
    LS_TRY(ls_dir_list(&p->arena, folder, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(names[i], '.');
        const bool is_left = dot && dot - names[i] > 4 && strncmp(dot - 4, ".tmp", 4) == 0 &&
                             strspn(dot + 1, "0123456789") == strlen(dot + 1);
        if (is_left && unlink(ls_path_join(&p->arena, folder, names[i])) != 0 && errno != ENOENT) {
            return ls_fail_errno(errno, "can't remove %s/%s", folder, names[i]);
        }
    }
    return LS_OK;
}

static ls_status run_finish(ls_preparation *p, const ls_pass *pass, size_t unit)
{
    (void)pass;
    (void)unit;
    LS_TRY(sweep(p, "data"));
    LS_TRY(sweep(p, "removed"));
    LS_TRY(sweep(p, "."));
    return write_report(p);
}

/* All parts; those that other processes do are waited for. */
static ls_status run_parts(ls_preparation *p)
{
    ls_pass pass = {.first = 1, .last = 1};
    const claim c = {
        .name = "report", .marker = report_path(&p->arena, p->options->folder), .run = run_finish};
    bool done;
    LS_TRY(claim_folder(p));
    if (ls_path_exists(c.marker)) {
        return LS_OK;
    }
    for (; pass.last < p->pipeline->step_count; pass.first = pass.last, pass.number++) {
        pass.last += pass.number > 0;
        while (pass.last < p->pipeline->step_count &&
               p->pipeline->steps[pass.last].kind != LS_STEP_DEDUP_LINES) {
            pass.last++;
        }
        pass.collects_lines = pass.last < p->pipeline->step_count;
        LS_TRY(do_pass(p, &pass));
    }
    LS_TRY(do_files(p, NULL));
    return do_part(p, &c, true, &done);
}

ls_status ls_preparation_run(const ls_preparation_options *options, ls_preparation_figures *figures_out)
{
    ls_preparation p = {.options = options, .pipeline = options->pipeline};
    const double begun_s = ls_clock_monotonic_s();
    p.work = ls_arena_printf(&p.arena, "%s/.work", options->folder);
    p.pieces = calloc(options->threads, sizeof *p.pieces);
    ls_status status = p.pieces
                           ? ls_step_chain_open(options->pipeline, &p.chain)
                           : ls_fail(LS_ERR_MEMORY, "not enough memory for %u threads", options->threads);
    status = status == LS_OK ? run_parts(&p) : status;
    /* Another process may have finished and removed what this one was about to read. */
    if (status == LS_OK ||
        (status == LS_ERR_NOT_FOUND && ls_path_exists(report_path(&p.arena, options->folder)))) {
        status = ls_dir_remove(p.work);
    }
    ls_preparation_outputs_release(&p);
    ls_shard_pieces_release(p.pieces, p.pieces ? options->threads : 0);
    free(p.pieces);
    ls_file_map_close(&p.verdicts_map);
    ls_step_chain_close(p.chain);
    ls_arena_release(&p.arena);
    p.figures.wall_s = ls_clock_monotonic_s() - begun_s;
    if (status == LS_OK && figures_out) {
        *figures_out = p.figures;
    }
    return status;
}
