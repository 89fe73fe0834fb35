// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/workers/workers_adopt.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/math.h"
#include "execution/elastic/host/coordinator_log.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/hang/rank_snapshot.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds "/proc/PID/fd/N" of the segment that process `pid` has open. False: none that this user
 * may see. */
static bool find_descriptor(int32_t pid, char path_out[64])
{
    char folder[32], path[64], target[128];
    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(folder);
    bool found = false;
    for (const struct dirent *entry; dir && !found && (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%.20s", folder, entry->d_name);
        const ssize_t bytes = readlink(path, target, sizeof target - 1);
        target[bytes > 0 ? bytes : 0] = '\0';
        if (strncmp(target, "/memfd:lockstep-segment", strlen("/memfd:lockstep-segment")) == 0) {
            snprintf(path_out, 64, "%s", path);
            found = true;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

static bool read_log(const char *run_dir, ls_log_state *state_out)
{
    ls_arena arena = {0};
    enum { LOG_BYTES_MAX = 64 << 20 };
    char *data = NULL;
    size_t bytes = 0;
    const bool there = ls_file_read(&arena, ls_path_join(&arena, run_dir, "coordinator.log"), LOG_BYTES_MAX,
                                    &data, &bytes) == LS_OK;
    if (there) {
        ls_log_read(data, bytes, state_out);
    } else {
        ls_error_clear();
    }
    ls_arena_release(&arena);
    return there;
}

/* The ranks are those that the run would begin with: all of one host, or this host's of several. */
static bool is_as_asked(const ls_workers_left_options *options, const ls_control *control,
                        const ls_log_state *log)
{
    if (options->ranks == 0) {
        return control->local_ranks == control->ranks;
    }
    return control->ranks == options->ranks && control->local_ranks == options->local_ranks &&
           log->cuts.newest.parts > 0;
}

uint64_t ls_workers_most_finished(const ls_control *control)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < control->local_ranks; i++) {
        most = ls_max_u64(most, atomic_load(&control->slots[i].finished));
    }
    return most;
}

/* Nothing was ended or given up, and the results that the trainer lacks are still in the ring. */
static bool can_go_on(const ls_control *control, uint64_t heard)
{
    const uint64_t finished = ls_workers_most_finished(control);
    return heard <= finished && atomic_load(&control->until) <= heard + LS_RANK_RESULTS &&
           control->lease_ns > 0 && atomic_load(&control->until) > 0 && atomic_load(&control->abort) == 0 &&
           atomic_load(&control->quit) == 0 && atomic_load(&control->stop) == 0;
}

bool ls_workers_find_left(const ls_workers_left_options *options, ls_segment *segment_out,
                          ls_log_state **log_out)
{
    ls_log_state *log = calloc(1, sizeof *log);
    bool found = false, is_its = false;
    if (log && read_log(options->run_dir, log) && !log->ended &&
        strcmp(log->run.identity, options->identity) == 0) {
        is_its = true;
        for (uint32_t i = 0; i < log->member_count && !found; i++) {
            char path[64];
            const ls_log_member *member = &log->members[i];
            found = ls_process_look(member->pid, member->start_time) != LS_PROCESS_DEAD &&
                    find_descriptor(member->pid, path) && ls_segment_attach(path, segment_out) == LS_OK;
        }
    }
    ls_error_clear();
    if (found && !(is_as_asked(options, segment_out->control, log) &&
                   can_go_on(segment_out->control, options->heard))) {
        ls_log_info("the ranks that an earlier trainer of this run left running cannot continue; they will "
                    "be stopped");
        ls_control_quit(segment_out->control);
        ls_segment_release(segment_out);
        found = is_its = false;
    }
    if (!is_its) {
        free(log);
        log = NULL;
    }
    *log_out = log;
    return found;
}

/* ---- other hosts ---- */

typedef struct roll_call {
    ls_env *env;
} roll_call;

static void on_returned(void *context)
{
    ls_env_stop(((roll_call *)context)->env, 0);
}

static void on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    (void)status;
    (void)rank;
    ls_log_warn("%s", text);
    on_returned(context);
}

static void ignore_ready(void *context, const ls_preflight_member *hello)
{
    (void)context;
    (void)hello;
}

bool ls_workers_ask_others(const ls_workers_roll *roll, uint64_t *until_out)
{
    roll_call self = {0};
    ls_cluster *cluster = NULL;
    bool can = false;
    if (ls_env_real_create(&self.env) != LS_OK) {
        ls_error_clear();
        return false;
    }
    const ls_cluster_options options = {
        .env = self.env,
        .listen = roll->listen,
        .token = roll->token,
        .segment = roll->segment,
        .run_dir = roll->run_dir,
        .context = &self,
        .ready = ignore_ready,
        .abort = on_abort,
        .lease_ns = roll->node_lease_ns,
        .settings = roll->settings,
        .left = roll->log,
        .is_fresh = true,
        .heard = roll->heard,
        .only_asks = true,
        .returned = on_returned,
    };
    if (ls_cluster_open(&options, &cluster) == LS_OK) {
        ls_env_run(self.env);
        can = ls_cluster_ask_roll(cluster, until_out);
        ls_cluster_close(cluster);
    }
    ls_error_clear();
    ls_env_real_destroy(self.env);
    return can;
}
