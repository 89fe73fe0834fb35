// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of cuBLASLt that compute/cuda/cublaslt.h names, computed on the processor. They are in
 * the same library as the driver: LOCKSTEP_CUBLASLT names it a second time.
 *
 * It is strict where the real one may be lenient: handles carry a mark, layouts and alignments are
 * checked against what the algorithm was chosen for, and the ranking begins with algorithms that
 * must not be taken, which then refuse to run.
 *
 * Products are enqueued on their stream and run when kernels would. LS_CUDA_FAIL (driver.cpp) counts
 * these functions too, by their names.
 */
#include "compute/cuda_on_cpu/stream.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace
{

/* Numbers of cuBLASLt's header. */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15,
    TYPE_F32 = 0,
    TYPE_BF16 = 14,
    COMPUTE_32F = 68,
    COMPUTE_TF32 = 77,
    EPILOGUE_DEFAULT = 1,
    EPILOGUE_BIAS = 4,
};

constexpr uint64_t WORKSPACE_BYTES = 1 << 20;

struct marked {
    uint64_t mark;
};
struct handle : marked {
    static constexpr uint64_t MARK = 0x6c742d68616e646c;
};
struct layout : marked {
    static constexpr uint64_t MARK = 0x6c742d6c61796f75;
    int type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t offset;
};
struct operation : marked {
    static constexpr uint64_t MARK = 0x6c742d6f70657261;
    int compute, trans_a, trans_b, bias_type;
    uint32_t epilogue;
    const void *bias;
};
struct preference : marked {
    static constexpr uint64_t MARK = 0x6c742d7072656665;
    uint64_t workspace_bytes;
    uint32_t schemes, alignment[4];
};

/* What this library keeps in the 64 bytes of an algorithm. */
struct algorithm {
    uint64_t mark;
    int32_t splits;
    uint32_t scheme, alignment[4];
    uint64_t m, n, k;
    static constexpr uint64_t MARK = 0x6c742d616c676f72;
};
static_assert(sizeof(algorithm) <= 64, "an algorithm has 64 bytes");

/* cublasLtMatmulHeuristicResult_t */
struct heuristic_result {
    uint64_t algo[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
};

template <class type> bool is(const type *object)
{
    return object && object->mark == type::MARK;
}

template <class type> int destroy(type *object)
{
    if (!is(object)) {
        return INVALID_VALUE;
    }
    object->mark = 0;
    delete object;
    return SUCCESS;
}

template <class type> int take(type &place, const void *value, size_t bytes)
{
    if (bytes != sizeof place) {
        return INVALID_VALUE;
    }
    memcpy(&place, value, bytes);
    return SUCCESS;
}

/* ---- elements ---- */

float from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (std::isnan(x)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds to the 10 bits of TF32, halves away from zero. */
float to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float load(const void *from, int type, int64_t index)
{
    return type == TYPE_BF16 ? from_bf16(((const uint16_t *)from)[index]) : ((const float *)from)[index];
}

void store(void *to, int type, int64_t index, float x)
{
    if (type == TYPE_BF16) {
        ((uint16_t *)to)[index] = to_bf16(x);
    } else {
        ((float *)to)[index] = x;
    }
}

/* ---- the product ---- */

/* An address by elements. */
template <class type> type *advance(type *data, const layout &of, int64_t elements)
{
    return (type *)((uintptr_t)data + elements * (of.type == TYPE_BF16 ? 2 : 4));
}

/* The matrix or its transpose as float32, column after column. */
std::vector<float> pack(const void *data, const layout &of, bool transposed, bool tf32)
{
    const uint64_t rows = transposed ? of.cols : of.rows, cols = transposed ? of.rows : of.cols;
    std::vector<float> packed(rows * cols);
    for (uint64_t c = 0; c < cols; c++) {
        for (uint64_t r = 0; r < rows; r++) {
            const float x =
                load(data, of.type,
                     transposed ? (int64_t)c + (int64_t)r * of.ld : (int64_t)r + (int64_t)c * of.ld);
            packed[c * rows + r] = tf32 ? to_tf32(x) : x;
        }
    }
    return packed;
}

struct product_shape {
    uint64_t m, n, k;
};

/* false: the layouts do not fit together. */
bool find_shape(const operation &op, const layout &a, const layout &b, const layout &d, product_shape &shape)
{
    shape.m = op.trans_a ? a.cols : a.rows;
    shape.k = op.trans_a ? a.rows : a.cols;
    shape.n = op.trans_b ? b.rows : b.cols;
    return (op.trans_b ? b.cols : b.rows) == shape.k && d.rows == shape.m && d.cols == shape.n &&
           a.batch == d.batch && b.batch == d.batch && a.type == b.type && (a.type == d.type || (a.type == TYPE_BF16 && d.type == TYPE_F32)) &&
           (op.compute == COMPUTE_32F || (op.compute == COMPUTE_TF32 && a.type == TYPE_F32)) &&
           (op.epilogue == EPILOGUE_DEFAULT || op.epilogue == EPILOGUE_BIAS);
}

void multiply(const operation &op, const product_shape &shape, const std::vector<float> &a,
              const std::vector<float> &b, float beta, const layout &d_layout, void *d)
{
    std::vector<float> sum(shape.m);
    for (uint64_t col = 0; col < shape.n; col++) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (uint64_t k = 0; k < shape.k; k++) {
            const float factor = b[col * shape.k + k];
            const float *column = &a[k * shape.m];
            for (uint64_t row = 0; row < shape.m; row++) {
                sum[row] += column[row] * factor;
            }
        }
        for (uint64_t row = 0; row < shape.m; row++) {
            const int64_t index = (int64_t)row + (int64_t)col * d_layout.ld;
            float x = sum[row];
            x += beta != 0.0f ? beta * load(d, d_layout.type, index) : 0.0f;
            x += op.epilogue == EPILOGUE_BIAS ? load(op.bias, op.bias_type, (int64_t)row) : 0.0f;
            store(d, d_layout.type, index, x);
        }
    }
}

/* A product that waits in its stream. The descriptions are copies: the caller may change its own. */
struct call {
    operation op;
    layout a_layout, b_layout, d_layout;
    product_shape shape;
    const void *a, *b;
    void *d;
    float beta;
    void *workspace;
};

void run_call(const call &c)
{
    const bool tf32 = c.op.compute == COMPUTE_TF32;
    memset(c.workspace, 0xa5, WORKSPACE_BYTES);
    for (int32_t i = 0; i < c.d_layout.batch; i++) {
        const void *a = advance(c.a, c.a_layout, i * c.a_layout.offset);
        const void *b = advance(c.b, c.b_layout, i * c.b_layout.offset);
        multiply(c.op, c.shape, pack(a, c.a_layout, c.op.trans_a != 0, tf32),
                 pack(b, c.b_layout, c.op.trans_b != 0, tf32), c.beta, c.d_layout,
                 advance(c.d, c.d_layout, i * c.d_layout.offset));
    }
}

bool is_aligned(const void *data, uint32_t alignment)
{
    return (uintptr_t)data % alignment == 0;
}

} // namespace

/* ---- the symbols ---- */

#define EXPORT extern "C" __attribute__((visibility("default")))
#define MAY_FAIL()                                                                                           \
    do {                                                                                                     \
        const int injected_ = cuda_on_cpu::injected_result(__func__);                                        \
        if (injected_ != SUCCESS) {                                                                          \
            return injected_;                                                                                \
        }                                                                                                    \
    } while (0)

EXPORT size_t cublasLtGetVersion()
{
    return 130000;
}

EXPORT const char *cublasLtGetStatusName(int status)
{
    return status == INVALID_VALUE      ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                        : "CUBLAS_STATUS";
}

EXPORT int cublasLtCreate(handle **out)
{
    MAY_FAIL();
    *out = new handle{{handle::MARK}};
    return SUCCESS;
}

EXPORT int cublasLtDestroy(handle *object)
{
    return destroy(object);
}

EXPORT int cublasLtMatmulDescCreate(operation **out, int compute, int scale_type)
{
    MAY_FAIL();
    if (scale_type != TYPE_F32) {
        return INVALID_VALUE;
    }
    *out = new operation{{operation::MARK}, compute, 0, 0, TYPE_F32, EPILOGUE_DEFAULT, nullptr};
    return SUCCESS;
}

EXPORT int cublasLtMatmulDescDestroy(operation *object)
{
    return destroy(object);
}

EXPORT int cublasLtMatmulDescSetAttribute(operation *op, int attribute, const void *value, size_t bytes)
{
    MAY_FAIL();
    if (!is(op)) {
        return INVALID_VALUE;
    }
    switch (attribute) {
    case 3:
        return take(op->trans_a, value, bytes);
    case 4:
        return take(op->trans_b, value, bytes);
    case 7:
        return take(op->epilogue, value, bytes);
    case 8:
        return take(op->bias, value, bytes);
    case 26:
        return take(op->bias_type, value, bytes);
    default:
        return INVALID_VALUE;
    }
}

EXPORT int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    MAY_FAIL();
    if ((type != TYPE_F32 && type != TYPE_BF16) || rows == 0 || cols == 0 || ld < (int64_t)rows) {
        return INVALID_VALUE;
    }
    *out = new layout{{layout::MARK}, type, rows, cols, ld, 1, 0};
    return SUCCESS;
}

EXPORT int cublasLtMatrixLayoutSetAttribute(layout *object, int attribute, const void *value, size_t bytes)
{
    MAY_FAIL();
    if (!is(object)) {
        return INVALID_VALUE;
    }
    return attribute == 5   ? take(object->batch, value, bytes)
           : attribute == 6 ? take(object->offset, value, bytes)
                            : (int)INVALID_VALUE;
}

EXPORT int cublasLtMatrixLayoutDestroy(layout *object)
{
    return destroy(object);
}

EXPORT int cublasLtMatmulPreferenceCreate(preference **out)
{
    MAY_FAIL();
    *out = new preference{{preference::MARK}, 0, 7, {256, 256, 256, 256}};
    return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceDestroy(preference *object)
{
    return destroy(object);
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(preference *object, int attribute, const void *value,
                                                size_t bytes)
{
    MAY_FAIL();
    if (!is(object)) {
        return INVALID_VALUE;
    }
    switch (attribute) {
    case 1:
        return take(object->workspace_bytes, value, bytes);
    case 3:
        return take(object->schemes, value, bytes);
    case 5:
    case 6:
    case 7:
    case 8:
        return take(object->alignment[attribute - 5], value, bytes);
    default:
        return INVALID_VALUE;
    }
}

/* Two algorithms that do not keep the order of additions, then one that does. */
EXPORT int cublasLtMatmulAlgoGetHeuristic(handle *lt, operation *op, layout *a, layout *b, layout *c,
                                          layout *d, preference *wish, int asked, heuristic_result *results,
                                          int *found)
{
    MAY_FAIL();
    product_shape shape;
    if (!is(lt) || !is(op) || !is(a) || !is(b) || !is(c) || !is(d) || !is(wish) || asked < 3) {
        return INVALID_VALUE;
    }
    if (!find_shape(*op, *a, *b, *d, shape) || wish->workspace_bytes < WORKSPACE_BYTES) {
        return NOT_SUPPORTED;
    }
    const int32_t splits[3] = {0, 4, 1};
    const uint32_t schemes[3] = {0, 1, 0};
    memset(results, 0, 3 * sizeof *results);
    for (int i = 0; i < 3; i++) {
        algorithm chosen{algorithm::MARK, splits[i], schemes[i], {}, shape.m, shape.n, shape.k};
        memcpy(chosen.alignment, wish->alignment, sizeof chosen.alignment);
        memcpy(results[i].algo, &chosen, sizeof chosen);
        results[i].workspace_bytes = WORKSPACE_BYTES;
    }
    *found = 3;
    return SUCCESS;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const algorithm *chosen, int attribute, void *value,
                                                size_t bytes, size_t *written)
{
    MAY_FAIL();
    if (!is(chosen) || bytes != 4) {
        return INVALID_VALUE;
    }
    const uint32_t words[4] = {1, 20, (uint32_t)chosen->splits, chosen->scheme};
    const uint32_t word = attribute == 6 ? 0 : words[attribute & 3];
    memcpy(value, &word, sizeof word);
    *written = sizeof word;
    return attribute >= 0 && (attribute <= 3 || attribute == 6) ? SUCCESS : INVALID_VALUE;
}

EXPORT int cublasLtMatmul(handle *lt, operation *op, const float *alpha, const void *a, layout *a_layout,
                          const void *b, layout *b_layout, const float *beta, const void *c, layout *c_layout,
                          void *d, layout *d_layout, const algorithm *chosen, void *workspace,
                          size_t workspace_bytes, void *stream)
{
    MAY_FAIL();
    product_shape shape;
    if (!is(lt) || !is(op) || !is(a_layout) || !is(b_layout) || !is(c_layout) || !is(d_layout) ||
        !is(chosen) || !find_shape(*op, *a_layout, *b_layout, *d_layout, shape) || c != d ||
        c_layout != d_layout || *alpha != 1.0f || !workspace || workspace_bytes < WORKSPACE_BYTES) {
        return INVALID_VALUE;
    }
    if (chosen->splits != 1 || chosen->scheme != 0 || chosen->m != shape.m || chosen->n != shape.n ||
        chosen->k != shape.k || !is_aligned(a, chosen->alignment[0]) ||
        !is_aligned(b, chosen->alignment[1]) || !is_aligned(d, chosen->alignment[3]) ||
        (op->epilogue == EPILOGUE_BIAS && !op->bias)) {
        return NOT_SUPPORTED;
    }
    const call all = {*op, *a_layout, *b_layout, *d_layout, shape, a, b, d, *beta, workspace};
    return cuda_on_cpu::enqueue_work(stream, [all] { run_call(all); }) == 0 ? SUCCESS : EXECUTION_FAILED;
}
