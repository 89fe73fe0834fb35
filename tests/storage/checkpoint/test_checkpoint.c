// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/checkpoint_fixture.h"

#include "storage/checkpoint/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_checkpoint *open_step(const fixture *f, uint64_t step)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%llu", f->root, (unsigned long long)step);
    ls_checkpoint *checkpoint = NULL;
    if (ls_checkpoint_open(path, &checkpoint) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return checkpoint;
}

static void file_path(const fixture *f, uint64_t step, const char *name, char path[160])
{
    snprintf(path, 160, "%s/%llu/%s", f->root, (unsigned long long)step, name);
}

static void flip_byte(const fixture *f, uint64_t step, const char *name, uint64_t offset)
{
    char path[160];
    file_path(f, step, name, path);
    const int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* ---- save and load ---- */

static void checkpoint_save_then_load_gives_same_bits(void **state)
{
    fixture *f = *state;
    json_t *extra = json_pack("{s:{s:i}, s:f}", "config", "layers", 6, "loss", 0.1);
    f->meta.extra = extra;
    f->meta.has_parent = true;
    f->meta.parent_step = 50;
    f->meta.has_val_loss = true;
    f->meta.val_loss = 1.25;
    fixture_save(f, 100);
    ls_checkpoint *checkpoint = open_step(f, 100);
    assert_int_equal(checkpoint->meta.step, 100);
    assert_int_equal(checkpoint->meta.data_position, 4800);
    assert_int_equal(checkpoint->meta.seed, 1337);
    assert_int_equal(checkpoint->meta.leaves, 12);
    assert_int_equal(checkpoint->meta.parent_step, 50);
    assert_true(checkpoint->meta.has_parent && checkpoint->meta.has_val_loss &&
                checkpoint->meta.val_loss == 1.25);
    assert_string_equal(checkpoint->meta.identity, "f00d");
    assert_string_equal(checkpoint->meta.determinism, "test/1");
    assert_true(json_equal(checkpoint->meta.extra, extra));
    assert_int_equal(ls_checkpoint_parameters(checkpoint), FIXTURE_LARGE + FIXTURE_SMALL + 4);
    const ls_manifest_tensor *bias = ls_manifest_find(checkpoint->manifest, LS_KIND_VALUE, "lm_head.bias");
    assert_true(bias && bias->rank == 2 && bias->shape[0] == 2 && bias->shape[1] == 3);

    fixture_clear(f);
    assert_int_equal(ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, NULL), LS_OK);
    fixture_expect(f, 100);
    if (ls_checkpoint_verify(checkpoint, 0) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    ls_checkpoint_close(checkpoint);
    json_decref(extra);
}

static void checkpoint_save_bytes_do_not_depend_on_threads(void **state)
{
    fixture *f = *state;
    char first[3][LS_SHA256_HEX_BYTES];
    const char *const names[3] = {"model.safetensors", "optimizer-00002-of-00002.safetensors",
                                  LS_MANIFEST_NAME};
    for (unsigned threads = 1; threads <= 9; threads += 4) {
        ls_checkpoint_save_options options = fixture_options(f);
        options.threads = threads;
        assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK); /* replaces the one before */
        for (int i = 0; i < 3; i++) {
            char path[160], hex[LS_SHA256_HEX_BYTES];
            file_path(f, 100, names[i], path);
            ls_file_map map;
            assert_int_equal(ls_file_map_open(path, &map), LS_OK);
            ls_sha256_hex(map.data, map.bytes, threads == 1 ? first[i] : hex);
            ls_file_map_close(&map);
            if (threads > 1) {
                assert_string_equal(hex, first[i]);
            }
        }
    }
    ls_arena arena = {0};
    char **left = NULL;
    size_t count = 0;
    assert_int_equal(ls_dir_list(&arena, f->root, &left, &count), LS_OK);
    assert_int_equal(count, 1);
    ls_arena_release(&arena);
}

static void checkpoint_save_cuts_files_and_writes_an_index(void **state)
{
    fixture *f = *state;
    ls_checkpoint_save_options options = fixture_options(f);
    options.file_bytes_max = 64;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    ls_checkpoint *checkpoint = open_step(f, 100);
    assert_int_equal(checkpoint->manifest->file_count, 2 + 4);
    assert_string_equal(checkpoint->manifest->files[0].name, "model-00001-of-00002.safetensors");
    assert_int_equal(ls_checkpoint_verify(checkpoint, 3), LS_OK);
    fixture_clear(f);
    assert_int_equal(ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, NULL), LS_OK);
    fixture_expect(f, 100);
    char on_disk[LS_SHA256_HEX_BYTES], in_memory[LS_SHA256_HEX_BYTES];
    assert_int_equal(ls_checkpoint_state_hash(checkpoint, on_disk), LS_OK);
    assert_int_equal(ls_state_hash(f->tensors, FIXTURE_TENSORS, 100, NULL, in_memory), LS_OK);
    assert_string_equal(on_disk, in_memory);
    /* Any reader of safetensors opens the folder. */
    ls_safetensors *file = NULL;
    assert_int_equal(ls_safetensors_open(checkpoint->path, &file), LS_OK);
    assert_int_equal(ls_safetensors_count(file), 3);
    assert_memory_equal(ls_safetensors_find(file, "lm_head.bias")->data, f->tensors[1].value, 24);
    ls_safetensors_close(file);
    ls_checkpoint_close(checkpoint);
}

static void checkpoint_save_bad_requests_are_refused(void **state)
{
    fixture *f = *state;
    ls_checkpoint_save_options options = fixture_options(f);
    options.tensor_count = 0;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);

    options = fixture_options(f);
    ls_checkpoint_tensor twice[2] = {f->tensors[1], f->tensors[1]};
    options.tensors = twice;
    options.tensor_count = 2;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);
    twice[1].name = "other";
    twice[1].v = NULL;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);

    const char *const names[] = {"../x",   "a/b", ".hidden", "MANIFEST.json", "model.safetensors",
                                 "PINNED", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ls_checkpoint_attachment attachment = {.name = names[i], .data = "x", .bytes = 1};
        options = fixture_options(f);
        options.attachments = &attachment;
        options.attachment_count = 1;
        assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);
    }
    options = fixture_options(f);
    ls_checkpoint_meta meta = f->meta;
    meta.seed = UINT64_MAX;
    options.meta = &meta;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_ERR_INVALID);
    ls_checkpoint_entry *entries = NULL;
    size_t count = 99;
    ls_arena arena = {0};
    assert_int_equal(ls_checkpoint_list(&arena, f->root, &entries, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_arena_release(&arena);
}

static void checkpoint_attachments_are_kept_and_checked(void **state)
{
    fixture *f = *state;
    const ls_checkpoint_attachment attachments[] = {{"config.json", "{}", 2}, {"run.yaml", "name: x\n", 8}};
    ls_checkpoint_save_options options = fixture_options(f);
    options.attachments = attachments;
    options.attachment_count = 2;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    ls_checkpoint *checkpoint = open_step(f, 100);
    ls_arena arena = {0};
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_checkpoint_attachment_read(checkpoint, &arena, "run.yaml", &data, &bytes), LS_OK);
    assert_string_equal(data, "name: x\n");
    assert_int_equal(bytes, 8);
    assert_int_equal(ls_checkpoint_attachment_read(checkpoint, &arena, "none", &data, &bytes),
                     LS_ERR_NOT_FOUND);
    flip_byte(f, 100, "config.json", 0);
    assert_int_equal(ls_checkpoint_attachment_read(checkpoint, &arena, "config.json", &data, &bytes),
                     LS_ERR_DATA);
    assert_int_equal(ls_checkpoint_verify(checkpoint, 0), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "config.json"));
    ls_arena_release(&arena);
    ls_checkpoint_close(checkpoint);
}

static void checkpoint_load_part_reads_only_what_is_wanted(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    /* nobody asks for the moments */
    flip_byte(f, 100, "optimizer-00001-of-00002.safetensors", 4096);
    ls_checkpoint *checkpoint = open_step(f, 100);
    float values[6] = {0};
    const ls_checkpoint_tensor one = {.name = "lm_head.bias", .rank = 2, .shape = {2, 3}, .value = values};
    assert_int_equal(ls_checkpoint_load(checkpoint, &one, 1, NULL), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "a.frozen"));
    const ls_checkpoint_load_options partial = {.allow_partial = true};
    assert_int_equal(ls_checkpoint_load(checkpoint, &one, 1, &partial), LS_OK);
    assert_memory_equal(values, f->tensors[1].value, sizeof values);
    ls_checkpoint_close(checkpoint);
}

static void checkpoint_load_other_model_is_refused(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    ls_checkpoint *checkpoint = open_step(f, 100);
    ls_checkpoint_tensor wrong[FIXTURE_TENSORS];
    memcpy(wrong, f->tensors, sizeof wrong);
    wrong[1].shape[0] = 3;
    wrong[1].shape[1] = 2;
    assert_int_equal(ls_checkpoint_load(checkpoint, wrong, FIXTURE_TENSORS, NULL), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "lm_head.bias has shape [2, 3], but the model needs [3, 2]"));
    wrong[1] = f->tensors[1];
    wrong[1].name = "lm_head.weight";
    assert_int_equal(ls_checkpoint_load(checkpoint, wrong, FIXTURE_TENSORS, NULL), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "no tensor lm_head.weight"));
    assert_int_equal(ls_checkpoint_check_identity(checkpoint, "f00d"), LS_OK);
    assert_int_equal(ls_checkpoint_check_identity(checkpoint, "beef"), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "f00d"));
    ls_checkpoint_close(checkpoint);
}

/* ---- state hash ---- */

/* Two parameters "a" = {1}, "b" = {2, 3}, moments of b only; computed by hand as SHA-256 of the
 * floats in order. */
static void state_hash_is_sha256_of_floats_in_order(void **state)
{
    (void)state;
    float a = 1, b[2] = {2, 3}, m[2] = {4, 5}, v[2] = {6, 7};
    const ls_checkpoint_tensor tensors[2] = {
        {.name = "b", .rank = 1, .shape = {2}, .value = b, .m = m, .v = v},
        {.name = "a", .rank = 0, .value = &a}};
    const float expected[9] = {1, 2, 3, 0, 4, 5, 0, 6, 7};
    unsigned char bytes[sizeof expected + 8] = {0};
    memcpy(bytes, expected, sizeof expected);
    bytes[sizeof expected] = 0x2C; /* step 300 */
    bytes[sizeof expected + 1] = 0x01;
    char wanted[LS_SHA256_HEX_BYTES], found[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(bytes, sizeof bytes, wanted);
    assert_int_equal(ls_state_hash(tensors, 2, 300, NULL, found), LS_OK);
    assert_string_equal(found, wanted);
    const ls_checkpoint_tensor twice[2] = {tensors[1], tensors[1]};
    found[0] = '?';
    assert_int_equal(ls_state_hash(twice, 2, 300, NULL, found), LS_ERR_INVALID);
    assert_int_equal(found[0], '?');
}

/* Further state is in files of its own, at the end of the hash, and asked for by name. */
static void further_state_is_saved_hashed_and_loaded(void **state)
{
    fixture *f = *state;
    float own[6] = {1, 2, 3, 4, 5, 6}, other[2] = {7, 8};
    ls_checkpoint_tensor tensors[FIXTURE_TENSORS + 2];
    memcpy(tensors, f->tensors, sizeof f->tensors);
    tensors[FIXTURE_TENSORS] =
        (ls_checkpoint_tensor){.name = "worker.0.lm_head.bias", .rank = 2, .shape = {2, 3}, .state = own};
    tensors[FIXTURE_TENSORS + 1] =
        (ls_checkpoint_tensor){.name = "lm_head.bias", .rank = 1, .shape = {2}, .state = other};
    ls_checkpoint_save_options options = fixture_options(f);
    options.tensors = tensors;
    options.tensor_count = FIXTURE_TENSORS + 1;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    ls_checkpoint *checkpoint = open_step(f, 100);
    assert_string_equal(checkpoint->manifest->files[checkpoint->manifest->file_count - 1].name,
                        "state.safetensors");
    assert_int_equal(ls_checkpoint_verify(checkpoint, 2), LS_OK);
    assert_int_equal(ls_checkpoint_parameters(checkpoint), FIXTURE_LARGE + FIXTURE_SMALL + 4);
    char on_disk[LS_SHA256_HEX_BYTES], in_memory[LS_SHA256_HEX_BYTES];
    assert_int_equal(ls_checkpoint_state_hash(checkpoint, on_disk), LS_OK);
    assert_int_equal(ls_state_hash(tensors, FIXTURE_TENSORS + 1, 100, NULL, in_memory), LS_OK);
    assert_string_equal(on_disk, in_memory);
    assert_int_equal(ls_state_hash(tensors, FIXTURE_TENSORS, 100, NULL, in_memory), LS_OK);
    assert_string_not_equal(on_disk, in_memory);
    /* a program that wants the model alone takes no notice of it; one that needs more says what */
    assert_int_equal(ls_checkpoint_load(checkpoint, tensors, FIXTURE_TENSORS, NULL), LS_OK);
    memset(own, 0, sizeof own);
    assert_int_equal(ls_checkpoint_load(checkpoint, tensors, FIXTURE_TENSORS + 1, NULL), LS_OK);
    assert_true(own[0] == 1 && own[5] == 6);
    assert_int_equal(ls_checkpoint_load(checkpoint, tensors, FIXTURE_TENSORS + 2, NULL), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "lm_head.bias, which the run needs"));
    ls_checkpoint_close(checkpoint);
}

static void state_hash_on_disk_equals_memory(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    ls_checkpoint *checkpoint = open_step(f, 100);
    char on_disk[LS_SHA256_HEX_BYTES], in_memory[LS_SHA256_HEX_BYTES];
    assert_int_equal(ls_checkpoint_state_hash(checkpoint, on_disk), LS_OK);
    assert_int_equal(ls_state_hash(f->tensors, FIXTURE_TENSORS, 100, NULL, in_memory), LS_OK);
    assert_string_equal(on_disk, in_memory);
    ls_checkpoint_close(checkpoint);

    /* An import: no moments at all. */
    ls_checkpoint_tensor bare[FIXTURE_TENSORS];
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        bare[i] = f->tensors[i];
        bare[i].m = bare[i].v = NULL;
    }
    ls_checkpoint_save_options options = fixture_options(f);
    options.tensors = bare;
    assert_int_equal(ls_checkpoint_save(&options, NULL), LS_OK);
    checkpoint = open_step(f, 100);
    assert_int_equal(checkpoint->manifest->file_count, 1);
    assert_int_equal(ls_checkpoint_state_hash(checkpoint, on_disk), LS_OK);
    assert_int_equal(ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, NULL), LS_OK);
    assert_true(f->tensors[0].m[7] == 0 && f->tensors[0].v[FIXTURE_LARGE - 1] == 0);
    assert_int_equal(ls_state_hash(f->tensors, FIXTURE_TENSORS, 100, NULL, in_memory), LS_OK);
    assert_string_equal(on_disk, in_memory);
    flip_byte(f, 100, "model.safetensors", 5000);
    assert_int_equal(ls_checkpoint_state_hash(checkpoint, on_disk), LS_ERR_DATA);
    assert_string_equal(on_disk, in_memory);
    ls_checkpoint_close(checkpoint);
}

/* ---- damage ---- */

static void checkpoint_flipped_bit_is_named_and_older_used(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    fixture_save(f, 200);
    /* Second block of the moments: 4,096 bytes of header, 4 MiB of the first block. */
    flip_byte(f, 200, "optimizer-00001-of-00002.safetensors", 4096 + (4 << 20) + 17);
    ls_checkpoint *checkpoint = open_step(f, 200);
    assert_int_equal(ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, NULL), LS_ERR_DATA);
    assert_non_null(
        strstr(ls_error_text(), "200/optimizer-00001-of-00002.safetensors: block 1 (bytes 4198400 to "));
    assert_non_null(strstr(ls_error_text(), "m.transformer.w"));
    assert_int_equal(ls_checkpoint_verify(checkpoint, 0), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "block 1"));
    ls_checkpoint_close(checkpoint);
    fixture_expect_latest(f, 100, 1);
}

static void checkpoint_damaged_header_or_padding_is_found(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    const uint64_t offsets[] = {0, 20, 4095};
    for (int i = 0; i < 3; i++) {
        flip_byte(f, 100, "model.safetensors", offsets[i]);
        ls_checkpoint *checkpoint = open_step(f, 100);
        assert_int_equal(ls_checkpoint_load(checkpoint, f->tensors, FIXTURE_TENSORS, NULL), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), "header"));
        assert_int_equal(ls_checkpoint_verify(checkpoint, 0), LS_ERR_DATA);
        ls_checkpoint_close(checkpoint);
        flip_byte(f, 100, "model.safetensors", offsets[i]);
    }
    fixture_expect_latest(f, 100, 0);
}

static void checkpoint_truncated_or_missing_file_is_skipped(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    fixture_save(f, 200);
    fixture_save(f, 300);
    char path[160];
    file_path(f, 300, "model.safetensors", path);
    assert_int_equal(truncate(path, 5000), 0);
    file_path(f, 200, "optimizer-00001-of-00002.safetensors", path);
    assert_int_equal(unlink(path), 0);
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "f00d", UINT64_MAX, &latest), LS_OK);
    assert_int_equal(latest.checkpoint->meta.step, 100);
    assert_int_equal(latest.skipped_count, 2);
    assert_int_equal(latest.skipped[0].step, 300);
    assert_non_null(
        strstr(latest.skipped[0].problem, "model.safetensors was truncated or replaced: it has 5000 bytes"));
    assert_non_null(strstr(latest.skipped[1].problem, "optimizer-00001-of-00002.safetensors is missing"));
    ls_checkpoint_close(latest.checkpoint);
    assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "f00d", 100, &latest), LS_OK);
    assert_null(latest.checkpoint);
    file_path(f, 100, LS_MANIFEST_NAME, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "f00d", UINT64_MAX, &latest), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "none of its 3 checkpoints"));
    ls_arena_release(&arena);
}

static void checkpoint_damaged_manifest_is_skipped(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    fixture_save(f, 200);
    char path[160];
    file_path(f, 200, LS_MANIFEST_NAME, path);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    /* Any bit of it, cut anywhere. */
    for (uint64_t offset = 0; offset < (uint64_t)info.st_size; offset += 31) {
        flip_byte(f, 200, LS_MANIFEST_NAME, offset);
        char folder[160];
        file_path(f, 200, "", folder);
        ls_checkpoint *checkpoint = NULL;
        assert_int_equal(ls_checkpoint_open(folder, &checkpoint), LS_ERR_DATA);
        assert_null(checkpoint);
        flip_byte(f, 200, LS_MANIFEST_NAME, offset);
    }
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    fixture_expect_latest(f, 100, 1);
    assert_int_equal(truncate(path, 0), 0);
    fixture_expect_latest(f, 100, 1);
}

static void checkpoint_other_identity_is_refused(void **state)
{
    fixture *f = *state;
    fixture_save(f, 100);
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    assert_int_equal(ls_checkpoint_find_latest(&arena, f->root, "beef", UINT64_MAX, &latest), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "another run"));
    assert_null(latest.checkpoint);
    ls_arena_release(&arena);
}

/* ---- many ---- */

static void checkpoint_list_sorts_by_number_and_ignores_the_rest(void **state)
{
    fixture *f = *state;
    fixture_save(f, 1000);
    fixture_save(f, 0);
    fixture_save(f, 90);
    char path[160];
    const char *const strangers[] = {"90.tmp-1-2", "notes", "007", "99999999999999999999"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", f->root, strangers[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    snprintf(path, sizeof path, "%s/95", f->root); /* a renamed one: the manifest says 90 */
    char from[160];
    snprintf(from, sizeof from, "%s/90", f->root);
    assert_int_equal(rename(from, path), 0);
    ls_arena arena = {0};
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(ls_checkpoint_list(&arena, f->root, &entries, &count), LS_OK);
    assert_int_equal(count, 3);
    assert_int_equal(entries[0].step, 0);
    assert_int_equal(entries[1].step, 95);
    assert_non_null(strstr(entries[1].problem, "holds the checkpoint of step 90"));
    assert_int_equal(entries[2].step, 1000);
    assert_null(entries[2].problem);
    assert_int_equal(entries[2].parameters, FIXTURE_LARGE + FIXTURE_SMALL + 4);
    assert_int_equal(ls_checkpoint_list(&arena, "/nowhere", &entries, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_arena_release(&arena);
}

static void checkpoint_resolve_finds_what_a_user_means(void **state)
{
    fixture *f = *state;
    ls_arena arena = {0};
    const char *found = NULL;
    assert_int_equal(ls_checkpoint_resolve(&arena, f->folder, &found), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_checkpoint_resolve(&arena, "/nowhere", &found), LS_ERR_NOT_FOUND);
    assert_null(found);
    fixture_save(f, 100);
    fixture_save(f, 200);
    const char *newest = ls_path_join(&arena, f->root, "200"), *older = ls_path_join(&arena, f->root, "100");
    assert_int_equal(ls_checkpoint_resolve(&arena, f->folder, &found), LS_OK);
    assert_string_equal(found, newest);
    assert_int_equal(ls_checkpoint_resolve(&arena, f->root, &found), LS_OK);
    assert_string_equal(found, newest);
    assert_int_equal(ls_checkpoint_resolve(&arena, older, &found), LS_OK);
    assert_string_equal(found, older);
    ls_arena_release(&arena);
}

static void save_with_loss(fixture *f, uint64_t step, double val_loss)
{
    f->meta.has_val_loss = true;
    f->meta.val_loss = val_loss;
    fixture_save(f, step);
}

static void checkpoint_prune_keeps_last_best_every_pinned_and_newest_good(void **state)
{
    fixture *f = *state;
    const double losses[6] = {2.0, 1.0, 1.5, 3.0, 2.5, 2.6};
    for (uint64_t i = 0; i < 6; i++) {
        save_with_loss(f, (i + 1) * 100, losses[i]);
    }
    char path[160];
    ls_arena arena = {0};
    uint64_t *removed = NULL;
    size_t count = 0;
    file_path(f, 400, "", path);
    path[strlen(path) - 1] = '\0';
    assert_int_equal(ls_checkpoint_pin(path, true), LS_OK);
    ls_checkpoint_prune_options options = {
        .keep_last = 1, .keep_best = 1, .keep_every = 500, .dry_run = true};
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 2); /* 600 last, 200 best, 500 every, 400 pinned */
    assert_int_equal(removed[0], 100);
    assert_int_equal(removed[1], 300);
    assert_true(ls_path_exists(ls_path_join(&arena, f->root, "100")));
    /* Room for two, 600 and 500: the best goes, too, and the pinned one stays. */
    ls_checkpoint_entry *entries = NULL;
    assert_int_equal(ls_checkpoint_list(&arena, f->root, &entries, &count), LS_OK);
    options.bytes_max = 2 * entries[5].bytes;
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 3);
    assert_int_equal(removed[1], 200);
    options.bytes_max = 1; /* the newest stays, and the pinned one */
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 4);
    assert_int_equal(removed[3], 500);
    options.bytes_max = 0;
    options.dry_run = false;
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ls_checkpoint_pin(path, false), LS_OK);

    /* Behind a save of step 500 step 600 is somebody's whom nobody could go on from: 500 and 400
     * are the last two, and it stays. */
    options = (ls_checkpoint_prune_options){.keep_last = 2, .saved = 500, .dry_run = true};
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(removed[0], 200);
    options.saved = 0;
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 2); /* 200, 400 */

    /* The newest is damaged: the newest good one stays although keep_last counts 1, and the damaged
     * one is left alone. */
    file_path(f, 600, "model.safetensors", path);
    assert_int_equal(truncate(path, 1), 0);
    options = (ls_checkpoint_prune_options){.keep_last = 0};
    assert_int_equal(ls_checkpoint_prune(&arena, f->root, &options, &removed, &count), LS_OK);
    assert_int_equal(count, 2); /* 200, 400 */
    char **names = NULL;
    assert_int_equal(ls_dir_list(&arena, f->root, &names, &count), LS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "500");
    assert_string_equal(names[1], "600");
    fixture_expect_latest(f, 500, 1);
    assert_int_equal(ls_checkpoint_pin("/nowhere", true), LS_ERR_NOT_FOUND);
    ls_arena_release(&arena);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, fixture_create, fixture_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(checkpoint_save_then_load_gives_same_bits),
        CASE(checkpoint_save_bytes_do_not_depend_on_threads),
        CASE(checkpoint_save_cuts_files_and_writes_an_index),
        CASE(checkpoint_save_bad_requests_are_refused),
        CASE(checkpoint_attachments_are_kept_and_checked),
        CASE(checkpoint_load_part_reads_only_what_is_wanted),
        CASE(checkpoint_load_other_model_is_refused),
        cmocka_unit_test(state_hash_is_sha256_of_floats_in_order),
        CASE(further_state_is_saved_hashed_and_loaded),
        CASE(state_hash_on_disk_equals_memory),
        CASE(checkpoint_flipped_bit_is_named_and_older_used),
        CASE(checkpoint_damaged_header_or_padding_is_found),
        CASE(checkpoint_truncated_or_missing_file_is_skipped),
        CASE(checkpoint_damaged_manifest_is_skipped),
        CASE(checkpoint_other_identity_is_refused),
        CASE(checkpoint_list_sorts_by_number_and_ignores_the_rest),
        CASE(checkpoint_resolve_finds_what_a_user_means),
        CASE(checkpoint_prune_keeps_last_best_every_pinned_and_newest_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
