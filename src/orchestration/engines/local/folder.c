// SPDX-License-Identifier: Apache-2.0
/* What is written before a start: folder, run file, ticket. */
#include "orchestration/engines/local/local_internal.h"

#include "orchestration/engines/job_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ls_local_path ls_local_folder(const char *home, uint64_t job)
{
    ls_local_path path;
    snprintf(path.text, sizeof path.text, "%s/jobs/%" PRIu64, home, job);
    return path;
}

uint64_t ls_local_devices(const ls_job *job)
{
    return job->share_count > 0 ? job->shares[0].devices : 0;
}

static void append(json_t *words, const char *word)
{
    json_t *string = json_string(word);
    json_array_append_new(words, string ? string : json_string(""));
}

static json_t *strings(const ls_option_strings *list)
{
    json_t *words = json_array();
    for (uint64_t i = 0; i < list->count; i++) {
        append(words, list->items[i]);
    }
    return words;
}

static json_t *train_words(const char *program, const char *folder, const ls_local_machine *machine,
                           const ls_job *job)
{
    char text[LS_LOCAL_PATH_BYTES + 160];
    json_t *words = json_array();
    append(words, program);
    append(words, "train");
    snprintf(text, sizeof text, "%s/run.yaml", folder);
    append(words, text);
    append(words, "--run-dir");
    append(words, job->run_dir);
    append(words, "--ranks");
    snprintf(text, sizeof text, "%u", job->ranks_now);
    append(words, text);
    /* a device stands for its part of the cores; other jobs use the rest */
    if (!machine->has_gpus) {
        append(words, "--threads");
        snprintf(text, sizeof text, "%u",
                 ls_job_rank_threads(job, machine->node.cpus, machine->node.devices));
        append(words, text);
    }
    if (job->stop_step > 0) {
        append(words, "--steps");
        snprintf(text, sizeof text, "%" PRIu64, job->stop_step);
        append(words, text);
    }
    for (uint64_t i = 0; i < job->spec.set.count; i++) {
        append(words, "--set");
        append(words, job->spec.set.items[i]);
    }
    snprintf(text, sizeof text, "name=%s", job->spec.name); /* the run file has another name here */
    append(words, "--set");
    append(words, text);
    return words;
}

static json_t *device_numbers(const ls_local_machine *machine, const ls_job *job)
{
    json_t *numbers = json_array();
    for (uint32_t i = 0; i < job->share_count; i++) {
        const uint32_t first = ls_engine_place_first(machine->node.devices, job->shares[i].node);
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (job->shares[i].devices >> bit & 1) {
                json_array_append_new(numbers, json_integer(first + bit));
            }
        }
    }
    return numbers;
}

/* What is left of the time limit, which holds for all starts together; 0: no limit. */
static double limit_left_s(const ls_job *job)
{
    const double left_s = job->spec.time_limit_s - job->run_s;
    return job->spec.time_limit_s <= 0.0 ? 0.0 : left_s > 1.0 ? left_s : 1.0;
}

/* How long its devices may run until it has cost job.max_cost; 0: no cap. An elastic run, whose
 * number of devices changes, keeps its cap itself. */
static double cap_left_s(const ls_job *job)
{
    const double usd_ps = ls_job_price_usd(job) / 3600.0 * job->ranks_now;
    const double left_usd = job->spec.max_cost_usd - ls_job_spent_usd(job);
    const bool is_elastic = job->spec.min_ranks < job->spec.max_ranks;
    return job->spec.max_cost_usd <= 0.0 || usd_ps <= 0.0 || is_elastic ? 0.0 : fmax(0.01, left_usd / usd_ps);
}

/* What the runner enforces, also while no daemon runs: the earlier of both limits. */
static double runner_limit_s(const ls_job *job)
{
    const double time_s = limit_left_s(job), cap_s = cap_left_s(job);
    return time_s > 0.0 && cap_s > 0.0 ? fmin(time_s, cap_s) : fmax(time_s, cap_s);
}

ls_status ls_local_folder_write(const ls_local_settings *settings, const ls_local_machine *machine,
                                const ls_job *job)
{
    const ls_local_path folder = ls_local_folder(settings->home, job->id);
    const bool trains = job->spec.command.count == 0;
    char run_file[LS_LOCAL_PATH_BYTES + 16], alerts[LS_LOCAL_PATH_BYTES + 16];
    snprintf(alerts, sizeof alerts, "%s/" LS_LOCAL_ALERTS, folder.text);
    unlink(alerts); /* of an earlier start */
    snprintf(run_file, sizeof run_file, "%s/run.yaml", folder.text);
    LS_TRY(ls_job_folder_make(folder.text, job->uid, job->gid));
    LS_TRY(ls_job_file_write(run_file, job->spec.file, strlen(job->spec.file), job->uid, job->gid));
    json_t *ticket = json_pack(
        "{s:I, s:i, s:s, s:o, s:i, s:o, s:b, s:f, s:f, s:o, s:b, s:i, s:i, s:I, s:s, s:o, s:f, s:f, s:s, "
        "s:f, s:f}",
        "job", (json_int_t)job->id, "epoch", (int)job->epoch, "directory", job->spec.directory, "argv",
        trains ? train_words(settings->program, folder.text, machine, job) : strings(&job->spec.command),
        "processes", trains ? 1 : (int)job->ranks_now, "devices", device_numbers(machine, job), "gpus",
        machine->has_gpus, "grace_s", job->spec.grace_s, "limit_s", runner_limit_s(job), "variables",
        strings(&job->spec.variables), "group_signal", !trains, "cpus", (int)job->spec.cpus_per_rank, "umask",
        (int)job->spec.umask, "log_max", (json_int_t)job->spec.log_bytes_max, "image", job->spec.image,
        "image_options", strings(&job->spec.image_options), "price", ls_job_price_usd(job), "spent",
        ls_job_spent_usd(job), "run_dir", trains ? job->run_dir : "", "energy_part",
        fmin(1.0, (double)job->ranks_now / machine->node.devices), "storage_price", job->storage_usd);
    if (!ticket) {
        return ls_fail(LS_ERR_INVALID,
                       "the command, an environment variable or a path of job %" PRIu64 " is not valid UTF-8",
                       job->id);
    }
    const ls_status status = ls_ticket_write(folder.text, job->epoch, ticket, job->uid, job->gid);
    json_decref(ticket);
    return status;
}
