// SPDX-License-Identifier: Apache-2.0
/*
 * Files of a job, in HOME/jobs/N: written by the daemon, which may be root, into a folder that belongs to the job's user, who may put anything there.
 *
 * So nothing is opened through a link or overwritten in place: a file comes whole under its name, and what is read must be a plain file. Calls return at once: a pipe that was
 * put in the place of a file keeps nobody waiting.
 */
#ifndef LS_ORCHESTRATION_ENGINES_JOB_FILES_H
#define LS_ORCHESTRATION_ENGINES_JOB_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* HOME/jobs: each user reaches the folders of his own jobs there, and sees no others'. Errors: LS_ERR_IO, LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_jobs_folder_make(const char *home);

/* The folder of one job, its user's alone. There already: fine. Errors: as above. */
LS_MUST_CHECK ls_status ls_job_folder_make(const char *folder, uid_t uid, gid_t gid);

/* A file of mode 0600 for `uid`, in the place of what has that name. Not synced: after a power cut nothing of this machine runs anyway. Errors: LS_ERR_IO, LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_job_file_write(const char *path, const void *data, size_t bytes, uid_t uid,
                                          gid_t gid);

/*
 * Up to limit - 1 bytes of a plain file, and a zero behind them. flags: O_RDONLY or O_RDWR. fd_out: the open file, the caller's; NULL: it is closed.
 * Returns the number of bytes, or -1 with errno (EINVAL: no plain file).
 */
ssize_t ls_job_file_read(const char *path, int flags, char *data, size_t limit, int *fd_out);

#endif
