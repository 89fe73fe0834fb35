// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA's library of matrix products, cuBLASLt, as a table of functions that is loaded when it is
 * needed. Names, arguments and numbers are those of its C interface, versions 12 and 13.
 *
 * The library is the file that LOCKSTEP_CUBLASLT names, else libcublasLt.so.13 or .so.12 of the
 * system's search path, of /usr/local/cuda, or of NVIDIA's wheels for Python. Without it the
 * program uses its own products (compute/cuda/matmul.h).
 */
#ifndef LS_COMPUTE_CUDA_CUBLASLT_H
#define LS_COMPUTE_CUDA_CUBLASLT_H

#include "base/status.h"
#include "compute/cuda/driver.h"

typedef int cublasStatus_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDesc *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayout *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreference *cublasLtMatmulPreference_t;

/* An algorithm with its configuration. Valid for one version of the library. */
typedef struct cublasLtMatmulAlgo_t {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,

    CUBLAS_OP_N = 0,
    CUBLAS_OP_T = 1,

    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,

    CUDA_R_32F = 0,
    CUDA_R_16BF = 14,

    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,

    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,

    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 32 | 128 | 4,
    CUBLASLT_EPILOGUE_DGELU = 64 | 128,

    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,

    CUBLASLT_REDUCTION_SCHEME_NONE = 0,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,

    CUBLASLT_ALGO_CONFIG_ID = 0,
    CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
    CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,

    LS_CUBLASLT_VERSION_MIN = 120000,
};

/* X(function, arguments): the table's field is the name without cublasLt. */
#define LS_CUBLASLT_FUNCTIONS(X)                                                                             \
    X(Create, (cublasLtHandle_t * handle))                                                                   \
    X(Destroy, (cublasLtHandle_t handle))                                                                    \
    X(MatmulDescCreate, (cublasLtMatmulDesc_t * desc, int compute_type, int scale_type))                     \
    X(MatmulDescDestroy, (cublasLtMatmulDesc_t desc))                                                        \
    X(MatmulDescSetAttribute, (cublasLtMatmulDesc_t desc, int attribute, const void *value, size_t bytes))   \
    X(MatrixLayoutCreate,                                                                                    \
      (cublasLtMatrixLayout_t * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))                 \
    X(MatrixLayoutSetAttribute,                                                                              \
      (cublasLtMatrixLayout_t layout, int attribute, const void *value, size_t bytes))                       \
    X(MatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                                  \
    X(MatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))                                     \
    X(MatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                                      \
    X(MatmulPreferenceSetAttribute,                                                                          \
      (cublasLtMatmulPreference_t preference, int attribute, const void *value, size_t bytes))               \
    X(MatmulAlgoGetHeuristic, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, \
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, \
                               cublasLtMatmulPreference_t preference, int asked,                             \
                               cublasLtMatmulHeuristicResult_t *results, int *found))                        \
    X(MatmulAlgoConfigGetAttribute,                                                                          \
      (const cublasLtMatmulAlgo_t *algo, int attribute, void *value, size_t bytes, size_t *written))         \
    X(Matmul,                                                                                                \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,                 \
       cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,    \
       const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,             \
       const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, CUstream stream))

typedef struct ls_cublaslt {
#define LS_CUBLASLT_FIELD(function, arguments) cublasStatus_t(*function) arguments;
    LS_CUBLASLT_FUNCTIONS(LS_CUBLASLT_FIELD)
#undef LS_CUBLASLT_FIELD
    const char *(*GetStatusName)(cublasStatus_t status);
    /* 130100 is version 13.1.0. */
    size_t (*GetVersion)(void);
} ls_cublaslt;

/*
 * Loads the library, once per process; the table lives as long as the process. NULL without an
 * error: the library is not there. LS_CUDA_PRODUCTS=own also gives NULL.
 *
 * Errors: LS_ERR_NOT_FOUND: the file that LOCKSTEP_CUBLASLT names cannot be loaded or is not
 * cuBLASLt 12 or later; LS_ERR_INVALID: LS_CUDA_PRODUCTS is neither own nor cublaslt;
 * LS_ERR_UNSUPPORTED: it is cublaslt, and the library is not there. *blas_out is then unchanged.
 */
LS_MUST_CHECK ls_status ls_cublaslt_load(const ls_cublaslt **blas_out);

#endif
