// SPDX-License-Identifier: Apache-2.0
/*
 * Verdicts: what becomes of each document, decided from what all shards have found.
 *
 * A preparation reads its input in passes. A pass applies steps to each document, up to the next
 * step that removes lines which other documents have (dedup_lines), and writes for each shard
 *
 *   for each document: its finding; if it was kept, for each step of the pass that compares
 *   documents its key: 16 bytes of dedup_exact, 8 bytes for each band of dedup_minhash
 *   a trailer
 *
 * Then one process reads the files of all shards in order and decides: of documents with equal keys
 * the first survives, and a document that an earlier step removes does not count for later ones. So
 * the result does not depend on who scanned which shard, when, or with how many threads.
 *
 * Memory: 16 bytes for each document for its verdict, and while a step is decided at most 36 more.
 * Duplicates by MinHash are those that are connected by equal bands, in one step or several.
 */
#ifndef LS_DATA_PREPARATION_VERDICTS_H
#define LS_DATA_PREPARATION_VERDICTS_H

#include "base/file.h"
#include "base/hash.h"
#include "data/preparation/common_lines.h"
#include "data/preparation/pipeline.h"

#include <assert.h>
#include <stdint.h>

/* No step has removed the document. */
enum { LS_VERDICT_KEPT = 0xff };
enum { LS_VERDICT_LINE_MAX = UINT32_MAX };

/* A finding of a shard, and a verdict, as in files. */
typedef struct ls_finding {
    /* Line of the document in its file. */
    uint32_t line;
    /* Of the removal; bytes of the text of a document that is kept. */
    uint32_t detail;
    /* Number of the document that was kept in its place, for deduplication; of a document that is
     * kept, a bit for each step that changes its text. */
    uint32_t survivor;
    /* Index of the step that removed it, or LS_VERDICT_KEPT; reason of the removal. */
    uint8_t step, reason;
    uint16_t zero;
} ls_finding;
static_assert(sizeof(ls_finding) == 16, "part of the files");

/* The end of the file of a shard. */
typedef struct ls_findings_trailer {
    uint64_t count;
    uint64_t file_bytes;
    ls_hash128 digest;
    uint64_t check;
} ls_findings_trailer;
static_assert(sizeof(ls_findings_trailer) == 40, "part of the files");
#define LS_FINDINGS_CHECK UINT64_C(0x32676e69646e6966)

/* The files of a pass. */
typedef struct ls_pass {
    /* Steps [first, last) are judged in this pass. */
    size_t first, last;
    uint32_t number;
    /* Step `last` is dedup_lines: after the keys of each document that is kept come its lines
     * (data/preparation/common_lines.h). */
    bool collects_lines;
} ls_pass;

/* Opens the findings of a shard and checks the trailer. Errors: LS_ERR_DATA, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_findings_open(const char *path, ls_file_map *map_out,
                                         ls_findings_trailer *trailer_out);

/*
 * Decides a pass: reads findings[i] of every shard and fills `verdicts`, one for each document of
 * all shards in order. Errors: LS_ERR_DATA for findings that do not fit together, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_verdicts_decide(const ls_data_pipeline *pipeline, const ls_pass *pass,
                                           const ls_file_map *findings, ls_finding *verdicts, uint64_t count);

/*
 * Finds the lines that several documents of a decided pass have. Memory: as much as for documents,
 * or 64 MiB; more lines are looked at in parts. The caller frees table_out->slots. Errors:
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_verdicts_find_lines(const ls_data_pipeline *pipeline, const ls_pass *pass,
                                               const ls_file_map *findings, const ls_finding *verdicts,
                                               ls_first_table *table_out);

#endif
