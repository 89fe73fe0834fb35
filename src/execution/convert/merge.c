// SPDX-License-Identifier: Apache-2.0
#include "execution/convert/merge_internal.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/run_file.h"
#include "execution/convert/new_checkpoint.h"
#include "execution/train/model_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUTER_STD 0.1 /* of the usual deviation: at first all experts are visited about equally */
enum { ROUTER_STEPS = 200 };

/* One summand of a value of the result. */
typedef struct term {
    size_t parent;
    uint32_t parameter; /* in the layout of that parent's reader */
    double weight;
} term;

typedef struct merger {
    ls_merge_work work;
    ls_model_reader readers[LS_MERGE_MOST + 1];
    size_t opened;
    ls_layout layout; /* of the result */
    float *result;    /* a mapped file of layout.parameter_floats floats */
    float *values;    /* of one tensor of one model */
    double *sums;     /* of one tensor of the result */
    char digest[LS_SHA256_HEX_BYTES], parents[LS_MERGE_MOST + 1][LS_SHA256_HEX_BYTES];
} merger;

/* ---- which tensors a tensor is made of ---- */

static ls_status find_term(const merger *m, size_t parent, const char *name, double weight, term *term_out)
{
    const ls_layout *layout = &m->readers[parent].layout;
    const ls_parameter *p = ls_layout_find(layout, name);
    if (!p) {
        return ls_fail(LS_ERR_DATA, "%s has no tensor %s", m->work.files[parent]->path, name);
    }
    *term_out = (term){parent, (uint32_t)(p - layout->parameters), weight};
    return LS_OK;
}

/* The name of the same tensor in another layer: the first number of a name is that of its layer. */
static const char *in_layer(ls_arena *arena, const char *name, int64_t layer)
{
    const size_t before = strcspn(name, "0123456789");
    const char *after = name + before + strspn(name + before, "0123456789");
    return ls_arena_printf(arena, "%.*s%lld%s", (int)before, name, (long long)layer, after);
}

static ls_status stitched_term(const merger *m, const ls_parameter *p, term *term_out)
{
    const ls_merge_work *w = &m->work;
    const uint32_t last = m->layout.section_count - 1;
    if (p->section == 0 || p->section == last) {
        const int64_t at = p->section == 0 ? 0 : w->config.layers - 1;
        return find_term(m, w->layers[at].parent, p->name, 1.0, term_out);
    }
    const ls_merge_layer from = w->layers[p->section - 1];
    return find_term(m, from.parent, in_layer(w->arena, p->name, from.layer), 1.0, term_out);
}

/* The tensor of an MLP that a matrix of an expert is; *expert_out: whose. NULL: no expert's. */
static const char *mlp_name(ls_arena *arena, const char *name, size_t *expert_out)
{
    static const char *const roles[][3] = {
        {".w1.weight", ".gate_proj.weight", "gate_proj"},
        {".w3.weight", ".up_proj.weight", "up_proj"},
        {".w2.weight", ".down_proj.weight", "down_proj"},
    };
    const char *at = strstr(name, ".experts.");
    const char *module = strstr(name, ".block_sparse_moe.");
    module = module ? module : strstr(name, ".mlp.");
    for (size_t i = 0; at && i < sizeof roles / sizeof roles[0]; i++) {
        if (ls_path_has_suffix(name, roles[i][0]) || ls_path_has_suffix(name, roles[i][1])) {
            *expert_out = (size_t)strtoull(at + strlen(".experts."), NULL, 10);
            return ls_arena_printf(arena, "%.*s.mlp.%s.weight", (int)(module - name), name, roles[i][2]);
        }
    }
    return NULL;
}

/* terms_out: none for a tensor that is drawn. */
static ls_status terms_of(const merger *m, const ls_parameter *p, term *terms_out, size_t *count_out)
{
    const ls_merge_work *w = &m->work;
    const size_t models = w->options->count;
    const bool is_task = w->options->method == LS_MERGE_TASK_ARITHMETIC;
    size_t expert = 0;
    *count_out = 1;
    if (w->options->method == LS_MERGE_STITCH) {
        return stitched_term(m, p, terms_out);
    }
    if (w->options->method == LS_MERGE_EXPERTS) {
        const char *mlp = mlp_name(w->arena, p->name, &expert);
        if (mlp) {
            return find_term(m, expert, mlp, 1.0, terms_out);
        }
        if (ls_path_has_suffix(p->name, "mlp.gate.weight") ||
            ls_path_has_suffix(p->name, "moe.gate.weight")) {
            *count_out = 0;
            return LS_OK;
        }
    }
    double rest = 1.0;
    for (size_t i = 0; i < models; i++) {
        const double weight = is_task ? w->options->scale * w->weights[i] : w->weights[i];
        LS_TRY(find_term(m, i, p->name, weight, &terms_out[i]));
        rest -= weight;
    }
    *count_out = models + is_task;
    return is_task ? find_term(m, models, p->name, rest, &terms_out[models]) : LS_OK;
}

/* ---- values ---- */

static ls_status add_terms(merger *m, const ls_parameter *p, const term *terms, size_t count, float *out)
{
    const size_t elements = (size_t)(p->rows * p->cols);
    if (count == 1 && terms[0].weight == 1.0) {
        return ls_model_reader_read(&m->readers[terms[0].parent], terms[0].parameter, out);
    }
    memset(m->sums, 0, elements * sizeof *m->sums);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_model_reader_read(&m->readers[terms[i].parent], terms[i].parameter, m->values));
        for (size_t k = 0; k < elements; k++) {
            m->sums[k] += terms[i].weight * (double)m->values[k];
        }
    }
    for (size_t k = 0; k < elements; k++) {
        out[k] = (float)m->sums[k];
        if (!isfinite(out[k])) {
            return ls_fail(LS_ERR_DATA,
                           "tensor %s: element %zu of the result is not finite (%g); find the model that has "
                           "such a value with 'lockstep eval', or use smaller --weights or --scale",
                           p->name, k, m->sums[k]);
        }
    }
    return LS_OK;
}

/* Makes tensor `index` of the result and gives its pages back to the kernel. */
static ls_status make_tensor(merger *m, uint32_t index)
{
    const ls_parameter *p = &m->layout.parameters[index];
    term terms[LS_MERGE_MOST + 1];
    size_t count = 0;
    LS_TRY(terms_of(m, p, terms, &count));
    if (count == 0) {
        const ls_init_rule rule = {
            .seed = 0, .std = ROUTER_STD * m->work.config.init_std, .layers = m->work.config.layers};
        ls_parameter_init(&m->layout, index, &rule, 0, p->rows * p->cols, m->result);
        return LS_OK;
    }
    return add_terms(m, p, terms, count, m->result + p->offset);
}

/* Adds the digest of a tensor to that of a model. */
static void add_digest(ls_sha256 *digest, const float *values, const ls_parameter *p)
{
    char hex[LS_SHA256_HEX_BYTES];
    ls_sha256_hex(values, (size_t)(p->rows * p->cols) * sizeof *values, hex);
    ls_sha256_update(digest, hex, strlen(hex));
}

static void forget_pages(float *values, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)values;
    const uintptr_t first = at / page * page, end = (at + bytes) / page * page;
    if (first < end) {
        (void)madvise((void *)first, end - first, MADV_DONTNEED); /* the file keeps them */
    }
}

static ls_status make_all(merger *m)
{
    const uint32_t *order = ls_layout_by_name(m->work.arena, &m->layout);
    ls_sha256 digest;
    ls_sha256_init(&digest);
    for (uint32_t i = 0; i < m->layout.parameter_count; i++) {
        const ls_parameter *p = &m->layout.parameters[order[i]];
        float *values = m->result + p->offset;
        LS_TRY(make_tensor(m, order[i]));
        add_digest(&digest, values, p);
        forget_pages(values, (size_t)(p->rows * p->cols) * sizeof *values);
    }
    ls_sha256_finish(&digest, m->digest);
    return LS_OK;
}

/* ---- memory ---- */

/* A mapped file without a name, beside the output: the result need not fit into memory. */
static ls_status map_result(merger *m)
{
    ls_arena *arena = m->work.arena;
    const size_t bytes = (size_t)m->layout.parameter_floats * sizeof(float);
    const char *folder = ls_path_dirname(arena, m->work.options->output);
    char *path = ls_arena_printf(arena, "%s/.merge-XXXXXX", folder);
    LS_TRY(ls_dir_create(folder));
    const int fd = mkstemp(path);
    if (fd < 0) {
        return ls_fail_errno(errno, "cannot create %s", path);
    }
    (void)unlink(path);
    const int error = posix_fallocate(fd, 0, (off_t)bytes);
    void *map = error == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED) {
        return ls_fail(error == ENOSPC || error == EFBIG ? LS_ERR_DISK : LS_ERR_IO,
                       "%s has no room for %zu bytes of the merged model: %s", folder, bytes,
                       strerror(error ? error : errno));
    }
    m->result = map;
    return LS_OK;
}

static ls_status take_memory(merger *m)
{
    int64_t largest = 1;
    for (size_t i = 0; i <= m->work.count; i++) {
        const ls_layout *layout = i < m->work.count ? &m->readers[i].layout : &m->layout;
        for (uint32_t k = 0; k < layout->parameter_count; k++) {
            const int64_t elements = layout->parameters[k].rows * layout->parameters[k].cols;
            largest = elements > largest ? elements : largest;
        }
    }
    m->values = malloc((size_t)largest * sizeof *m->values);
    m->sums = malloc((size_t)largest * sizeof *m->sums);
    return m->values && m->sums
               ? map_result(m)
               : ls_fail(LS_ERR_MEMORY, "no memory for a tensor of %lld values", (long long)largest);
}

static void release(merger *m)
{
    for (size_t i = 0; i < m->opened; i++) {
        ls_model_reader_close(&m->readers[i]);
    }
    for (size_t i = 0; i < m->work.count; i++) {
        ls_model_file_close(m->work.files[i]);
    }
    if (m->result) {
        (void)munmap(m->result, (size_t)m->layout.parameter_floats * sizeof(float));
    }
    free(m->values);
    free(m->sums);
}

/* ---- what is told ---- */

static json_t *parents_json(const merger *m)
{
    const ls_merge_work *w = &m->work;
    json_t *list = json_array();
    for (size_t i = 0; i < w->options->count; i++) {
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:s*}", "path", w->options->paths[i], "step",
                                              (json_int_t)w->files[i]->step, "weight", w->weights[i],
                                              "digest", m->parents[i][0] ? m->parents[i] : NULL));
    }
    return list;
}

static json_t *lineage(const merger *m)
{
    const ls_merge_options *o = m->work.options;
    json_t *object = json_pack("{s:s, s:o}", "method", ls_merge_names[o->method], "parents", parents_json(m));
    if (o->base[0]) {
        json_object_set_new(object, "base",
                            json_pack("{s:s, s:s}", "path", o->base, "digest", m->parents[o->count]));
        json_object_set_new(object, "scale", json_real(o->scale));
    }
    if (o->layers[0]) {
        json_object_set_new(object, "layers", json_string(o->layers));
    }
    return object;
}

/* ---- the routers' run file ---- */

/* What the models were trained on, as far as their runs tell. */
static ls_status append_data(const merger *m, ls_text *text)
{
    const ls_merge_options *o = m->work.options;
    size_t count = 0;
    for (size_t i = 0; i < o->data_count; i++) {
        ls_text_append(text, count++ > 0 ? ", " : "");
        ls_text_append_quoted(text, o->data[i]);
    }
    for (size_t i = 0; o->data_count == 0 && i < o->count; i++) {
        const char *file = ls_path_join(m->work.arena, o->paths[i], "run.yaml");
        ls_run_file run;
        if (!ls_path_exists(file)) {
            continue;
        }
        LS_TRY(ls_run_file_load(file, NULL, 0, m->work.arena, &run));
        for (uint64_t k = 0; k < run.data.train.count; k++) {
            ls_text_append(text, count++ > 0 ? ", " : "");
            ls_text_append_quoted(text, run.data.train.items[k].path);
        }
    }
    return LS_OK;
}

static ls_status write_router_run(const merger *m, const char *path)
{
    const ls_merge_work *w = &m->work;
    ls_text text = {0}, data = {0};
    LS_TRY(append_data(m, &data));
    ls_text_printf(&text,
                   "# Trains the routers of the mixture in this folder; other tensors stay as they are.\n"
                   "name: %s-router\nmodel: {from: ",
                   ls_path_basename(w->options->output));
    char *whole = realpath(w->options->output, NULL);
    ls_text_append_quoted(&text, whole ? whole : w->options->output);
    free(whole);
    ls_text_printf(&text, "}\ndata:\n  train: [%s]%s\n  validation_fraction: 0.05\n", ls_text_string(&data),
                   data.bytes > 0 ? "" : "   # add the data of all branches");
    ls_text_printf(&text,
                   "train:\n  steps: %d\n  optimizer: {lr: 1.0e-3, weight_decay: 0.0}\n"
                   "  freeze: [embed_tokens.weight, norm.weight, \"*.self_attn.*\", \"*layernorm.weight\", "
                   "\"*.experts.*\"%s]\n",
                   ROUTER_STEPS, w->config.tied ? "" : ", lm_head.weight");
    const ls_status status = ls_file_write_atomic(path, text.data, text.bytes);
    ls_text_release(&data);
    ls_text_release(&text);
    return status;
}

/* ---- all of it ---- */

static ls_status open_models(merger *m)
{
    ls_merge_work *w = &m->work;
    const ls_merge_options *o = w->options;
    for (size_t i = 0; i < o->count && i < LS_MERGE_MOST; i++) {
        LS_TRY(ls_model_file_open(o->paths[i], &w->files[i]));
        w->count++;
    }
    if (o->base[0]) {
        LS_TRY(ls_model_file_open(o->base, &w->files[w->count]));
        w->count++;
    }
    return ls_merge_check(w);
}

static ls_status open_readers(merger *m)
{
    for (size_t i = 0; i < m->work.count; i++) {
        LS_TRY(ls_model_reader_open(m->work.files[i], true, &m->readers[i]));
        m->opened++;
    }
    ls_layout_build(m->work.arena, &m->work.config, &m->layout);
    LS_TRY(take_memory(m));
    for (size_t i = 0; i < m->work.count; i++) {
        LS_TRY(ls_model_reader_digest(&m->readers[i], m->parents[i]));
    }
    return LS_OK;
}

static ls_status save(merger *m, json_t *merge)
{
    json_t *extra = json_pack("{s:O}", "merge", merge);
    const ls_new_checkpoint checkpoint = {.output = m->work.options->output,
                                          .file = m->work.carrier,
                                          .config = &m->work.config,
                                          .layout = &m->layout,
                                          .parameters = m->result,
                                          .extra = extra};
    const ls_status status = ls_new_checkpoint_save(m->work.arena, &checkpoint);
    json_decref(extra);
    return status;
}

static ls_status merge_models(merger *m, json_t **result_out)
{
    const ls_merge_work *w = &m->work;
    LS_TRY(ls_new_checkpoint_check(w->arena, w->options->output));
    LS_TRY(open_readers(m));
    LS_TRY(make_all(m));
    json_t *merge = lineage(m);
    json_object_set_new(merge, "digest", json_string(m->digest));
    ls_status status = save(m, merge);
    json_object_set_new(merge, "output", json_string(w->options->output));
    json_object_set_new(merge, "family", json_string(ls_family_name(w->config.family)));
    json_object_set_new(merge, "parameters", json_integer(m->layout.element_count));
    if (status == LS_OK && w->options->method == LS_MERGE_EXPERTS) {
        const char *path = ls_path_join(w->arena, w->options->output, "router.yaml");
        json_object_set_new(merge, "run_file", json_string(path));
        status = write_router_run(m, path);
    }
    if (status != LS_OK) {
        json_decref(merge);
        return status;
    }
    *result_out = merge;
    return LS_OK;
}

static ls_status merge_adapters(merger *m, json_t **result_out)
{
    LS_TRY(ls_merge_adapters(&m->work));
    json_t *merge = lineage(m);
    json_object_set_new(merge, "output", json_string(m->work.options->output));
    json_object_set_new(merge, "family", json_string(ls_family_name(m->work.config.family)));
    *result_out = merge;
    return LS_OK;
}

ls_status ls_merge(ls_arena *arena, const ls_merge_options *options, json_t **result_out)
{
    merger *m = ls_arena_new(arena, merger, 1);
    m->work = (ls_merge_work){.arena = arena, .options = options};
    ls_status status = open_models(m);
    if (status == LS_OK) {
        status = options->is_adapter ? merge_adapters(m, result_out) : merge_models(m, result_out);
    }
    release(m);
    return status;
}
