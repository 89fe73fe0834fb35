// SPDX-License-Identifier: Apache-2.0
/* Ranks for tests: forked processes that find each other and report success by their exit code. */
#ifndef LS_TESTS_COMM_RANKS_H
#define LS_TESTS_COMM_RANKS_H

#include "base/clock.h"
#include "base/file.h"
#include "lockstep/comm.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8 };

/* In a rank: prints the failed condition and its place, and returns 1. */
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s is false (%s)\n", __FILE__, __LINE__, #condition, ls_error_text());   \
            return 1;                                                                                        \
        }                                                                                                    \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == LS_OK)

/* The folder of a test, in which rank 0 serves the store on a socket. A test of a transport without
 * a communicator includes comm_store.h before this file and then has a store in memory too. */
static char meeting_folder[64];

static inline void meeting_open(void)
{
    snprintf(meeting_folder, sizeof meeting_folder, "/tmp/lockstep-test-XXXXXX");
    assert_non_null(mkdtemp(meeting_folder));
#ifdef LS_TESTS_COMM_STORE_H
    test_store_open();
#endif
}

static inline void meeting_close(void)
{
    assert_int_equal(ls_dir_remove(meeting_folder), LS_OK);
#ifdef LS_TESTS_COMM_STORE_H
    test_store_close();
#endif
}

typedef int (*rank_main)(const ls_comm_options *options);

static inline ls_comm_options rank_options(uint32_t rank, uint32_t size)
{
    ls_comm_options options = {.rank = rank,
                               .size = size,
                               .local_rank = rank,
                               .local_size = size,
                               .serve_store = true,
                               .timeout_s = 20};
    snprintf(options.coordinator, sizeof options.coordinator, "unix:%s/store", meeting_folder);
    return options;
}

static inline pid_t start_rank(rank_main run, const ls_comm_options *options)
{
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run(options));
    }
    return pid;
}

/* Exit code, or 128 + the signal. */
static inline int end_rank(pid_t pid)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

/* In a rank: tells the other ranks that it has ended its part. */
static inline bool say_done(uint32_t rank)
{
    char path[128];
    snprintf(path, sizeof path, "%s/done.%u", meeting_folder, rank);
    FILE *file = fopen(path, "w");
    return file && fclose(file) == 0;
}

/* In a rank: waits until `count` ranks have ended their part. Returns false after 20 s. */
static inline bool wait_until_done(uint32_t count)
{
    for (int tries = 0; tries < 20000; tries++) {
        uint32_t done = 0;
        for (uint32_t rank = 0; rank < RANKS_MAX; rank++) {
            char path[128];
            snprintf(path, sizeof path, "%s/done.%u", meeting_folder, rank);
            done += ls_path_exists(path);
        }
        if (done >= count) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* The results of the ranks, which the test reads. */
typedef struct rank_result {
    ls_status status;
    char text[2048];
    uint64_t took_ns;
    _Atomic uint32_t stage;
    pid_t pid;
} rank_result;

static rank_result *results; /* RANKS_MAX of them, shared */

static inline void results_open(void)
{
    results =
        mmap(NULL, RANKS_MAX * sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static inline void results_close(void)
{
    munmap(results, RANKS_MAX * sizeof *results);
}

/* In a rank: notes how a call ended. */
static inline ls_status note_result(uint32_t rank, uint64_t start_ns, ls_status status)
{
    results[rank].took_ns = ls_clock_monotonic_ns() - start_ns;
    results[rank].status = status;
    snprintf(results[rank].text, sizeof results[rank].text, "%s", status == LS_OK ? "" : ls_error_text());
    return status;
}

static inline void run_ranks(uint32_t size, rank_main run)
{
    pid_t pids[RANKS_MAX];
    meeting_open();
    for (uint32_t rank = 0; rank < size; rank++) {
        const ls_comm_options options = rank_options(rank, size);
        pids[rank] = start_rank(run, &options);
    }
    int failed = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        failed += end_rank(pids[rank]) != 0;
    }
    meeting_close();
    assert_int_equal(failed, 0);
}

#endif
