// SPDX-License-Identifier: Apache-2.0
#include "execution/train/preflight.h"

#include "base/assert.h"
#include "base/file.h"

#include <elf.h>
#include <inttypes.h>
#include <link.h>
#include <string.h>

const char *ls_preflight_part_name(ls_preflight_part part)
{
    static const char *const names[LS_PREFLIGHT_PART_COUNT] = {
        [LS_PREFLIGHT_BINARY] = "binary",
        [LS_PREFLIGHT_RUN_FILE] = "run file",
        [LS_PREFLIGHT_DATA] = "data",
        [LS_PREFLIGHT_LAYOUT] = "parameter layout",
        [LS_PREFLIGHT_OP_PLAN] = "op plan",
        [LS_PREFLIGHT_SCHEDULE] = "collective schedule (ranks, leaves, micro-batches, stage)",
        [LS_PREFLIGHT_DETERMINISM] = "determinism class",
    };
    return names[part];
}

/* ---- hashing ---- */

static void put(ls_sha256 *hash, int64_t value)
{
    ls_sha256_update(hash, &value, sizeof value);
}

static void put_text(ls_sha256 *hash, const char *text)
{
    put(hash, (int64_t)strlen(text));
    ls_sha256_update(hash, text, strlen(text));
}

static unsigned from_hex(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a' + 10);
}

static void finish(ls_sha256 *hash, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_finish(hash, hex);
    for (size_t i = 0; i < LS_PREFLIGHT_HASH_BYTES; i++) {
        hash_out[i] = (unsigned char)(from_hex(hex[2 * i]) << 4 | from_hex(hex[2 * i + 1]));
    }
}

/* ---- the parts ---- */

typedef struct build_id {
    const unsigned char *bytes; /* NULL: none */
    size_t count;
} build_id;

/* Finds the build id in the notes of the first object, which is the program itself. */
static int find_build_id(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    build_id *id = context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const unsigned char *at = (const unsigned char *)(info->dlpi_addr + header->p_vaddr);
        const unsigned char *end = at + header->p_memsz;
        while (header->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof note);
            const unsigned char *name = at + sizeof note, *data = name + (note.n_namesz + 3u) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                *id = (build_id){.bytes = data, .count = note.n_descsz};
                return 1;
            }
            at = data + (note.n_descsz + 3u) / 4 * 4;
        }
    }
    return 1; /* only the first object */
}

ls_status ls_preflight_hash_binary(unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    build_id id = {0};
    ls_sha256 hash;
    dl_iterate_phdr(find_build_id, &id);
    if (id.bytes && id.count > 0) {
        ls_sha256_init(&hash);
        ls_sha256_update(&hash, id.bytes, id.count);
        finish(&hash, hash_out);
        return LS_OK;
    }
    ls_file_map map;
    const ls_status status = ls_file_map_open("/proc/self/exe", &map);
    if (status != LS_OK) {
        return ls_fail_within(status, "pre-flight: reading the program's own file");
    }
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, map.data, map.bytes);
    finish(&hash, hash_out);
    ls_file_map_close(&map);
    return LS_OK;
}

void ls_preflight_hash_layout(const ls_layout *layout, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    put(&hash, layout->parameter_count);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const ls_parameter *p = &layout->parameters[i];
        put_text(&hash, p->name);
        put(&hash, p->rows);
        put(&hash, p->cols);
        put(&hash, p->offset);
        put(&hash, p->bucket);
        put(&hash, p->decay);
        put(&hash, p->init);
    }
    put(&hash, layout->bucket_count);
    for (uint32_t i = 0; i < layout->bucket_count + layout->frozen_buckets; i++) {
        put(&hash, layout->buckets[i].offset);
        put(&hash, layout->buckets[i].count);
    }
    finish(&hash, hash_out);
}

static void put_op(ls_sha256 *hash, const ls_op *op)
{
    put(hash, op->kind);
    put(hash, op->layer);
    for (int i = 0; i < LS_OP_VALUES_MAX; i++) {
        put(hash, op->in[i]);
        put(hash, op->out[i]);
        put(hash, op->din[i]);
        put(hash, op->dout[i]);
    }
    for (int i = 0; i < LS_OP_STATS_MAX; i++) {
        put(hash, op->stats[i]);
    }
    put(hash, op->accumulate_din);
    put(hash, op->workspace);
    put(hash, op->weight);
    put(hash, op->bias);
    put(hash, op->in_features);
    put(hash, op->out_features);
    put(hash, op->weight_in_out);
    put(hash, op->forward_cut);
    put(hash, op->backward_input_cut);
    put(hash, op->segment_count);
    for (uint32_t i = 0; i < op->segment_count && i < 3; i++) {
        put(hash, op->segment[i]);
    }
    put(hash, op->window);
    put(hash, op->chunk_rows);
}

void ls_preflight_hash_plan(const ls_plan *plan, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    put(&hash, plan->op_count);
    for (uint32_t i = 0; i < plan->op_count; i++) {
        put_op(&hash, &plan->ops[i]);
    }
    put(&hash, plan->value_count);
    for (uint32_t i = 0; i < plan->value_count; i++) {
        put(&hash, plan->values[i].rows);
        put(&hash, plan->values[i].cols);
        put(&hash, plan->values[i].offset);
    }
    put(&hash, plan->step_count);
    for (uint32_t i = 0; i < plan->step_count; i++) {
        put(&hash, plan->steps[i].phase);
        put(&hash, plan->steps[i].op);
    }
    put(&hash, plan->forward_steps);
    put(&hash, plan->arena_floats);
    finish(&hash, hash_out);
}

static void hash_schedule(const ls_session *session, uint32_t ranks,
                          unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    const ls_run_file *run = &session->run;
    ls_sha256 hash;
    ls_sha256_init(&hash);
    put(&hash, ranks);
    put(&hash, (int64_t)run->train.leaves);
    put(&hash, (int64_t)run->train.global_batch);
    put(&hash, (int64_t)run->train.micro_batch);
    put(&hash, (int64_t)run->train.tensor_cut);
    put(&hash, (int64_t)run->train.sequence_cut);
    put(&hash, (int64_t)run->parallel.tensor);
    put(&hash, (int64_t)run->parallel.context);
    put(&hash, (int64_t)run->parallel.expert);
    put(&hash, (int64_t)run->parallel.pipeline);
    put(&hash, run->parallel.pipeline > 1 ? run->parallel.schedule : 0);
    put(&hash, (int64_t)run->parallel.zero);
    put(&hash, (int64_t)run->parallel.shadow);
    put(&hash, run->train.precision);
    put(&hash, session->layout.float_count);
    put(&hash, session->layout.parameter_floats);
    put(&hash, session->layout.bucket_count);
    finish(&hash, hash_out);
}

static void hash_text(const char *text, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES])
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    put_text(&hash, text);
    finish(&hash, hash_out);
}

ls_status ls_preflight_fill(const ls_session *session, uint32_t ranks, ls_preflight *preflight_out)
{
    ls_preflight p = {.version = LS_PREFLIGHT_VERSION, .part_count = LS_PREFLIGHT_PART_COUNT};
    LS_TRY(ls_preflight_hash_binary(p.hash[LS_PREFLIGHT_BINARY]));
    hash_text(session->identity, p.hash[LS_PREFLIGHT_RUN_FILE]);
    hash_text(ls_dataset_hash(session->dataset), p.hash[LS_PREFLIGHT_DATA]);
    ls_preflight_hash_layout(&session->layout, p.hash[LS_PREFLIGHT_LAYOUT]);
    ls_preflight_hash_plan(&session->plan, p.hash[LS_PREFLIGHT_OP_PLAN]);
    hash_schedule(session, ranks, p.hash[LS_PREFLIGHT_SCHEDULE]);
    hash_text(ls_queue_determinism_class(session->queue), p.hash[LS_PREFLIGHT_DETERMINISM]);
    *preflight_out = p;
    return LS_OK;
}

/* ---- comparing ---- */

static bool is_version_known(const ls_preflight *p)
{
    return p->version == LS_PREFLIGHT_VERSION && p->part_count == LS_PREFLIGHT_PART_COUNT;
}

/* The member whose value of a part is the most frequent; the first of equally frequent ones. */
static const unsigned char *majority_of(const ls_preflight_member *members, uint32_t count, uint32_t part)
{
    const unsigned char *winner = members[0].preflight.hash[part];
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t votes = 0;
        for (uint32_t j = 0; j < count; j++) {
            votes += memcmp(members[i].preflight.hash[part], members[j].preflight.hash[part],
                            LS_PREFLIGHT_HASH_BYTES) == 0;
        }
        if (votes > most) {
            most = votes;
            winner = members[i].preflight.hash[part];
        }
    }
    return winner;
}

static void append_hash(const unsigned char *hash, ls_text *text)
{
    ls_text_printf(text, "%02x%02x%02x%02x", hash[0], hash[1], hash[2], hash[3]);
}

/* "; rank 3 (node7, pid 99) differs in binary (1a2b3c4d, the others 99ffee00) and op plan (...)";
 * returns whether it differs. */
static bool append_member(const ls_preflight_member *member, const unsigned char *const *right, bool is_first,
                          ls_text *text)
{
    uint32_t differing = 0;
    for (uint32_t part = 0; part < LS_PREFLIGHT_PART_COUNT; part++) {
        const unsigned char *own = member->preflight.hash[part];
        if (memcmp(own, right[part], LS_PREFLIGHT_HASH_BYTES) == 0) {
            continue;
        }
        if (differing++ == 0) {
            ls_text_printf(text, "%srank %" PRIu32 " (%.63s, pid %" PRId32 ") differs in ",
                           is_first ? "" : "; ", member->rank, member->host, member->pid);
        } else {
            ls_text_append(text, " and ");
        }
        ls_text_printf(text, "%s (", ls_preflight_part_name((ls_preflight_part)part));
        append_hash(own, text);
        ls_text_append(text, ", most have ");
        append_hash(right[part], text);
        ls_text_append(text, ")");
    }
    return differing > 0;
}

static ls_status fail_version(const ls_preflight_member *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const ls_preflight *p = &members[i].preflight;
        if (!is_version_known(p)) {
            return ls_fail(
                LS_ERR_MISMATCH,
                "pre-flight: rank %" PRIu32 " (%.63s, pid %" PRId32
                ") runs another version of lockstep: its pre-flight check has version %" PRIu32
                " and %" PRIu32
                " parts, that of this rank version %d and %d parts; install the same binary on all hosts",
                members[i].rank, members[i].host, members[i].pid, p->version, p->part_count,
                LS_PREFLIGHT_VERSION, LS_PREFLIGHT_PART_COUNT);
        }
    }
    return LS_OK;
}

ls_status ls_preflight_compare(const ls_preflight_member *members, uint32_t count)
{
    enum { NAMED_MAX = 8 };
    const unsigned char *right[LS_PREFLIGHT_PART_COUNT];
    ls_text text = {0};
    uint32_t differing = 0;
    if (count == 0) {
        return LS_OK;
    }
    LS_TRY(fail_version(members, count));
    for (uint32_t part = 0; part < LS_PREFLIGHT_PART_COUNT; part++) {
        right[part] = majority_of(members, count, part);
    }
    for (uint32_t i = 0; i < count; i++) {
        ls_text scratch = {0};
        differing +=
            append_member(&members[i], right, differing == 0, differing < NAMED_MAX ? &text : &scratch);
        ls_text_release(&scratch);
    }
    if (differing == 0) {
        return LS_OK;
    }
    if (differing > NAMED_MAX) {
        ls_text_printf(&text, "; and %" PRIu32 " more", differing - NAMED_MAX);
    }
    const ls_status status = ls_fail(
        LS_ERR_MISMATCH,
        "pre-flight: %" PRIu32 " of %" PRIu32 " ranks differ from the others: %s; all ranks need the "
        "same version of the lockstep program, the same run file, the same data and the same kind of machine",
        differing, count, ls_text_string(&text));
    ls_text_release(&text);
    return status;
}
