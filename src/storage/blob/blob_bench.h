// SPDX-License-Identifier: Apache-2.0
/* How fast a store is: a large file and many small blobs there and back, and how fast requests are
 * signed. */
#ifndef LS_STORAGE_BLOB_BLOB_BENCH_H
#define LS_STORAGE_BLOB_BLOB_BENCH_H

#include "storage/blob/blob.h"

enum { LS_BLOB_BENCH_SMALL_BYTES = 1024 };

typedef struct ls_blob_bench_options {
    uint64_t bytes;   /* of the large file, >= 1 */
    uint64_t objects; /* small blobs, of LS_BLOB_BENCH_SMALL_BYTES each, >= 1 */
    unsigned threads; /* requests at once for the small ones, 1 to LS_BLOB_THREADS_MAX */
} ls_blob_bench_options;

typedef struct ls_blob_bench_result {
    double put_bytes_ps, get_bytes_ps; /* the large file, from and to a file in $TMPDIR */
    double put_ps, get_ps, remove_ps;  /* small blobs a second */
    double sign_ps;                    /* signatures a second of one core, without a network */
} ls_blob_bench_result;

/* Everything is stored below a new prefix "bench-..." and removed again, also after an error.
 * Errors: those of the store; LS_ERR_DATA if something else comes back than was stored. */
LS_MUST_CHECK ls_status ls_blob_bench(ls_blob_store *store, const ls_blob_bench_options *options,
                                      ls_blob_bench_result *result_out);

#endif
