// SPDX-License-Identifier: Apache-2.0
#include "storage/checkpoint/manifest.h"

#include "base/assert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {"sha256":"<64 digits>",\n */
static const char CHECKSUM_HEAD[] = "{\"sha256\":\"", CHECKSUM_TAIL[] = "\",\n";
enum {
    HEAD_BYTES = sizeof CHECKSUM_HEAD - 1,
    DIGITS = LS_SHA256_HEX_BYTES - 1,
    LINE_BYTES = HEAD_BYTES + DIGITS + sizeof CHECKSUM_TAIL - 1,
};

static const char *const KIND_NAMES[LS_KIND_COUNT] = {"value", "m", "v", "state"};
static const char *const KIND_PREFIXES[LS_KIND_COUNT] = {"", "m.", "v.", ""};

const char *ls_manifest_kind_prefix(ls_manifest_kind kind)
{
    LS_ASSERT((unsigned)kind < LS_KIND_COUNT);
    return KIND_PREFIXES[kind];
}

bool ls_manifest_name_is_plain(const char *name)
{
    const size_t bytes = strlen(name);
    const size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return bytes >= 1 && bytes <= 127 && good == bytes && name[0] != '.';
}

static int compare_tensors(const ls_manifest_tensor *a, const ls_manifest_tensor *b)
{
    return a->kind != b->kind ? (a->kind < b->kind ? -1 : 1) : strcmp(a->name, b->name);
}

static int compare_tensors_void(const void *a, const void *b)
{
    return compare_tensors(a, b);
}

const ls_manifest_tensor *ls_manifest_find(const ls_manifest *manifest, ls_manifest_kind kind,
                                           const char *name)
{
    const ls_manifest_tensor key = {.name = name, .kind = kind};
    return manifest->tensor_count
               ? bsearch(&key, manifest->tensors, manifest->tensor_count, sizeof key, compare_tensors_void)
               : NULL;
}

/* ---- encoding ---- */

static json_t *encode_file(const ls_manifest_file *file)
{
    char hex[16];
    json_t *blocks = json_array();
    for (uint64_t i = 0; i < file->block_count; i++) {
        snprintf(hex, sizeof hex, "%08x", file->block_crcs[i]);
        json_array_append_new(blocks, json_string(hex));
    }
    snprintf(hex, sizeof hex, "%08x", file->header_crc);
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:o}", "name", file->name, "bytes", (json_int_t)file->bytes,
                     "header_bytes", (json_int_t)file->header_bytes, "header_crc32c", hex, "sha256",
                     file->sha256, "blocks", blocks);
}

static json_t *encode_tensor(const ls_manifest_tensor *tensor)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->rank; i++) {
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I}", "name", tensor->name, "kind", KIND_NAMES[tensor->kind],
                     "dtype", ls_st_dtype_name(tensor->dtype), "shape", shape, "file",
                     (json_int_t)tensor->file, "offset", (json_int_t)tensor->offset);
}

static ls_status check_meta(const ls_checkpoint_meta *meta)
{
    const uint64_t largest = INT64_MAX;
    if (meta->step > largest || meta->data_position > largest || meta->seed > largest ||
        meta->leaves > largest || (meta->has_parent && meta->parent_step > largest)) {
        return ls_fail(
            LS_ERR_INVALID,
            "checkpoint of step %llu: its step, data position, seed and train.leaves must be below "
            "2^63",
            (unsigned long long)meta->step);
    }
    if (meta->has_val_loss && !isfinite(meta->val_loss)) {
        return ls_fail(LS_ERR_INVALID,
                       "checkpoint of step %llu: its validation loss is infinite or not a number",
                       (unsigned long long)meta->step);
    }
    if (meta->extra && !json_is_object(meta->extra)) {
        return ls_fail(LS_ERR_INVALID,
                       "checkpoint of step %llu: the additional data, `extra`, must be a JSON object",
                       (unsigned long long)meta->step);
    }
    return LS_OK;
}

static json_t *encode_json(const ls_manifest *manifest)
{
    const ls_checkpoint_meta *meta = &manifest->meta;
    json_t *files = json_array(), *tensors = json_array(), *attachments = json_array();
    for (size_t i = 0; i < manifest->file_count; i++) {
        json_array_append_new(files, encode_file(&manifest->files[i]));
    }
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        json_array_append_new(tensors, encode_tensor(&manifest->tensors[i]));
    }
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        const ls_manifest_attachment *attachment = &manifest->attachments[i];
        json_array_append_new(attachments,
                              json_pack("{s:s, s:I, s:s}", "name", attachment->name, "bytes",
                                        (json_int_t)attachment->bytes, "sha256", attachment->sha256));
    }
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:s, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:o}",
                     "format", "lockstep-checkpoint", "version", LS_MANIFEST_VERSION, "step",
                     (json_int_t)meta->step, "data_position", (json_int_t)meta->data_position, "seed",
                     (json_int_t)meta->seed, "leaves", (json_int_t)meta->leaves, "parent_step",
                     meta->has_parent ? json_integer((json_int_t)meta->parent_step) : json_null(), "val_loss",
                     meta->has_val_loss ? json_real(meta->val_loss) : json_null(), "identity", meta->identity,
                     "determinism", meta->determinism, "block_bytes", LS_CHECKPOINT_BLOCK_BYTES, "parameters",
                     (json_int_t)manifest->parameters, "data_bytes", (json_int_t)manifest->data_bytes,
                     "files", files, "tensors", tensors, "attachments", attachments, "extra",
                     meta->extra ? json_deep_copy(meta->extra) : json_object());
}

ls_status ls_manifest_encode(const ls_manifest *manifest, char **text_out, size_t *bytes_out)
{
    LS_TRY(check_meta(&manifest->meta));
    json_t *root = encode_json(manifest);
    char *body = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!body) {
        return ls_fail(LS_ERR_INVALID, "the manifest of step %llu has a name or text that is not UTF-8",
                       (unsigned long long)manifest->meta.step);
    }
    /* The dump starts with "{\n"; our first line replaces both characters. */
    const size_t body_bytes = strlen(body) - 2, bytes = LINE_BYTES + body_bytes + 1;
    char *text = malloc(bytes + 1);
    if (!text) {
        free(body);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a manifest of %zu bytes", bytes);
    }
    memcpy(text + LINE_BYTES, body + 2, body_bytes);
    memcpy(text + LINE_BYTES + body_bytes, "\n", 2);
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(text + LINE_BYTES, body_bytes + 1, hex);
    memcpy(text, CHECKSUM_HEAD, HEAD_BYTES);
    memcpy(text + HEAD_BYTES, hex, DIGITS);
    memcpy(text + HEAD_BYTES + DIGITS, CHECKSUM_TAIL, LINE_BYTES - HEAD_BYTES - DIGITS);
    free(body);
    *text_out = text;
    *bytes_out = bytes;
    return LS_OK;
}

/* ---- decoding ---- */

typedef struct manifest_decoder {
    ls_arena *arena;
    const char *name; /* of the manifest, for messages */
    ls_manifest *manifest;
} manifest_decoder;

static ls_status need_u64(const manifest_decoder *decoder, const json_t *object, const char *where,
                          const char *key, uint64_t max, uint64_t *value_out)
{
    const json_t *member = json_object_get(object, key);
    if (!json_is_integer(member) || json_integer_value(member) < 0 ||
        (uint64_t)json_integer_value(member) > max) {
        return ls_fail(LS_ERR_DATA, "%s: %s%s must be a whole number from 0 to %llu", decoder->name, where,
                       key, (unsigned long long)max);
    }
    *value_out = (uint64_t)json_integer_value(member);
    return LS_OK;
}

static ls_status need_string(const manifest_decoder *decoder, const json_t *object, const char *where,
                             const char *key, const char **value_out)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) {
        return ls_fail(LS_ERR_DATA, "%s: %s%s must be a string", decoder->name, where, key);
    }
    *value_out = ls_arena_strdup(decoder->arena, text);
    return LS_OK;
}

static ls_status need_array(const manifest_decoder *decoder, const json_t *object, const char *where,
                            const char *key, const json_t **array_out)
{
    const json_t *array = json_object_get(object, key);
    if (!json_is_array(array)) {
        return ls_fail(LS_ERR_DATA, "%s: %s%s must be a list", decoder->name, where, key);
    }
    *array_out = array;
    return LS_OK;
}

static ls_status need_sha256(const manifest_decoder *decoder, const json_t *object, const char *where,
                             char hex_out[LS_SHA256_HEX_BYTES])
{
    const char *text = NULL;
    LS_TRY(need_string(decoder, object, where, "sha256", &text));
    if (!ls_hash_is_hex(text, DIGITS)) {
        return ls_fail(LS_ERR_DATA, "%s: %ssha256 must have 64 hexadecimal digits", decoder->name, where);
    }
    memcpy(hex_out, text, LS_SHA256_HEX_BYTES);
    return LS_OK;
}

static ls_status need_crc(const manifest_decoder *decoder, const json_t *member, const char *where,
                          uint32_t *crc_out)
{
    const char *text = json_string_value(member);
    if (!text || !ls_hash_is_hex(text, 8)) {
        return ls_fail(LS_ERR_DATA, "%s: %severy CRC32C checksum must have 8 hexadecimal digits",
                       decoder->name, where);
    }
    *crc_out = (uint32_t)strtoul(text, NULL, 16);
    return LS_OK;
}

static ls_status need_file_name(const manifest_decoder *decoder, const json_t *object, const char *where,
                                const char **name_out)
{
    LS_TRY(need_string(decoder, object, where, "name", name_out));
    if (!ls_manifest_name_is_plain(*name_out) || strcmp(*name_out, LS_MANIFEST_NAME) == 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s: %sname is \"%s\"; it must be the name of a file in the checkpoint's folder",
                       decoder->name, where, *name_out);
    }
    return LS_OK;
}

static ls_status decode_optional(const manifest_decoder *decoder, const json_t *root)
{
    ls_checkpoint_meta *meta = &decoder->manifest->meta;
    const json_t *parent = json_object_get(root, "parent_step"), *loss = json_object_get(root, "val_loss");
    if (parent && !json_is_null(parent)) {
        LS_TRY(need_u64(decoder, root, "", "parent_step", INT64_MAX, &meta->parent_step));
        meta->has_parent = true;
    }
    if (loss && !json_is_null(loss)) {
        if (!json_is_number(loss)) {
            return ls_fail(LS_ERR_DATA, "%s: val_loss must be a number or null", decoder->name);
        }
        meta->has_val_loss = true;
        meta->val_loss = json_number_value(loss);
    }
    json_t *extra = json_object_get(root, "extra");
    if (extra && !json_is_object(extra)) {
        return ls_fail(LS_ERR_DATA, "%s: extra must be an object", decoder->name);
    }
    meta->extra = decoder->manifest->extra = extra ? json_incref(extra) : json_object();
    return LS_OK;
}

static ls_status decode_meta(const manifest_decoder *decoder, const json_t *root)
{
    ls_checkpoint_meta *meta = &decoder->manifest->meta;
    const char *format = NULL;
    uint64_t version = 0, block_bytes = 0;
    LS_TRY(need_string(decoder, root, "", "format", &format));
    LS_TRY(need_u64(decoder, root, "", "version", INT64_MAX, &version));
    if (strcmp(format, "lockstep-checkpoint") != 0) {
        return ls_fail(
            LS_ERR_DATA,
            "%s is not a manifest of a checkpoint: its format is \"%s\", not \"lockstep-checkpoint\"",
            decoder->name, format);
    }
    if (version != LS_MANIFEST_VERSION) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: the checkpoint's format has version %llu, but this program reads only version %d",
                       decoder->name, (unsigned long long)version, LS_MANIFEST_VERSION);
    }
    LS_TRY(need_u64(decoder, root, "", "step", INT64_MAX, &meta->step));
    LS_TRY(need_u64(decoder, root, "", "data_position", INT64_MAX, &meta->data_position));
    LS_TRY(need_u64(decoder, root, "", "seed", INT64_MAX, &meta->seed));
    LS_TRY(need_u64(decoder, root, "", "leaves", INT64_MAX, &meta->leaves));
    LS_TRY(need_string(decoder, root, "", "identity", &meta->identity));
    LS_TRY(need_string(decoder, root, "", "determinism", &meta->determinism));
    LS_TRY(need_u64(decoder, root, "", "block_bytes", INT64_MAX, &block_bytes));
    if (block_bytes != LS_CHECKPOINT_BLOCK_BYTES) {
        return ls_fail(LS_ERR_DATA, "%s: block_bytes is %llu; in version 1 of the format it must be %d",
                       decoder->name, (unsigned long long)block_bytes, LS_CHECKPOINT_BLOCK_BYTES);
    }
    LS_TRY(need_u64(decoder, root, "", "parameters", INT64_MAX, &decoder->manifest->parameters));
    LS_TRY(need_u64(decoder, root, "", "data_bytes", INT64_MAX, &decoder->manifest->data_bytes));
    return decode_optional(decoder, root);
}

static ls_status decode_file(const manifest_decoder *decoder, const json_t *entry, size_t index,
                             ls_manifest_file *file)
{
    const char *where = ls_arena_printf(decoder->arena, "files[%zu].", index);
    const json_t *blocks = NULL;
    LS_TRY(need_file_name(decoder, entry, where, &file->name));
    LS_TRY(need_u64(decoder, entry, where, "bytes", INT64_MAX, &file->bytes));
    LS_TRY(need_u64(decoder, entry, where, "header_bytes", LS_SAFETENSORS_HEADER_MAX + 8192ull,
                    &file->header_bytes));
    LS_TRY(need_crc(decoder, json_object_get(entry, "header_crc32c"), where, &file->header_crc));
    LS_TRY(need_sha256(decoder, entry, where, file->sha256));
    LS_TRY(need_array(decoder, entry, where, "blocks", &blocks));
    if (file->header_bytes == 0 || file->header_bytes % 4096 || file->header_bytes > file->bytes) {
        return ls_fail(LS_ERR_DATA,
                       "%s: %sheader_bytes is %llu; it must be a multiple of 4096, above 0 and at most the "
                       "size of the file",
                       decoder->name, where, (unsigned long long)file->header_bytes);
    }
    const uint64_t data_bytes = file->bytes - file->header_bytes;
    file->block_count =
        data_bytes / LS_CHECKPOINT_BLOCK_BYTES + (data_bytes % LS_CHECKPOINT_BLOCK_BYTES != 0);
    if (json_array_size(blocks) != file->block_count) {
        return ls_fail(LS_ERR_DATA,
                       "%s: %sblocks has %zu entries, but the file's %llu bytes of data need %llu",
                       decoder->name, where, json_array_size(blocks), (unsigned long long)data_bytes,
                       (unsigned long long)file->block_count);
    }
    file->block_crcs = ls_arena_new(decoder->arena, uint32_t, file->block_count);
    for (size_t i = 0; i < file->block_count; i++) {
        LS_TRY(need_crc(decoder, json_array_get(blocks, i), where, &file->block_crcs[i]));
    }
    return LS_OK;
}

static ls_status decode_shape(const manifest_decoder *decoder, const json_t *entry, const char *where,
                              ls_manifest_tensor *tensor)
{
    const json_t *shape = NULL;
    LS_TRY(need_array(decoder, entry, where, "shape", &shape));
    if (json_array_size(shape) > LS_TENSOR_RANK_MAX) {
        return ls_fail(LS_ERR_DATA, "%s: %sshape has %zu dimensions; at most %d are allowed", decoder->name,
                       where, json_array_size(shape), LS_TENSOR_RANK_MAX);
    }
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return ls_fail(LS_ERR_DATA, "%s: %sshape[%u] must be a whole number, 0 or more", decoder->name,
                           where, i);
        }
        tensor->shape[i] = (uint64_t)json_integer_value(size);
    }
    uint64_t elements = 0;
    if (ls_shape_elements(tensor->name, tensor->shape, tensor->rank, &elements) != LS_OK ||
        elements > INT64_MAX / sizeof(float)) {
        return ls_fail(LS_ERR_DATA, "%s: %sshape is too large: the tensor would have more than 2^63 bytes",
                       decoder->name, where);
    }
    tensor->bytes = elements * ls_st_dtype_bytes(tensor->dtype);
    return LS_OK;
}

static ls_status decode_tensor(const manifest_decoder *decoder, const json_t *entry, size_t index,
                               ls_manifest_tensor *tensor)
{
    const char *where = ls_arena_printf(decoder->arena, "tensors[%zu].", index);
    const char *kind = NULL, *dtype = NULL;
    uint64_t file = 0;
    LS_TRY(need_string(decoder, entry, where, "name", &tensor->name));
    LS_TRY(need_string(decoder, entry, where, "kind", &kind));
    LS_TRY(need_string(decoder, entry, where, "dtype", &dtype));
    int number = 0;
    while (number < LS_KIND_COUNT && strcmp(kind, KIND_NAMES[number]) != 0) {
        number++;
    }
    const bool is_bf16 = strcmp(dtype, "BF16") == 0 && number == LS_KIND_VALUE;
    if (number == LS_KIND_COUNT || (strcmp(dtype, "F32") != 0 && !is_bf16)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: %skind is \"%s\" and dtype \"%s\"; kind must be value, m, v or state, and dtype "
                       "must be F32 (for kind value also BF16)",
                       decoder->name, where, kind, dtype);
    }
    tensor->dtype = is_bf16 ? LS_ST_BF16 : LS_ST_F32;
    tensor->kind = (ls_manifest_kind)number;
    LS_TRY(decode_shape(decoder, entry, where, tensor));
    LS_TRY(need_u64(decoder, entry, where, "offset", INT64_MAX, &tensor->offset));
    LS_TRY(need_u64(decoder, entry, where, "file", UINT32_MAX, &file));
    if (file >= decoder->manifest->file_count) {
        return ls_fail(LS_ERR_DATA,
                       "%s: %sfile is %llu, but the manifest lists only %zu files, counted from 0",
                       decoder->name, where, (unsigned long long)file, decoder->manifest->file_count);
    }
    tensor->file = (uint32_t)file;
    return LS_OK;
}

/* Sorted, and moments in pairs with the shape of their parameter. */
static ls_status check_tensor_order(const manifest_decoder *decoder)
{
    const ls_manifest *manifest = decoder->manifest;
    uint64_t parameters = 0, first_moments = 0, second_moments = 0;
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const ls_manifest_tensor *tensor = &manifest->tensors[i];
        if (i > 0 && compare_tensors(tensor - 1, tensor) >= 0) {
            return ls_fail(LS_ERR_DATA, "%s: tensors[%zu] (%s%s) is out of order or appears twice",
                           decoder->name, i, ls_manifest_kind_prefix(tensor->kind), tensor->name);
        }
        first_moments += tensor->kind == LS_KIND_M;
        second_moments += tensor->kind == LS_KIND_V;
        if (tensor->kind == LS_KIND_VALUE) {
            parameters += ls_manifest_elements(tensor);
        }
    }
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const ls_manifest_tensor *tensor = &manifest->tensors[i];
        if (tensor->kind == LS_KIND_STATE) {
            break;
        }
        const ls_manifest_tensor *value = ls_manifest_find(manifest, LS_KIND_VALUE, tensor->name);
        const bool paired = tensor->kind != LS_KIND_V || ls_manifest_find(manifest, LS_KIND_M, tensor->name);
        if (!value || value->rank != tensor->rank || !paired ||
            memcmp(value->shape, tensor->shape, sizeof value->shape) != 0) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: tensors[%zu] (%s%s) is an optimizer moment, m or v, but the checkpoint lacks its "
                "parameter in the same shape, or the other moment",
                decoder->name, i, ls_manifest_kind_prefix(tensor->kind), tensor->name);
        }
    }
    if (first_moments != second_moments || parameters != manifest->parameters) {
        return ls_fail(LS_ERR_DATA,
                       "%s: parameters is %llu, but the listed tensors have %llu parameters (and there are "
                       "%llu tensors of kind m, %llu of kind v)",
                       decoder->name, (unsigned long long)manifest->parameters,
                       (unsigned long long)parameters, (unsigned long long)first_moments,
                       (unsigned long long)second_moments);
    }
    return LS_OK;
}

/* Tensors side by side from the header to the end of each file: no hole, no overlap, nothing
 * outside. */
static ls_status check_cover(const manifest_decoder *decoder)
{
    const ls_manifest *manifest = decoder->manifest;
    uint64_t *cursor = ls_arena_new(decoder->arena, uint64_t, manifest->file_count);
    uint64_t data_bytes = 0;
    for (size_t i = 0; i < manifest->file_count; i++) {
        cursor[i] = manifest->files[i].header_bytes;
        if (__builtin_add_overflow(data_bytes, manifest->files[i].bytes, &data_bytes)) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: the file sizes it lists add up to more than 2^64 bytes; the manifest is damaged",
                decoder->name);
        }
    }
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const ls_manifest_tensor *tensor = &manifest->tensors[i];
        const ls_manifest_file *file = &manifest->files[tensor->file];
        if (tensor->offset != cursor[tensor->file] || tensor->bytes > file->bytes - tensor->offset) {
            return ls_fail(LS_ERR_DATA,
                           "%s: tensor %s%s is listed at byte %llu of %s; it must begin at byte %llu and end "
                           "within the file's %llu bytes",
                           decoder->name, ls_manifest_kind_prefix(tensor->kind), tensor->name,
                           (unsigned long long)tensor->offset, file->name,
                           (unsigned long long)cursor[tensor->file], (unsigned long long)file->bytes);
        }
        cursor[tensor->file] += tensor->bytes;
    }
    for (size_t i = 0; i < manifest->file_count; i++) {
        if (cursor[i] != manifest->files[i].bytes) {
            return ls_fail(LS_ERR_DATA,
                           "%s: the listed tensors of %s end at byte %llu, but the file has %llu bytes",
                           decoder->name, manifest->files[i].name, (unsigned long long)cursor[i],
                           (unsigned long long)manifest->files[i].bytes);
        }
    }
    if (data_bytes != manifest->data_bytes) {
        return ls_fail(LS_ERR_DATA, "%s: data_bytes is %llu, but the listed files have %llu bytes of tensors",
                       decoder->name, (unsigned long long)manifest->data_bytes,
                       (unsigned long long)data_bytes);
    }
    return LS_OK;
}

static ls_status decode_attachments(const manifest_decoder *decoder, const json_t *list)
{
    ls_manifest *manifest = decoder->manifest;
    manifest->attachment_count = json_array_size(list);
    manifest->attachments = ls_arena_new(decoder->arena, ls_manifest_attachment, manifest->attachment_count);
    for (size_t i = 0; i < manifest->attachment_count; i++) {
        const char *where = ls_arena_printf(decoder->arena, "attachments[%zu].", i);
        const json_t *entry = json_array_get(list, i);
        LS_TRY(need_file_name(decoder, entry, where, &manifest->attachments[i].name));
        LS_TRY(need_u64(decoder, entry, where, "bytes", INT64_MAX, &manifest->attachments[i].bytes));
        LS_TRY(need_sha256(decoder, entry, where, manifest->attachments[i].sha256));
    }
    return LS_OK;
}

static ls_status decode_tables(const manifest_decoder *decoder, const json_t *root)
{
    ls_manifest *manifest = decoder->manifest;
    const json_t *files = NULL, *tensors = NULL, *attachments = NULL;
    LS_TRY(need_array(decoder, root, "", "files", &files));
    LS_TRY(need_array(decoder, root, "", "tensors", &tensors));
    LS_TRY(need_array(decoder, root, "", "attachments", &attachments));
    manifest->file_count = json_array_size(files);
    manifest->files = ls_arena_new(decoder->arena, ls_manifest_file, manifest->file_count);
    for (size_t i = 0; i < manifest->file_count; i++) {
        LS_TRY(decode_file(decoder, json_array_get(files, i), i, &manifest->files[i]));
    }
    manifest->tensor_count = json_array_size(tensors);
    manifest->tensors = ls_arena_new(decoder->arena, ls_manifest_tensor, manifest->tensor_count);
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        LS_TRY(decode_tensor(decoder, json_array_get(tensors, i), i, &manifest->tensors[i]));
    }
    LS_TRY(decode_attachments(decoder, attachments));
    LS_TRY(check_tensor_order(decoder));
    return check_cover(decoder);
}

ls_status ls_manifest_decode_json(ls_arena *arena, const json_t *root, const char *name,
                                  ls_manifest *manifest_out)
{
    ls_manifest manifest = {0};
    const manifest_decoder decoder = {.arena = arena, .name = name, .manifest = &manifest};
    if (!json_is_object(root)) {
        return ls_fail(LS_ERR_DATA, "%s: must be a JSON object", name);
    }
    ls_status status = decode_meta(&decoder, root);
    if (status == LS_OK) {
        status = decode_tables(&decoder, root);
    }
    if (status != LS_OK) {
        ls_manifest_release(&manifest);
        return status;
    }
    *manifest_out = manifest;
    return LS_OK;
}

static ls_status check_line(const char *text, size_t bytes, const char *name)
{
    if (bytes < LINE_BYTES || memcmp(text, CHECKSUM_HEAD, HEAD_BYTES) != 0 ||
        memcmp(text + HEAD_BYTES + DIGITS, CHECKSUM_TAIL, LINE_BYTES - HEAD_BYTES - DIGITS) != 0) {
        return ls_fail(
            LS_ERR_DATA,
            "%s is truncated or is not a manifest: its first line is not {\"sha256\":\"<64 digits>\",", name);
    }
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(text + LINE_BYTES, bytes - LINE_BYTES, hex);
    if (memcmp(text + HEAD_BYTES, hex, DIGITS) != 0) {
        return ls_fail(
            LS_ERR_DATA,
            "%s was damaged or edited: the SHA-256 of its text is %.12s..., but its first line has %.12s...",
            name, hex, text + HEAD_BYTES);
    }
    return LS_OK;
}

ls_status ls_manifest_decode(ls_arena *arena, const char *text, size_t bytes, const char *name,
                             ls_manifest *manifest_out)
{
    LS_TRY(check_line(text, bytes, name));
    json_t *root = NULL;
    LS_TRY(ls_json_parse(text, bytes, name, &root));
    const ls_status status = ls_manifest_decode_json(arena, root, name, manifest_out);
    json_decref(root);
    return status;
}

void ls_manifest_release(ls_manifest *manifest)
{
    json_decref(manifest->extra);
    *manifest = (ls_manifest){0};
}
