// SPDX-License-Identifier: Apache-2.0
#include "env/http/microhttpd.h"

#include "env/library.h"

#include <pthread.h>
#include <stdbool.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ls_microhttpd loaded;
static bool is_there;

static void load(void)
{
#define SYMBOL(name) {"MHD_" #name, &loaded.name},
    const ls_library_symbol symbols[] = {LS_MICROHTTPD_FUNCTIONS(SYMBOL)};
    is_there = ls_library_load("libmicrohttpd.so.12", symbols, sizeof symbols / sizeof symbols[0]);
}

ls_status ls_microhttpd_load(const ls_microhttpd **library_out)
{
    pthread_once(&once, load);
    if (!is_there) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "serving HTTP needs libmicrohttpd, and libmicrohttpd.so.12 can't be loaded (Debian: "
                       "install libmicrohttpd12)");
    }
    *library_out = &loaded;
    return LS_OK;
}
