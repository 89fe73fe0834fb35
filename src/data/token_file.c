// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include "base/arena.h"
#include "base/assert.h"
#include "data/content_hash.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum {
    LLMC_HEADER_BYTES = 256 * 4,
    LLMC_MAGIC_U16 = 20240520,
    LLMC_MAGIC_U32 = 20240801,
    LLMC_VERSION_U16 = 1,
    LLMC_VERSION_U32 = 7,
    U16_VOCAB_MAX = 65536,
    /* Fewer zeros at every second place may be chance. */
    WIDE_IDS_MIN = 64,
    MEGATRON_HEADER_BYTES = 9 + 8 + 1 + 8 + 8,
};
static const char MEGATRON_MAGIC[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};

/* Whether the end-of-text token begins or ends a document, in a file that has no index. */
typedef enum document_rule { END_OF_TEXT_BEGINS, END_OF_TEXT_ENDS } document_rule;

/* A Megatron index, checked. The arrays are unaligned: read them with read_i32 and read_i64. */
typedef struct megatron_index {
    /* Bytes per id in the .bin. */
    uint32_t source_bytes;
    /* The ids can be used without copying them. */
    bool in_place;
    uint64_t sequence_count, document_count;
    const unsigned char *lengths, *offsets, *documents;
    uint64_t token_count;
} megatron_index;

static int32_t read_i32(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int64_t read_i64(const unsigned char *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

bool ls_token_file_has_magic(const void *data, size_t bytes)
{
    if (bytes < 8) {
        return false;
    }
    const int32_t magic = read_i32(data), version = read_i32((const unsigned char *)data + 4);
    return (magic == LLMC_MAGIC_U16 || magic == LLMC_MAGIC_U32) && version >= 0 && version < 100;
}

/* ---- checks on ids --------------------------------------------------------------------------- */

static ls_status check_ids(const ls_tokens *tokens)
{
    for (uint64_t i = 0; i < tokens->count; i++) {
        const uint32_t id = ls_tokens_at(tokens, i);
        if (id >= tokens->vocab_size) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: token %llu has id %u, beyond the vocabulary of %u (ids 0 to %u): use the tokenizer and "
                "vocabulary this file was made with",
                tokens->path, (ull)i, id, tokens->vocab_size, tokens->vocab_size - 1);
        }
    }
    return LS_OK;
}

static ls_status alloc_starts(ls_tokens *tokens, uint64_t capacity)
{
    tokens->owned_starts = malloc(capacity * sizeof *tokens->owned_starts);
    if (!tokens->owned_starts) {
        return ls_fail(LS_ERR_MEMORY,
                       "%s: not enough memory to list where its documents begin (%llu entries)", tokens->path,
                       (ull)capacity);
    }
    tokens->document_starts = tokens->owned_starts;
    tokens->document_count = 0;
    return LS_OK;
}

/* Appends the start of a document, unless the document would be empty. */
static void add_start(ls_tokens *tokens, uint64_t start)
{
    const uint64_t count = tokens->document_count;
    if (start < tokens->count && (count == 0 || tokens->owned_starts[count - 1] < start)) {
        tokens->owned_starts[tokens->document_count++] = start;
    }
}

static ls_status find_documents(ls_tokens *tokens, int64_t end_of_text, document_rule rule)
{
    uint64_t separators = 0;
    for (uint64_t i = 0; i < tokens->count && end_of_text >= 0; i++) {
        separators += ls_tokens_at(tokens, i) == (uint64_t)end_of_text;
    }
    LS_TRY(alloc_starts(tokens, separators + 1));
    add_start(tokens, 0);
    for (uint64_t i = 0; i < tokens->count && separators > 0; i++) {
        if (ls_tokens_at(tokens, i) == (uint64_t)end_of_text) {
            add_start(tokens, rule == END_OF_TEXT_BEGINS ? i : i + 1);
        }
    }
    return LS_OK;
}

/* ---- llm.c and nanoGPT ----------------------------------------------------------------------- */

static ls_status parse_llmc(const unsigned char *data, size_t bytes, ls_tokens *tokens)
{
    const int32_t magic = read_i32(data), version = read_i32(data + 4);
    const int32_t expected = magic == LLMC_MAGIC_U16 ? LLMC_VERSION_U16 : LLMC_VERSION_U32;
    if (version != expected) {
        return ls_fail(LS_ERR_DATA,
                       "%s is an llm.c token file of version %d; for files with magic number %d only version "
                       "%d can be read",
                       tokens->path, version, expected, magic);
    }
    if (bytes < LLMC_HEADER_BYTES) {
        return ls_fail(LS_ERR_DATA, "%s is truncated: it has %zu bytes, but the header alone has %d",
                       tokens->path, bytes, LLMC_HEADER_BYTES);
    }
    const uint32_t count = (uint32_t)read_i32(data + 8), id_bytes = magic == LLMC_MAGIC_U16 ? 2 : 4;
    const uint64_t needed = LLMC_HEADER_BYTES + (uint64_t)count * id_bytes;
    if (bytes != needed) {
        return ls_fail(
            LS_ERR_DATA,
            "%s %s: it has %zu bytes, but %llu are needed for the %u tokens that its header announces",
            tokens->path, bytes < needed ? "is truncated" : "is too long", bytes, (ull)needed, count);
    }
    tokens->ids = data + LLMC_HEADER_BYTES;
    tokens->id_bytes = id_bytes;
    tokens->count = count;
    return LS_OK;
}

/* Other files of llm.c end in .bin too. Read as raw ids, they would be nonsense to train on. */
static ls_status refuse_other_llmc_files(const unsigned char *data, size_t bytes, const char *path)
{
    static const struct {
        int32_t magic;
        const char *what;
    } known[] = {
        {20240522, "multiple-choice evaluation data"},
        {20240326, "a model checkpoint"},
        {20240527, "optimizer state"},
    };
    for (size_t i = 0; bytes >= 4 && i < sizeof known / sizeof known[0]; i++) {
        if (read_i32(data) == known[i].magic) {
            return ls_fail(LS_ERR_DATA, "%s is %s of llm.c (magic %d), not a stream of tokens", path,
                           known[i].what, known[i].magic);
        }
    }
    return LS_OK;
}

/* 4 or 8 if the 16-bit numbers are 0 but for every second or every fourth, as in wider ids.
 * Otherwise, and for a short file, 2. */
static uint32_t apparent_id_bytes(const ls_tokens *tokens)
{
    uint32_t apparent = 2;
    for (uint64_t i = 0; i < tokens->count; i++) {
        if (ls_tokens_at(tokens, i) == 0) {
            continue;
        }
        if (i % 2 == 1) {
            return 2;
        }
        apparent = apparent == 4 || i % 4 == 2 ? 4 : 8;
    }
    return tokens->count < 2 * (uint64_t)WIDE_IDS_MIN ? 2 : apparent;
}

/* Read as 16-bit numbers, wider ids would be nonsense to train on. */
static ls_status refuse_wide_ids(const ls_tokens *tokens)
{
    if (tokens->vocab_size > U16_VOCAB_MAX && tokens->vocab_size != LS_TOKEN_FILE_VOCAB_UNKNOWN) {
        return ls_fail(LS_ERR_DATA,
                       "%s has neither llm.c's header nor an .idx beside it, so it must be uint16 ids "
                       "(nanoGPT), which cannot hold a vocabulary of %u: store the ids as uint32 with "
                       "llm.c's header (magic %d, version %d), or as Megatron's int32 .bin and .idx",
                       tokens->path, tokens->vocab_size, LLMC_MAGIC_U32, LLMC_VERSION_U32);
    }
    const uint32_t apparent = apparent_id_bytes(tokens);
    if (apparent > 2) {
        const char *type = apparent == 4 ? "uint32" : "int64";
        return ls_fail(
            LS_ERR_DATA,
            "%s looks like %s ids (%s), but without llm.c's header or an .idx beside it the file must be "
            "uint16 ids (nanoGPT): convert it, for example with "
            "numpy.fromfile(\"in.bin\", \"%s\").astype(\"uint16\").tofile(\"out.bin\"), or write Megatron's "
            ".idx",
            tokens->path, type,
            apparent == 4 ? "every second 16-bit number is 0" : "three of four 16-bit numbers are 0", type);
    }
    return LS_OK;
}

static ls_status parse_raw_u16(const unsigned char *data, size_t bytes, ls_tokens *tokens)
{
    if (bytes % 2 != 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s: its size of %zu bytes is odd, but without llm.c's header or an .idx beside it "
                       "the file must be uint16 ids (nanoGPT): it is truncated or not a token file",
                       tokens->path, bytes);
    }
    tokens->ids = data;
    tokens->id_bytes = 2;
    tokens->count = bytes / 2;
    return refuse_wide_ids(tokens);
}

/* ---- Megatron -------------------------------------------------------------------------------- */

static uint32_t megatron_type_bytes(unsigned char type)
{
    switch (type) {
    case 1:
        return 1; /* uint8 */
    case 3:
    case 8:
        return 2; /* int16, uint16 */
    case 4:
        return 4; /* int32 */
    case 5:
        return 8; /* int64 */
    default:
        return 0;
    }
}

static ls_status parse_index_header(const char *name, const unsigned char *index, size_t bytes,
                                    megatron_index *out)
{
    if (bytes < MEGATRON_HEADER_BYTES || memcmp(index, MEGATRON_MAGIC, sizeof MEGATRON_MAGIC) != 0) {
        return ls_fail(LS_ERR_DATA, "the index of %s does not begin with Megatron's MMIDIDX header", name);
    }
    const uint64_t version = (uint64_t)read_i64(index + 9);
    const unsigned char type = index[17];
    if (version != 1) {
        return ls_fail(LS_ERR_DATA, "the index of %s has version %llu; only version 1 can be read", name,
                       (ull)version);
    }
    out->source_bytes = megatron_type_bytes(type);
    if (out->source_bytes == 0) {
        return ls_fail(LS_ERR_DATA,
                       "the index of %s says that its ids have type %u; allowed are 1 (uint8), 3 (int16), 4 "
                       "(int32), 5 (int64) and 8 (uint16)",
                       name, type);
    }
    out->in_place = type == 4 || type == 8;
    out->sequence_count = (uint64_t)read_i64(index + 18);
    out->document_count = (uint64_t)read_i64(index + 26);
    /* The counts are bounded first, so that the sum of sizes below can't overflow. */
    const uint64_t limit = bytes / 8;
    const uint64_t sequences = out->sequence_count, documents = out->document_count;
    const bool bounded = sequences <= limit && documents <= limit;
    const uint64_t needed = bounded ? MEGATRON_HEADER_BYTES + 12 * sequences + 8 * documents : 0;
    if (!bounded || (bytes != needed && bytes != needed + sequences)) {
        return ls_fail(LS_ERR_DATA,
                       "the index of %s is truncated or corrupt: its %zu bytes do not match %llu sequences "
                       "and %llu documents",
                       name, bytes, (ull)sequences, (ull)documents);
    }
    out->lengths = index + MEGATRON_HEADER_BYTES;
    out->offsets = out->lengths + 4 * sequences;
    out->documents = out->offsets + 8 * sequences;
    return LS_OK;
}

static ls_status check_sequences(const char *name, size_t ids_bytes, megatron_index *index)
{
    uint64_t expected_offset = 0;
    for (uint64_t i = 0; i < index->sequence_count; i++) {
        const int32_t length = read_i32(index->lengths + 4 * i);
        const int64_t offset = read_i64(index->offsets + 8 * i);
        if (length < 0 || offset < 0 || (uint64_t)offset > ids_bytes || offset % index->source_bytes != 0 ||
            (uint64_t)length > (ids_bytes - (uint64_t)offset) / index->source_bytes) {
            return ls_fail(
                LS_ERR_DATA,
                "%s: sequence %llu of its index has %d ids from byte %lld on, which is outside the %zu bytes "
                "of the file: one of the two is truncated, or they do not belong together",
                name, (ull)i, length, (long long)offset, ids_bytes);
        }
        index->in_place = index->in_place && (uint64_t)offset == expected_offset;
        expected_offset = (uint64_t)offset + (uint64_t)length * index->source_bytes;
        index->token_count += (uint64_t)length;
    }
    return LS_OK;
}

static ls_status check_documents(const char *name, const megatron_index *index)
{
    int64_t before = 0;
    for (uint64_t i = 0; i < index->document_count; i++) {
        const int64_t first = read_i64(index->documents + 8 * i);
        if (first < before || (uint64_t)first > index->sequence_count) {
            return ls_fail(LS_ERR_DATA,
                           "%s: document %llu of its index begins at sequence %lld; allowed is %lld to %llu",
                           name, (ull)i, (long long)first, (long long)before, (ull)index->sequence_count);
        }
        before = first;
    }
    return LS_OK;
}

static int64_t read_id(const unsigned char *at, const megatron_index *index, bool is_signed)
{
    switch (index->source_bytes) {
    case 1:
        return *at;
    case 2:
        return is_signed ? (int16_t)(at[0] | at[1] << 8) : at[0] | at[1] << 8;
    case 4:
        return read_i32(at);
    default:
        return read_i64(at);
    }
}

/* Copies the sequences, in order, to 4-byte ids. An id that does not fit into uint32 becomes the
 * largest one, which is in no vocabulary. */
static ls_status gather(const unsigned char *data, const megatron_index *index, bool is_signed,
                        ls_tokens *tokens)
{
    uint32_t *ids = malloc((index->token_count ? index->token_count : 1) * sizeof *ids);
    if (!ids) {
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory to gather %llu tokens", tokens->path,
                       (ull)index->token_count);
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < index->sequence_count; i++) {
        const unsigned char *from = data + read_i64(index->offsets + 8 * i);
        const int32_t length = read_i32(index->lengths + 4 * i);
        for (int32_t k = 0; k < length; k++) {
            const int64_t id = read_id(from + (uint64_t)k * index->source_bytes, index, is_signed);
            ids[at++] = id < 0 || id > UINT32_MAX ? UINT32_MAX : (uint32_t)id;
        }
    }
    tokens->owned_ids = ids;
    tokens->ids = ids;
    tokens->id_bytes = 4;
    return LS_OK;
}

static ls_status mark_documents(const megatron_index *index, ls_tokens *tokens)
{
    LS_TRY(alloc_starts(tokens, index->document_count + 1));
    add_start(tokens, 0);
    uint64_t sequence = 0, start = 0;
    for (uint64_t i = 0; i < index->document_count; i++) {
        const uint64_t first = (uint64_t)read_i64(index->documents + 8 * i);
        for (; sequence < first; sequence++) {
            start += (uint64_t)read_i32(index->lengths + 4 * sequence);
        }
        add_start(tokens, start);
    }
    return LS_OK;
}

static ls_status parse_megatron(const unsigned char *data, size_t bytes, const unsigned char *index_data,
                                size_t index_bytes, ls_tokens *tokens)
{
    megatron_index index = {0};
    LS_TRY(parse_index_header(tokens->path, index_data, index_bytes, &index));
    LS_TRY(check_sequences(tokens->path, bytes, &index));
    LS_TRY(check_documents(tokens->path, &index));
    tokens->count = index.token_count;
    if (index.in_place) {
        tokens->ids = data;
        tokens->id_bytes = index.source_bytes;
    } else {
        LS_TRY(gather(data, &index, index_data[17] == 3, tokens));
    }
    return mark_documents(&index, tokens);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ls_status parse_into(const ls_token_file_bytes *file, const ls_token_file_options *options,
                            ls_tokens *tokens)
{
    document_rule rule = END_OF_TEXT_ENDS;
    if (file->ids_bytes == 0) {
        return ls_fail(LS_ERR_DATA, "%s is empty", tokens->path);
    }
    if (file->index) {
        LS_TRY(parse_megatron(file->ids, file->ids_bytes, file->index, file->index_bytes, tokens));
    } else if (ls_token_file_has_magic(file->ids, file->ids_bytes)) {
        LS_TRY(parse_llmc(file->ids, file->ids_bytes, tokens));
        rule = END_OF_TEXT_BEGINS;
    } else {
        LS_TRY(refuse_other_llmc_files(file->ids, file->ids_bytes, tokens->path));
        LS_TRY(parse_raw_u16(file->ids, file->ids_bytes, tokens));
    }
    if (tokens->count == 0) {
        return ls_fail(LS_ERR_DATA, "%s holds no tokens", tokens->path);
    }
    LS_TRY(check_ids(tokens));
    return file->index ? LS_OK : find_documents(tokens, options->end_of_text, rule);
}

/* The hash of the .bin, or with an index the hash of both hashes. */
static void hash_content(const char *notes_folder, const char *path, ls_file_map ids, ls_file_map index,
                         ls_tokens *tokens)
{
    const char *folder = notes_folder ? notes_folder : "";
    ls_content_hash(folder, path, ids, LS_CONTENT_HASH_REMEMBER_BYTES, tokens->content_hash);
    if (index.data) {
        char both[2 * LS_SHA256_HEX_BYTES];
        memcpy(both, tokens->content_hash, LS_SHA256_HEX_BYTES);
        ls_sha256_hex(index.data, index.bytes, both + LS_SHA256_HEX_BYTES);
        ls_sha256_hex(both, sizeof both, tokens->content_hash);
    }
}

ls_status ls_token_file_parse(const ls_token_file_bytes *file, const ls_token_file_options *options,
                              ls_tokens *tokens_out)
{
    LS_ASSERT(options->vocab_size >= 1);
    ls_tokens tokens = {.path = strdup(file->name), .vocab_size = options->vocab_size};
    if (!tokens.path) {
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory to read it", file->name);
    }
    const ls_status status = parse_into(file, options, &tokens);
    if (status != LS_OK) {
        ls_tokens_close(&tokens);
        return status;
    }
    hash_content(options->notes_folder, file->name,
                 (ls_file_map){.data = file->ids, .bytes = file->ids_bytes},
                 (ls_file_map){.data = file->index, .bytes = file->index_bytes}, &tokens);
    *tokens_out = tokens;
    return LS_OK;
}

/* Maps x.idx if it exists. Leaves *map_out empty if not. */
static ls_status map_index(const char *path, ls_file_map *map_out)
{
    ls_arena arena = {0};
    ls_status status = LS_OK;
    if (ls_path_has_suffix(path, ".bin")) {
        const char *index = ls_arena_printf(&arena, "%.*s.idx", (int)(strlen(path) - 4), path);
        if (ls_path_exists(index)) {
            status = ls_file_map_open(index, map_out);
            if (status == LS_OK && map_out->bytes == 0) {
                status = ls_fail(LS_ERR_DATA, "%s is empty", index);
            }
        }
    } else if (ls_path_has_suffix(path, ".idx")) {
        status = ls_fail(LS_ERR_NOT_FOUND, "%s has no .bin file beside it", path);
    }
    ls_arena_release(&arena);
    return status;
}

/* Takes over the maps, also when it fails. */
static ls_status parse_maps(const char *name, ls_file_map ids, ls_file_map index,
                            const ls_token_file_options *options, ls_tokens *tokens_out)
{
    const ls_token_file_bytes file = {.name = name,
                                      .ids = ids.data,
                                      .ids_bytes = ids.bytes,
                                      .index = index.data,
                                      .index_bytes = index.bytes};
    const ls_status status = ls_token_file_parse(&file, options, tokens_out);
    if (status != LS_OK) {
        ls_file_map_close(&ids);
        ls_file_map_close(&index);
        return status;
    }
    tokens_out->map = ids;
    tokens_out->index_map = index;
    return LS_OK;
}

ls_status ls_token_file_open(const char *path, const ls_token_file_options *options, ls_tokens *tokens_out)
{
    ls_file_map ids = {0}, index = {0};
    LS_TRY(map_index(path, &index));
    const ls_status status = ls_file_map_open(path, &ids);
    if (status != LS_OK) {
        ls_file_map_close(&index);
        return status;
    }
    return parse_maps(path, ids, index, options, tokens_out);
}

ls_status ls_token_file_open_shard(const ls_shard *shard, const ls_shard *index_shard,
                                   const ls_token_file_options *options, ls_tokens *tokens_out)
{
    ls_file_map ids = {0}, index = {0};
    ls_cache *pins = NULL;
    /* The index is small, and only read here. */
    LS_TRY(index_shard ? ls_shard_map(index_shard, NULL, &index) : LS_OK);
    ls_status status = ls_shard_map(shard, &pins, &ids);
    if (status != LS_OK) {
        ls_file_map_close(&index);
        return status;
    }
    status = parse_maps(shard->address, ids, index, options, tokens_out);
    if (status != LS_OK) {
        ls_cache_close(pins);
        return status;
    }
    tokens_out->pins = pins;
    return LS_OK;
}
