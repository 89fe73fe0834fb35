// SPDX-License-Identifier: Apache-2.0
/* Entries, names, chunks and garbage, in a folder of their own. The commands, S3 and several
 * writers at once are in tests/cli/models/registry.test.sh. */
#include "test.h"

#include "base/file.h"
#include "storage/registry/lineage.h"
#include "storage/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGEST "73efe922032624d6557575f1fefcd2308d2366925668b0ef36e7f7ebcc50cab5"
#define OTHER  "fdee73d9cb5239e2aa98c212c9d2f8146f6bed44db1c80f5c1e2024ce6e3b6fa"

typedef struct place {
    ls_arena arena;
    char path[64];
    ls_registry *registry;
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    snprintf(p->path, sizeof p->path, "/tmp/lockstep-registry-XXXXXX");
    assert_non_null(mkdtemp(p->path));
    assert_int_equal(ls_registry_open(ls_path_join(&p->arena, p->path, "r"), NULL, &p->registry), LS_OK);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    ls_registry_close(p->registry);
    assert_int_equal(ls_dir_remove(p->path), LS_OK);
    ls_arena_release(&p->arena);
    free(p);
    return 0;
}

/* `bytes` bytes without a pattern, the same for the same seed. */
static unsigned char *noise(ls_arena *arena, size_t bytes, uint64_t seed)
{
    unsigned char *data = ls_arena_alloc(arena, bytes + 8);
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = ls_xxh3(&i, sizeof i, seed);
        memcpy(data + i, &word, 8);
    }
    return data;
}

static const char *write_file(place *p, const char *name, const void *data, size_t bytes)
{
    const char *path = ls_path_join(&p->arena, p->path, name);
    assert_int_equal(ls_dir_create(ls_path_dirname(&p->arena, path)), LS_OK);
    assert_int_equal(ls_file_write_atomic(path, data, bytes), LS_OK);
    return path;
}

static ls_registry_added add(place *p, const char *path, const char *name, bool store, const char *parent)
{
    ls_registry_added added;
    const ls_registry_add_options options = {.path = path,
                                             .name = name,
                                             .kind = LS_ENTRY_AUTO,
                                             .parents = &parent,
                                             .parent_count = parent ? 1 : 0,
                                             .store = store,
                                             .note = ""};
    assert_int_equal(ls_registry_add(p->registry, &p->arena, &options, &added), LS_OK);
    ls_registry_entry_release(&added.found.entry);
    return added;
}

/* ---- documents ---- */

#define ENTRY(name, file)                                                                                    \
    "{\"format\":\"lockstep-registry-entry\",\"version\":1,\"kind\":\"data\",\"name\":\"" name               \
    "\",\"path\":\"/a\",\"stored\":false,\"files\":[" file                                                   \
    "],\"parents\":[],\"who\":\"a@b\",\"when\":1.5,\"code\":\"c\",\"facts\":{}}"
#define ONE(name) "{\"name\":\"" name "\",\"bytes\":3,\"sha256\":\"" DIGEST "\"}"

static void check_decode(const char *text, ls_status wanted)
{
    ls_arena arena = {0};
    ls_registry_entry entry;
    const ls_status status = ls_registry_entry_decode(&arena, text, strlen(text), "entry", &entry);
    assert_int_equal(status, wanted);
    if (status == LS_OK) {
        const char *again = NULL;
        size_t bytes = 0;
        assert_int_equal(ls_registry_entry_encode(&arena, &entry, &again, &bytes), LS_OK);
        assert_string_equal(again, text);
        ls_registry_entry_release(&entry);
    }
    ls_arena_release(&arena);
}

static void entry_decode_cases(void **state)
{
    (void)state;
    check_decode(ENTRY("a", ""), LS_OK);
    check_decode(ENTRY("a", ONE("b") "," ONE("c/d")), LS_OK);
    check_decode(ENTRY("a", ONE("../b")), LS_ERR_DATA);
    check_decode(ENTRY("a", ONE("/etc/passwd")), LS_ERR_DATA);
    check_decode(ENTRY("a", ONE("b\\\\..")), LS_ERR_DATA);
    check_decode(ENTRY("a", ONE("b/./c")), LS_ERR_DATA);
    check_decode(ENTRY("a", ONE("b") "," ONE("b")), LS_ERR_DATA);
    check_decode(ENTRY("../a", ""), LS_ERR_DATA);
    check_decode(ENTRY(".a", ""), LS_ERR_DATA);
    check_decode(ENTRY("a", "{\"name\":\"b\",\"bytes\":-1,\"sha256\":\"" DIGEST "\"}"), LS_ERR_DATA);
    check_decode(ENTRY("a", "{\"name\":\"b\",\"bytes\":1,\"sha256\":\"XY\"}"), LS_ERR_DATA);
    check_decode("{}", LS_ERR_DATA);
    check_decode("{\"format\":\"lockstep-registry-entry\",\"version\":2}", LS_ERR_UNSUPPORTED);
}

static void entry_check_name_cases(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ".", "..", "-a", "a/b", "a b", "a@b", "\xff", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_registry_entry_check_name(bad[i]), LS_ERR_INVALID);
    }
    assert_int_equal(ls_registry_entry_check_name("Ab-1._"), LS_OK);
}

/* ---- names ---- */

typedef struct race {
    place *p;
    bool is_first;
} race;

static ls_status prepare(void *context, const ls_name *name, ls_name_record *record)
{
    race *r = context;
    ls_name_record between;
    record->is_version = true;
    record->version = name->version_count + 1;
    memcpy(record->digest, r->is_first ? DIGEST : OTHER, sizeof record->digest);
    if (r->is_first && name->version_count == 0) { /* another writer is faster */
        race other = {.p = r->p};
        return ls_name_append(ls_registry_blobs(r->p->registry), &r->p->arena, "n", prepare, &other,
                              &between);
    }
    return LS_OK;
}

static void name_append_two_writers_both_kept(void **state)
{
    place *p = *state;
    ls_name name;
    ls_name_record record;
    race r = {p, true};
    ls_blob_store *blobs = ls_registry_blobs(p->registry);
    assert_int_equal(ls_name_append(blobs, &p->arena, "n", prepare, &r, &record), LS_OK);
    assert_int_equal(record.version, 2);
    assert_int_equal(ls_name_read(blobs, &p->arena, "n", &name), LS_OK);
    assert_int_equal(name.version_count, 2);
    assert_string_equal(name.versions[0].digest, OTHER);
    assert_string_equal(name.versions[1].digest, DIGEST);
    /* A record that is gone is not passed over. */
    assert_int_equal(ls_blob_remove(blobs, "names/n/00000001.json"), LS_OK);
    assert_int_equal(ls_name_read(blobs, &p->arena, "n", &name), LS_ERR_DATA);
    assert_int_equal(ls_name_read(blobs, &p->arena, "../n", &name), LS_ERR_INVALID);
}

/* ---- chunks ---- */

static void chunks_cut_inserted_byte_moves_few(void **state)
{
    place *p = *state;
    enum { BYTES = 24 << 20 };
    ls_chunk_list a, b;
    unsigned char *data = noise(&p->arena, BYTES, 1), *more = ls_arena_alloc(&p->arena, BYTES + 1);
    memcpy(more, data, 1000);
    memcpy(more + 1001, data + 1000, BYTES - 1000);
    ls_chunks_cut(&p->arena, data, BYTES, &a);
    ls_chunks_cut(&p->arena, more, BYTES + 1, &b);
    assert_true(a.count > 8 && a.count < 60);
    uint64_t at = 0;
    for (size_t i = 0; i < a.count; i++) {
        assert_int_equal(a.chunks[i].offset, at);
        assert_true(a.chunks[i].bytes <= LS_CHUNK_BYTES_MAX);
        assert_true(i + 1 == a.count || a.chunks[i].bytes >= LS_CHUNK_BYTES_MIN);
        at += a.chunks[i].bytes;
    }
    assert_int_equal(at, BYTES);
    size_t shared = 0;
    for (size_t i = 1; i <= a.count && i <= b.count; i++) {
        shared += a.chunks[a.count - i].offset + 1 == b.chunks[b.count - i].offset;
    }
    assert_true(shared + 3 >= a.count);
}

static void chunks_cut_safetensors_at_tensors(void **state)
{
    place *p = *state;
    ls_file_map map;
    ls_chunk_list list;
    const ls_safetensor tensors[] = {
        {.name = "a", .dtype = LS_ST_U8, .rank = 1, .shape = {40000}, .data = noise(&p->arena, 40000, 1)},
        {.name = "b", .dtype = LS_ST_U8, .rank = 1, .shape = {100}, .data = noise(&p->arena, 100, 2)},
        {.name = "c", .dtype = LS_ST_U8, .rank = 1, .shape = {100}, .data = noise(&p->arena, 100, 3)},
        {.name = "d", .dtype = LS_ST_U8, .rank = 1, .shape = {50000}, .data = noise(&p->arena, 50000, 4)},
    };
    const char *path = ls_path_join(&p->arena, p->path, "m.safetensors");
    assert_int_equal(ls_safetensors_write(path, tensors, 4), LS_OK);
    assert_int_equal(ls_file_map_open(path, &map), LS_OK);
    ls_chunks_cut(&p->arena, map.data, map.bytes, &list);
    assert_int_equal(list.count, 4); /* header, a, b with c, d */
    assert_int_equal(list.chunks[1].bytes, 40000);
    assert_int_equal(list.chunks[2].bytes, 200);
    assert_int_equal(list.chunks[3].bytes, 50000);
    ls_file_map_close(&map);
}

static void chunks_decode_cases(void **state)
{
    place *p = *state;
    ls_chunk_list list;
    const char *good = "lockstep-chunks 1\n" DIGEST " 5\n" OTHER " 7\n";
    assert_int_equal(ls_chunks_decode(&p->arena, good, 12, "list", &list), LS_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.chunks[1].offset, 5);
    assert_string_equal(ls_chunks_encode(&p->arena, &list), good);
    static const char *const bad[] = {"",
                                      "lockstep-chunks 2\n",
                                      "lockstep-chunks 1\n" DIGEST " 12",
                                      "lockstep-chunks 1\n" DIGEST " 0\n" OTHER " 12\n",
                                      "lockstep-chunks 1\n" DIGEST " 99999999999999999999999\n",
                                      "lockstep-chunks 1\nXY 12\n",
                                      "lockstep-chunks 1\n" DIGEST " 11\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_chunks_decode(&p->arena, bad[i], 12, "list", &list), LS_ERR_DATA);
    }
    assert_int_equal(ls_chunks_decode(&p->arena, "lockstep-chunks 1\n", 0, "list", &list), LS_OK);
}

/* ---- the whole ---- */

static void registry_add_get_same_bytes(void **state)
{
    place *p = *state;
    enum { BYTES = 3 << 20 };
    ls_registry_found found;
    char *data = NULL;
    size_t bytes = 0;
    unsigned char *large = noise(&p->arena, BYTES, 5);
    write_file(p, "m/model.gguf", large, BYTES);
    write_file(p, "m/sub/empty", "", 0);
    const char *folder = ls_path_join(&p->arena, p->path, "m");
    const ls_registry_added first = add(p, folder, "m", true, NULL);
    assert_true(first.is_new && first.found.version == 1 && first.stored.new_bytes >= BYTES);
    const ls_registry_added same = add(p, folder, "m", true, NULL);
    assert_true(!same.is_new && same.stored.new_bytes == 0);
    large[100]++;
    write_file(p, "m/model.gguf", large, BYTES);
    const ls_registry_added next = add(p, folder, "m", true, "m@1");
    assert_int_equal(next.found.version, 2);
    assert_true(next.stored.new_bytes > 0 && next.stored.new_bytes <= LS_CHUNK_BYTES_MAX + 4096);
    assert_int_equal(ls_registry_find(p->registry, &p->arena, "m", &found), LS_OK);
    assert_int_equal(found.version, 2);
    assert_string_equal(found.entry.parents[0].digest, first.found.digest);
    const char *to = ls_path_join(&p->arena, p->path, "got");
    assert_int_equal(ls_registry_get(p->registry, &p->arena, &found, to), LS_OK);
    assert_int_equal(ls_file_read(&p->arena, ls_path_join(&p->arena, to, "model.gguf"), BYTES, &data, &bytes),
                     LS_OK);
    assert_true(bytes == BYTES && memcmp(data, large, BYTES) == 0);
    assert_true(ls_path_exists(ls_path_join(&p->arena, to, "sub/empty")));
    assert_int_equal(ls_registry_get(p->registry, &p->arena, &found, to), LS_ERR_INVALID);
    ls_registry_entry_release(&found.entry);
}

/* The path of some chunk of the registry. */
static const char *some_chunk(place *p, const char **key_out)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(
        ls_blob_list(ls_registry_blobs(p->registry), &p->arena, "chunks/", true, &entries, &count), LS_OK);
    assert_true(count > 0);
    *key_out = entries[0].key;
    return ls_arena_printf(&p->arena, "%s/r/%s", p->path, entries[0].key);
}

static void registry_verify_names_damage(void **state)
{
    place *p = *state;
    ls_registry_found found;
    char *data = NULL;
    size_t bytes = 0, gone = 0;
    const char *key = NULL, *to = ls_path_join(&p->arena, p->path, "got");
    const char *path = write_file(p, "d/corpus.txt", noise(&p->arena, 200000, 6), 200000);
    add(p, path, "d", true, NULL);
    const char *chunk = some_chunk(p, &key);
    assert_int_equal(ls_registry_find(p->registry, &p->arena, "d", &found), LS_OK);
    assert_int_equal(ls_file_read(&p->arena, chunk, 1 << 20, &data, &bytes), LS_OK);
    data[bytes / 2] ^= 1;
    assert_int_equal(ls_file_write_atomic(chunk, data, bytes), LS_OK);
    assert_int_equal(ls_registry_verify(p->registry, &p->arena, &found, &gone), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "corpus.txt"));
    assert_non_null(strstr(ls_error_text(), key));
    assert_int_equal(ls_registry_get(p->registry, &p->arena, &found, to), LS_ERR_DATA);
    assert_false(ls_path_exists(to));
    assert_int_equal(unlink(chunk), 0);
    assert_int_equal(ls_registry_get(p->registry, &p->arena, &found, to), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "missing"));
    ls_registry_entry_release(&found.entry);
    /* Adding it again brings the chunk back. */
    ls_registry_close(p->registry);
    assert_int_equal(ls_registry_open(ls_path_join(&p->arena, p->path, "r"), NULL, &p->registry), LS_OK);
    assert_false(add(p, path, "d", true, NULL).is_new);
    assert_int_equal(ls_registry_find(p->registry, &p->arena, "d@1", &found), LS_OK);
    assert_int_equal(ls_registry_verify(p->registry, &p->arena, &found, &gone), LS_OK);
    ls_registry_entry_release(&found.entry);
}

static void registry_collect_keeps_what_is_named(void **state)
{
    place *p = *state;
    ls_registry_collected done;
    ls_registry_found found;
    const char *mark = NULL;
    size_t gone = 0;
    ls_blob_store *blobs = ls_registry_blobs(p->registry);
    add(p, write_file(p, "a.txt", noise(&p->arena, 50000, 7), 50000), "a", true, NULL);
    add(p, write_file(p, "b.txt", noise(&p->arena, 50000, 8), 50000), "b", true, "a");
    /* What a writer killed before its entry leaves. */
    assert_int_equal(ls_blob_put(blobs, "chunks/73/" DIGEST, "x", 1), LS_OK);
    assert_int_equal(ls_blob_put(blobs, "children/" DIGEST "/" OTHER, "", 0), LS_OK);
    assert_int_equal(ls_registry_collect(p->registry, &p->arena, false, true, &done), LS_OK);
    assert_true(done.chunks == 1 && done.bytes == 1 && done.entries == 0 && done.files == 0);
    assert_int_equal(ls_registry_begin(p->registry, &p->arena, &mark), LS_OK);
    assert_int_equal(ls_registry_collect(p->registry, &p->arena, false, false, &done), LS_ERR_FAILED);
    assert_true(ls_path_exists(ls_arena_printf(&p->arena, "%s/r/chunks/73/" DIGEST, p->path)));
    assert_int_equal(ls_registry_end(p->registry, mark), LS_OK);
    assert_int_equal(ls_registry_collect(p->registry, &p->arena, false, false, &done), LS_OK);
    assert_int_equal(done.chunks, 1);
    assert_false(ls_path_exists(ls_arena_printf(&p->arena, "%s/r/chunks/73/" DIGEST, p->path)));
    assert_int_equal(ls_registry_promote(p->registry, &p->arena, "a", LS_STAGE_RETIRED, "old", &found),
                     LS_OK);
    ls_registry_entry_release(&found.entry);
    assert_int_equal(ls_registry_collect(p->registry, &p->arena, true, false, &done), LS_OK);
    assert_true(done.chunks == 1 && done.files == 1 && done.entries == 0);
    assert_int_equal(ls_registry_find(p->registry, &p->arena, "a@retired", &found), LS_OK);
    assert_int_equal(ls_registry_verify(p->registry, &p->arena, &found, &gone), LS_OK);
    assert_int_equal(gone, 1);
    ls_registry_entry_release(&found.entry);
    assert_int_equal(ls_registry_find(p->registry, &p->arena, "b", &found), LS_OK);
    assert_int_equal(ls_registry_verify(p->registry, &p->arena, &found, &gone), LS_OK);
    ls_registry_entry_release(&found.entry);
}

/* A file of the same length with other bytes is not what was registered, nor is a folder with one
 * file more. */
static void registry_find_path_by_content(void **state)
{
    place *p = *state;
    static const char *const texts[] = {"abcd", "abce", "abcd"};
    for (int i = 0; i < 3; i++) {
        ls_registry_found found;
        const char *path = write_file(p, "a.txt", texts[i], 4);
        if (i == 0) {
            add(p, path, "a", false, NULL);
        }
        assert_int_equal(ls_registry_find_path(p->registry, &p->arena, path, true, &found), i != 1);
        if (i != 1) {
            ls_registry_entry_release(&found.entry);
        }
    }
    ls_registry_found found;
    const char *inner = write_file(p, "d/e/b.txt", "b", 1), *folder = ls_path_join(&p->arena, p->path, "d");
    add(p, folder, "d", false, NULL);
    assert_true(ls_registry_find_path(p->registry, &p->arena, inner, true, &found));
    ls_registry_entry_release(&found.entry);
    write_file(p, "d/c.txt", "c", 1);
    assert_false(ls_registry_find_path(p->registry, &p->arena, inner, true, &found));
    assert_false(ls_registry_find_path(p->registry, &p->arena, folder, true, &found));
}

static void registry_folder_of_a_group(void **state)
{
    place *p = *state;
    struct stat info;
    const char *root = ls_path_join(&p->arena, p->path, "r");
    assert_int_equal(mkdir(root, 0775), 0);
    assert_int_equal(chmod(root, 02775), 0);
    add(p, write_file(p, "a.txt", "a", 1), "a", true, NULL);
    static const char *const folders[] = {"names", "names/a", "entries", "files"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        assert_int_equal(stat(ls_path_join(&p->arena, root, folders[i]), &info), 0);
        assert_int_equal(info.st_mode & 07777, 02775);
    }
}

static void lineage_find_both_ways(void **state)
{
    place *p = *state;
    ls_lineage lineage;
    ls_text svg = {0};
    char name[3][8] = {"g0", "g1", "g2"};
    ls_registry_added added[3];
    for (int i = 0; i < 3; i++) {
        const char *path = write_file(p, name[i], &i, sizeof i);
        added[i] = add(p, path, name[i], false, i > 0 ? name[i - 1] : NULL);
    }
    assert_int_equal(ls_lineage_find(p->registry, &p->arena, added[1].found.digest, &lineage), LS_OK);
    assert_int_equal(lineage.node_count, 3);
    assert_int_equal(lineage.edge_count, 2);
    assert_string_equal(lineage.nodes[1].found.digest, added[0].found.digest);
    assert_int_equal(lineage.nodes[1].generation, -1);
    assert_string_equal(lineage.nodes[2].found.digest, added[2].found.digest);
    assert_int_equal(lineage.nodes[2].generation, 1);
    ls_lineage_draw(&lineage, &svg);
    assert_non_null(strstr(ls_text_string(&svg), "g2@1"));
    ls_text_release(&svg);
    ls_lineage_release(&lineage);
    /* A parent that is gone is shown as missing. */
    assert_int_equal(ls_blob_remove(ls_registry_blobs(p->registry),
                                    ls_arena_printf(&p->arena, "entries/%s.json", added[0].found.digest)),
                     LS_OK);
    assert_int_equal(ls_lineage_find(p->registry, &p->arena, added[1].found.digest, &lineage), LS_OK);
    assert_true(lineage.nodes[1].is_missing);
    ls_lineage_release(&lineage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entry_decode_cases),
        cmocka_unit_test(entry_check_name_cases),
        cmocka_unit_test_setup_teardown(name_append_two_writers_both_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_cut_inserted_byte_moves_few, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_cut_safetensors_at_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_decode_cases, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registry_add_get_same_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registry_verify_names_damage, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registry_collect_keeps_what_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registry_find_path_by_content, set_up, tear_down),
        cmocka_unit_test_setup_teardown(registry_folder_of_a_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lineage_find_both_ways, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
