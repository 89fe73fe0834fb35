// SPDX-License-Identifier: Apache-2.0
/*
 * Traces: what was submitted to a cluster, when, and how long it ran, read from published files.
 *
 *   own      submit_s,duration_s,gpus and any of: job, account, priority, min_gpus, max_gpus,
 *            serial_fraction, limit_s, expected_s, preemptible, spot, gpus_per_node, level, kind,
 *            cpus_per_gpu, memory_gib_per_gpu (see LS_TRACE_OWN_COLUMNS)
 *   philly   timestamp,duration,num_gpus,gpu_time,cluster: Microsoft's Philly, processed; the
 *            virtual cluster is the account
 *   alibaba  name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,
 *            deletion_time,scheduled_time: Alibaba's GPU cluster of 2023
 *
 * The format is recognised by its columns. Jobs are sorted by submission, equal times in the order
 * of the file; the first is submitted at 0. Times are whole milliseconds. Everything lives in the
 * arena. Reads files; otherwise pure.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_TRACE_H
#define LS_ORCHESTRATION_SIMULATE_TRACE_H

#include "base/arena.h"
#include "base/csv.h"
#include "orchestration/policy/topology.h"

typedef enum ls_trace_format {
    LS_TRACE_AUTO,
    LS_TRACE_OWN,
    LS_TRACE_PHILLY,
    LS_TRACE_ALIBABA
} ls_trace_format;
const char *ls_trace_format_name(ls_trace_format format);

enum { LS_TRACE_BYTES_MAX = 1 << 30, LS_TRACE_JOBS_MAX = 10 * 1000 * 1000, LS_TRACE_GPUS_MAX = 1 << 20 };
#define LS_TRACE_SECONDS_MAX 1e10

/* How long a whole job takes, by number of devices and of nodes. A caller may attach such a table
 * to the jobs of a trace (bench/bench_pollux.c); no format has one. */
typedef struct ls_speed {
    uint32_t gpus_most, nodes_most;
    const uint64_t *run_ms; /* (gpus_most, nodes_most); 0: can't run like that */
} ls_speed;

typedef struct ls_trace_job {
    const char *name;
    uint64_t submit_ms;                /* since the first submission of the trace */
    uint64_t run_ms;                   /* on `gpus` devices, placed as close as possible; > 0 */
    uint32_t gpus, min_gpus, max_gpus; /* min <= gpus <= max; equal: not elastic */
    /* the part of the work on one device that more devices do not speed up, 0..1; used where
     * `speed` is NULL */
    double serial_fraction;
    const ls_speed *speed; /* NULL: by serial_fraction, wherever the devices are */
    uint32_t account;      /* index into accounts */
    uint8_t priority;      /* 0 low, 1 normal, 2 high */
    bool preemptible, spot;
    uint64_t limit_ms, expected_ms; /* 0: none; 0: not known */
    uint32_t gpus_per_node;         /* 0: any */
    /* all devices within one of these; LS_LEVEL_CLUSTER: anywhere */
    ls_level required;
    const char *kind; /* of device; "": any */
    uint32_t cpus_per_gpu, memory_mib_per_gpu;
} ls_trace_job;

typedef struct ls_trace {
    const char *name;
    ls_trace_format format;
    ls_trace_job *jobs;
    size_t job_count;
    const char **accounts;
    uint32_t account_count;
    size_t left_out;          /* rows that are not jobs to place */
    const char *left_out_why; /* "ask for no GPU or never ran"; NULL: no row was left out */
} ls_trace;

/*
 * Reads a trace. Errors: LS_ERR_NOT_FOUND, LS_ERR_IO, LS_ERR_DATA (the columns are of no known
 * format, or not of the one asked for; a bad value, named with its line; the file holds no job).
 */
LS_MUST_CHECK ls_status ls_trace_load(ls_arena *arena, const char *path, ls_trace_format format,
                                      ls_trace *trace_out);

/* The same from text; `name` stands for the file in errors. */
LS_MUST_CHECK ls_status ls_trace_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                       ls_trace_format format, ls_trace *trace_out);

/* The columns of the own format, one line each, for --help. */
#define LS_TRACE_OWN_COLUMNS                                                                                 \
    "  submit_s            when it was submitted, seconds from any point\n"                                  \
    "  duration_s          how long it ran on `gpus` devices\n"                                              \
    "  gpus                number of devices it asks for\n"                                                  \
    "  job                 name of the job; blank: its row in the file\n"                                    \
    "  account             account that is charged; blank: default\n"                                        \
    "  priority            low, normal or high; blank: normal\n"                                             \
    "  min_gpus, max_gpus  smallest and largest size of an elastic job; blank: gpus\n"                       \
    "  serial_fraction     part of the work that more devices don't speed up, 0 to 1; blank: 0\n"            \
    "  limit_s             time limit; blank: none\n"                                                        \
    "  expected_s          predicted run time; blank: not known\n"                                           \
    "  preemptible, spot   may it be stopped, may it use spot nodes: 0 or 1; blank: 1 and 0\n"               \
    "  gpus_per_node       exactly this many on each node; blank: any number\n"                              \
    "  level               keep it within one island, node, leaf or spine; blank: anywhere\n"                \
    "  kind                kind of device; blank: any\n"                                                     \
    "  cpus_per_gpu, memory_gib_per_gpu  cores and memory per device; blank: 0\n"

/*
 * How long the whole job takes on `gpus` devices of `nodes` nodes, in milliseconds, at least 1.
 * Without a speed table it follows Amdahl's law, with s = serial_fraction:
 *   run_ms * (s + (1 - s) / gpus) / (s + (1 - s) / job->gpus)
 */
uint64_t ls_trace_job_run_ms(const ls_trace_job *job, uint32_t gpus, uint32_t nodes);

#endif
