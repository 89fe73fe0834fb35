// SPDX-License-Identifier: Apache-2.0
#include "storage/blob/blob_bench.h"

#include "base/clock.h"
#include "base/file.h"
#include "storage/blob/blob_internal.h"
#include "storage/blob/sigv4.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct benching {
    ls_blob_store *store;
    ls_arena arena;
    const char *below, *folder;
    char *piece; /* PIECE_BYTES of noise, which no server can make smaller */
} benching;

enum { PIECE_BYTES = 4 << 20, KEY_BYTES = 96 };

/* ---- the large file ---- */

typedef struct noise {
    const char *piece;
    uint64_t bytes;
} noise;

/* Pieces that differ in their number. */
static ls_status write_noise(void *context, int fd, const char *path)
{
    const noise *n = context;
    for (uint64_t at = 0; at < n->bytes; at += PIECE_BYTES) {
        const uint64_t left = n->bytes - at;
        const size_t now = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        LS_TRY(ls_file_pwrite_all(fd, path, n->piece, now, at));
        LS_TRY(ls_file_pwrite_all(fd, path, &at, now < sizeof at ? now : sizeof at, at));
    }
    return LS_OK;
}

static ls_status hash_path(const char *path, char hex_out[LS_SHA256_HEX_BYTES])
{
    int fd = -1;
    size_t bytes = 0;
    LS_TRY(ls_file_open(path, &fd, &bytes));
    const ls_status status = ls_file_sha256(fd, path, bytes, hex_out);
    close(fd);
    return status;
}

static ls_status bench_large(benching *b, uint64_t bytes, ls_blob_bench_result *r)
{
    const char *from = ls_path_join(&b->arena, b->folder, "there");
    const char *to = ls_path_join(&b->arena, b->folder, "back");
    const char *key = ls_arena_printf(&b->arena, "%s/large", b->below);
    char sent[LS_SHA256_HEX_BYTES], came[LS_SHA256_HEX_BYTES];
    noise n = {.piece = b->piece, .bytes = bytes};
    LS_TRY(ls_file_write_atomic_by(from, write_noise, &n));
    const int fd = open(from, O_RDONLY | O_CLOEXEC);
    double start_s = ls_clock_monotonic_s();
    const ls_status status = ls_blob_put_file(b->store, key, fd, from, bytes, NULL, NULL);
    close(fd);
    LS_TRY(status);
    r->put_bytes_ps = (double)bytes / (ls_clock_monotonic_s() - start_s);
    ls_blob_entry entry;
    start_s = ls_clock_monotonic_s();
    LS_TRY(ls_blob_stat(b->store, key, &entry));
    LS_TRY(ls_blob_get_file(b->store, &entry, to));
    r->get_bytes_ps = (double)bytes / (ls_clock_monotonic_s() - start_s);
    LS_TRY(hash_path(from, sent));
    LS_TRY(hash_path(to, came));
    return strcmp(sent, came) == 0 ? LS_OK
                                   : ls_fail(LS_ERR_DATA, "%s/%s returned different bytes than were stored",
                                             ls_blob_address(b->store), key);
}

/* ---- small blobs ---- */

static void key_of(const benching *b, uint64_t index, char key_out[KEY_BYTES])
{
    snprintf(key_out, KEY_BYTES, "%s/small/%06" PRIu64, b->below, index);
}

static ls_status put_small(void *context, uint64_t index)
{
    const benching *b = context;
    char key[KEY_BYTES];
    key_of(b, index, key);
    return ls_blob_put(b->store, key, b->piece + index % 1024, LS_BLOB_BENCH_SMALL_BYTES);
}

static ls_status get_small(void *context, uint64_t index)
{
    const benching *b = context;
    char key[KEY_BYTES], data[LS_BLOB_BENCH_SMALL_BYTES];
    key_of(b, index, key);
    LS_TRY(ls_blob_read(b->store, key, "", 0, data, sizeof data));
    return memcmp(data, b->piece + index % 1024, sizeof data) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s/%s returned different bytes than were stored",
                         ls_blob_address(b->store), key);
}

static ls_status remove_small(void *context, uint64_t index)
{
    char key[KEY_BYTES];
    const benching *b = context;
    key_of(b, index, key);
    return ls_blob_remove(b->store, key);
}

static ls_status bench_small(benching *b, const ls_blob_bench_options *o, ls_blob_bench_result *r)
{
    const struct {
        ls_status (*part)(void *context, uint64_t index);
        double *rate;
    } phases[] = {{put_small, &r->put_ps}, {get_small, &r->get_ps}, {remove_small, &r->remove_ps}};
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        const double start_s = ls_clock_monotonic_s();
        LS_TRY(ls_blob_each_part(o->threads, o->objects, phases[i].part, b));
        *phases[i].rate = (double)o->objects / (ls_clock_monotonic_s() - start_s);
    }
    return LS_OK;
}

/* ---- signatures ---- */

static double bench_signing(void)
{
    enum { ROUNDS = 256 };
    static const double least_s = 0.2;
    char time[LS_SIGV4_TIME_BYTES], payload[LS_SHA256_HEX_BYTES];
    ls_sigv4_key key;
    ls_text text = {0};
    ls_sigv4_time(ls_clock_wall_s(), time);
    ls_sigv4_derive("secret", time, "us-east-1", "s3", &key);
    ls_sha256_hex("", 0, payload);
    const ls_sigv4_header headers[] = {{"host", "bucket.s3.us-east-1.amazonaws.com"},
                                       {"range", "bytes=0-8388607"},
                                       {"x-amz-content-sha256", payload},
                                       {"x-amz-date", time}};
    const ls_sigv4_request request = {.method = "GET",
                                      .path = "/runs/mine/200/model.safetensors",
                                      .query = "",
                                      .headers = headers,
                                      .header_count = sizeof headers / sizeof headers[0],
                                      .payload_sha256 = payload,
                                      .time = time,
                                      .region = "us-east-1",
                                      .service = "s3"};
    const double start_s = ls_clock_thread_s();
    double took_s = 0.0;
    uint64_t count = 0;
    for (; took_s < least_s; took_s = ls_clock_thread_s() - start_s, count += ROUNDS) {
        for (int i = 0; i < ROUNDS; i++) {
            ls_text_clear(&text);
            ls_sigv4_append_authorization(&request, "AKIDEXAMPLE", &key, &text);
        }
    }
    ls_text_release(&text);
    return (double)count / took_s;
}

/* ---- all of it ---- */

static ls_status bench_all(benching *b, const ls_blob_bench_options *o, ls_blob_bench_result *r)
{
    for (size_t at = 0; at < PIECE_BYTES; at += 256) {
        (void)!getrandom(b->piece + at, 256, 0);
    }
    r->sign_ps = bench_signing();
    LS_TRY(bench_large(b, o->bytes, r));
    return bench_small(b, o, r);
}

/* Keeps the first error. */
static ls_status clean_up(benching *b, const ls_blob_bench_options *o, ls_status status)
{
    const char *why = ls_arena_strdup(&b->arena, ls_error_text());
    const char *large = ls_arena_printf(&b->arena, "%s/large", b->below);
    ls_status gone = ls_blob_remove(b->store, large);
    gone =
        gone == LS_OK && status != LS_OK ? ls_blob_each_part(o->threads, o->objects, remove_small, b) : gone;
    gone = gone == LS_OK ? ls_blob_abandon(b->store, large) : gone;
    const ls_status folder = ls_dir_remove(b->folder);
    return status != LS_OK ? ls_fail(status, "%s", why) : gone != LS_OK ? gone : folder;
}

ls_status ls_blob_bench(ls_blob_store *store, const ls_blob_bench_options *options,
                        ls_blob_bench_result *result_out)
{
    ls_blob_bench_result result = {0};
    benching b = {.store = store};
    uint64_t number = 0;
    const char *temporary = getenv("TMPDIR");
    (void)!getrandom(&number, sizeof number, 0);
    b.below = ls_arena_printf(&b.arena, "bench-%016" PRIx64, number);
    b.folder =
        ls_arena_printf(&b.arena, "%s/lockstep-%s", temporary && *temporary ? temporary : "/tmp", b.below);
    b.piece = malloc(PIECE_BYTES);
    ls_status status = b.piece ? ls_dir_create(b.folder) : ls_fail(LS_ERR_MEMORY, "not enough memory");
    if (status == LS_OK) {
        status = clean_up(&b, options, bench_all(&b, options, &result));
    }
    free(b.piece);
    ls_arena_release(&b.arena);
    LS_TRY(status);
    *result_out = result;
    return LS_OK;
}
