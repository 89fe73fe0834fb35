// SPDX-License-Identifier: Apache-2.0
/*
 * Blobs over a simulated S3 that fails by seed (storage/blob/s3_world.h). A model knows for each key
 * what it may hold: exactly what was stored, or, after a call that failed, what was there or what
 * the call had to store. No call takes longer than its patience, none returns anything else than a
 * possible content, none tells the secret.
 */
#include "storage/blob/s3_world.h"

#include <unistd.h>

/* A debug build, where sanitizers run, takes a twentieth. */
#ifdef LS_DEBUG
enum { SEEDS = 500 };
#else
enum { SEEDS = 10000 };
#endif
enum {
    KEYS = 5,
    VALUES = 8,
    OPERATIONS = 12,
    ABSENT = 1 << VALUES,
    VALUE_BYTES_MAX = 400,
    LARGE_BYTES = (8 << 20) + 1000
};
static const double PATIENCE_S = 20.0;

typedef struct world {
    sim_s3 s3;
    ls_blob_store *store;
    unsigned possible[KEYS]; /* bits of values, and ABSENT */
    /* what may still arrive, if it finds no blob: tries of ls_blob_put_new that were given up */
    unsigned late[KEYS];
    uint64_t seed, good, bad;
} world;

static const char *const keys[KEYS] = {"a", "b/c", "b/d", "b/\xc3\xa9 +%", "e"};

static size_t value_of(unsigned value, unsigned char data[VALUE_BYTES_MAX])
{
    const size_t bytes = value * 53;
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 31 + value * 7);
    }
    return bytes;
}

static bool is_value(unsigned value, const void *data, size_t bytes)
{
    unsigned char wanted[VALUE_BYTES_MAX];
    return value_of(value, wanted) == bytes && memcmp(wanted, data, bytes) == 0;
}

#define must(w, what)                                                                                        \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fail_msg("seed %llu: not %s; the last error: %s", (unsigned long long)(w)->seed, #what,          \
                     ls_error_text());                                                                       \
        }                                                                                                    \
    } while (0)

/* ---- operations: what a status says about a key ---- */

static bool failed(world *w, ls_status status)
{
    *(status == LS_OK ? &w->good : &w->bad) += 1;
    if (status != LS_OK) {
        must(w, ls_error_text()[0] && !strstr(ls_error_text(), SIM_SECRET));
        must(w, status == LS_ERR_IO || status == LS_ERR_TIMEOUT || status == LS_ERR_FAILED ||
                    status == LS_ERR_DATA || status == LS_ERR_NOT_FOUND);
    }
    return status != LS_OK;
}

static void now_is(world *w, unsigned key, unsigned bits)
{
    const unsigned late = w->possible[key] & ABSENT ? w->late[key] : 0;
    w->possible[key] = (w->possible[key] | late) & bits;
    must(w, w->possible[key] != 0);
}

static void do_put(world *w, unsigned key, unsigned value)
{
    unsigned char data[VALUE_BYTES_MAX];
    const size_t bytes = value_of(value, data);
    const bool bad = failed(w, ls_blob_put(w->store, keys[key], data, bytes));
    w->possible[key] = (bad ? w->possible[key] : 0) | 1u << value;
}

static void do_put_file(world *w, unsigned key, unsigned value)
{
    unsigned char data[VALUE_BYTES_MAX];
    char path[] = "/tmp/ls-blob-faults-XXXXXX", sha256[LS_SHA256_HEX_BYTES];
    const size_t bytes = value_of(value, data);
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && unlink(path) == 0 && write(fd, data, bytes) == (ssize_t)bytes);
    ls_sha256_hex(data, bytes, sha256);
    const bool bad = failed(w, ls_blob_put_file(w->store, keys[key], fd, "file", bytes, sha256, NULL));
    w->possible[key] = (bad ? w->possible[key] : 0) | 1u << value;
    close(fd);
}

static void do_put_new(world *w, unsigned key, unsigned value)
{
    unsigned char data[VALUE_BYTES_MAX];
    const size_t bytes = value_of(value, data);
    bool stored = false;
    const unsigned before = w->possible[key], added = before & ABSENT ? 1u << value : 0;
    w->late[key] |= 1u << value;
    if (failed(w, ls_blob_put_new(w->store, keys[key], data, bytes, &stored))) {
        w->possible[key] |= added;
    } else if (stored) {
        must(w, before & (ABSENT | 1u << value));
        w->possible[key] = 1u << value;
    } else {
        w->possible[key] |= added;
        now_is(w, key, ~(unsigned)ABSENT);
    }
}

static void do_get(world *w, unsigned key)
{
    ls_arena arena = {0};
    char *data = NULL;
    size_t bytes = 0;
    const ls_status status = ls_blob_get(w->store, &arena, keys[key], VALUE_BYTES_MAX, &data, &bytes);
    if (status == LS_ERR_NOT_FOUND) {
        w->good++;
        now_is(w, key, ABSENT);
    } else if (!failed(w, status)) {
        unsigned found = 0;
        for (unsigned v = 0; v < VALUES; v++) {
            found |= is_value(v, data, bytes) ? 1u << v : 0;
        }
        now_is(w, key, found);
    }
    ls_arena_release(&arena);
}

static void do_remove(world *w, unsigned key)
{
    const bool bad = failed(w, ls_blob_remove(w->store, keys[key]));
    w->possible[key] = (bad ? w->possible[key] : 0) | ABSENT;
}

static void do_copy(world *w, unsigned from, unsigned to)
{
    const ls_status status = ls_blob_copy(w->store, keys[from], keys[to]);
    if (status == LS_ERR_NOT_FOUND) {
        w->good++;
        now_is(w, from, ABSENT);
    } else if (failed(w, status)) {
        w->possible[to] |= w->possible[from] & ~(unsigned)ABSENT;
    } else {
        now_is(w, from, ~(unsigned)ABSENT);
        w->possible[to] = w->possible[from];
    }
}

static void do_list(world *w)
{
    ls_arena arena = {0};
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    if (!failed(w, ls_blob_list(w->store, &arena, "", true, &entries, &count))) {
        for (unsigned k = 0; k < KEYS; k++) {
            bool is_there = false;
            for (size_t i = 0; i < count; i++) {
                is_there = is_there || strcmp(entries[i].key, keys[k]) == 0;
            }
            now_is(w, k, is_there ? ~(unsigned)ABSENT : ABSENT);
        }
    }
    ls_arena_release(&arena);
}

static void do_one(world *w)
{
    const unsigned key = sim_draw(&w->s3) % KEYS, value = 1 + sim_draw(&w->s3) % (VALUES - 1);
    const double from_s = w->s3.now_s;
    const uint64_t from = w->s3.requests;
    switch (sim_draw(&w->s3) % 8) {
    case 0:
        do_put(w, key, value);
        break;
    case 1:
        do_put_file(w, key, value);
        break;
    case 2:
        do_put_new(w, key, value);
        break;
    case 3:
        do_remove(w, key);
        break;
    case 4:
        do_copy(w, key, (key + 1) % KEYS);
        break;
    case 5:
        do_list(w);
        break;
    default:
        do_get(w, key);
        break;
    }
    /* A call is at most a few requests, each with its patience and a last answer to wait for. */
    must(w, w->s3.now_s - from_s <= 12.0 * (PATIENCE_S + 40.0));
    must(w, w->s3.requests - from <= 5000);
}

static void blob_faults_by_seed(void **state)
{
    (void)state;
    static world w;
    static const unsigned percents[] = {0, 5, 20, 50};
    uint64_t good = 0, bad = 0;
    for (w.seed = 1; w.seed <= SEEDS; w.seed++) {
        sim_begin(&w.s3, w.seed);
        w.s3.percent = percents[w.seed % 4];
        w.s3.refuses = w.seed % 3 == 0;
        w.store = sim_open(&w.s3, SIM_BUCKET "/p", PATIENCE_S);
        w.good = w.bad = 0;
        for (unsigned k = 0; k < KEYS; k++) {
            w.possible[k] = ABSENT;
            w.late[k] = 0;
        }
        for (unsigned i = 0; i < OPERATIONS; i++) {
            do_one(&w);
        }
        must(&w, w.s3.percent > 0 || w.bad == 0);
        /* What is there when the trouble is over, for a process that knows nothing. */
        sim_arrive(&w.s3, true);
        w.s3.percent = 0;
        ls_blob_close(w.store);
        w.store = sim_open(&w.s3, SIM_BUCKET "/p", PATIENCE_S);
        do_list(&w);
        for (unsigned k = 0; k < KEYS; k++) {
            const uint64_t before = w.bad;
            do_get(&w, k);
            must(&w, w.bad == before);
        }
        ls_blob_close(w.store);
        sim_end(&w.s3);
        good += w.good;
        bad += w.bad;
    }
    printf("%d seeds: %llu calls succeeded, %llu failed and said so\n", SEEDS, (unsigned long long)good,
           (unsigned long long)bad);
    assert_true(good > bad && bad > SEEDS / 20); /* both happen */
}

/* Large files in parts: killed at every request, before and after it is done, then once more. */
static void blob_put_file_killed_at_every_request(void **state)
{
    (void)state;
    static sim_s3 s;
    unsigned char *data = malloc(LARGE_BYTES);
    char path[] = "/tmp/ls-blob-faults-XXXXXX", sha256[LS_SHA256_HEX_BYTES];
    const int fd = mkstemp(path);
    assert_non_null(data);
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    assert_true(fd >= 0 && unlink(path) == 0 && write(fd, data, LARGE_BYTES) == LARGE_BYTES);
    ls_sha256_hex(data, LARGE_BYTES, sha256);
    bool is_whole = false;
    for (uint64_t at = 1; !is_whole; at++) {
        for (int after = 0; after < 2; after++) {
            uint64_t sent = 0;
            sim_begin(&s, at);
            s.dies_at = at;
            s.dies_after = after;
            ls_blob_store *store = sim_open(&s, SIM_BUCKET, PATIENCE_S);
            is_whole = ls_blob_put_file(store, "large", fd, "file", LARGE_BYTES, sha256, &sent) == LS_OK;
            const sim_object *there = sim_find(&s, "large", "");
            assert_true(!there || there->body.bytes == LARGE_BYTES);
            assert_true(!is_whole || there);
            s.dies_at = 0;
            sent = 0;
            assert_int_equal(ls_blob_put_file(store, "large", fd, "file", LARGE_BYTES, sha256, &sent), LS_OK);
            there = sim_find(&s, "large", "");
            assert_non_null(there);
            assert_memory_equal(there->body.data, data, LARGE_BYTES);
            assert_string_equal(there->sha256, sha256);
            assert_true(at < 5 || sent < LARGE_BYTES); /* from the second part on, it goes on */
            assert_int_equal(ls_blob_abandon(store, ""), LS_OK);
            assert_int_equal(s.count, 1);
            ls_blob_close(store);
            sim_end(&s);
        }
        assert_true(at < 50);
    }
    close(fd);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blob_faults_by_seed),
        cmocka_unit_test(blob_put_file_killed_at_every_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
