// SPDX-License-Identifier: Apache-2.0
/* A bundle of arbitrary bytes, as an archive, as BUNDLE.json and as a signature: an error with text, or
 * names that stay where they belong. */
#include "base/assert.h"
#include "storage/bundle/bundle.h"
#include "storage/bundle/bundle_internal.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool is_named(ls_status status)
{
    return status == LS_OK || ls_error_text()[0];
}

static void check(ls_bundle *bundle)
{
    for (size_t i = 0; i < bundle->count; i++) {
        LS_ASSERT(ls_bundle_check_name(bundle->files[i].name) == LS_OK);
        LS_ASSERT(strlen(bundle->files[i].sha256) == LS_SHA256_HEX_BYTES - 1);
    }
    json_decref(bundle->about);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    ls_bundle bundle = {0};
    ls_bundle_sender sender = {0};
    ls_signature signature = {0};
    char path[64];
    ls_error_clear();
    LS_ASSERT(is_named(ls_signature_parse((const char *)data, bytes, "fuzz", &signature)));
    ls_status status = ls_bundle_decode(&arena, (const char *)data, bytes, "fuzz.json", &bundle);
    LS_ASSERT(is_named(status));
    if (status == LS_OK) {
        check(&bundle);
    }
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    LS_ASSERT(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bundle = (ls_bundle){0};
    status = ls_bundle_open(&arena, path, NULL, NULL, &bundle, &sender);
    LS_ASSERT(is_named(status));
    if (status == LS_OK) {
        check(&bundle);
    }
    close(fd);
    ls_arena_release(&arena);
    return 0;
}
