// SPDX-License-Identifier: Apache-2.0
/*
 * Mirrors over a simulated S3 (tests/storage/blob/s3_world.h): by seed, with requests that fail, arrive
 * twice or late and with bytes that turn, and killed at every request. Whatever happens, each checkpoint
 * that a reader sees is whole, the newest stays until a newer one is whole, and what is brought back
 * has the bytes that were saved.
 */
#include "storage/blob/s3_world.h"

#include "base/file.h"
#include "storage/checkpoint/manifest.h"
#include "storage/mirror/mirror.h"

#include <unistd.h>

#ifdef LS_DEBUG
enum { SEEDS = 100 };
#else
enum { SEEDS = 1000 };
#endif
enum { STEPS = 3, ELEMENTS = 12 };
static const double PATIENCE_S = 20.0;

static char folder[64], root[80];

/* Checkpoints of steps 1 to 3, small, in memory. */
static int save_all(void **state)
{
    (void)state;
    float value[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    snprintf(folder, sizeof folder, "%s/ls-mirror-XXXXXX", ls_path_is_dir("/dev/shm") ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(root, sizeof root, "%s/checkpoints", folder);
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (int i = 0; i < ELEMENTS; i++) {
            value[i] = m[i] = v[i] = (float)(step * 100 + (uint64_t)i);
        }
        const ls_checkpoint_tensor tensor = {
            .name = "w", .rank = 1, .shape = {ELEMENTS}, .value = value, .m = m, .v = v};
        const ls_checkpoint_meta meta = {
            .step = step, .leaves = 1, .identity = "f00d", .determinism = "test"};
        const ls_checkpoint_attachment attachment = {"config.json", "{}", 2};
        const ls_checkpoint_save_options options = {.root = root,
                                                    .meta = &meta,
                                                    .tensors = &tensor,
                                                    .tensor_count = 1,
                                                    .attachments = &attachment,
                                                    .attachment_count = 1,
                                                    .threads = 1};
        assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    }
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    return ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

/* ---- what is in the bucket ---- */

static void check_object(sim_s3 *s, const char *key, const char *sha256)
{
    char hex[LS_SHA256_HEX_BYTES];
    const sim_object *o = sim_find(s, key, "");
    assert_non_null(o);
    ls_sha256_hex(o->body.data, o->body.bytes, hex);
    assert_string_equal(hex, sha256);
}

/* Whether step `step` is a checkpoint there; if it is, all of it must be. */
static bool is_whole(sim_s3 *s, uint64_t step)
{
    ls_arena arena = {0};
    ls_manifest manifest = {0};
    const char *below = ls_arena_printf(&arena, "run/%llu", (unsigned long long)step);
    const sim_object *o = sim_find(s, ls_path_join(&arena, below, LS_MANIFEST_NAME), "");
    if (o) {
        assert_int_equal(ls_manifest_decode(&arena, (char *)o->body.data, o->body.bytes, below, &manifest),
                         LS_OK);
        for (size_t i = 0; i < manifest.file_count; i++) {
            check_object(s, ls_path_join(&arena, below, manifest.files[i].name), manifest.files[i].sha256);
        }
        for (size_t i = 0; i < manifest.attachment_count; i++) {
            check_object(s, ls_path_join(&arena, below, manifest.attachments[i].name),
                         manifest.attachments[i].sha256);
        }
        ls_manifest_release(&manifest);
    }
    const bool found = o != NULL;
    ls_arena_release(&arena);
    return found;
}

static unsigned wholes(sim_s3 *s)
{
    unsigned found = 0;
    for (uint64_t step = 1; step <= STEPS; step++) {
        found |= is_whole(s, step) ? 1u << step : 0;
    }
    return found;
}

static ls_status put_and_prune(ls_blob_store *store, uint64_t step)
{
    uint64_t sent = 0;
    size_t removed = 0;
    const ls_mirror_rules rules = {.keep = {.keep_last = 1}};
    LS_TRY(ls_mirror_put(store, root, step, &sent));
    return ls_mirror_prune(store, &rules, &removed);
}

/* Brings `step` back and compares it with what was saved. */
static void check_restored(ls_blob_store *store, uint64_t step)
{
    ls_arena arena = {0};
    char hex[2][LS_SHA256_HEX_BYTES];
    const char *back = ls_arena_printf(&arena, "%s/back", folder);
    assert_int_equal(ls_dir_create(back), LS_OK);
    assert_int_equal(ls_mirror_get(store, step, back), LS_OK);
    for (int i = 0; i < 2; i++) {
        ls_checkpoint *c = NULL;
        const char *path = ls_arena_printf(&arena, "%s/%llu", i ? back : root, (unsigned long long)step);
        assert_int_equal(ls_checkpoint_open(path, &c), LS_OK);
        assert_int_equal(ls_checkpoint_state_hash(c, hex[i]), LS_OK);
        ls_checkpoint_close(c);
    }
    assert_string_equal(hex[0], hex[1]);
    assert_int_equal(ls_dir_remove(back), LS_OK);
    ls_arena_release(&arena);
}

static void mirror_faults_by_seed(void **state)
{
    (void)state;
    static sim_s3 s;
    static const unsigned percents[] = {0, 5, 20, 50};
    unsigned failures = 0, kills = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        sim_begin(&s, seed);
        s.refuses = seed % 3 == 0;
        s.is_late = true;
        for (uint64_t step = 1; step <= STEPS; step++) {
            const unsigned before = wholes(&s);
            s.percent = percents[seed % 4];
            s.dies_at = sim_draw(&s) % 4 == 0 ? s.requests + 1 + sim_draw(&s) % 20 : 0;
            s.dies_after = sim_draw(&s) % 2 != 0;
            kills += s.dies_at != 0;
            ls_blob_store *store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
            const double from_s = s.now_s;
            const ls_status status = put_and_prune(store, step);
            const unsigned after = wholes(&s);
            failures += status != LS_OK;
            assert_true(status != LS_OK || after & 1u << step);
            assert_true(status == LS_OK || status == LS_STOPPED ||
                        (ls_error_text()[0] && !strstr(ls_error_text(), SIM_SECRET)));
            assert_true(before == 0 || after >= before || after & 1u << step); /* the newest stays */
            assert_true(s.now_s - from_s < 40 * (PATIENCE_S + 40.0));
            s.dies_at = 0;
            ls_blob_close(store);
        }
        s.percent = 0;
        ls_blob_store *store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
        sim_arrive(&s, true);
        assert_int_equal(put_and_prune(store, STEPS), LS_OK);
        assert_int_equal(put_and_prune(store, STEPS), LS_OK);
        assert_int_equal(wholes(&s), 1u << STEPS);
        assert_int_equal(s.count, 5); /* three files, config.json and the manifest: nothing else is left */
        if (seed % 16 == 0) {
            check_restored(store, STEPS);
        }
        ls_blob_close(store);
        sim_end(&s);
    }
    printf("%d seeds, %u processes killed, %u copies that failed and said so\n", SEEDS, kills, failures);
    assert_true(failures > 0 && kills > 0);
}

static void mirror_killed_at_every_request(void **state)
{
    (void)state;
    static sim_s3 s;
    bool is_done = false;
    uint64_t at = 1;
    for (; !is_done; at++) {
        for (int after = 0; after < 2; after++) {
            sim_begin(&s, at);
            ls_blob_store *store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
            assert_int_equal(put_and_prune(store, 1), LS_OK);
            s.dies_at = s.requests + at;
            s.dies_after = after;
            is_done = put_and_prune(store, 2) == LS_OK;
            s.dies_at = 0;
            const unsigned found = wholes(&s);
            assert_true(found != 0);
            ls_blob_close(store);
            store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
            check_restored(store, found & 1u << 2 ? 2 : 1);
            assert_int_equal(put_and_prune(store, 2), LS_OK);
            assert_int_equal(wholes(&s), 1u << 2);
            ls_blob_close(store);
            sim_end(&s);
        }
        assert_true(at < 100);
    }
    printf("killed at each of %llu requests\n", (unsigned long long)at - 2);
}

/* By number, age and bytes; the newest always stays. */
static void mirror_prune_rules(void **state)
{
    (void)state;
    static sim_s3 s;
    static const struct {
        ls_mirror_rules rules;
        unsigned left; /* bits of steps; each checkpoint has about 12 KB */
    } cases[] = {{{.keep = {.keep_last = 2}}, 1u << 3 | 1u << 2},
                 {{.keep = {.keep_last = 1, .keep_every = 1}}, 1u << 3 | 1u << 2 | 1u << 1},
                 {{.keep = {.keep_last = 1}, .keep_for_s = 1e10}, 1u << 3 | 1u << 2 | 1u << 1},
                 {{.keep = {.keep_last = 3, .bytes_max = 30000}}, 1u << 3 | 1u << 2},
                 {{.keep = {.keep_last = 1, .bytes_max = 30000}, .keep_for_s = 1e10}, 1u << 3 | 1u << 2},
                 {{.keep = {.keep_last = 3, .bytes_max = 1}}, 1u << 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t sent = 0;
        size_t removed = 0;
        sim_begin(&s, 1);
        ls_blob_store *store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
        for (uint64_t step = 1; step <= STEPS; step++) {
            assert_int_equal(ls_mirror_put(store, root, step, &sent), LS_OK);
        }
        assert_int_equal(ls_mirror_prune(store, &cases[i].rules, &removed), LS_OK);
        assert_int_equal(wholes(&s), cases[i].left);
        assert_int_equal(removed, (size_t)STEPS - (size_t)__builtin_popcount(cases[i].left));
        ls_blob_close(store);
        sim_end(&s);
    }
}

/* A bit that turns in the bucket: named, and never given to a run. */
static void mirror_flipped_bits(void **state)
{
    (void)state;
    static sim_s3 s;
    ls_arena arena = {0};
    const char *back = ls_arena_printf(&arena, "%s/flipped", folder);
    sim_begin(&s, 1);
    ls_blob_store *store = sim_open(&s, SIM_BUCKET "/run", PATIENCE_S);
    assert_int_equal(put_and_prune(store, 1), LS_OK);
    assert_int_equal(ls_dir_create(back), LS_OK);
    for (size_t i = 0; i < s.count; i++) {
        sim_bytes *body = &s.objects[i].body;
        body->data[body->bytes / 2] ^= 4;
        assert_int_equal(ls_mirror_verify(store, 1), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), strrchr(s.objects[i].key, '/') + 1));
        assert_int_equal(ls_mirror_get(store, 1, back), LS_ERR_DATA);
        assert_false(ls_path_exists(ls_path_join(&arena, back, "1")));
        body->data[body->bytes / 2] ^= 4;
    }
    assert_int_equal(ls_mirror_get(store, 1, back), LS_OK);
    ls_blob_close(store);
    sim_end(&s);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mirror_faults_by_seed),
        cmocka_unit_test(mirror_killed_at_every_request),
        cmocka_unit_test(mirror_prune_rules),
        cmocka_unit_test(mirror_flipped_bits),
    };
    return cmocka_run_group_tests(tests, save_all, remove_all);
}
