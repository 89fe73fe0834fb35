// SPDX-License-Identifier: Apache-2.0
/*
 * Traces: what was submitted to a cluster, when, and how long it ran, read from the files people publish.
 *
 *   own       submit_s,duration_s,gpus and any of: job, account, priority, min_gpus, max_gpus, serial_fraction, limit_s, expected_s, preemptible,
 *             spot, gpus_per_node, level, kind, cpus_per_gpu, memory_gib_per_gpu (LS_TRACE_OWN_COLUMNS says what they mean)
 *   philly    timestamp,duration,num_gpus,gpu_time,cluster: Microsoft's Philly, processed; the virtual cluster is the account
 *   alibaba   name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time: Alibaba's GPU cluster of 2023
 *   pollux    name,time,application,num_replicas,batch_size: workloads of the Pollux simulator; how fast they are comes from its profiles (simulate/pollux.h)
 *
 * The format is known by the columns. Jobs are sorted by submission, those submitted together in the order of the file; the first is submitted at 0.
 * Times are whole milliseconds. Everything lives in the arena. Reads files; otherwise pure.
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
    LS_TRACE_ALIBABA,
    LS_TRACE_POLLUX
} ls_trace_format;
const char *ls_trace_format_name(ls_trace_format format);

enum { LS_TRACE_BYTES_MAX = 1 << 30, LS_TRACE_JOBS_MAX = 10 * 1000 * 1000, LS_TRACE_GPUS_MAX = 1 << 20 };
#define LS_TRACE_SECONDS_MAX 1e10

/* How long a whole job takes by number of devices and of nodes they are on. */
typedef struct ls_speed {
    uint32_t gpus_most, nodes_most;
    const uint64_t *run_ms; /* (gpus_most, nodes_most); 0: can't run so */
} ls_speed;

typedef struct ls_trace_job {
    const char *name;
    uint64_t submit_ms;                /* after the first submission of the trace */
    uint64_t run_ms;                   /* on `gpus` devices, as near as they can be; > 0 */
    uint32_t gpus, min_gpus, max_gpus; /* min <= gpus <= max; equal: not elastic */
    double
        serial_fraction; /* of the work on one device that more devices don't speed up, [0, 1]; where `speed` is NULL */
    const ls_speed *speed; /* NULL: by serial_fraction, wherever the devices are */
    uint32_t account;      /* index into accounts */
    uint8_t priority;      /* 0 low, 1 normal, 2 high */
    bool preemptible, spot;
    uint64_t limit_ms, expected_ms; /* 0: none, not known */
    uint32_t gpus_per_node;         /* 0: any */
    ls_level required;              /* all within one such; LS_LEVEL_CLUSTER: anywhere */
    const char *kind;               /* of device; "": any */
    uint32_t cpus_per_gpu, memory_mib_per_gpu;
} ls_trace_job;

typedef struct ls_trace {
    const char *name;
    ls_trace_format format;
    ls_trace_job *jobs;
    size_t job_count;
    const char **accounts;
    uint32_t account_count;
    size_t left_out;          /* rows that are no jobs to place */
    const char *left_out_why; /* "ask for no GPU or never ran"; NULL: none are */
} ls_trace;

/*
 * Reads a trace. `profiles`: the folder of Pollux' profiles; NULL: `profiles` beside the file or beside its folder.
 * Errors: LS_ERR_NOT_FOUND, LS_ERR_IO, LS_ERR_DATA (columns of no known format, or not of the one asked for; a bad value, named with its line; no job at all).
 */
LS_MUST_CHECK ls_status ls_trace_load(ls_arena *arena, const char *path, ls_trace_format format,
                                      const char *profiles, ls_trace *trace_out);

/* The same from text; `name` stands for the file in errors. A pollux trace needs `profiles`. */
LS_MUST_CHECK ls_status ls_trace_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                       ls_trace_format format, const char *profiles, ls_trace *trace_out);

/* The columns of the own format, a line each, for --help. */
#define LS_TRACE_OWN_COLUMNS                                                                                 \
    "  submit_s            when it was submitted, seconds from any point\n"                                  \
    "  duration_s          how long it ran on `gpus`\n"                                                      \
    "  gpus                devices it asks for\n"                                                            \
    "  job                 its name; blank: its place in the file\n"                                         \
    "  account             who pays; blank: default\n"                                                       \
    "  priority            low, normal or high; blank: normal\n"                                             \
    "  min_gpus, max_gpus  what an elastic job can run on; blank: gpus\n"                                    \
    "  serial_fraction     of the work on one device that more of them don't speed up, 0 to 1; blank: 0\n"   \
    "  limit_s             its time limit; blank: none\n"                                                    \
    "  expected_s          how long it is predicted to run; blank: not known\n"                              \
    "  preemptible, spot   0 or 1; blank: 1, and 0\n"                                                        \
    "  gpus_per_node       exactly so many on each node; blank: any\n"                                       \
    "  level               all within one island, node, leaf or spine; blank: anywhere\n"                    \
    "  kind                of device; blank: any\n"                                                          \
    "  cpus_per_gpu, memory_gib_per_gpu  held with each device; blank: 0\n"

/*
 * How long the whole job takes on `gpus` devices of `nodes` nodes, milliseconds, at least 1; without a speed table
 *   run_ms * (s + (1 - s) / gpus) / (s + (1 - s) / job->gpus),   s: serial_fraction    (Amdahl)
 */
uint64_t ls_trace_job_run_ms(const ls_trace_job *job, uint32_t gpus, uint32_t nodes);

#endif
