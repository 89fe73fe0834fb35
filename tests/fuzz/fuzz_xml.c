// SPDX-License-Identifier: Apache-2.0
/* The XML of S3 answers on arbitrary bytes: an error with text, or elements whose text is no longer
 * than what came; the same when it is written again. */
#include "base/assert.h"
#include "base/text.h"
#include "storage/blob/xml.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct seen {
    size_t elements, text_bytes;
} seen;

static ls_status count(void *context, const char *name, const char *text)
{
    seen *s = context;
    LS_ASSERT(strlen(name) >= 1 && strlen(name) <= LS_XML_NAME_BYTES_MAX);
    s->elements++;
    s->text_bytes += strlen(text);
    return LS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    seen s = {0};
    ls_error_clear();
    const ls_status status = ls_xml_walk((const char *)data, bytes, "fuzz.xml", count, &s);
    LS_ASSERT(status == LS_OK || (status == LS_ERR_DATA && ls_error_text()[0]));
    LS_ASSERT(s.text_bytes <= bytes && s.elements <= bytes / 3 && (status != LS_OK || s.elements > 0));
    return 0;
}
