// SPDX-License-Identifier: Apache-2.0
/* coordinator.log: the reader takes the longest good prefix of anything, and reading that prefix
 * alone comes to the same. */
#include "execution/elastic/host/coordinator_log.h"

#include <stdlib.h>
#include <string.h>

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Checksums that hold, so that what is behind them is reached: input is taken for a row of records
 * without them. */
static size_t seal(char *data, size_t bytes)
{
    size_t at = 0;
    while (bytes - at >= sizeof(ls_log_head)) {
        ls_log_head head;
        memcpy(&head, data + at, sizeof head);
        head.magic = LS_LOG_MAGIC;
        head.kind = 1 + head.kind % 6;
        head.bytes = head.kind == LS_LOG_CUTS ? sizeof(ls_log_cuts) : head.bytes % 2048;
        if (head.bytes > bytes - at - sizeof head) {
            break;
        }
        head.crc = 0;
        head.crc = ls_crc32c(ls_crc32c(0, &head, sizeof head), data + at + sizeof head, head.bytes);
        memcpy(data + at, &head, sizeof head);
        at += sizeof head + head.bytes;
    }
    return bytes;
}

static void walk(const char *data, size_t bytes)
{
    static ls_log_state whole, part;
    ls_log_read(data, bytes, &whole);
    check(whole.good_bytes <= bytes && (whole.wrong != NULL) == (whole.good_bytes < bytes));
    check(whole.member_count <= LS_LOG_MEMBERS_MAX &&
          memchr(whole.run.identity, 0, sizeof whole.run.identity));
    check(whole.cuts.newest.host_count <= LS_REFORM_HOSTS_MAX &&
          whole.cuts.held.host_count <= LS_REFORM_HOSTS_MAX);
    ls_log_read(data, whole.good_bytes, &part);
    check(!part.wrong && part.records == whole.records && part.epoch == whole.epoch &&
          part.step == whole.step && part.ended == whole.ended);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *copy = malloc(size + 1);
    check(copy != NULL);
    memcpy(copy, data, size);
    walk(copy, size);
    walk(copy, seal(copy, size));
    free(copy);
    return 0;
}
