// SPDX-License-Identifier: Apache-2.0
#include "telemetry/report/report_files.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *ls_report_file_name(ls_report_file file)
{
    static const char *const names[LS_REPORT_FILES] = {
        [LS_REPORT_RUN_YAML] = "run.yaml",    [LS_REPORT_EVENTS] = "events.jsonl",
        [LS_REPORT_SUMMARY] = "summary.json", [LS_REPORT_TIME] = "time.jsonl",
        [LS_REPORT_NOTES] = "notes.json",     [LS_REPORT_METRICS] = "metrics.jsonl"};
    return names[file];
}

/* Reads a file that may be growing; empty when it does not exist. */
static ls_status read_all(const char *path, ls_text *text)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? LS_OK : ls_fail_errno(errno, "can't open %s", path);
    }
    static const size_t chunk_bytes = 1u << 16;
    char *chunk = malloc(chunk_bytes);
    ssize_t got = chunk ? 0 : -1;
    while (chunk && ((got = read(fd, chunk, chunk_bytes)) > 0 || (got < 0 && errno == EINTR))) {
        ls_text_append_bytes(text, chunk, got > 0 ? (size_t)got : 0);
    }
    const int error = chunk ? errno : ENOMEM;
    free(chunk);
    close(fd);
    return got < 0 ? ls_fail_errno(error, "can't read %s", path) : LS_OK;
}

static ls_status load(const char *dir, ls_arena *arena, ls_report_files *files)
{
    struct stat info;
    const char *metrics = ls_path_join(arena, dir, "metrics.jsonl");
    const bool has_metrics = stat(metrics, &info) == 0;
    if (!has_metrics && !ls_path_exists(ls_path_join(arena, dir, "run.yaml"))) {
        return ls_fail(
            LS_ERR_NOT_FOUND,
            "%s is not a run directory: it has neither run.yaml nor metrics.jsonl. 'lockstep train' "
            "writes one, runs/NAME by default",
            dir);
    }
    files->newest_s = has_metrics ? (double)info.st_mtim.tv_sec : 0.0;
    for (int i = 0; i < LS_REPORT_FILES; i++) {
        LS_TRY(read_all(ls_path_join(arena, dir, ls_report_file_name((ls_report_file)i)), &files->texts[i]));
    }
    return LS_OK;
}

ls_status ls_report_files_load(const char *dir, ls_report_files *files)
{
    ls_arena arena = {0};
    *files = (ls_report_files){0};
    const ls_status status = load(dir, &arena, files);
    ls_arena_release(&arena);
    return status;
}

void ls_report_files_release(ls_report_files *files)
{
    for (int i = 0; i < LS_REPORT_FILES; i++) {
        ls_text_release(&files->texts[i]);
    }
}
