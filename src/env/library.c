// SPDX-License-Identifier: Apache-2.0
#include "env/library.h"

#include <dlfcn.h>
#include <string.h>

bool ls_library_load(const char *file, const ls_library_symbol *symbols, size_t count)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) {
            return false;
        }
        /* a function's address, as POSIX lets it be */
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return library != NULL;
}
