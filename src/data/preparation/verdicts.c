// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/verdicts.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the keys of one document in step `index`. */
static size_t key_bytes(const ls_data_pipeline *pipeline, size_t index)
{
    const ls_step *step = &pipeline->steps[index];
    return step->kind == LS_STEP_DEDUP_EXACT     ? sizeof(ls_hash128)
           : step->kind == LS_STEP_DEDUP_MINHASH ? step->minhash.bands * sizeof(uint64_t)
                                                 : 0;
}

ls_status ls_findings_open(const char *path, ls_file_map *map_out, ls_findings_trailer *trailer_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    if (map.bytes >= sizeof *trailer_out) {
        memcpy(trailer_out, map.data + map.bytes - sizeof *trailer_out, sizeof *trailer_out);
    }
    if (map.bytes < sizeof *trailer_out || trailer_out->check != LS_FINDINGS_CHECK ||
        trailer_out->count > map.bytes / sizeof(ls_finding)) {
        ls_file_map_close(&map);
        return ls_fail(LS_ERR_DATA, "%s is damaged: remove it and prepare again", path);
    }
    *map_out = map;
    return LS_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Walks over the findings of all shards. */
typedef struct reader {
    const ls_data_pipeline *pipeline;
    const ls_pass *pass;
    const ls_file_map *findings;
    size_t unit;
    const unsigned char *at, *end;
    uint64_t left;
    /* Of the finding that was read: its keys, in the order of the steps. */
    ls_finding finding;
    const unsigned char *keys;
    /* Of its lines. */
    uint32_t line_count;
    const unsigned char *lines;
} reader;

static void begin_unit(reader *r)
{
    ls_findings_trailer trailer;
    const ls_file_map *map = &r->findings[r->unit];
    memcpy(&trailer, map->data + map->bytes - sizeof trailer, sizeof trailer);
    r->at = map->data;
    r->end = map->data + map->bytes - sizeof trailer;
    r->left = trailer.count;
}

static reader begin_reading(const ls_data_pipeline *pipeline, const ls_pass *pass,
                            const ls_file_map *findings)
{
    reader r = {.pipeline = pipeline, .pass = pass, .findings = findings};
    begin_unit(&r);
    return r;
}

/* Bytes of all keys of a finding: of the steps that it passed. */
static size_t keys_bytes(const reader *r, const ls_finding *finding)
{
    size_t bytes = 0;
    for (size_t i = r->pass->first; i < r->pass->last && i < finding->step; i++) {
        bytes += key_bytes(r->pipeline, i);
    }
    return bytes;
}

/* Reads the next finding. False: they do not fit. */
static bool read_finding(reader *r)
{
    while (r->left == 0) {
        if (++r->unit == r->pipeline->file_count) {
            return false;
        }
        begin_unit(r);
    }
    if ((size_t)(r->end - r->at) < sizeof r->finding) {
        return false;
    }
    memcpy(&r->finding, r->at, sizeof r->finding);
    r->keys = r->at + sizeof r->finding;
    const size_t bytes = keys_bytes(r, &r->finding);
    if ((size_t)(r->end - r->keys) < bytes) {
        return false;
    }
    r->at = r->keys + bytes;
    r->left--;
    r->line_count = 0;
    if (!r->pass->collects_lines || r->finding.step != LS_VERDICT_KEPT) {
        return true;
    }
    if ((size_t)(r->end - r->at) < sizeof r->line_count) {
        return false;
    }
    memcpy(&r->line_count, r->at, sizeof r->line_count);
    r->lines = r->at + sizeof r->line_count;
    if ((size_t)(r->end - r->lines) / sizeof(uint64_t) < r->line_count) {
        return false;
    }
    r->at = r->lines + r->line_count * sizeof(uint64_t);
    return true;
}

/* Where the keys of step `index` begin. */
static const unsigned char *keys_of(const reader *r, size_t index)
{
    const unsigned char *at = r->keys;
    for (size_t i = r->pass->first; i < index; i++) {
        at += key_bytes(r->pipeline, i);
    }
    return at;
}

/* ---- tables of documents --------------------------------------------------------------------- */

/* Numbers of documents by key, plus one; 0 is free. */
typedef struct table {
    uint32_t *slots;
    uint64_t mask;
} table;

static ls_status create_table(uint64_t count, table *out)
{
    uint64_t slots = 64;
    while (slots < count + count / 2) {
        slots *= 2;
    }
    out->mask = slots - 1;
    out->slots = calloc(slots, sizeof *out->slots);
    return out->slots ? LS_OK
                      : ls_fail(LS_ERR_MEMORY, "not enough memory to compare %llu documents",
                                (unsigned long long)count);
}

static void remove_copy(ls_finding *verdict, size_t index, uint32_t survivor)
{
    verdict->step = (uint8_t)index;
    verdict->reason = LS_DEDUP_COPY;
    verdict->survivor = survivor;
}

/* ---- exact copies ---------------------------------------------------------------------------- */

static ls_status decide_exact(reader r, size_t index, ls_finding *verdicts, uint64_t count)
{
    table t = {0};
    ls_hash128 *keys = malloc((count + 1) * sizeof *keys);
    ls_status status = keys ? create_table(count, &t)
                            : ls_fail(LS_ERR_MEMORY, "not enough memory to compare %llu documents",
                                      (unsigned long long)count);
    for (uint64_t i = 0; status == LS_OK && i < count && read_finding(&r); i++) {
        if (verdicts[i].step <= index) {
            continue;
        }
        memcpy(&keys[i], keys_of(&r, index), sizeof keys[i]);
        uint64_t slot = keys[i].low & t.mask;
        while (t.slots[slot] && !ls_hash128_equal(keys[t.slots[slot] - 1], keys[i])) {
            slot = (slot + 1) & t.mask;
        }
        if (t.slots[slot]) {
            remove_copy(&verdicts[i], index, t.slots[slot] - 1);
        } else {
            t.slots[slot] = (uint32_t)i + 1;
        }
    }
    if (status == LS_OK) {
        free(t.slots);
    }
    free(keys);
    return status;
}

/* ---- similar documents ----------------------------------------------------------------------- */

/* The first document of those that are connected with document i. */
static uint32_t root_of(uint32_t *parents, uint32_t i)
{
    while (parents[i] != i) {
        parents[i] = parents[parents[i]];
        i = parents[i];
    }
    return i;
}

static void connect(uint32_t *parents, uint32_t a, uint32_t b)
{
    a = root_of(parents, a);
    b = root_of(parents, b);
    if (a < b) {
        parents[b] = a;
    } else {
        parents[a] = b;
    }
}

/* What is known of similar documents. */
typedef struct likeness {
    table t;
    /* Of the band; 0: the document has none. */
    uint64_t *keys;
    /* By document: an earlier one that it is connected with, or itself. */
    uint32_t *parents;
} likeness;

/* Connects the documents that agree in one band. */
static void connect_band(reader r, size_t index, size_t band, const ls_finding *verdicts, likeness *found)
{
    const table *t = &found->t;
    uint64_t *keys = found->keys;
    memset(t->slots, 0, (t->mask + 1) * sizeof *t->slots);
    for (uint64_t i = 0; read_finding(&r); i++) {
        if (verdicts[i].step <= index) {
            continue;
        }
        memcpy(&keys[i], keys_of(&r, index) + band * sizeof keys[i], sizeof keys[i]);
        if (keys[i] == 0) {
            continue;
        }
        uint64_t slot = (keys[i] ^ keys[i] >> 32) & t->mask;
        while (t->slots[slot] && keys[t->slots[slot] - 1] != keys[i]) {
            slot = (slot + 1) & t->mask;
        }
        if (t->slots[slot]) {
            connect(found->parents, t->slots[slot] - 1, (uint32_t)i);
        } else {
            t->slots[slot] = (uint32_t)i + 1;
        }
    }
}

static ls_status create_likeness(uint64_t count, likeness *found)
{
    LS_TRY(create_table(count, &found->t));
    found->keys = malloc((count + 1) * sizeof *found->keys);
    found->parents = malloc((count + 1) * sizeof *found->parents);
    if (!found->keys || !found->parents) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to compare %llu documents",
                       (unsigned long long)count);
    }
    for (uint64_t i = 0; i < count; i++) {
        found->parents[i] = (uint32_t)i;
    }
    return LS_OK;
}

static ls_status decide_similar(reader r, size_t index, ls_finding *verdicts, uint64_t count)
{
    likeness found = {0};
    const ls_status status = create_likeness(count, &found);
    for (size_t band = 0; status == LS_OK && band < r.pipeline->steps[index].minhash.bands; band++) {
        connect_band(r, index, band, verdicts, &found);
    }
    for (uint64_t i = 0; status == LS_OK && i < count; i++) {
        const uint32_t root = root_of(found.parents, (uint32_t)i);
        if (root != i) {
            remove_copy(&verdicts[i], index, root);
        }
    }
    free(found.t.slots);
    free(found.keys);
    free(found.parents);
    return status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Puts those lines of all documents in a table whose hashes are in part `part` of `parts`. */
static ls_status put_lines(reader r, const ls_finding *verdicts, uint64_t part, uint64_t parts,
                           ls_first_table *lines)
{
    for (uint64_t i = 0; read_finding(&r); i++) {
        for (uint32_t k = 0; verdicts[i].step == LS_VERDICT_KEPT && k < r.line_count; k++) {
            uint64_t hash;
            memcpy(&hash, r.lines + k * sizeof hash, sizeof hash);
            if (hash % parts != part) {
                continue;
            }
            ls_first_place *line = lines->slots ? ls_first_table_find(lines, hash) : NULL;
            if (line && line->first) {
                line->is_common = line->is_common || line->first - 1 != i;
            } else {
                LS_TRY(ls_first_table_put(lines, (ls_first_place){.hash = hash, .first = (uint32_t)i + 1}));
            }
        }
    }
    return LS_OK;
}

static ls_status keep_common(const ls_first_table *all, ls_first_table *common)
{
    for (uint64_t i = 0; all->slots && i <= all->mask; i++) {
        if (all->slots[i].is_common) {
            LS_TRY(ls_first_table_put(common, all->slots[i]));
        }
    }
    return LS_OK;
}

ls_status ls_verdicts_find_lines(const ls_data_pipeline *pipeline, const ls_pass *pass,
                                 const ls_file_map *findings, const ls_finding *verdicts,
                                 ls_first_table *table_out)
{
    const reader r = begin_reading(pipeline, pass, findings);
    uint64_t lines = 0, documents = 0;
    for (reader counting = r; read_finding(&counting); documents++) {
        lines += counting.line_count;
    }
    /* A table that grows has up to 96 bytes for each line. */
    const uint64_t memory = 36 * documents > 64 << 20 ? 36 * documents : 64 << 20;
    const uint64_t parts = 96 * lines / memory + 1;
    ls_first_table common = {0};
    ls_status status = LS_OK;
    for (uint64_t part = 0; status == LS_OK && part < parts; part++) {
        ls_first_table all = {0};
        status = put_lines(r, verdicts, part, parts, &all);
        status = status == LS_OK ? keep_common(&all, &common) : status;
        free(all.slots);
    }
    if (status != LS_OK) {
        free(common.slots);
        return status;
    }
    *table_out = common;
    return LS_OK;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static ls_status load_findings(reader r, ls_finding *verdicts, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!read_finding(&r)) {
            return ls_fail(LS_ERR_DATA,
                           "the findings of %s are damaged: remove the folder .work of the preparation and "
                           "prepare again",
                           r.pipeline->files[r.unit < r.pipeline->file_count ? r.unit : 0].path);
        }
        verdicts[i] = r.finding;
    }
    return LS_OK;
}

ls_status ls_verdicts_decide(const ls_data_pipeline *pipeline, const ls_pass *pass,
                             const ls_file_map *findings, ls_finding *verdicts, uint64_t count)
{
    const reader r = begin_reading(pipeline, pass, findings);
    LS_TRY(load_findings(r, verdicts, count));
    for (size_t index = pass->first; index < pass->last; index++) {
        const ls_step_kind kind = pipeline->steps[index].kind;
        if (kind == LS_STEP_DEDUP_EXACT) {
            LS_TRY(decide_exact(r, index, verdicts, count));
        } else if (kind == LS_STEP_DEDUP_MINHASH) {
            LS_TRY(decide_similar(r, index, verdicts, count));
        }
    }
    return LS_OK;
}
