// SPDX-License-Identifier: Apache-2.0
/*
 * Files of a job, in HOME/jobs/N. The daemon, which may be root, writes them to a folder that
 * belongs to the job's user, who could put anything there.
 *
 * So nothing is opened through a link or overwritten in place: a file appears complete under its
 * name, and only plain files are read. Calls return at once: a pipe in the place of a file blocks
 * no one.
 */
#ifndef LS_ORCHESTRATION_ENGINES_JOB_FILES_H
#define LS_ORCHESTRATION_ENGINES_JOB_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Creates HOME/jobs, in which each user can reach the folders of their own jobs and list no others.
 * Errors: LS_ERR_IO, LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_jobs_folder_make(const char *home);

/* The highest number of a job that has a folder there; 0: none has. */
uint64_t ls_jobs_folder_highest(const char *home);

/* Creates the folder of one job, for its user only; it may exist already. Errors: LS_ERR_IO,
 * LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_job_folder_make(const char *folder, uid_t uid, gid_t gid);

/* Writes a file of mode 0600 for `uid`, replacing what has that name. Not synced: after a power
 * failure nothing of this machine runs anyway. Errors: LS_ERR_IO, LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_job_file_write(const char *path, const void *data, size_t bytes, uid_t uid,
                                          gid_t gid);

/*
 * Reads up to limit - 1 bytes of a plain file and adds a zero. flags: O_RDONLY or O_RDWR. fd_out:
 * the open file, which the caller closes; NULL: it is closed. Returns the number of bytes, or -1
 * with errno (EINVAL: not a plain file).
 */
ssize_t ls_job_file_read(const char *path, int flags, char *data, size_t limit, int *fd_out);

#endif
