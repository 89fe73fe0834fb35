// SPDX-License-Identifier: Apache-2.0
/* Answers of the daemon as the client reads them: the same whether they come at once or byte by
 * byte, and never more than came. */
#include "base/assert.h"
#include "base/text.h"
#include "orchestration/client/response.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool gather(void *context, const char *data, size_t bytes)
{
    ls_text_append_bytes(context, data, bytes);
    return true;
}

static ls_status feed(const char *data, size_t bytes, size_t step, ls_response *response)
{
    for (size_t i = 0; i < bytes; i += step) {
        const ls_status status = ls_response_feed(response, data + i, bytes - i < step ? bytes - i : step);
        if (status != LS_OK) {
            return status;
        }
    }
    return ls_response_end(response);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_text body[2] = {{0}, {0}};
    ls_response *response = calloc(2, sizeof *response);
    LS_ASSERT(response != NULL);
    ls_status status[2];
    for (int i = 0; i < 2; i++) {
        response[i].take = gather;
        response[i].context = &body[i];
        status[i] = feed((const char *)data, bytes, i == 0 ? bytes + 1 : 1, &response[i]);
    }
    LS_ASSERT(status[0] == status[1] && response[0].code == response[1].code);
    LS_ASSERT(response[0].state == response[1].state && response[0].next == response[1].next);
    LS_ASSERT(body[0].bytes == body[1].bytes && body[0].bytes <= bytes);
    LS_ASSERT(strcmp(ls_text_string(&body[0]), ls_text_string(&body[1])) == 0);
    ls_text_release(&body[0]);
    ls_text_release(&body[1]);
    free(response);
    return 0;
}
