// SPDX-License-Identifier: Apache-2.0
#include "env/http/microhttpd.h"

#include "env/library.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ls_microhttpd loaded;
static bool is_there;

static void load(void)
{
    const ls_library_symbol symbols[] = {
        {"MHD_start_daemon", &loaded.start_daemon},
        {"MHD_stop_daemon", &loaded.stop_daemon},
        {"MHD_run", &loaded.run},
        {"MHD_get_timeout", &loaded.get_timeout},
        {"MHD_get_daemon_info", &loaded.get_daemon_info},
        {"MHD_get_connection_info", &loaded.get_connection_info},
        {"MHD_get_connection_values", &loaded.get_connection_values},
        {"MHD_lookup_connection_value", &loaded.lookup_connection_value},
        {"MHD_create_response_from_buffer", &loaded.create_response_from_buffer},
        {"MHD_create_response_from_callback", &loaded.create_response_from_callback},
        {"MHD_add_response_header", &loaded.add_response_header},
        {"MHD_queue_response", &loaded.queue_response},
        {"MHD_destroy_response", &loaded.destroy_response},
        {"MHD_suspend_connection", &loaded.suspend_connection},
        {"MHD_resume_connection", &loaded.resume_connection},
    };
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
