// SPDX-License-Identifier: Apache-2.0
/* Canonical forms for signatures: what is encoded holds only plain characters, decodes to what it
 * was, and a query is sorted, so that names and values cannot change places. */
#include "base/assert.h"
#include "storage/blob/credentials.h"
#include "storage/blob/sigv4.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_encoded(const char *string, bool keep_slash)
{
    ls_text text = {0};
    ls_sigv4_append_encoded(&text, string, keep_slash);
    const char *at = ls_text_string(&text);
    for (; *string; string++) {
        char decoded = *at;
        if (*at == '%') {
            const char digits[3] = {at[1], at[2], '\0'};
            decoded = (char)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            LS_ASSERT(!strchr(" +&=?#%\n", *at) && (*at != '/' || keep_slash));
        }
        LS_ASSERT(decoded == *string);
        at++;
    }
    LS_ASSERT(*at == '\0');
    ls_text_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *copy = calloc(1, bytes + 3);
    LS_ASSERT(copy != NULL);
    memcpy(copy, data, bytes);
    const char *second = copy + strlen(copy) + 1;
    second = second < copy + bytes ? second : "";
    check_encoded(copy, false);
    check_encoded(second, true);
    ls_sigv4_header pairs[] = {{"prefix", copy}, {"list-type", "2"}, {"continuation-token", second}};
    ls_text query = {0};
    ls_sigv4_append_query(&query, pairs, 3);
    const char *list = strstr(ls_text_string(&query), "&list-type=2&prefix=");
    LS_ASSERT(strncmp(ls_text_string(&query), "continuation-token=", 19) == 0 && list);
    ls_text_release(&query);
    free(ls_aws_profile_value(copy, "default", "region"));
    LS_ASSERT(ls_aws_time_parse(copy) >= 0.0);
    free(copy);
    return 0;
}
