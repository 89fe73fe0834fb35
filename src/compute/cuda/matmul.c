// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/matmul.h"

#include "base/assert.h"
#include "base/hash.h"
#include "compute/cuda/cublaslt.h"
#include "compute/cuda/matmul_own.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* A power of two. A model has a few dozen products. */
    PLACES_FIRST = 64,
    /* Candidates asked of cuBLASLt's ranking. */
    CANDIDATES = 64,
    /* What Hopper's kernels ask for. */
    WORKSPACE_BYTES = 32 << 20,
    /* More than this changes nothing in cuBLASLt's choice, and views into a row have no more. */
    ALIGNMENT_MAX = 16,
    OWN_VERSION = 1,
};

/* Everything of a product that the choice of an algorithm may depend on; no padding. */
typedef struct matmul_key {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    uint8_t a_transposed, b_transposed, dtype, c_dtype;
    uint8_t has_bias, accumulate, ranked, tf32;
    uint8_t a_alignment, b_alignment, c_alignment;
    /* Products of pieces of k, side by side: k is the length of one. */
    uint8_t pieces;
    uint8_t unused[4];
} matmul_key;
static_assert(sizeof(matmul_key) == 64, "a key is hashed and compared as bytes");

/* A product as cuBLASLt sees it, and the algorithm chosen for it. */
typedef struct chosen {
    matmul_key key;
    cublasLtMatmulDesc_t desc; /* NULL: a free place */
    cublasLtMatrixLayout_t first, second, result;
    cublasLtMatmulAlgo_t algo;
    /* cuBLASLt has no algorithm with a fixed order of additions: our own kernel computes it. */
    bool is_own;
} chosen;

struct ls_cuda_matmuls {
    cublasLtHandle_t handle; /* NULL without cuBLASLt */
    CUdeviceptr workspace;   /* 0 until the first product */
    /* A hash table: the place of a key is its hash or the next free one. */
    chosen *places;
    size_t place_count, used;
    uint64_t digest;
};

/* -- errors -- */

static void product_text(const ls_matmul *p, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s product (%lld, %lld) x (%lld, %lld)%s%s to %s%s%s",
             p->dtype == LS_BF16 ? "bf16" : "float32", (long long)p->m, (long long)p->k, (long long)p->k,
             (long long)p->n, p->a.transposed ? ", first transposed" : "",
             p->b.transposed ? ", second transposed" : "", p->c_dtype == LS_BF16 ? "bf16" : "float32",
             p->bias ? ", with bias" : "", p->accumulate ? ", added" : "");
}

static ls_status blas_fail(const ls_queue_cuda *queue, cublasStatus_t status, const char *call)
{
    const ls_status code = status == CUBLAS_STATUS_ALLOC_FAILED ? LS_ERR_MEMORY : LS_ERR_DEVICE;
    const char *advice = status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ARCH_MISMATCH
                             ? "; the library may be too new for the driver or too old for the GPU: set "
                               "LOCKSTEP_CUBLASLT to another one, or LS_CUDA_PRODUCTS=own"
                             : "";
    return ls_fail(code, "cublasLt%s of cuBLASLt %zu returned %s on %s%s", call, queue->blas->GetVersion(),
                   queue->blas->GetStatusName(status), queue->device_name, advice);
}

#define BLAS_TRY(queue, function, ...)                                                                       \
    do {                                                                                                     \
        const cublasStatus_t blas_status_ = (queue)->blas->function(__VA_ARGS__);                            \
        if (blas_status_ != CUBLAS_STATUS_SUCCESS) {                                                         \
            return blas_fail(queue, blas_status_, #function);                                                \
        }                                                                                                    \
    } while (0)

/* -- the table -- */

static uint8_t alignment_of(const void *data)
{
    const uintptr_t lowest_bit = (uintptr_t)data & -(uintptr_t)data;
    return (uint8_t)(!data || lowest_bit > ALIGNMENT_MAX ? ALIGNMENT_MAX : lowest_bit);
}

static matmul_key key_of(const ls_queue_cuda *queue, const ls_matmul *p, int64_t pieces)
{
    return (matmul_key){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a_stride = p->a.stride,
        .b_stride = p->b.stride,
        .c_stride = p->c_stride,
        .a_transposed = p->a.transposed,
        .b_transposed = p->b.transposed,
        .dtype = (uint8_t)p->dtype,
        .c_dtype = (uint8_t)p->c_dtype,
        .has_bias = p->bias != NULL,
        .accumulate = p->accumulate,
        .ranked = p->way == LS_MATMUL_CUBLASLT_RANKED,
        .tf32 = p->dtype == LS_F32 && queue->tf32,
        .a_alignment = alignment_of(p->a.data),
        .b_alignment = alignment_of(p->b.data),
        .c_alignment = alignment_of(p->c),
        .pieces = (uint8_t)pieces,
    };
}

/* The place of the key, or the free place where it belongs. */
static chosen *place_of(const struct ls_cuda_matmuls *matmuls, const matmul_key *key)
{
    size_t index = ls_xxh3(key, sizeof *key, 0) & (matmuls->place_count - 1);
    while (matmuls->places[index].desc && memcmp(&matmuls->places[index].key, key, sizeof *key) != 0) {
        index = (index + 1) & (matmuls->place_count - 1);
    }
    return &matmuls->places[index];
}

/* Keeps half of the places free. */
static ls_status reserve_place(struct ls_cuda_matmuls *matmuls)
{
    if (2 * (matmuls->used + 1) <= matmuls->place_count) {
        return LS_OK;
    }
    struct ls_cuda_matmuls larger = *matmuls;
    larger.place_count = 2 * matmuls->place_count;
    larger.places = calloc(larger.place_count, sizeof *larger.places);
    if (!larger.places) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %zu matrix products", larger.place_count);
    }
    for (size_t i = 0; i < matmuls->place_count; i++) {
        if (matmuls->places[i].desc) {
            *place_of(&larger, &matmuls->places[i].key) = matmuls->places[i];
        }
    }
    free(matmuls->places);
    *matmuls = larger;
    return LS_OK;
}

/* -- a product in cuBLASLt's words -- */

static void chosen_release(const ls_cublaslt *blas, chosen *c)
{
    cublasLtMatrixLayout_t layouts[] = {c->first, c->second, c->result};
    for (size_t i = 0; i < 3; i++) {
        if (layouts[i]) {
            blas->MatrixLayoutDestroy(layouts[i]);
        }
    }
    if (c->desc) {
        blas->MatmulDescDestroy(c->desc);
    }
    *c = (chosen){0};
}

/* A matrix in cuBLASLt's words; offset: elements from one piece of k to the next. */
typedef struct layout_words {
    int type;
    int64_t rows, cols, stride, offset;
} layout_words;

static int blas_type(ls_dtype dtype)
{
    return dtype == LS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static ls_status describe_operation(const ls_queue_cuda *queue, const matmul_key *key, chosen *c)
{
    BLAS_TRY(queue, MatmulDescCreate, &c->desc, key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
             CUDA_R_32F);
    const int32_t trans_first = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t trans_second = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    BLAS_TRY(queue, MatmulDescSetAttribute, c->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans_first,
             sizeof trans_first);
    BLAS_TRY(queue, MatmulDescSetAttribute, c->desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans_second,
             sizeof trans_second);
    if (key->has_bias) {
        const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const int32_t type = blas_type(key->c_dtype);
        BLAS_TRY(queue, MatmulDescSetAttribute, c->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                 sizeof epilogue);
        BLAS_TRY(queue, MatmulDescSetAttribute, c->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                 sizeof type);
    }
    return LS_OK;
}

static ls_status describe_matrix(const ls_queue_cuda *queue, cublasLtMatrixLayout_t *layout,
                                 const layout_words *words, uint8_t pieces)
{
    BLAS_TRY(queue, MatrixLayoutCreate, layout, words->type, (uint64_t)words->rows, (uint64_t)words->cols,
             words->stride);
    if (pieces > 1) {
        const int32_t count = pieces;
        BLAS_TRY(queue, MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                 sizeof count);
        BLAS_TRY(queue, MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                 &words->offset, sizeof words->offset);
    }
    return LS_OK;
}

/*
 * cuBLASLt's matrices are column-major, so a row-major matrix is its own transpose there. It is
 * asked for C^T = B^T A^T: its first operand is our B, and op T is needed where our operand is
 * transposed. The pieces of a product are a batch, each with its own sums.
 */
static ls_status describe(const ls_queue_cuda *queue, const matmul_key *key, chosen *c)
{
    const int type = blas_type(key->dtype);
    const layout_words first = {
        .type = type,
        .rows = key->b_transposed ? key->k : key->n,
        .cols = key->b_transposed ? key->n : key->k,
        .stride = key->b_stride,
        .offset = key->b_transposed ? key->k : key->k * key->b_stride,
    };
    const layout_words second = {
        .type = type,
        .rows = key->a_transposed ? key->m : key->k,
        .cols = key->a_transposed ? key->k : key->m,
        .stride = key->a_stride,
        .offset = key->a_transposed ? key->k * key->a_stride : key->k,
    };
    const layout_words result = {
        .type = blas_type(key->c_dtype),
        .rows = key->n,
        .cols = key->m,
        .stride = key->c_stride,
        .offset = key->m * key->c_stride,
    };
    LS_TRY(describe_operation(queue, key, c));
    LS_TRY(describe_matrix(queue, &c->first, &first, key->pieces));
    LS_TRY(describe_matrix(queue, &c->second, &second, key->pieces));
    return describe_matrix(queue, &c->result, &result, key->pieces);
}

/* -- the choice -- */

static ls_status set_preference(const ls_queue_cuda *queue, const matmul_key *key,
                                cublasLtMatmulPreference_t preference)
{
    const uint64_t workspace_bytes = WORKSPACE_BYTES;
    const uint32_t schemes =
        key->ranked ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t first = key->b_alignment, second = key->a_alignment, result = key->c_alignment;
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } settings[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result, sizeof result},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result, sizeof result},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        BLAS_TRY(queue, MatmulPreferenceSetAttribute, preference, settings[i].attribute, settings[i].value,
                 settings[i].bytes);
    }
    return LS_OK;
}

/* A whole inner dimension; `ranked`: also one whose pieces are added by a second kernel. */
static bool keeps_order(const ls_cublaslt *blas, const cublasLtMatmulAlgo_t *algo, bool ranked)
{
    int32_t splits = 0;
    uint32_t scheme = 0;
    size_t written = 0;
    if (blas->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof splits,
                                           &written) != CUBLAS_STATUS_SUCCESS ||
        blas->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                           sizeof scheme, &written) != CUBLAS_STATUS_SUCCESS) {
        return false;
    }
    if (ranked && splits > 1) {
        return scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    }
    /* 0 and negative numbers stand for schemes of their own, such as stream-K. */
    return splits == 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static ls_status choose(const ls_queue_cuda *queue, cublasLtMatmulPreference_t preference, chosen *c)
{
    const ls_cublaslt *blas = queue->blas;
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int found = 0;
    LS_TRY(set_preference(queue, &c->key, preference));
    const cublasStatus_t status =
        blas->MatmulAlgoGetHeuristic(queue->matmuls->handle, c->desc, c->first, c->second, c->result,
                                     c->result, preference, CANDIDATES, results, &found);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) {
        return blas_fail(queue, status, "MatmulAlgoGetHeuristic");
    }
    for (int i = 0; i < found; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= WORKSPACE_BYTES &&
            keeps_order(blas, &results[i].algo, c->key.ranked)) {
            c->algo = results[i].algo;
            return LS_OK;
        }
    }
    c->is_own = true;
    return LS_OK;
}

static ls_status chosen_create(const ls_queue_cuda *queue, const matmul_key *key, chosen *chosen_out)
{
    chosen c = {.key = *key};
    cublasLtMatmulPreference_t preference = NULL;
    ls_status status = describe(queue, key, &c);
    if (status == LS_OK) {
        const cublasStatus_t created = queue->blas->MatmulPreferenceCreate(&preference);
        status = created == CUBLAS_STATUS_SUCCESS ? choose(queue, preference, &c)
                                                  : blas_fail(queue, created, "MatmulPreferenceCreate");
    }
    if (preference) {
        queue->blas->MatmulPreferenceDestroy(preference);
    }
    if (status != LS_OK) {
        chosen_release(queue->blas, &c);
        return status;
    }
    *chosen_out = c;
    return LS_OK;
}

/* The algorithm of a product: from the table, else chosen and kept. */
static ls_status find_algorithm(ls_queue_cuda *queue, const matmul_key *key, const chosen **chosen_out)
{
    struct ls_cuda_matmuls *matmuls = queue->matmuls;
    chosen *place = place_of(matmuls, key);
    if (!place->desc) {
        LS_TRY(reserve_place(matmuls));
        place = place_of(matmuls, key);
        LS_TRY(chosen_create(queue, key, place));
        matmuls->used++;
        const uint64_t parts[2] = {ls_xxh3(key, sizeof *key, 0),
                                   ls_xxh3(&place->algo, sizeof place->algo, 0)};
        matmuls->digest += ls_xxh3(parts, sizeof parts, 0);
    }
    *chosen_out = place;
    return LS_OK;
}

/* -- products -- */

/* One call of cuBLASLt: the product, or pieces of it, whose length is the product's k. */
static ls_status run_chosen(ls_queue_cuda *queue, const ls_matmul *p, const chosen *c)
{
    struct ls_cuda_matmuls *matmuls = queue->matmuls;
    if (!matmuls->workspace) {
        CU_TRY(queue->driver, cuMemAlloc, &matmuls->workspace, WORKSPACE_BYTES);
    }
    if (p->bias) {
        BLAS_TRY(queue, MatmulDescSetAttribute, c->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias,
                 sizeof p->bias);
    }
    const float alpha = 1.0f, beta = p->accumulate ? 1.0f : 0.0f;
    BLAS_TRY(queue, Matmul, matmuls->handle, c->desc, &alpha, p->b.data, c->first, p->a.data, c->second,
             &beta, p->c, c->result, p->c, c->result, &c->algo, (void *)(uintptr_t)matmuls->workspace,
             WORKSPACE_BYTES, queue->stream);
    return LS_OK;
}

static ls_status run_whole(ls_queue_cuda *queue, const ls_matmul *p)
{
    const chosen *c = NULL;
    const matmul_key key = key_of(queue, p, 1);
    LS_TRY(find_algorithm(queue, &key, &c));
    return c->is_own ? ls_matmul_own(queue, p) : run_chosen(queue, p, c);
}

/* The operand from index k of the inner dimension on. */
static ls_matmul_operand operand_from(const ls_matmul *p, bool is_b, int64_t k)
{
    ls_matmul_operand operand = is_b ? p->b : p->a;
    const int64_t elements = operand.transposed == is_b ? k : k * operand.stride;
    operand.data = (const char *)operand.data + elements * ls_dtype_bytes(p->dtype);
    return operand;
}

/* The pieces side by side, the rest added to the first one, then all of them in order. */
static ls_status run_pieces(ls_queue_cuda *queue, const ls_matmul *p, const ls_matmul_cut *cut)
{
    void *sums = NULL;
    LS_TRY(ls_cuda_scratch(queue, (size_t)(cut->pieces * p->m * p->n) * sizeof(float), &sums));
    ls_matmul piece = *p;
    piece.k = cut->length;
    piece.c = sums;
    piece.c_stride = p->n;
    piece.c_dtype = LS_F32;
    piece.bias = NULL;
    piece.accumulate = false;
    const chosen *c = NULL;
    const matmul_key key = key_of(queue, &piece, cut->pieces);
    LS_TRY(find_algorithm(queue, &key, &c));
    if (c->is_own) {
        return ls_matmul_own(queue, p);
    }
    LS_TRY(run_chosen(queue, &piece, c));
    if (cut->rest > 0) {
        piece.k = cut->rest;
        piece.a = operand_from(p, false, cut->pieces * cut->length);
        piece.b = operand_from(p, true, cut->pieces * cut->length);
        piece.accumulate = true;
        LS_TRY(run_whole(queue, &piece));
    }
    return ls_matmul_combine(queue, p, sums, cut->pieces);
}

/* cuBLASLt's fastest tiles on an H100. */
static const ls_matmul_tiling blas_tiling = {
    .tile_m = 128,
    .tile_n = 256,
    .blocks = 132,
    .tile_cost = 7,
    .launch_cost = 600,
    .half_tile_percent = 55,
};

static ls_status blas_product(ls_queue_cuda *queue, const ls_matmul *p)
{
    const ls_matmul_cut cut = ls_matmul_cut_of(p, &blas_tiling);
    if (cut.pieces > 1 && (p->way == LS_MATMUL_DEFAULT || p->way == LS_MATMUL_CUBLASLT)) {
        return run_pieces(queue, p, &cut);
    }
    return run_whole(queue, p);
}

/* -- public -- */

ls_status ls_cuda_matmul(ls_queue_cuda *queue, const ls_matmul *p)
{
    LS_ASSERT(p->m >= 1 && p->n >= 1 && p->k >= 1 && !(p->bias && p->accumulate));
    LS_ASSERT(p->dtype == LS_BF16 || (p->dtype == LS_F32 && p->c_dtype == LS_F32));
    ls_status status = ls_cuda_enter(queue);
    if (status != LS_OK) {
        return status;
    }
    if (p->way == LS_MATMUL_OWN || p->way == LS_MATMUL_OWN_SM90 ||
        (p->way == LS_MATMUL_DEFAULT && !queue->blas)) {
        status = ls_matmul_own(queue, p);
    } else if (!queue->blas) {
        status = ls_fail(LS_ERR_UNSUPPORTED, "this queue has no cuBLASLt");
    } else {
        status = blas_product(queue, p);
    }
    if (status != LS_OK) {
        char text[192];
        product_text(p, text, sizeof text);
        return ls_fail_within(status, "%s", text);
    }
    return LS_OK;
}

/* Without the library's own GPU there is nothing for it to run on. */
static bool may_use_blas(const ls_queue_cuda *queue)
{
    return !queue->driver->has_kernels || getenv("LOCKSTEP_CUBLASLT");
}

ls_status ls_cuda_matmuls_create(ls_queue_cuda *queue)
{
    const ls_cublaslt *blas = NULL;
    if (may_use_blas(queue)) {
        LS_TRY(ls_cublaslt_load(&blas));
    }
    struct ls_cuda_matmuls *matmuls = calloc(1, sizeof *matmuls);
    chosen *places = calloc(PLACES_FIRST, sizeof *places);
    if (!matmuls || !places) {
        free(matmuls);
        free(places);
        return ls_fail(LS_ERR_MEMORY, "no memory for the table of matrix products");
    }
    matmuls->places = places;
    matmuls->place_count = PLACES_FIRST;
    queue->blas = blas;
    const cublasStatus_t status = blas ? blas->Create(&matmuls->handle) : CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_SUCCESS) {
        const ls_status failed = blas_fail(queue, status, "Create");
        free(places);
        free(matmuls);
        queue->blas = NULL;
        return failed;
    }
    queue->matmuls = matmuls;
    return LS_OK;
}

void ls_cuda_matmuls_destroy(ls_queue_cuda *queue)
{
    struct ls_cuda_matmuls *matmuls = queue->matmuls;
    if (!matmuls) {
        return;
    }
    for (size_t i = 0; i < matmuls->place_count; i++) {
        if (matmuls->places[i].desc) {
            chosen_release(queue->blas, &matmuls->places[i]);
        }
    }
    if (matmuls->workspace) {
        (void)queue->driver->cuMemFree(matmuls->workspace);
    }
    if (matmuls->handle) {
        queue->blas->Destroy(matmuls->handle);
    }
    free(matmuls->places);
    free(matmuls);
    queue->matmuls = NULL;
    queue->blas = NULL;
}

void ls_cuda_matmuls_class(const ls_queue_cuda *queue, char *text, size_t bytes)
{
    if (queue->blas) {
        snprintf(text, bytes, "lt%zu-%dsm", queue->blas->GetVersion(), queue->multiprocessors);
    } else {
        snprintf(text, bytes, "own%d", OWN_VERSION);
    }
}

uint64_t ls_cuda_matmuls_digest(const ls_queue_cuda *queue)
{
    return queue->matmuls ? queue->matmuls->digest : 0;
}
