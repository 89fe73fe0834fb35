// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce between ranks that only a network joins (bench/netns_allreduce.sh starts them):
 *
 *   LOCKSTEP_RANK=0 LOCKSTEP_SIZE=4 LOCKSTEP_COORDINATOR=HOST:PORT LOCKSTEP_TOKEN=HEX
 *   bench_comm_net [options] [BYTES...]
 *
 *   --any-order      the ring instead of the tree's order
 *   --sockets N      per peer
 *   --serve          rank 0 serves the store at LOCKSTEP_COORDINATOR
 *   --mbps LINK      payload of the link in MB/s: prints the share of 2 (N - 1) / N * bytes / link
 *                    that was reached
 *   --seconds S      per size (default 1)
 *   --timeout S      of each call
 *
 * Float32 sums in place. Rank 0 prints, per size, the median over batches of the time of one call.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "lockstep/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 7, SIZES_MAX = 16 };

typedef struct settings {
    double link_bytes_ps, seconds;
    uint64_t sizes[SIZES_MAX];
    int size_count;
} settings;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ls_status batch(ls_comm *comm, float *data, uint64_t count, uint32_t calls, double *call_s_out)
{
    LS_TRY(ls_comm_barrier(comm, NULL));
    const double begin_s = ls_clock_monotonic_s();
    for (uint32_t i = 0; i < calls; i++) {
        LS_TRY(ls_comm_all_reduce(comm, data, data, count, LS_F32, LS_COMM_SUM, NULL));
    }
    *call_s_out = (ls_clock_monotonic_s() - begin_s) / calls;
    return LS_OK;
}

/* How many calls fill a batch, as rank 0 sees it. */
static ls_status choose_calls(ls_comm *comm, float *data, uint64_t count, double seconds, uint32_t *calls_out)
{
    double call_s = 1;
    LS_TRY(batch(comm, data, count, 2, &call_s));
    LS_TRY(batch(comm, data, count, 3, &call_s));
    const double wanted = seconds / BATCHES / call_s;
    int32_t calls = wanted < 1 ? 1 : wanted > 100000 ? 100000 : (int32_t)wanted;
    LS_TRY(ls_comm_broadcast(comm, &calls, 1, LS_I32, 0, NULL));
    *calls_out = (uint32_t)calls;
    return LS_OK;
}

static ls_status measure(ls_comm *comm, const settings *s, uint64_t bytes)
{
    const uint64_t count = bytes / 4;
    const uint32_t ranks = ls_comm_size(comm);
    double times[BATCHES];
    uint32_t calls = 1;
    float *data = ls_comm_alloc(comm, bytes);
    if (!data) {
        return LS_ERR_MEMORY;
    }
    ls_status status = choose_calls(comm, data, count, s->seconds, &calls);
    for (int i = 0; i < BATCHES && status == LS_OK; i++) {
        status = batch(comm, data, count, calls, &times[i]);
    }
    qsort(times, BATCHES, sizeof *times, compare);
    if (status == LS_OK && ls_comm_rank(comm) == 0) {
        const double median_s = times[BATCHES / 2];
        printf("%10llu bytes  %10.1f us  (%.1f to %.1f, %u calls)", (unsigned long long)bytes, 1e6 * median_s,
               1e6 * times[0], 1e6 * times[BATCHES - 1], calls);
        if (s->link_bytes_ps > 0) {
            printf("  %5.1f %% of the link",
                   100 * 2.0 * (ranks - 1) / ranks * (double)bytes / s->link_bytes_ps / median_s);
        }
        printf("\n");
        fflush(stdout);
    }
    ls_comm_free(comm, data);
    return status;
}

static void read_arguments(int argc, char **argv, ls_comm_options *options, settings *s)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--any-order") == 0) {
            options->flags |= LS_COMM_ANY_ORDER;
        } else if (strcmp(argv[i], "--serve") == 0) {
            options->serve_store = true;
        } else if (strcmp(argv[i], "--no-shm") == 0) {
            options->flags |= LS_COMM_NO_SHM;
        } else if (i + 1 < argc && strcmp(argv[i], "--sockets") == 0) {
            options->sockets_per_peer = (uint32_t)strtoul(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--mbps") == 0) {
            s->link_bytes_ps = 1e6 * strtod(argv[++i], NULL);
        } else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0) {
            s->seconds = strtod(argv[++i], NULL);
        } else if (i + 1 < argc && strcmp(argv[i], "--timeout") == 0) {
            options->timeout_s = strtod(argv[++i], NULL);
        } else if (s->size_count < SIZES_MAX) {
            s->sizes[s->size_count++] = strtoull(argv[i], NULL, 10);
        }
    }
}

int main(int argc, char **argv)
{
    ls_comm_options options;
    ls_comm *comm = NULL;
    settings s = {.seconds = 1};
    ls_status status = ls_comm_options_from_environment(&options);
    if (status == LS_OK) {
        read_arguments(argc, argv, &options, &s);
        status = ls_comm_open(&options, &comm);
    }
    if (s.size_count == 0) {
        const uint64_t sizes[] = {1024, 16384, 262144, 1048576, 4194304, 16777216};
        s.size_count = sizeof sizes / sizeof sizes[0];
        memcpy(s.sizes, sizes, sizeof sizes);
    }
    for (int i = 0; i < s.size_count && status == LS_OK; i++) {
        status = measure(comm, &s, s.sizes[i]);
    }
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
    }
    ls_comm_close(comm);
    return ls_status_exit_code(status);
}
