// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/elementwise.h"

static bool is_on_the_processor(void)
{
    return getenv("LOCKSTEP_CUDA_DRIVER") != NULL;
}

static void queue_names_its_device(void **state)
{
    (void)state;
    ls_queue *queue = cuda_queue();
    assert_int_equal(ls_queue_device(queue), LS_DEVICE_CUDA);
    assert_non_null(strstr(ls_queue_device_name(queue), ", sm_"));
    assert_non_null(strstr(ls_queue_device_name(queue), ", driver "));
    assert_int_equal(strncmp(ls_queue_determinism_class(queue), "cuda-sm", 7), 0);
    print_message("%s, class %s\n", ls_queue_device_name(queue), ls_queue_determinism_class(queue));
}

static void queue_refuses_a_device_that_is_not_there(void **state)
{
    (void)state;
    (void)cuda_queue();
    ls_queue *queue = NULL;
    assert_int_equal(ls_queue_create_cuda(&(ls_cuda_options){.device = 63}, &queue), LS_ERR_DEVICE);
    assert_non_null(strstr(ls_error_text(), "no GPU 63"));
    assert_null(queue);
}

static void memory_begins_as_zeros(void **state)
{
    (void)state;
    ls_queue *queue = cuda_queue();
    const size_t sizes[] = {0, 1, 255, 4096, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *device = NULL;
        unsigned char *shared = cuda_shared(sizes[i] + 1);
        memset(shared, 7, sizes[i] + 1);
        CUDA_OK(ls_device_alloc(queue, sizes[i], &device));
        assert_int_equal((uintptr_t)device % 256, 0);
        CUDA_OK(ls_queue_move(queue, shared, device, sizes[i]));
        CUDA_OK(ls_queue_wait(queue));
        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(shared[j], 0);
        }
        assert_int_equal(shared[sizes[i]], 7);
        ls_device_free(queue, device, sizes[i]);
        ls_shared_free(queue, shared, sizes[i] + 1);
    }
    ls_device_free(queue, NULL, 0);
    ls_shared_free(queue, NULL, 0);
}

static void memory_moves_between_all_places(void **state)
{
    (void)state;
    enum { COUNT = 10007 };
    ls_queue *queue = cuda_queue();
    unsigned char *host = malloc(COUNT), *back = calloc(1, COUNT), *shared = cuda_shared(COUNT);
    void *first = NULL, *second = NULL;
    CUDA_OK(ls_device_alloc(queue, COUNT, &first));
    CUDA_OK(ls_device_alloc(queue, COUNT, &second));
    for (size_t i = 0; i < COUNT; i++) {
        host[i] = (unsigned char)(i * 37 >> 3);
    }
    CUDA_OK(ls_queue_move(queue, first, host, COUNT));
    CUDA_OK(ls_queue_move(queue, second, first, COUNT));
    CUDA_OK(ls_queue_move(queue, shared, second, COUNT));
    CUDA_OK(ls_queue_move(queue, back, shared, COUNT));
    CUDA_OK(ls_queue_wait(queue));
    assert_memory_equal(host, back, COUNT);
    ls_device_free(queue, first, COUNT);
    ls_device_free(queue, second, COUNT);
    ls_shared_free(queue, shared, COUNT);
    free(host);
    free(back);
}

static void fill_writes_rows_and_nothing_else(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        const ls_dtype dtype = seed % 2 ? LS_BF16 : LS_F32;
        const int64_t rows = cuda_between(seed, 1, 1, 60), cols = cuda_between(seed, 2, 1, 700);
        cuda_matrix m = cuda_matrix_make(dtype, rows, cols, seed % 4 < 2 ? 0 : 5, seed, 0.0);
        CUDA_OK(ls_fill(cuda_queue(), &m.t, 0.3f));
        cuda_matrix_read(&m);
        for (int64_t i = 0; i < rows * cols; i++) {
            assert_true(m.x[i] == cuda_rounded(dtype, (double)0.3f));
        }
        cuda_matrix_free(&m);
    }
}

/* Everything that a program does with a queue, once. */
static ls_status use_a_queue(void)
{
    ls_queue *queue = NULL;
    void *device = NULL, *shared = NULL;
    ls_status status = ls_queue_create_cuda(&(ls_cuda_options){.device = 0}, &queue);
    if (status != LS_OK) {
        return status;
    }
    LS_TRY_GOTO(status, ls_device_alloc(queue, 4000, &device), end);
    LS_TRY_GOTO(status, ls_shared_alloc(queue, 4000, &shared), end);
    const ls_tensor x = ls_tensor_f32(device, 10, 100);
    LS_TRY_GOTO(status, ls_fill(queue, &x, 2.0f), end);
    LS_TRY_GOTO(status, ls_queue_move(queue, shared, device, 4000), end);
    status = ls_queue_wait(queue);
end:
    ls_device_free(queue, device, 4000);
    ls_shared_free(queue, shared, 4000);
    ls_queue_destroy(queue);
    return status;
}

/* Calls that undo something report nothing, and neither do those that only describe an error. */
static void every_failure_of_the_driver_is_returned(void **state)
{
    (void)state;
    if (!is_on_the_processor()) {
        skip();
    }
    (void)cuda_queue();
    assert_int_equal(use_a_queue(), LS_OK);
    const int codes[] = {1, 2, 214, 700, 719};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        bool has_ended = false;
        int failures = 0;
        for (int k = 1; !has_ended; k++) {
            char failure[32];
            snprintf(failure, sizeof failure, "any:%d:%d", k, codes[i]);
            setenv("LS_CUDA_FAIL", failure, 1);
            const ls_status status = use_a_queue();
            if (status == LS_OK) {
                has_ended = true;
            } else {
                /* The library of products says in its own words what its driver failed at. */
                const bool is_memory = codes[i] == 2;
                const bool is_named =
                    strstr(ls_error_text(), is_memory ? "not enough memory" : "CUDA_ERROR_");
                const bool is_as_wanted = is_named && status == (is_memory ? LS_ERR_MEMORY : LS_ERR_DEVICE);
                if (!is_as_wanted && !strstr(ls_error_text(), "ublas")) {
                    fail_msg("call %d, error %d: %s: %s", k, codes[i], ls_status_name(status),
                             ls_error_text());
                }
                failures++;
            }
        }
        assert_true(failures >= 10);
        unsetenv("LS_CUDA_FAIL");
        assert_int_equal(use_a_queue(), LS_OK);
    }
}

static void a_lost_device_stays_lost_until_the_end(void **state)
{
    (void)state;
    if (!is_on_the_processor()) {
        skip();
    }
    ls_queue *queue = NULL;
    CUDA_OK(ls_queue_create_cuda(&(ls_cuda_options){.device = 0}, &queue));
    setenv("LS_CUDA_FAIL", "cuStreamSynchronize:1:719", 1);
    assert_int_equal(ls_queue_wait(queue), LS_ERR_DEVICE);
    assert_non_null(strstr(ls_error_text(), "CUDA_ERROR_LAUNCH_FAILED"));
    assert_int_equal(ls_queue_wait(queue), LS_ERR_DEVICE);
    unsetenv("LS_CUDA_FAIL");
    assert_int_equal(ls_queue_wait(queue), LS_ERR_DEVICE);
    ls_queue_destroy(queue);
}

static void too_much_memory_is_an_error_with_advice(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(ls_device_alloc(cuda_queue(), (size_t)1 << 45, &memory), LS_ERR_MEMORY);
    assert_non_null(strstr(ls_error_text(), "MiB are free"));
    assert_null(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_names_its_device),
        cmocka_unit_test(queue_refuses_a_device_that_is_not_there),
        cmocka_unit_test(memory_begins_as_zeros),
        cmocka_unit_test(memory_moves_between_all_places),
        cmocka_unit_test(fill_writes_rows_and_nothing_else),
        cmocka_unit_test(every_failure_of_the_driver_is_returned),
        cmocka_unit_test(a_lost_device_stays_lost_until_the_end),
        cmocka_unit_test(too_much_memory_is_an_error_with_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
