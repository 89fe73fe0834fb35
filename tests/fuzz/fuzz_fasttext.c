// SPDX-License-Identifier: Apache-2.0
/* Models of fastText: any bytes are refused with a text, or give a label and a probability. */
#include "base/assert.h"
#include "data/language/language.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const texts[] = {"", "the cat and le chat", "\xe6\x97\xa5\xe6\x9c\xac </s> \xff"};
    char path[64];
    ls_language_model *model = NULL;
    const int fd = memfd_create("model", MFD_CLOEXEC);
    LS_ASSERT(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls_error_clear();
    const ls_status status = ls_language_open(path, &model);
    LS_ASSERT((status == LS_OK) == (ls_error_text()[0] == '\0'));
    for (size_t i = 0; status == LS_OK && i < sizeof texts / sizeof texts[0]; i++) {
        ls_language language;
        ls_language_predict(model, texts[i], strlen(texts[i]), &language);
        LS_ASSERT(strlen(language.label) <= bytes);
        LS_ASSERT(language.probability >= 0.0 && language.probability <= 1.0);
    }
    ls_language_close(model);
    close(fd);
    return 0;
}
