// SPDX-License-Identifier: Apache-2.0
/* The second half of a preparation: writes the documents that are kept, and what was removed. */
#include "base/clock.h"
#include "data/preparation/preparation_internal.h"
#include "data/preparation/shard_counts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { ZSTD_LEVEL = 1 };

/* A piece's lines, packed. */
typedef struct packed {
    void *data;
    size_t bytes, capacity;
} packed;

/* What a piece has besides. */
typedef struct piece_output {
    ls_shard_counts counts;
    packed kept, removed;
    double write_s;
} piece_output;

typedef struct output {
    ls_preparation *p;
    size_t unit;
    ls_findings_trailer trailer;
    int kept_fd, removed_fd;
    const char *kept_path, *removed_path;
    ls_shard_counts counts;
    ls_shard_walk walk;
} output;

/* ---- one document ---------------------------------------------------------------------------- */

static ls_status fail_changed(const output *o)
{
    return ls_fail(LS_ERR_DATA,
                   "%s has changed since its preparation began: remove the folder %s and prepare again",
                   o->p->pipeline->files[o->unit].path, o->p->options->folder);
}

static void append_place(const ls_preparation *p, uint64_t document, ls_text *out)
{
    size_t low = 0, high = p->pipeline->file_count;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (p->bases[middle] <= document) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const char *path = p->pipeline->files[low].path;
    ls_text_append(out, "{\"file\":");
    ls_text_append_json(out, path, strlen(path));
    ls_text_printf(out, ",\"line\":%u", p->verdicts[document].line);
}

static void append_removal(const output *o, const ls_finding *verdict, uint64_t document,
                           const ls_shard_piece *piece, ls_text *out)
{
    const ls_preparation *p = o->p;
    const ls_step_kind kind = p->pipeline->steps[verdict->step].kind;
    const ls_removal removal = {verdict->reason, verdict->detail};
    ls_text why = {0};
    append_place(p, document, out);
    ls_step_chain_explain(p->chain, verdict->step, removal, &why);
    ls_text_printf(out, ",\"step\":\"%s\",\"reason\":\"%s\",\"why\":", ls_step_kind_name(kind),
                   ls_step_reason(kind, verdict->reason));
    ls_text_append_json(out, ls_text_string(&why), why.bytes);
    ls_text_release(&why);
    if (ls_step_is_dedup(kind)) {
        ls_text_append(out, ",\"survivor\":");
        append_place(p, verdict->survivor, out);
        ls_text_append(out, "}");
    }
    ls_text_printf(out, ",\"bytes\":%zu,\"text\":", piece->raw.bytes);
    ls_text_append_json(out, piece->raw.text, ls_excerpt_bytes(piece->raw.text, piece->raw.bytes));
    ls_text_append(out, "}\n");
}

static void remove_document(const output *o, const ls_finding *verdict, uint64_t document,
                            ls_shard_piece *piece)
{
    piece_output *own = piece->own;
    ls_step_counts *counts = &own->counts.steps[verdict->step];
    const size_t from = piece->more.bytes;
    append_removal(o, verdict, document, piece, &piece->more);
    counts->removed++;
    counts->removed_bytes += piece->raw.bytes;
    if (counts->reasons[verdict->reason % LS_REASONS_MAX]++ < LS_EXAMPLES_MAX) {
        counts->examples = counts->examples ? counts->examples : json_array();
        json_array_append_new(counts->examples,
                              json_loadb(piece->more.data + from, piece->more.bytes - from, 0, NULL));
    }
}

/* Applies the steps that change the text; the filters have passed the document. */
static ls_status keep_document(const output *o, const ls_finding *verdict, uint64_t document,
                               ls_shard_piece *piece)
{
    const ls_preparation *p = o->p;
    piece_output *own = piece->own;
    ls_passage passage = {piece->raw.text, piece->raw.bytes};
    ls_scratch_begin(&piece->scratch, document);
    for (size_t i = 1; i < p->pipeline->step_count; i++) {
        const ls_passage before = passage;
        ls_removal removal;
        if (!(verdict->survivor >> i & 1)) {
            continue;
        }
        LS_TRY(ls_step_apply(p->chain, i, &piece->scratch, false, &passage, &removal));
        if (passage.bytes != before.bytes || memcmp(passage.text, before.text, passage.bytes) != 0) {
            char place[32];
            snprintf(place, sizeof place, "%zu:%llu", o->unit, (unsigned long long)piece->raw.line);
            ls_shard_counts_note_change(&own->counts.steps[i], place, &before, &passage);
        }
    }
    ls_raw_document_append(&piece->raw, passage.text, passage.bytes, &piece->out);
    own->counts.kept_bytes += passage.bytes;
    return LS_OK;
}

/* Writes a document, or why there is none. */
static ls_status write_document(const output *o, uint64_t document, const ls_record *record,
                                ls_shard_piece *piece)
{
    const ls_finding *verdict = &o->p->verdicts[document];
    ls_shard_counts *counts = &((piece_output *)piece->own)->counts;
    const bool is_kept = verdict->step == LS_VERDICT_KEPT;
    ls_removal removal;
    counts->documents++;
    counts->kept += is_kept;
    if (is_kept && verdict->survivor == 0) {
        ls_text_append_bytes(&piece->out, record->data, record->bytes);
        ls_text_append_bytes(&piece->out, "\n", 1);
        counts->bytes += verdict->detail;
        counts->kept_bytes += verdict->detail;
        return LS_OK;
    }
    LS_TRY(ls_shard_read(piece, record, &removal));
    counts->bytes += piece->raw.bytes;
    if (!is_kept) {
        remove_document(o, verdict, document, piece);
        return LS_OK;
    }
    return removal.reason ? fail_changed(o) : keep_document(o, verdict, document, piece);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static ls_status pack(const ls_text *lines, packed *out)
{
    const size_t needed = ZSTD_compressBound(lines->bytes);
    out->bytes = 0;
    if (lines->bytes == 0) {
        return LS_OK;
    }
    if (needed > out->capacity) {
        free(out->data);
        out->data = malloc(needed);
        out->capacity = out->data ? needed : 0;
    }
    if (!out->data) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to pack %zu bytes", lines->bytes);
    }
    const size_t bytes = ZSTD_compress(out->data, out->capacity, lines->data, lines->bytes, ZSTD_LEVEL);
    if (ZSTD_isError(bytes)) {
        return ls_fail(LS_ERR_FAILED, "can't pack lines: %s", ZSTD_getErrorName(bytes));
    }
    out->bytes = bytes;
    return LS_OK;
}

static ls_status work(void *context, ls_shard_piece *piece)
{
    const output *o = context;
    const uint64_t base = o->p->bases[o->unit];
    piece_output *own = piece->own;
    const double begun_s = ls_clock_thread_s();
    uint64_t document = base + piece->first;
    if (document + piece->count > o->p->bases[o->unit + 1]) {
        return fail_changed(o);
    }
    for (;; document++) {
        ls_record record;
        LS_TRY(ls_shard_next(piece, &record));
        if (!record.data) {
            break;
        }
        LS_TRY(write_document(o, document, &record, piece));
    }
    LS_TRY(pack(&piece->out, &own->kept));
    LS_TRY(pack(&piece->more, &own->removed));
    own->write_s = ls_clock_thread_s() - begun_s;
    return LS_OK;
}

static ls_status take(void *context, ls_shard_piece *piece)
{
    output *o = context;
    piece_output *own = piece->own;
    ls_shard_counts_add(&o->counts, &own->counts);
    o->p->figures.write_s += own->write_s;
    LS_TRY(ls_file_write_all(o->kept_fd, o->kept_path, own->kept.data, own->kept.bytes));
    return ls_file_write_all(o->removed_fd, o->removed_path, own->removed.data, own->removed.bytes);
}

/* ---- a file ---------------------------------------------------------------------------------- */

static ls_status write_both(void *context, int fd, const char *path)
{
    output *o = context;
    o->removed_fd = fd;
    o->removed_path = path;
    LS_TRY(ls_shard_walk_run(&o->walk, o->p->pieces));
    const bool is_same = ls_hash128_equal(o->walk.digest, o->trailer.digest) &&
                         o->walk.count == o->p->bases[o->unit + 1] - o->p->bases[o->unit];
    return is_same ? LS_OK : fail_changed(o);
}

static ls_status write_kept(void *context, int fd, const char *path)
{
    output *o = context;
    o->kept_fd = fd;
    o->kept_path = path;
    return ls_file_write_atomic_by(ls_preparation_removed_path(o->p, o->unit), write_both, o);
}

static ls_status describe_output(output *o, json_t *done)
{
    const char *path = ls_preparation_output_path(o->p, o->unit);
    char hex[LS_SHA256_HEX_BYTES], digest[LS_HASH128_HEX_BYTES];
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    ls_sha256_hex(map.data, map.bytes, hex);
    json_object_set_new(done, "input",
                        json_pack("{s:s, s:I, s:s}", "path", o->p->pipeline->files[o->unit].path, "bytes",
                                  (json_int_t)o->walk.file_bytes, "xxh128",
                                  ls_hash128_hex(o->walk.digest, digest)));
    json_object_set_new(done, "output",
                        json_pack("{s:s, s:I, s:I, s:s}", "name", ls_path_basename(path), "bytes",
                                  (json_int_t)map.bytes, "documents", (json_int_t)o->counts.kept, "sha256",
                                  hex));
    ls_file_map_close(&map);
    return LS_OK;
}

static ls_status remove_empty(const char *path)
{
    return unlink(path) == 0 ? LS_OK : ls_fail_errno(errno, "can't remove %s, which is empty", path);
}

static ls_status create_outputs(ls_preparation *p)
{
    for (uint32_t i = 0; i < p->options->threads; i++) {
        p->pieces[i].own = p->pieces[i].own ? p->pieces[i].own : calloc(1, sizeof(piece_output));
        if (!p->pieces[i].own) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to write documents");
        }
    }
    return LS_OK;
}

void ls_preparation_outputs_release(ls_preparation *p)
{
    for (uint32_t i = 0; p->pieces && i < p->options->threads; i++) {
        piece_output *own = p->pieces[i].own;
        if (own) {
            ls_shard_counts_release(&own->counts);
            free(own->kept.data);
            free(own->removed.data);
            free(own);
        }
    }
}

static ls_status write_unit(ls_preparation *p, output *o)
{
    ls_file_map findings;
    LS_TRY(ls_findings_open(ls_preparation_findings_path(p, 0, o->unit), &findings, &o->trailer));
    ls_file_map_close(&findings);
    LS_TRY(create_outputs(p));
    o->walk = (ls_shard_walk){.pipeline = p->pipeline,
                              .unit = o->unit,
                              .threads = p->options->threads,
                              .folder = p->work,
                              .work = work,
                              .take = take,
                              .context = o};
    const char *path = ls_preparation_output_path(p, o->unit);
    LS_TRY(ls_file_write_atomic_by(path, write_kept, o));
    json_t *done = ls_shard_counts_to_json(&o->counts, p->pipeline);
    ls_status status = describe_output(o, done);
    if (status == LS_OK && o->counts.kept == 0) {
        status = remove_empty(path);
    }
    if (status == LS_OK && o->counts.kept == o->counts.documents) {
        status = remove_empty(ls_preparation_removed_path(p, o->unit));
    }
    status = status == LS_OK ? ls_json_save(ls_preparation_done_path(p, o->unit), done) : status;
    json_decref(done);
    return status;
}

ls_status ls_preparation_write(ls_preparation *p, const ls_pass *pass, size_t unit)
{
    (void)pass;
    output o = {.p = p, .unit = unit};
    const ls_status status = write_unit(p, &o);
    ls_shard_counts_release(&o.counts);
    return status;
}
