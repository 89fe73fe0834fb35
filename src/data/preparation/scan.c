// SPDX-License-Identifier: Apache-2.0
/* The first half of a preparation: judges documents one by one, and writes what comparing them
 * needs. */
#include "base/clock.h"
#include "data/preparation/folded_words.h"
#include "data/preparation/normal_text.h"
#include "data/preparation/preparation_internal.h"

#include <string.h>

/* One scan of one file. */
typedef struct scan {
    ls_preparation *p;
    const ls_pass *pass;
    size_t unit;
    int fd;
    const char *path;
    pthread_mutex_t lock;
    ls_shard_walk walk;
} scan;

/* What a thread adds to the figures. */
typedef struct tally {
    double step_s[LS_PIPELINE_STEPS_MAX], read_s;
    uint64_t step_bytes[LS_PIPELINE_STEPS_MAX], read_bytes, bytes;
} tally;

/* One document of so many is measured: asking for the time takes as long as a step. */
enum { MEASURED = 16 };

/* ---- one document ---------------------------------------------------------------------------- */

static ls_status append_key(const scan *s, size_t index, ls_shard_piece *piece, const ls_passage *passage)
{
    const ls_step *step = &s->p->pipeline->steps[index];
    if (step->kind == LS_STEP_DEDUP_EXACT) {
        const ls_hash128 hash = ls_exact_hash(step, &piece->scratch, passage);
        ls_text_append_bytes(&piece->out, &hash, sizeof hash);
    } else if (step->kind == LS_STEP_DEDUP_MINHASH) {
        uint64_t keys[LS_MINHASH_HASHES_MAX] = {0};
        LS_TRY(ls_fold_words(&piece->scratch, passage->text, passage->bytes));
        if (!ls_minhash_keys(step, &piece->scratch, keys)) {
            memset(keys, 0, sizeof keys);
        }
        ls_text_append_bytes(&piece->out, keys, step->minhash.bands * sizeof *keys);
    }
    return LS_OK;
}

/* Judges a document and appends its finding with its keys. */
static ls_status judge(const scan *s, ls_shard_piece *piece, uint64_t document, ls_removal removal, tally *t)
{
    const size_t finding_at = piece->out.bytes;
    ls_finding finding = {
        .line = (uint32_t)(piece->raw.line < LS_VERDICT_LINE_MAX ? piece->raw.line : LS_VERDICT_LINE_MAX),
        .step = LS_VERDICT_KEPT};
    ls_passage passage = {piece->raw.text, piece->raw.bytes};
    size_t index = 0;
    uint32_t changed = piece->raw.is_verbatim ? 0 : 1u << LS_STEP_READ;
    ls_text_append_bytes(&piece->out, &finding, sizeof finding);
    ls_scratch_begin(&piece->scratch, document);
    const bool is_measured = document % MEASURED == 0;
    double begun_s = is_measured ? ls_clock_thread_s() : 0.0;
    while (!removal.reason && ++index < s->pass->last) {
        const bool judges = index >= s->pass->first;
        const ls_passage before = passage;
        LS_TRY(ls_step_apply(s->p->chain, index, &piece->scratch, judges, &passage, &removal));
        if (!removal.reason && judges) {
            LS_TRY(append_key(s, index, piece, &passage));
        }
        changed |= passage.text != before.text || passage.bytes != before.bytes ? 1u << index : 0;
        if (is_measured) {
            const double now_s = ls_clock_thread_s();
            t->step_bytes[index] += judges ? before.bytes : 0;
            t->step_s[index] += now_s - begun_s;
            begun_s = now_s;
        }
    }
    if (!removal.reason && s->pass->collects_lines) {
        ls_common_lines_collect(&s->p->pipeline->steps[s->pass->last], &passage, &piece->out);
    }
    if (removal.reason) {
        finding.step = (uint8_t)index;
        finding.reason = removal.reason;
        finding.detail = removal.detail;
    } else {
        finding.detail = (uint32_t)piece->raw.bytes;
        finding.survivor = changed;
    }
    memcpy(piece->out.data + finding_at, &finding, sizeof finding);
    return LS_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static ls_status scan_documents(scan *s, ls_shard_piece *piece, tally *t)
{
    uint64_t number = (s->p->bases ? s->p->bases[s->unit] : 0) + piece->first;
    for (;; number++) {
        ls_record record;
        ls_removal removal;
        LS_TRY(ls_shard_next(piece, &record));
        if (!record.data) {
            return LS_OK;
        }
        if (s->p->verdicts && s->p->verdicts[number].step != LS_VERDICT_KEPT) {
            ls_text_append_bytes(&piece->out, &s->p->verdicts[number], sizeof(ls_finding));
            continue;
        }
        const bool is_measured = number % MEASURED == 0;
        const double begun_s = is_measured ? ls_clock_thread_s() : 0.0;
        LS_TRY(ls_shard_read(piece, &record, &removal));
        if (is_measured) {
            t->read_s += ls_clock_thread_s() - begun_s;
            t->read_bytes += piece->raw.bytes;
        }
        t->bytes += piece->raw.bytes;
        LS_TRY(judge(s, piece, number, removal, t));
    }
}

static ls_status scan_piece(void *context, ls_shard_piece *piece)
{
    scan *s = context;
    tally t = {0};
    const ls_status status = scan_documents(s, piece, &t);
    ls_preparation_figures *figures = &s->p->figures;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->pass->last; i++) {
        figures->step_s[i] += t.step_s[i];
        figures->step_bytes[i] += t.step_bytes[i];
    }
    figures->read_s += t.read_s;
    figures->read_bytes += t.read_bytes;
    figures->bytes += s->pass->number == 0 ? t.bytes : 0;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static ls_status take_piece(void *context, ls_shard_piece *piece)
{
    scan *s = context;
    s->p->figures.scratch_bytes += piece->out.bytes;
    return ls_file_write_all(s->fd, s->path, piece->out.data, piece->out.bytes);
}

static ls_status write_findings(void *context, int fd, const char *path)
{
    scan *s = context;
    s->fd = fd;
    s->path = path;
    LS_TRY(ls_shard_walk_run(&s->walk, s->p->pieces));
    const ls_findings_trailer trailer = {.count = s->walk.count,
                                         .file_bytes = s->walk.file_bytes,
                                         .digest = s->walk.digest,
                                         .check = LS_FINDINGS_CHECK};
    return ls_file_write_all(fd, path, &trailer, sizeof trailer);
}

ls_status ls_preparation_scan(ls_preparation *p, const ls_pass *pass, size_t unit)
{
    scan s = {.p = p, .pass = pass, .unit = unit, .lock = PTHREAD_MUTEX_INITIALIZER};
    s.walk = (ls_shard_walk){.pipeline = p->pipeline,
                             .unit = unit,
                             .threads = p->options->threads,
                             .folder = p->work,
                             .work = scan_piece,
                             .take = take_piece,
                             .context = &s};
    return ls_file_write_atomic_by(ls_preparation_findings_path(p, pass->number, unit), write_findings, &s);
}
