// SPDX-License-Identifier: Apache-2.0
/* Ranks for tests: forked processes that find each other and say by their exit code whether all went well. */
#ifndef LS_TESTS_COMM_RANKS_H
#define LS_TESTS_COMM_RANKS_H

#include "comm_store.h"

#include "lockstep/comm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8 };

/* In a rank: says what is wrong and where, and ends the function with 1. */
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s is false (%s)\n", __FILE__, __LINE__, #condition, ls_error_text());   \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == LS_OK)

typedef int (*rank_main)(const ls_comm_options *options);

static ls_comm_options rank_options(uint32_t rank, uint32_t size)
{
    return (ls_comm_options){.rank = rank,
                             .size = size,
                             .local_rank = rank,
                             .local_size = size,
                             .coordinator = "test",
                             .timeout_s = 20};
}

static pid_t start_rank(rank_main run, const ls_comm_options *options)
{
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run(options));
    }
    return pid;
}

/* Exit code, or 128 + the signal. */
static int end_rank(pid_t pid)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static void run_ranks(uint32_t size, rank_main run)
{
    pid_t pids[RANKS_MAX];
    test_store_open();
    for (uint32_t rank = 0; rank < size; rank++) {
        const ls_comm_options options = rank_options(rank, size);
        pids[rank] = start_rank(run, &options);
    }
    int failed = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        failed += end_rank(pids[rank]) != 0;
    }
    test_store_close();
    assert_int_equal(failed, 0);
}

#endif
