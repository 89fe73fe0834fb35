// SPDX-License-Identifier: Apache-2.0
/* doctor: what this machine has for training, and what is missing. */
#include "cli/command.h"
#include "compute/queue.h"
#include "execution/train/memory.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct doctor_settings {
    bool json;
} doctor_settings;

static const ls_option doctor_options[] = {
    LS_ROW_BOOL(doctor_settings, json, "print the result as one JSON document"),
};

static json_t *examine_cpu(const ls_queue *queue)
{
    const uint64_t memory = ls_memory_available();
    return json_pack("{s:s, s:s, s:o}", "name", ls_queue_device_name(queue), "determinism",
                     ls_queue_determinism_class(queue), "memory_bytes",
                     memory == UINT64_MAX ? json_null() : json_integer((json_int_t)memory));
}

/* A GPU that runs can use, or why there is none. */
static json_t *examine_gpu(void)
{
    ls_queue *queue = NULL;
    if (ls_queue_create_cuda(&(ls_cuda_options){0}, &queue) != LS_OK) {
        json_t *none = json_pack("{s:b, s:s}", "usable", 0, "reason", ls_error_text());
        ls_error_clear();
        return none;
    }
    json_t *gpu = json_pack("{s:b, s:s, s:s, s:I, s:f}", "usable", 1, "name", ls_queue_device_name(queue),
                            "determinism", ls_queue_determinism_class(queue), "memory_free_bytes",
                            (json_int_t)ls_queue_free_memory(queue), "bf16_peak_flops",
                            ls_queue_gemm_peak_flops(queue, LS_BF16));
    ls_queue_destroy(queue);
    return gpu;
}

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void print_findings(const json_t *cpu, const json_t *gpu)
{
    char size[32];
    printf("CPU     %s, determinism class %s\n", string_of(cpu, "name"), string_of(cpu, "determinism"));
    if (json_is_integer(json_object_get(cpu, "memory_bytes"))) {
        const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(cpu, "memory_bytes"));
        printf("memory  %s available\n", ls_memory_text(bytes, size));
    }
    if (json_is_true(json_object_get(gpu, "usable"))) {
        const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(gpu, "memory_free_bytes"));
        printf("GPU     %s, determinism class %s\n", string_of(gpu, "name"), string_of(gpu, "determinism"));
        printf("        %s of memory free, %.0f TFLOP/s in bf16 by its data sheet\n",
               ls_memory_text(bytes, size), json_real_value(json_object_get(gpu, "bf16_peak_flops")) * 1e-12);
    } else {
        printf("GPU     none that training can use: %s\n", string_of(gpu, "reason"));
    }
}

static ls_status run_doctor(const ls_invocation *invocation)
{
    const doctor_settings *settings = invocation->settings;
    ls_queue *queue = NULL;
    LS_TRY(ls_queue_create_cpu(1, &queue));
    json_t *cpu = examine_cpu(queue), *gpu = examine_gpu();
    ls_queue_destroy(queue);
    if (settings->json) {
        json_t *root = json_pack("{s:s, s:O, s:O}", "version", LS_VERSION, "cpu", cpu, "gpu", gpu);
        ls_print_json(root);
        json_decref(root);
    } else {
        print_findings(cpu, gpu);
    }
    json_decref(cpu);
    json_decref(gpu);
    return LS_OK;
}

const ls_command ls_command_doctor = {
    .name = "doctor",
    .words = "",
    .summary = "say what this machine has for training, and why a GPU cannot be used",
    .details = "Shows the processor, the memory and the first GPU as runs see them. If no GPU can be\n"
               "used, the reason is shown: no driver, a card that is too old, or a program that was\n"
               "built without the CUDA toolkit.\n"
               "\n"
               "Examples:\n"
               "  lockstep doctor\n"
               "  lockstep doctor --json",
    LS_SETTINGS(doctor_settings, doctor_options),
    .run = run_doctor,
};
