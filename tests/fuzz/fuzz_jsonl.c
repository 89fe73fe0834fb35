// SPDX-License-Identifier: Apache-2.0
/* JSON lines: every line is refused with a text or gives valid UTF-8. */
#include "data/records.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ls_corpus_file file = {.path = "f", .kind = LS_CORPUS_JSONL};
    ls_records records;
    if (ls_records_open(&file, (const char *)data, size, &records) != LS_OK) {
        abort();
    }
    for (ls_record_cursor cursor = records.first; cursor.at < size;) {
        ls_record record;
        ls_record_document document = {0};
        if (ls_records_next(&records, &cursor, &record) != LS_OK) {
            abort();
        }
        const ls_status status = record.data ? ls_records_read(&records, &record, &document) : LS_OK;
        if (status != LS_OK && (status != LS_ERR_DATA || strncmp(ls_error_text(), "f:", 2) != 0)) {
            abort();
        }
        if (document.text && ls_utf8_valid_prefix(document.text, document.bytes) != document.bytes) {
            abort();
        }
        ls_record_document_release(&document);
    }
    return 0;
}
