// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/input_shard.h"

#include "data/text.h"
#include "data/unpack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 };

/* ---- documents of a piece -------------------------------------------------------------------- */

ls_status ls_shard_next(ls_shard_piece *piece, ls_record *record_out)
{
    const ls_records *records = piece->records;
    *record_out = (ls_record){0};
    if (piece->cursor.at < piece->end) {
        LS_TRY(ls_records_next(records, &piece->cursor, record_out));
    }
    /* A text file was opened as records with one line: all of it. */
    if (record_out->data && records->file->kind == LS_CORPUS_TEXT) {
        *record_out = (ls_record){.data = records->data + records->first.at,
                                  .bytes = records->bytes - records->first.at,
                                  .line = 1};
        piece->cursor.at = piece->end;
    }
    return LS_OK;
}

ls_status ls_shard_read(ls_shard_piece *piece, const ls_record *record, ls_removal *removal_out)
{
    const bool is_text = piece->records->file->kind == LS_CORPUS_TEXT;
    return ls_raw_document_read(&piece->raw, piece->walk->pipeline, is_text ? NULL : piece->records, record,
                                removal_out);
}

static void *run_piece(void *argument)
{
    ls_shard_piece *piece = argument;
    piece->status = piece->walk->work(piece->walk->context, piece);
    if (piece->status != LS_OK) {
        piece->error_text = strdup(ls_error_text());
    }
    return NULL;
}

/* ---- waves ----------------------------------------------------------------------------------- */

/* Cuts the next piece: the number of its documents is known before they are read. */
static ls_status cut_piece(ls_shard_walk *walk, const ls_records *records, ls_record_cursor *next,
                           ls_shard_piece *piece)
{
    ls_record record = {.data = ""};
    piece->walk = walk;
    piece->records = records;
    piece->cursor = *next;
    piece->first = walk->count;
    if (records->file->kind == LS_CORPUS_TEXT) {
        next->at = records->bytes;
        piece->count = 1;
    }
    for (piece->count = records->file->kind == LS_CORPUS_TEXT;
         record.data && next->at < records->bytes && next->at - piece->cursor.at < PIECE_BYTES;) {
        LS_TRY(ls_records_next(records, next, &record));
        piece->count += record.data != NULL;
    }
    if (!record.data) {
        next->at = records->bytes;
    }
    walk->count += piece->count;
    piece->end = next->at;
    return LS_OK;
}

static void run_wave(ls_shard_piece *pieces, uint32_t count)
{
    pthread_t threads[LS_SHARD_THREADS_MAX];
    bool started[LS_SHARD_THREADS_MAX] = {false};
    for (uint32_t i = 1; i < count; i++) {
        started[i] = pthread_create(&threads[i], NULL, run_piece, &pieces[i]) == 0;
    }
    run_piece(&pieces[0]);
    for (uint32_t i = 1; i < count; i++) {
        if (started[i]) {
            pthread_join(threads[i], NULL);
        } else {
            run_piece(&pieces[i]);
        }
    }
}

static ls_status take_piece(ls_shard_walk *walk, ls_shard_piece *piece)
{
    ls_status status = piece->status;
    if (status != LS_OK) {
        status = ls_fail(status, "%s", piece->error_text ? piece->error_text : "out of memory");
    }
    free(piece->error_text);
    piece->error_text = NULL;
    status = status == LS_OK ? walk->take(walk->context, piece) : status;
    ls_text_clear(&piece->out);
    ls_text_clear(&piece->more);
    return status;
}

static ls_status walk_records(ls_shard_walk *walk, const ls_records *records, ls_shard_piece *pieces)
{
    ls_record_cursor next = records->first;
    walk->count = 0;
    while (next.at < records->bytes) {
        uint32_t count = 0;
        while (count < walk->threads && next.at < records->bytes) {
            LS_TRY(cut_piece(walk, records, &next, &pieces[count]));
            count++;
        }
        run_wave(pieces, count);
        ls_status status = LS_OK;
        for (uint32_t i = 0; i < count; i++) {
            const ls_status taken = take_piece(walk, &pieces[i]);
            status = status == LS_OK ? taken : status;
        }
        LS_TRY(status);
    }
    return LS_OK;
}

static ls_status walk_content(ls_shard_walk *walk, const ls_corpus_file *file, ls_file_map *map,
                              ls_shard_piece *pieces)
{
    ls_records records;
    walk->digest = ls_xxh3_128(map->data, map->bytes);
    walk->file_bytes = map->bytes;
    LS_TRY(ls_corpus_unpack(file, &(ls_unpack_options){.folder = walk->folder}, map));
    LS_TRY(ls_text_check_format(map->data, map->bytes, file->path));
    LS_TRY(ls_records_open(file, (const char *)map->data, map->bytes, &records));
    return walk_records(walk, &records, pieces);
}

ls_status ls_shard_walk_run(ls_shard_walk *walk, ls_shard_piece *pieces)
{
    const ls_corpus_file *file = &walk->pipeline->files[walk->unit];
    ls_file_map map;
    LS_TRY(ls_corpus_map(file, &map));
    const ls_status status = walk_content(walk, file, &map, pieces);
    ls_file_map_close(&map);
    return status;
}

void ls_shard_pieces_release(ls_shard_piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ls_scratch_release(&pieces[i].scratch);
        ls_raw_document_release(&pieces[i].raw);
        ls_text_release(&pieces[i].out);
        ls_text_release(&pieces[i].more);
    }
}
