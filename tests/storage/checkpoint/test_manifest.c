// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "storage/checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

/* A manifest of one parameter of 3 floats with moments, in two files. */
typedef struct sample {
    uint32_t crcs[2];
    ls_manifest_file files[2];
    ls_manifest_tensor tensors[3];
    ls_manifest_attachment attachment;
    ls_manifest manifest;
} sample;

static void sample_init(sample *s)
{
    *s = (sample){.crcs = {0x01020304, 0xFFFFFFFF}};
    s->files[0] = (ls_manifest_file){.name = "model.safetensors",
                                     .bytes = 4096 + 12,
                                     .header_bytes = 4096,
                                     .header_crc = 7,
                                     .block_count = 1,
                                     .block_crcs = &s->crcs[0]};
    s->files[1] = (ls_manifest_file){.name = "optimizer.safetensors",
                                     .bytes = 4096 + 24,
                                     .header_bytes = 4096,
                                     .block_count = 1,
                                     .block_crcs = &s->crcs[1]};
    for (int i = 0; i < 3; i++) {
        s->tensors[i] = (ls_manifest_tensor){.name = "w",
                                             .dtype = LS_ST_F32,
                                             .kind = (ls_manifest_kind)i,
                                             .rank = 1,
                                             .shape = {3},
                                             .bytes = 12,
                                             .file = i > 0,
                                             .offset = i < 2 ? 4096 : 4096 + 12};
    }
    s->attachment = (ls_manifest_attachment){.name = "config.json", .bytes = 2};
    memset(s->files[0].sha256, 'a', 64);
    memset(s->files[1].sha256, '0', 64);
    memset(s->attachment.sha256, 'f', 64);
    s->manifest = (ls_manifest){.meta = {.step = 5,
                                         .data_position = 240,
                                         .seed = INT64_MAX,
                                         .leaves = 12,
                                         .identity = "id",
                                         .determinism = "avx2/1",
                                         .has_parent = true,
                                         .parent_step = 0,
                                         .has_val_loss = true,
                                         .val_loss = 0.1},
                                .parameters = 3,
                                .data_bytes = 2 * 4096 + 36,
                                .files = s->files,
                                .file_count = 2,
                                .tensors = s->tensors,
                                .tensor_count = 3,
                                .attachments = &s->attachment,
                                .attachment_count = 1};
}

static json_t *sample_json(void)
{
    sample s;
    sample_init(&s);
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    assert_int_equal(ls_manifest_encode(&s.manifest, &text, &bytes), LS_OK);
    assert_int_equal(ls_json_parse(text, bytes, "sample", &root), LS_OK);
    free(text);
    return root;
}

static void manifest_encode_then_decode_gives_the_same(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_manifest_encode(&s.manifest, &text, &bytes), LS_OK);
    ls_arena arena = {0};
    ls_manifest found;
    if (ls_manifest_decode(&arena, text, bytes, "sample", &found) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    assert_int_equal(found.meta.seed, INT64_MAX);
    assert_true(found.meta.has_parent && found.meta.parent_step == 0 && found.meta.val_loss == 0.1);
    assert_int_equal(found.file_count, 2);
    assert_int_equal(found.files[1].block_crcs[0], 0xFFFFFFFF);
    assert_int_equal(found.files[0].header_crc, 7);
    assert_int_equal(found.tensors[2].offset, 4108);
    assert_int_equal(ls_manifest_find(&found, LS_KIND_V, "w")->kind, LS_KIND_V);
    assert_null(ls_manifest_find(&found, LS_KIND_V, "x"));
    assert_string_equal(found.attachments[0].name, "config.json");
    ls_manifest_release(&found);

    /* Cut anywhere, or one letter changed: refused. */
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_int_equal(ls_manifest_decode(&arena, text, cut, "sample", &found), LS_ERR_DATA);
    }
    char *five = strstr(text, "\"step\": 5");
    assert_non_null(five);
    five[8] = '6';
    assert_int_equal(ls_manifest_decode(&arena, text, bytes, "sample", &found), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "damaged or edited"));
    free(text);
    ls_arena_release(&arena);
}

/* Sets what `path` ("files.0.bytes") points at to the JSON `value`, or removes it with NULL;
 * expects `code` and the text. */
static void expect_refused(const char *path, const char *value, ls_status code, const char *message_part)
{
    json_t *root = sample_json(), *at = root;
    char *copy = strdup(path), *rest = copy, *part = strsep(&rest, ".");
    for (; rest; part = strsep(&rest, ".")) {
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
    }
    json_t *wanted = value ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (json_is_array(at)) {
        assert_int_equal(json_array_set_new(at, (size_t)atoi(part), wanted), 0);
    } else {
        assert_int_equal(wanted ? json_object_set_new(at, part, wanted) : json_object_del(at, part), 0);
    }
    ls_arena arena = {0};
    ls_manifest untouched = {.parameters = 77};
    const ls_status status = ls_manifest_decode_json(&arena, root, "sample", &untouched);
    if (status != code || !strstr(ls_error_text(), message_part)) {
        fail_msg("%s = %s: %s \"%s\" does not say \"%s\"", path, value ? value : "nothing",
                 ls_status_name(status), ls_error_text(), message_part);
    }
    assert_int_equal(untouched.parameters, 77);
    ls_arena_release(&arena);
    json_decref(root);
    free(copy);
}

static void manifest_decode_bad_fields_are_refused(void **state)
{
    (void)state;
    expect_refused("format", "\"zip\"", LS_ERR_DATA, "format is \"zip\"");
    expect_refused("version", "2", LS_ERR_UNSUPPORTED, "reads only version 1");
    expect_refused("step", "-1", LS_ERR_DATA, "step must be");
    expect_refused("step", NULL, LS_ERR_DATA, "step must be");
    expect_refused("seed", "1.5", LS_ERR_DATA, "seed must be");
    expect_refused("identity", "7", LS_ERR_DATA, "identity must be a string");
    expect_refused("block_bytes", "4096", LS_ERR_DATA, "block_bytes");
    expect_refused("val_loss", "\"low\"", LS_ERR_DATA, "val_loss");
    expect_refused("extra", "[]", LS_ERR_DATA, "extra");
    expect_refused("files", "{}", LS_ERR_DATA, "files must be a list");
    expect_refused("files.0.name", "\"../model.safetensors\"", LS_ERR_DATA, "must be the name of a file");
    expect_refused("files.0.name", "\"MANIFEST.json\"", LS_ERR_DATA, "must be the name of a file");
    expect_refused("files.0.sha256", "\"abc\"", LS_ERR_DATA, "64 hexadecimal digits");
    expect_refused("files.0.header_crc32c", "\"ABCDEFGH\"", LS_ERR_DATA, "8 hexadecimal digits");
    expect_refused("files.0.blocks.0", "3", LS_ERR_DATA, "8 hexadecimal digits");
    expect_refused("attachments.0.name", "\"/etc/passwd\"", LS_ERR_DATA, "must be the name of a file");
    expect_refused("attachments.0.sha256", NULL, LS_ERR_DATA, "sha256");
    expect_refused("tensors.0.kind", "\"w\"", LS_ERR_DATA, "kind");
    expect_refused("tensors.0.dtype", "\"F64\"", LS_ERR_DATA, "F64");
    expect_refused("tensors.0.shape", "[1,1,1,1,1,1,1,1,3]", LS_ERR_DATA, "at most 8");
}

static void manifest_decode_bad_geometry_is_refused(void **state)
{
    (void)state;
    expect_refused("files.0.header_bytes", "4095", LS_ERR_DATA, "multiple of 4096");
    expect_refused("files.0.header_bytes", "8192", LS_ERR_DATA, "at most the size of the file");
    expect_refused("files.0.blocks", "[]", LS_ERR_DATA, "12 bytes of data need 1");
    expect_refused("files.0.bytes", "9000000", LS_ERR_DATA, "need 3");
    expect_refused("files.0.bytes", "4109", LS_ERR_DATA, "end at byte 4108");
    expect_refused("data_bytes", "1", LS_ERR_DATA, "data_bytes is 1");
    expect_refused("parameters", "4", LS_ERR_DATA, "parameters is 4");
    expect_refused("tensors.0.file", "2", LS_ERR_DATA, "lists only 2 files");
    expect_refused("tensors.2.offset", "4104", LS_ERR_DATA, "must begin at byte 4108"); /* overlap */
    expect_refused("tensors.2.offset", "4112", LS_ERR_DATA, "must begin at byte 4108"); /* hole */
    expect_refused("tensors.0.offset", "0", LS_ERR_DATA, "must begin at byte 4096");    /* in the header */
    expect_refused("tensors.1.shape", "[4]", LS_ERR_DATA, "lacks its parameter in the same shape");
    expect_refused("tensors.0.shape", "[9223372036854775807, 9223372036854775807]", LS_ERR_DATA,
                   "shape is too large");
    expect_refused("tensors.0.name", "\"x\"", LS_ERR_DATA, "lacks its parameter");
    expect_refused("tensors.1.kind", "\"v\"", LS_ERR_DATA, "appears twice");
    expect_refused("tensors.2.kind", "\"value\"", LS_ERR_DATA, "out of order");
}

static void manifest_encode_bad_meta_is_refused(void **state)
{
    (void)state;
    sample s;
    char *text = NULL;
    size_t bytes = 0;
    sample_init(&s);
    s.manifest.meta.val_loss = 1.0 / 0.0;
    assert_int_equal(ls_manifest_encode(&s.manifest, &text, &bytes), LS_ERR_INVALID);
    sample_init(&s);
    s.manifest.meta.data_position = 1ull << 63;
    assert_int_equal(ls_manifest_encode(&s.manifest, &text, &bytes), LS_ERR_INVALID);
    sample_init(&s);
    s.manifest.meta.identity = "\xff\xfe";
    assert_int_equal(ls_manifest_encode(&s.manifest, &text, &bytes), LS_ERR_INVALID);
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_encode_then_decode_gives_the_same),
        cmocka_unit_test(manifest_decode_bad_fields_are_refused),
        cmocka_unit_test(manifest_decode_bad_geometry_is_refused),
        cmocka_unit_test(manifest_encode_bad_meta_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
