// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/local/ticket.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "orchestration/engines/job_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096 + 64, EXIT_BYTES_MAX = 4096, WHO_BYTES_MAX = 128 };

typedef struct ticket_path {
    char text[PATH_MAX_BYTES];
} ticket_path;

static ticket_path path_of(const char *folder, const char *what, uint32_t epoch)
{
    ticket_path path;
    snprintf(path.text, sizeof path.text, "%s/%s-%u", folder, what, epoch);
    return path;
}

static ticket_path draft_of(const char *folder, const char *what, uint32_t epoch)
{
    ticket_path path;
    snprintf(path.text, sizeof path.text, "%s/%s-%u.new", folder, what, epoch);
    return path;
}

static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- the daemon's side ---- */

ls_status ls_ticket_write(const char *folder, uint32_t epoch, const json_t *ticket, uid_t uid, gid_t gid)
{
    char *text = json_dumps(ticket, JSON_COMPACT);
    if (!text || strlen(text) + 2 > LS_TICKET_BYTES_MAX) {
        free(text);
        return ls_fail(LS_ERR_INVALID,
                       "the job's command and environment variables are too long; together they can take at "
                       "most %d bytes",
                       LS_TICKET_BYTES_MAX);
    }
    const size_t bytes = strlen(text);
    text[bytes] = '\n'; /* replaces its zero */
    const ls_status status =
        ls_job_file_write(path_of(folder, "ticket", epoch).text, text, bytes + 1, uid, gid);
    free(text);
    return status;
}

/* Copies text without control characters, cut at the end of a character. */
static void copy_printable(char *out, size_t limit, const char *text)
{
    ls_text clean = {0};
    ls_text_append_printable(&clean, text, strnlen(text, limit), "");
    size_t bytes = clean.bytes < limit ? clean.bytes : limit - 1;
    const char *data = ls_text_string(&clean);
    while (bytes > 0 && bytes < clean.bytes && ((unsigned char)data[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    memcpy(out, data, bytes);
    out[bytes] = '\0';
    ls_text_release(&clean);
}

static bool read_exit(const char *folder, uint32_t epoch, ls_ticket_exit *end_out)
{
    const ticket_path path = path_of(folder, "exit", epoch);
    char text[EXIT_BYTES_MAX];
    json_t *root = NULL;
    const ssize_t bytes = ls_job_file_read(path.text, O_RDONLY, text, sizeof text, NULL);
    if (bytes <= 0 || ls_json_parse(text, (size_t)bytes, path.text, &root) != LS_OK) {
        return false;
    }
    ls_ticket_exit end = {0};
    uint64_t code = 0;
    const char *cause = "none", *why = "", *error = "";
    const bool is_good = ls_json_get_u64(root, path.text, "code", 0, 255, 0, &code) == LS_OK &&
                         ls_json_get_string(root, path.text, "cause", "none", &cause) == LS_OK &&
                         ls_json_get_string(root, path.text, "text", "", &why) == LS_OK &&
                         ls_json_get_string(root, path.text, "error", "", &error) == LS_OK &&
                         ls_json_get_f64(root, path.text, "ended_s", 0.0, 1e15, 0.0, &end.ended_s) == LS_OK;
    if (is_good) {
        end.code = (int)code;
        end.cause = ls_job_cause_named(cause);
        if (end.cause != LS_CAUSE_MEMORY && end.cause != LS_CAUSE_START && end.cause != LS_CAUSE_PROGRAM &&
            end.cause != LS_CAUSE_LIMIT) {
            end.cause = LS_CAUSE_NONE; /* a runner has no say in other causes */
        }
        copy_printable(end.text, sizeof end.text, why);
        copy_printable(end.error, sizeof end.error, error);
        end.result = ls_job_result_read(json_object_get(root, "result"));
        *end_out = end;
    }
    json_decref(root);
    return is_good;
}

/* The last line of a claim names its runner; not known when it can't be read. */
static void read_runner(int fd, ls_ticket_state *state)
{
    char text[WHO_BYTES_MAX + 1];
    struct stat info;
    const off_t bytes = fstat(fd, &info) == 0 ? info.st_size : 0;
    const ssize_t got = pread(fd, text, WHO_BYTES_MAX, bytes > WHO_BYTES_MAX ? bytes - WHO_BYTES_MAX : 0);
    text[got > 0 ? got : 0] = '\0';
    if (got > 0 && text[got - 1] == '\n') {
        text[got - 1] = '\0';
    }
    const char *line = strrchr(text, '\n');
    long pid = 0;
    unsigned long long ticks = 0;
    if (line && sscanf(line, " {\"pid\":%ld,\"start\":%llu", &pid, &ticks) >= 1 && pid > 1 &&
        pid < INT32_MAX) {
        state->pid = (pid_t)pid;
        state->ticks = ticks;
    }
}

static double modified_s(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 ? (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec : 0.0;
}

static ls_status look_at_claim(const char *folder, uint32_t epoch, bool is_gone, ls_ticket_state *state)
{
    const ticket_path path = path_of(folder, "claim", epoch);
    char first;
    int fd = -1;
    if (ls_job_file_read(path.text, O_RDWR, &first, 1, &fd) < 0) {
        state->stage = LS_TICKET_NOTHING;
        return errno == ENOENT ? LS_OK : ls_fail_errno(errno, "cannot read %s", path.text);
    }
    const bool locked = !is_gone && is_locked(fd);
    read_runner(fd, state);
    close(fd);
    state->stage = locked && state->pid > 0 ? LS_TICKET_RUNS : LS_TICKET_GONE;
    state->started_s = modified_s(path_of(folder, "running", epoch).text);
    state->is_running = state->started_s > 0.0;
    /* it may have ended between the two looks */
    if (state->stage == LS_TICKET_GONE && read_exit(folder, epoch, &state->end)) {
        state->stage = LS_TICKET_ENDED;
    }
    return LS_OK;
}

ls_status ls_ticket_look(const char *folder, uint32_t epoch, bool runner_is_gone, ls_ticket_state *state_out)
{
    ls_ticket_state state = {0};
    if (access(path_of(folder, "ticket", epoch).text, F_OK) == 0) {
        state.stage = LS_TICKET_WAITS;
    } else {
        LS_TRY(look_at_claim(folder, epoch, runner_is_gone, &state));
    }
    *state_out = state;
    return LS_OK;
}

ls_status ls_ticket_withdraw(const char *folder, uint32_t epoch, bool *taken_out)
{
    const ticket_path ticket = path_of(folder, "ticket", epoch), none = path_of(folder, "none", epoch);
    if (rename(ticket.text, none.text) == 0) {
        *taken_out = false;
        return LS_OK;
    }
    if (errno != ENOENT) {
        return ls_fail_errno(errno, "cannot remove %s", ticket.text);
    }
    *taken_out = access(path_of(folder, "claim", epoch).text, F_OK) == 0;
    return LS_OK;
}

void ls_ticket_clear(const char *folder, uint32_t epoch)
{
    static const char *const kinds[] = {"ticket", "none", "claim", "running", "exit"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        unlink(path_of(folder, kinds[i], epoch).text);
    }
    unlink(draft_of(folder, "running", epoch).text);
    unlink(draft_of(folder, "exit", epoch).text);
}

/* ---- the runner's side ---- */

uint64_t ls_process_ticks(pid_t pid)
{
    char path[64], text[1024];
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    const char *behind_name = strrchr(text, ')');
    if (!behind_name ||
        sscanf(behind_name + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1) {
        return 0;
    }
    return ticks;
}

/* Reserves `bytes` of the disk under a name of its own. */
static ls_status reserve(ticket_path path, size_t bytes)
{
    char room[EXIT_BYTES_MAX] = {0};
    unlink(path.text);
    const int fd = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "cannot create %s", path.text);
    }
    const ls_status status = ls_file_write_all(fd, path.text, room, bytes);
    close(fd);
    return status;
}

/* Reserves space for what is written later, when the disk may be full. */
static ls_status reserve_words(const char *folder, uint32_t epoch)
{
    LS_TRY(reserve(draft_of(folder, "running", epoch), 0));
    return reserve(draft_of(folder, "exit", epoch), EXIT_BYTES_MAX);
}

/* Writes text into the reserved file and renames it. false: nothing was reserved, or it is gone. */
static bool say_in_reserve(const char *folder, const char *what, uint32_t epoch, const char *text)
{
    const ticket_path draft = draft_of(folder, what, epoch);
    const size_t bytes = strlen(text);
    const int fd = open(draft.text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    if (fd < 0) {
        return false;
    }
    const bool fits = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (size_t)info.st_size >= bytes &&
                      pwrite(fd, text, bytes, 0) == (ssize_t)bytes && ftruncate(fd, (off_t)bytes) == 0 &&
                      futimens(fd, NULL) == 0;
    close(fd);
    return fits && rename(draft.text, path_of(folder, what, epoch).text) == 0;
}

ls_status ls_ticket_take(const char *folder, uint32_t epoch, json_t **ticket_out)
{
    const ticket_path ticket = path_of(folder, "ticket", epoch), claim = path_of(folder, "claim", epoch);
    char *text = malloc(LS_TICKET_BYTES_MAX);
    int fd = -1;
    *ticket_out = NULL;
    const ssize_t bytes = text ? ls_job_file_read(ticket.text, O_RDWR, text, LS_TICKET_BYTES_MAX, &fd) : -1;
    if (bytes < 0) {
        const int error = errno;
        free(text);
        return error == ENOENT ? LS_OK : ls_fail_errno(error, "cannot read %s", ticket.text);
    }
    json_t *root = NULL;
    ls_status status = ls_json_parse(text, (size_t)bytes, ticket.text, &root);
    free(text);
    char who[WHO_BYTES_MAX];
    const int length = snprintf(who, sizeof who, "{\"pid\":%ld,\"start\":%" PRIu64 "}\n", (long)getpid(),
                                ls_process_ticks(getpid()));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (status == LS_OK && fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        status = ls_fail_errno(errno, "cannot lock %s: another process already runs this job", ticket.text);
    }
    if (status == LS_OK) {
        status = reserve_words(folder, epoch);
    }
    if (status == LS_OK) {
        status = ls_file_pwrite_all(fd, ticket.text, who, (size_t)length, (uint64_t)bytes);
    }
    if (status != LS_OK) {
        json_decref(root);
        close(fd);
        return status;
    }
    if (rename(ticket.text, claim.text) != 0) { /* it was withdrawn meanwhile */
        const int error = errno;
        json_decref(root);
        close(fd);
        return error == ENOENT
                   ? LS_OK
                   : ls_fail_errno(error, "cannot take over the job described in %s", ticket.text);
    }
    *ticket_out = root; /* fd stays open: the lock lasts as long as this process */
    return LS_OK;
}

ls_status ls_ticket_say_running(const char *folder, uint32_t epoch)
{
    if (say_in_reserve(folder, "running", epoch, "")) {
        return LS_OK;
    }
    return ls_job_file_write(path_of(folder, "running", epoch).text, "", 0, geteuid(), getegid());
}

ls_status ls_ticket_say_exit(const char *folder, uint32_t epoch, const ls_ticket_exit *end)
{
    ls_ticket_exit said =
        *end; /* text of other programs may be invalid, or cut in the middle of a character */
    copy_printable(said.text, sizeof said.text, end->text);
    copy_printable(said.error, sizeof said.error, end->error);
    json_t *root = json_pack("{s:i, s:s, s:f, s:s, s:s, s:o*}", "code", end->code, "cause",
                             ls_job_cause_name(end->cause), "ended_s",
                             end->ended_s > 0.0 ? end->ended_s : ls_clock_wall_s(), "text", said.text,
                             "error", said.error, "result", ls_job_result_json(&end->result));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to write down how a job ended");
    }
    ls_status status = LS_OK;
    if (!say_in_reserve(folder, "exit", epoch, text)) {
        status =
            ls_job_file_write(path_of(folder, "exit", epoch).text, text, strlen(text), geteuid(), getegid());
    }
    free(text);
    return status;
}
