// SPDX-License-Identifier: Apache-2.0
/* Steps of a preparation: any record is refused with a reason, or each step leaves valid UTF-8 and a
 * record that can be read again. */
#include "base/assert.h"
#include "data/preparation/folded_words.h"
#include "data/preparation/normal_text.h"
#include "data/preparation/private_data.h"
#include "data/preparation/quality.h"
#include "data/preparation/raw_document.h"
#include "tokenizer/unicode.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void apply(ls_step_kind kind, ls_step_scratch *scratch, ls_passage *passage)
{
    ls_arena arena = {0};
    ls_step step = {.kind = kind};
    ls_removal removal = {0};
    uint64_t keys[LS_MINHASH_HASHES_MAX];
    uint32_t private = 0;
    ls_options_defaults(ls_step_table(kind), &step, &arena);
    ls_status status = LS_OK;
    switch (kind) {
    case LS_STEP_NORMALISE:
        status = ls_normal_text(&step, scratch, passage);
        break;
    case LS_STEP_C4:
        status = ls_c4_apply(&step, scratch, true, passage, &removal);
        break;
    case LS_STEP_GOPHER_QUALITY:
        status = ls_gopher_judge(&step, scratch, passage, &removal);
        break;
    case LS_STEP_GOPHER_REPETITION:
        status = ls_repetition_judge(scratch, passage, &removal);
        break;
    case LS_STEP_FINEWEB:
        status = ls_fineweb_judge(&step, scratch, passage, &removal);
        break;
    case LS_STEP_DEDUP_EXACT:
        ls_exact_hash(&step, scratch, passage);
        break;
    case LS_STEP_DEDUP_MINHASH:
        status = ls_fold_words(scratch, passage->text, passage->bytes);
        LS_ASSERT(status != LS_OK || ls_minhash_keys(&step, scratch, keys) == (scratch->folded_count >= 5));
        break;
    default:
        status = ls_private_kinds(&step, "fuzz", &private);
        ls_private_mask(private, scratch, passage);
    }
    LS_ASSERT(status == LS_OK && ls_utf8_valid_prefix(passage->text, passage->bytes) == passage->bytes);
    ls_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const ls_step_kind kinds[] = {
        LS_STEP_FINEWEB,     LS_STEP_NORMALISE,      LS_STEP_GOPHER_QUALITY,
        LS_STEP_DEDUP_EXACT, LS_STEP_DEDUP_MINHASH,  LS_STEP_GOPHER_REPETITION,
        LS_STEP_PII,         LS_STEP_DEDUP_EXACT,    LS_STEP_C4,
        LS_STEP_DEDUP_EXACT, LS_STEP_GOPHER_QUALITY, LS_STEP_DEDUP_MINHASH};
    const ls_corpus_file file = {.path = "f", .kind = LS_CORPUS_JSONL};
    const ls_data_pipeline pipeline = {.field = "t", .document_bytes_max = 1 << 20};
    const ls_records records = {.file = &file, .data = (const char *)data, .bytes = bytes};
    ls_record record = {(const char *)data, bytes, 1};
    ls_raw_document raw = {0}, again = {0};
    ls_step_scratch scratch = {0};
    ls_removal removal;
    ls_text out = {0};
    LS_ASSERT(ls_raw_document_read(&raw, &pipeline, &records, &record, &removal) == LS_OK);
    if (!removal.reason) {
        ls_passage passage = {raw.text, raw.bytes};
        ls_scratch_begin(&scratch, 0);
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            apply(kinds[i], &scratch, &passage);
        }
        ls_raw_document_append(&raw, passage.text, passage.bytes, &out);
        record = (ls_record){out.data, out.bytes - 1, 1};
        LS_ASSERT(ls_raw_document_read(&again, &pipeline, &records, &record, &removal) == LS_OK);
        LS_ASSERT(passage.bytes == 0 || (!removal.reason && again.bytes == passage.bytes &&
                                         memcmp(again.text, passage.text, passage.bytes) == 0));
    }
    ls_raw_document_release(&raw);
    ls_raw_document_release(&again);
    ls_scratch_release(&scratch);
    ls_text_release(&out);
    return 0;
}
