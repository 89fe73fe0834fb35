// SPDX-License-Identifier: Apache-2.0
/*
 * The registry over a simulated S3 (tests/storage/blob/s3_world.h): killed at every request of adding,
 * moving to a stage and collecting garbage, and by seed with requests that fail or arrive twice.
 * Whatever happens, all that has a name is whole, what was said to be done is done, and the same
 * command once more completes it.
 */
#include "storage/blob/s3_world.h"

#include "base/file.h"
#include "storage/registry/registry.h"

#include <unistd.h>

#ifdef LS_DEBUG
enum { SEEDS = 30 };
#else
enum { SEEDS = 150 };
#endif
enum { FILES = 3, FILE_BYTES = 3000, REQUESTS_MAX = 200 };

static char folder[64];
static const char *const names[] = {"a", "b", "c"};

static int write_files(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/ls-registry-XXXXXX",
             ls_path_is_dir("/dev/shm") ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(folder));
    for (uint64_t f = 0; f < FILES; f++) {
        uint64_t words[FILE_BYTES / 8];
        char path[100];
        for (size_t i = 0; i < FILE_BYTES / 8; i++) {
            words[i] = ls_xxh3(&i, sizeof i, f);
        }
        snprintf(path, sizeof path, "%s/%s", folder, names[f]);
        assert_int_equal(ls_file_write_atomic(path, words, sizeof words), LS_OK);
    }
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    return ls_dir_remove(folder) == LS_OK ? 0 : -1;
}

/* A registry as a process of its own opens it. */
static ls_registry *reopen(sim_s3 *s, ls_registry *before)
{
    ls_registry *registry = NULL;
    const ls_blob_options options = {.endpoint = "http://sim",
                                     .region = "us-east-1",
                                     .patience_s = 20.0,
                                     .threads = 1,
                                     .world = &s->world};
    ls_registry_close(before);
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", SIM_SECRET, 1);
    assert_int_equal(ls_registry_open(SIM_BUCKET "/r", &options, &registry), LS_OK);
    return registry;
}

/* The file `file` as a version of `name`. */
static ls_status add(ls_registry *registry, const char *name, const char *file, const char *parent)
{
    ls_arena arena = {0};
    ls_registry_added added;
    const ls_registry_add_options options = {.path = ls_path_join(&arena, folder, file),
                                             .name = name,
                                             .kind = LS_ENTRY_DATA,
                                             .parents = &parent,
                                             .parent_count = parent ? 1 : 0,
                                             .store = true};
    const ls_status status = ls_registry_add(registry, &arena, &options, &added);
    if (status == LS_OK) {
        ls_registry_entry_release(&added.found.entry);
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status move(ls_registry *registry, const char *reference, ls_registry_stage stage)
{
    ls_arena arena = {0};
    ls_registry_found found;
    const ls_status status = ls_registry_promote(registry, &arena, reference, stage, "", &found);
    if (status == LS_OK) {
        ls_registry_entry_release(&found.entry);
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status collect(ls_registry *registry)
{
    ls_arena arena = {0};
    ls_registry_collected done;
    const ls_status status = ls_registry_collect(registry, &arena, true, false, &done);
    ls_arena_release(&arena);
    return status;
}

/* All that has a name is whole, bytes included. Returns the number of versions of `name`. */
static uint32_t check_whole(ls_registry *registry, const char *name)
{
    ls_arena arena = {0};
    const char **all = NULL;
    size_t count = 0, gone = 0;
    uint32_t versions = 0;
    assert_int_equal(ls_registry_names(ls_registry_blobs(registry), &arena, &all, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        ls_name read;
        assert_int_equal(ls_name_read(ls_registry_blobs(registry), &arena, all[i], &read), LS_OK);
        versions = strcmp(all[i], name) == 0 ? read.version_count : versions;
        for (uint32_t v = 0; v < read.version_count; v++) {
            ls_registry_found found;
            assert_int_equal(ls_registry_load(registry, &arena, read.versions[v].digest, &found), LS_OK);
            assert_int_equal(ls_registry_verify(registry, &arena, &found, &gone), LS_OK);
            assert_true(gone == 0 || read.versions[v].stage == LS_STAGE_RETIRED);
            ls_registry_entry_release(&found.entry);
        }
    }
    ls_arena_release(&arena);
    return versions;
}

static ls_status add_another(ls_registry *registry)
{
    return add(registry, "a", "c", "b");
}

static ls_status approve(ls_registry *registry)
{
    return move(registry, "a@1", LS_STAGE_APPROVED);
}

/* What is there before: a@1 (retired), b@1 made from it, and what a killed writer left. */
static ls_registry *begin(sim_s3 *s, uint64_t seed)
{
    sim_begin(s, seed);
    ls_registry *registry = reopen(s, NULL);
    assert_int_equal(add(registry, "a", "a", NULL), LS_OK);
    assert_int_equal(add(registry, "b", "b", "a"), LS_OK);
    assert_int_equal(move(registry, "a@1", LS_STAGE_RETIRED), LS_OK);
    s->dies_at = s->requests + 8;
    assert_int_not_equal(add(registry, "left", "c", NULL), LS_OK);
    s->dies_at = 0;
    return reopen(s, registry);
}

static void kill_everywhere(const char *what, ls_status (*command)(ls_registry *), uint32_t before,
                            uint32_t after)
{
    static sim_s3 s;
    bool is_done = false;
    uint64_t at = 1;
    for (; !is_done; at++) {
        for (int executed = 0; executed < 2; executed++) {
            ls_registry *registry = begin(&s, at);
            s.dies_at = s.requests + at;
            s.dies_after = executed;
            is_done = command(registry) == LS_OK;
            s.dies_at = 0;
            registry = reopen(&s, registry);
            const uint32_t found = check_whole(registry, "a");
            assert_true(is_done ? found == after : found == before || found == after);
            assert_int_equal(command(registry), LS_OK);
            assert_int_equal(check_whole(registry, "a"), after);
            assert_int_equal(collect(registry), LS_OK);
            assert_int_equal(check_whole(registry, "a"), after);
            for (size_t i = 0; i < s.count; i++) { /* no mark stays */
                assert_null(strstr(s.objects[i].key, "/writers/"));
                assert_null(strstr(s.objects[i].key, "/collecting"));
            }
            ls_registry_close(registry);
            sim_end(&s);
        }
        assert_true(at < REQUESTS_MAX);
    }
    printf("%s: killed at each of %llu requests\n", what, (unsigned long long)at - 2);
}

static void registry_add_killed_at_every_request(void **state)
{
    (void)state;
    kill_everywhere("add", add_another, 1, 2);
}

static void registry_promote_killed_at_every_request(void **state)
{
    (void)state;
    kill_everywhere("promote", approve, 1, 1);
}

static void registry_collect_killed_at_every_request(void **state)
{
    (void)state;
    kill_everywhere("gc", collect, 1, 1);
}

/* Two processes write to one name while requests fail. */
static void registry_faults_by_seed(void **state)
{
    (void)state;
    static sim_s3 s;
    unsigned done = 0, failed = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        sim_begin(&s, seed);
        s.refuses = seed % 3 == 0;
        ls_registry *first = reopen(&s, NULL), *second = reopen(&s, NULL);
        uint32_t said = 0, tries = 0;
        s.percent = 5 + 10 * (unsigned)(seed % 4);
        for (size_t i = 0; i < FILES; i++) {
            ls_registry *one = sim_draw(&s) % 2 ? first : second;
            said += add(one, "m", names[i], NULL) == LS_OK;
            tries++;
            failed += sim_draw(&s) % 3 == 0 && collect(i % 2 ? first : second) != LS_OK;
        }
        s.percent = 0;
        first = reopen(&s, first);
        const uint32_t found = check_whole(first, "m");
        assert_true(found >= said && found <= tries);
        done += said;
        failed += tries - said;
        for (size_t i = 0; i < FILES; i++) {
            assert_int_equal(add(first, "m", names[i], NULL), LS_OK);
        }
        assert_int_equal(check_whole(first, "m"), FILES);
        assert_int_equal(collect(first), LS_OK);
        assert_int_equal(check_whole(first, "m"), FILES);
        ls_registry_close(first);
        ls_registry_close(second);
        sim_end(&s);
    }
    printf("%d seeds, %u added, %u commands failed and said so\n", SEEDS, done, failed);
    assert_true(done > 0 && failed > 0);
}

/* A bit that turns in a record of a name, an entry, a list of chunks or a chunk: verify tells in which. */
static void registry_flipped_bits(void **state)
{
    (void)state;
    static sim_s3 s;
    ls_arena arena = {0};
    ls_registry *registry = begin(&s, 1);
    assert_int_equal(collect(registry), LS_OK); /* leaves nothing that no name needs */
    for (size_t i = 0; i < s.count; i++) {
        sim_bytes *body = &s.objects[i].body;
        ls_registry_found found;
        size_t gone = 0;
        if (body->bytes == 0) {
            continue; /* marks */
        }
        body->data[body->bytes / 2] ^= 4;
        registry = reopen(&s, registry);
        ls_status status = ls_registry_find(registry, &arena, "b@1", &found);
        if (status == LS_OK) {
            status = ls_registry_verify(registry, &arena, &found, &gone);
            ls_registry_entry_release(&found.entry);
        }
        const char *last = strrchr(s.objects[i].key, '/') + 1;
        if (status == LS_OK || !strstr(ls_error_text(), last)) {
            fail_msg("%s: status %d, %s", s.objects[i].key, status, ls_error_text());
        }
        body->data[body->bytes / 2] ^= 4;
    }
    ls_registry_close(registry);
    sim_end(&s);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry_add_killed_at_every_request),
        cmocka_unit_test(registry_promote_killed_at_every_request),
        cmocka_unit_test(registry_collect_killed_at_every_request),
        cmocka_unit_test(registry_faults_by_seed),
        cmocka_unit_test(registry_flipped_bits),
    };
    return cmocka_run_group_tests(tests, write_files, remove_files);
}
