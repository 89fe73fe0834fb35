// SPDX-License-Identifier: Apache-2.0
#include "env/real/program.h"

#include "base/assert.h"
#include "base/file.h"
#include "env/real/real.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAMS = 3 };

typedef struct running {
    ls_env *env;
    ls_env_id process, timer;
    int fds[STREAMS];
    bool timed_out;
    ls_program_done done;
    void *context;
} running;

static void release(running *self)
{
    for (int i = 0; i < STREAMS; i++) {
        if (self->fds[i] >= 0) {
            close(self->fds[i]);
        }
    }
    free(self);
}

/* The output, mapped, with a zero after it; "" if it is empty. bytes_out: without the zero. */
static const char *map_output(int fd, size_t *bytes_out)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || about.st_size <= 0) {
        *bytes_out = 0;
        return "";
    }
    const size_t bytes =
        about.st_size > LS_PROGRAM_OUTPUT_BYTES_MAX ? LS_PROGRAM_OUTPUT_BYTES_MAX : (size_t)about.st_size;
    char *text = NULL;
    /* A private copy: whoever still has the stream can cut it, but not below what the file has from
     * here on. */
    if (ftruncate(fd, (off_t)bytes + 1) == 0) {
        text = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    }
    if (!text || text == MAP_FAILED) {
        *bytes_out = 0;
        return "";
    }
    text[bytes] = 0;
    *bytes_out = bytes;
    return text;
}

static void unmap_output(const char *text, size_t bytes)
{
    if (bytes > 0) {
        munmap((void *)(uintptr_t)text, bytes + 1);
    }
}

static void exited(void *context, ls_env_id process, int exit_code)
{
    (void)process;
    running *self = context;
    ls_env_timer_cancel(self->env, self->timer);
    ls_program_result result = {.exit_code = exit_code, .timed_out = self->timed_out};
    result.output = map_output(self->fds[1], &result.output_bytes);
    result.error = map_output(self->fds[2], &result.error_bytes);
    self->done(self->context, &result);
    unmap_output(result.output, result.output_bytes);
    unmap_output(result.error, result.error_bytes);
    release(self);
}

static void time_is_over(void *context)
{
    running *self = context;
    self->timed_out = true;
    (void)ls_env_process_kill(self->env, self->process, SIGKILL);
}

/* A file in memory, named after its stream (visible in /proc/PID/fd). */
static ls_status open_streams(running *self, const char *input)
{
    static const char *const names[STREAMS] = {"stdin", "stdout", "stderr"};
    for (int i = 0; i < STREAMS; i++) {
        self->fds[i] = memfd_create(names[i], MFD_CLOEXEC);
        if (self->fds[i] < 0) {
            return ls_fail_errno(errno, "can't create a file in memory for the %s of a program to start",
                                 names[i]);
        }
    }
    if (input) {
        LS_TRY(ls_file_write_all(self->fds[0], "the input of a program", input, strlen(input)));
        if (lseek(self->fds[0], 0, SEEK_SET) != 0) {
            return ls_fail_errno(errno, "can't rewind the input of a program");
        }
    }
    return LS_OK;
}

ls_status ls_program_start(ls_env *env, const ls_program *program, ls_program_done done, void *context)
{
    LS_ASSERT(program->argv[0] && program->timeout_s > 0);
    running *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "out of memory for a program");
    *self = (running){.env = env, .fds = {-1, -1, -1}, .done = done, .context = context};
    ls_status status = open_streams(self, program->input);
    if (status == LS_OK) {
        const int error = ls_real_process_start(env, program->argv, self->fds, exited, self, &self->process);
        if (error) {
            status = ls_fail_errno(-error, "can't start %s", program->argv[0]);
        }
    }
    if (status != LS_OK) {
        release(self);
        return status;
    }
    self->timer = ls_env_timer_set(env, (uint64_t)(program->timeout_s * 1e9), time_is_over, self);
    return LS_OK;
}

/* ---- waiting ---- */

typedef struct waiting {
    ls_env *env;
    ls_arena *arena;
    ls_program_result result;
} waiting;

static void keep(void *context, const ls_program_result *result)
{
    waiting *self = context;
    self->result = *result;
    self->result.output = ls_arena_strndup(self->arena, result->output, result->output_bytes);
    self->result.error = ls_arena_strndup(self->arena, result->error, result->error_bytes);
    ls_env_stop(self->env, 0);
}

ls_status ls_program_run(const ls_program *program, ls_arena *arena, ls_program_result *result_out)
{
    waiting self = {.arena = arena};
    LS_TRY(ls_env_real_create(&self.env));
    ls_status status = ls_program_start(self.env, program, keep, &self);
    if (status == LS_OK) {
        (void)ls_env_run(self.env);
        if (self.result.timed_out) {
            status =
                ls_fail(LS_ERR_TIMEOUT, "%s did not end within %g s", program->argv[0], program->timeout_s);
        } else {
            *result_out = self.result;
        }
    }
    ls_env_real_destroy(self.env);
    return status;
}
