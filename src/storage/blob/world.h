// SPDX-License-Identifier: Apache-2.0
/*
 * What a store over S3 asks of the world: answers, time and chance. The simulated one of the tests
 * (tests/storage/blob/s3_world.h) fails every call in every way, by seed and in no time.
 */
#ifndef LS_STORAGE_BLOB_WORLD_H
#define LS_STORAGE_BLOB_WORLD_H

#include "env/http_client.h"

struct ls_blob_world {
    /* as ls_http_do */
    ls_status (*request)(void *context, const ls_http_request *request, ls_http_answer *answer_out);
    double (*monotonic_s)(void *context);
    void (*sleep)(void *context, double seconds);
    uint32_t (*random)(void *context);
    void *context;
};

/* The network, the clock and the kernel's random numbers. */
extern const struct ls_blob_world ls_blob_real_world;

#endif
