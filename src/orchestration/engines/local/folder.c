// SPDX-License-Identifier: Apache-2.0
/* What is written for a start. */
#include "orchestration/engines/local/local_internal.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ls_local_path ls_local_folder(const char *home, uint64_t job)
{
    ls_local_path path;
    snprintf(path.text, sizeof path.text, "%s/jobs/%" PRIu64, home, job);
    return path;
}

/* The job's user owns it, and nobody else looks in. */
static ls_status make_folder(const char *folder, const ls_job *job)
{
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return ls_fail_errno(errno, "can't make %s", folder);
    }
    if (job->uid != geteuid() && lchown(folder, job->uid, job->gid) != 0) {
        return ls_fail_errno(errno, "can't give %s to user %u", folder, job->uid);
    }
    return LS_OK;
}

/* Once: later starts are of the same file. */
static ls_status write_run_file(const char *folder, const ls_job *job)
{
    char path[LS_LOCAL_PATH_BYTES + 16], draft[LS_LOCAL_PATH_BYTES + 24];
    snprintf(path, sizeof path, "%s/run.yaml", folder);
    snprintf(draft, sizeof draft, "%s.new", path);
    unlink(draft);
    const int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create %s", draft);
    }
    ls_status status = ls_file_write_all(fd, draft, job->spec.file, strlen(job->spec.file));
    if (status == LS_OK && job->uid != geteuid() && fchown(fd, job->uid, job->gid) != 0) {
        status = ls_fail_errno(errno, "can't give %s to user %u", draft, job->uid);
    }
    close(fd);
    if (status == LS_OK && rename(draft, path) != 0) {
        status = ls_fail_errno(errno, "can't name %s", path);
    }
    return status;
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

static json_t *train_words(const char *program, const char *folder, const ls_job *job)
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
    for (uint64_t i = 0; i < job->spec.set.count; i++) {
        append(words, "--set");
        append(words, job->spec.set.items[i]);
    }
    snprintf(text, sizeof text, "name=%s", job->spec.name); /* the file is called otherwise here */
    append(words, "--set");
    append(words, text);
    return words;
}

static json_t *device_numbers(const ls_job *job)
{
    json_t *numbers = json_array();
    for (int bit = 0; job->share_count > 0 && bit < 64; bit++) {
        if (job->shares[0].devices >> bit & 1) {
            json_array_append_new(numbers, json_integer(bit));
        }
    }
    return numbers;
}

ls_status ls_local_folder_write(const ls_local_settings *settings, bool has_gpus, const ls_job *job)
{
    const ls_local_path folder = ls_local_folder(settings->home, job->id);
    const bool trains = job->spec.command.count == 0;
    LS_TRY(make_folder(folder.text, job));
    LS_TRY(write_run_file(folder.text, job));
    json_t *ticket = json_pack(
        "{s:I, s:i, s:s, s:o, s:i, s:o, s:b, s:f, s:o, s:b}", "job", (json_int_t)job->id, "epoch",
        (int)job->epoch, "directory", job->spec.directory, "argv",
        trains ? train_words(settings->program, folder.text, job) : strings(&job->spec.command), "processes",
        trains ? 1 : (int)job->ranks_now, "devices", device_numbers(job), "gpus", has_gpus, "grace_s",
        job->spec.grace_s, "variables", strings(&job->spec.variables), "group_signal", !trains);
    if (!ticket) {
        return ls_fail(LS_ERR_INVALID, "job %" PRIu64 " has words that are no text", job->id);
    }
    const ls_status status = ls_ticket_write(folder.text, job->epoch, ticket, job->uid, job->gid);
    json_decref(ticket);
    return status;
}
