// SPDX-License-Identifier: Apache-2.0
/*
 * Sums a vector over several processes. An example of a program of your own that uses Lockstep's
 * collectives and nothing else.
 *
 * Build: with this tree (target example_allreduce), or in a project of your own
 *
 *   add_subdirectory(lockstep EXCLUDE_FROM_ALL)
 *   target_link_libraries(your_program PRIVATE lockstep_comm)
 *
 * or with the installed library
 *
 *   gcc allreduce.c $(pkg-config --cflags --libs --static lockstep-comm)
 *
 * Run: with torchrun, mpirun, srun or any launcher that sets the same variables; or by hand, one
 * process per rank:
 *
 *   export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400
 *   RANK=0 ./example_allreduce & RANK=1 ./example_allreduce; wait
 *
 * To see what happens when ranks disagree (many libraries hang), let rank 1 call something else:
 *
 *   RANK=0 ./example_allreduce --wrong 1 & RANK=1 ./example_allreduce --wrong 1; wait
 */
#include "lockstep/comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000000, STEPS = 10 };

/* Every element is rank + 1 on each rank, so the sum is size (size + 1) / 2. */
static ls_status sum_and_check(ls_comm *comm, float *x)
{
    const float size = (float)ls_comm_size(comm), expected = size * (size + 1.0f) / 2.0f;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            x[i] = (float)ls_comm_rank(comm) + 1.0f;
        }
        LS_TRY(ls_comm_all_reduce(comm, x, x, COUNT, LS_F32, LS_COMM_SUM, NULL));
        for (int i = 0; i < COUNT; i++) {
            if (x[i] != expected) {
                return ls_fail(LS_ERR_FAILED, "element %d is %g, expected was %g", i, (double)x[i],
                               (double)expected);
            }
        }
    }
    printf("rank %" PRIu32 " of %" PRIu32 " on host %" PRIu32 ": %d sums of %d elements are %g\n",
           ls_comm_rank(comm), ls_comm_size(comm), ls_comm_host(comm, ls_comm_rank(comm)), (int)STEPS,
           (int)COUNT, (double)expected);
    return LS_OK;
}

static ls_status run(const ls_comm_options *options, uint32_t wrong_rank)
{
    ls_comm *comm = NULL;
    /* The library itself prints nothing. */
    if (options->size > 1) {
        fprintf(stderr, "rank %" PRIu32 " of %" PRIu32 ": meeting the others at %s, %.0f s at most\n",
                options->rank, options->size, options->coordinator, options->timeout_s);
    }
    LS_TRY(ls_comm_open(options, &comm));
    /* Memory that the other ranks of this host read without a copy. */
    float *x = ls_comm_alloc(comm, COUNT * sizeof *x);
    ls_status status = x ? sum_and_check(comm, x) : LS_ERR_MEMORY;
    if (status == LS_OK && wrong_rank < ls_comm_size(comm)) {
        status = ls_comm_rank(comm) == wrong_rank
                     ? ls_comm_broadcast(comm, x, COUNT, LS_F32, 0, NULL)
                     : ls_comm_all_reduce(comm, x, x, COUNT, LS_F32, LS_COMM_SUM, NULL);
    }
    if (status == LS_OK) {
        status = ls_comm_barrier(comm, NULL);
    }
    ls_comm_close(comm);
    return status;
}

int main(int argc, char **argv)
{
    ls_comm_options options;
    uint32_t wrong_rank = UINT32_MAX;
    if (argc == 3 && strcmp(argv[1], "--wrong") == 0) {
        wrong_rank = (uint32_t)strtoul(argv[2], NULL, 10);
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [--wrong RANK]\n", argv[0]);
        return 2;
    }
    ls_status status = ls_comm_options_from_environment(&options);
    if (status == LS_OK) {
        options.timeout_s = 30.0;
        status = run(&options, wrong_rank);
    }
    if (status != LS_OK) {
        fprintf(stderr, "rank %s: %s\n", getenv("RANK") ? getenv("RANK") : "?", ls_error_text());
    }
    return ls_status_exit_code(status);
}
