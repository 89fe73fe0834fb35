// SPDX-License-Identifier: Apache-2.0
/* Ranks of a job on this machine: environment, start, output. */
#include "orchestration/engines/local/runner_internal.h"

#include "base/assert.h"
#include "base/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 64 * 1024, LINE_BYTES_MAX = 8 * 1024, OWN_VARIABLES = 24 };
enum { PORT_FIRST = 20000, PORT_END = 32000, PORT_TRIES = 64 };

/* ---- the ticket ---- */

static const char **read_words(ls_arena *arena, const json_t *list, size_t *count_out)
{
    const size_t count = json_array_size(list);
    const char **words = ls_arena_new(arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        words[i] = json_string_value(json_array_get(list, i));
        if (!words[i]) {
            return NULL;
        }
    }
    *count_out = count;
    return words;
}

static const char *read_devices(ls_arena *arena, const json_t *list)
{
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        ls_text_printf(&text, "%s%lld", i > 0 ? "," : "",
                       (long long)json_integer_value(json_array_get(list, i)));
    }
    const char *devices = ls_arena_strdup(arena, ls_text_string(&text));
    ls_text_release(&text);
    return devices;
}

ls_status ls_local_job_read(ls_local_job *job)
{
    const json_t *ticket = job->ticket;
    uint64_t processes = 0, cpus = 0, mask = 0;
    size_t count = 0;
    LS_TRY(ls_json_get_u64(ticket, "ticket", "job", 1, INT64_MAX, 0, &job->id));
    LS_TRY(ls_json_get_u64(ticket, "ticket", "processes", 1, 4096, 1, &processes));
    LS_TRY(ls_json_get_u64(ticket, "ticket", "cpus", 0, 4096, 0, &cpus));
    LS_TRY(ls_json_get_u64(ticket, "ticket", "umask", 0, 0777, 022, &mask));
    LS_TRY(ls_json_get_u64(ticket, "ticket", "log_max", 0, INT64_MAX, INT64_MAX, &job->log_bytes_max));
    LS_TRY(ls_json_get_f64(ticket, "ticket", "grace_s", 0.0, 86400.0, 30.0, &job->grace_s));
    LS_TRY(ls_json_get_f64(ticket, "ticket", "limit_s", 0.0, 1e12, 0.0, &job->limit_s));
    LS_TRY(ls_json_get_bool(ticket, "ticket", "group_signal", false, &job->signals_group));
    LS_TRY(ls_json_get_bool(ticket, "ticket", "gpus", false, &job->has_gpus));
    LS_TRY(ls_json_get_string(ticket, "ticket", "directory", "/", &job->directory));
    LS_TRY(ls_json_get_string(ticket, "ticket", "run_dir", "", &job->run_dir));
    job->processes = (uint32_t)processes;
    job->cpus = (uint32_t)cpus;
    job->umask = (mode_t)mask;
    job->argv = read_words(&job->arena, json_object_get(ticket, "argv"), &count);
    job->variables = read_words(&job->arena, json_object_get(ticket, "variables"), &job->variable_count);
    if (!job->argv || count == 0 || !job->variables) {
        return ls_fail(LS_ERR_DATA,
                       "the file that tells the runner of job %" PRIu64
                       " what to start is damaged: it has no command, or no environment variables",
                       job->id);
    }
    job->ranks = ls_arena_new(&job->arena, ls_local_rank, job->processes);
    for (uint32_t i = 0; i < job->processes; i++) {
        job->ranks[i].output = job->ranks[i].log.fd = -1;
    }
    return LS_OK;
}

/* ---- environment ---- */

/* The end of the ports that no outgoing connection takes by chance. */
static uint32_t port_end(void)
{
    unsigned low = PORT_END;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    const bool is_known = file && fscanf(file, "%u", &low) == 1;
    if (file) {
        fclose(file);
    }
    return is_known && low > PORT_FIRST + PORT_TRIES && low < PORT_END ? low : PORT_END;
}

static bool is_port_free(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    const bool is_free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                         bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_free;
}

/* A port where the ranks of one job can meet. It stays free until they use it: jobs get different
 * ones by their number, and outgoing connections none of these. */
static uint16_t meeting_port(const ls_local_job *job)
{
    const uint32_t span = port_end() - PORT_FIRST;
    uint16_t port = 0;
    for (uint32_t i = 0; i < PORT_TRIES; i++) {
        port = (uint16_t)(PORT_FIRST + (job->id + (uint64_t)i * 97) % span);
        if (is_port_free(port)) {
            break;
        }
    }
    return port;
}

typedef struct environment {
    ls_arena *arena;
    const char **items;
    size_t count;
} environment;

/* Adds a variable; the last one of a name wins. */
static void put(environment *e, const char *item)
{
    const size_t name_bytes = strcspn(item, "=") + 1;
    for (size_t i = 0; i < e->count; i++) {
        if (strncmp(e->items[i], item, name_bytes) == 0) {
            e->items[i] = item;
            return;
        }
    }
    e->items[e->count++] = item;
}

static void put_number(environment *e, const char *name, uint64_t value)
{
    put(e, ls_arena_printf(e->arena, "%s=%" PRIu64, name, value));
}

static void put_amount(environment *e, const char *name, const json_t *amount)
{
    put(e, ls_arena_printf(e->arena, "%s=%.9g", name, json_number_value(amount)));
}

static void put_user(environment *e)
{
    const struct passwd *user = getpwuid(geteuid());
    put(e, ls_arena_printf(e->arena, "HOME=%s", user ? user->pw_dir : "/"));
    if (user) {
        put(e, ls_arena_printf(e->arena, "USER=%s", user->pw_name));
        put(e, ls_arena_printf(e->arena, "LOGNAME=%s", user->pw_name));
    }
}

/* The environment of a rank: the user, what was submitted, and which rank it is. Nothing of this
 * process's own environment, which is the daemon's. */
static char **make_environment(ls_local_job *job, uint32_t rank, uint16_t port)
{
    environment e = {.arena = &job->arena,
                     .items = ls_arena_new(&job->arena, const char *, job->variable_count + OWN_VARIABLES)};
    put(&e, "PATH=/usr/local/bin:/usr/bin:/bin");
    put_user(&e);
    if (job->cpus > 0) {
        put_number(&e, "OMP_NUM_THREADS", job->cpus);
    }
    for (size_t i = 0; i < job->variable_count; i++) {
        put(&e, job->variables[i]);
    }
    put_number(&e, "LOCKSTEP_JOB", job->id);
    put_number(&e, "LOCKSTEP_EPOCH", job->epoch);
    put(&e, ls_arena_printf(&job->arena, "LOCKSTEP_JOB_DIR=%s", job->folder));
    put(&e, ls_arena_printf(&job->arena, "PWD=%s", job->directory));
    put_amount(&e, "LOCKSTEP_ENERGY_PART", json_object_get(job->ticket, "energy_part"));
    if (json_number_value(json_object_get(job->ticket, "storage_price")) > 0.0) {
        put_amount(&e, "LOCKSTEP_STORAGE_PRICE", json_object_get(job->ticket, "storage_price"));
    }
    if (json_number_value(json_object_get(job->ticket, "price")) > 0.0) {
        put_amount(&e, "LOCKSTEP_PRICE", json_object_get(job->ticket, "price"));
        put_amount(&e, "LOCKSTEP_SPENT", json_object_get(job->ticket, "spent"));
    }
    if (job->has_gpus) {
        const char *devices = read_devices(&job->arena, json_object_get(job->ticket, "devices"));
        put(&e, "CUDA_DEVICE_ORDER=PCI_BUS_ID"); /* the order in which devices are numbered */
        put(&e, ls_arena_printf(&job->arena, "CUDA_VISIBLE_DEVICES=%s", devices));
    }
    if (port > 0) { /* not for a training run, which starts its ranks itself */
        put_number(&e, "RANK", rank);
        put_number(&e, "WORLD_SIZE", job->processes);
        put_number(&e, "LOCAL_RANK", rank);
        put_number(&e, "LOCAL_WORLD_SIZE", job->processes);
        put_number(&e, "NODE_RANK", 0);
        put(&e, "MASTER_ADDR=127.0.0.1");
        put_number(&e, "MASTER_PORT", port);
    }
    return (char **)(uintptr_t)e.items; /* ends with NULL, because memory of an arena is zeroed */
}

/* ---- output ---- */

static void flush_line(ls_local_job *job, uint32_t index)
{
    ls_local_rank *rank = &job->ranks[index];
    char prefix[24];
    if (rank->line.bytes == 0) {
        return;
    }
    /* one write, so that lines of different ranks are not mixed */
    ls_text whole = {0};
    const int bytes = snprintf(prefix, sizeof prefix, "[%u] ", index);
    ls_text_append_bytes(&whole, prefix, (size_t)bytes);
    ls_text_append_bytes(&whole, rank->line.data, rank->line.bytes);
    if (rank->line.data[rank->line.bytes - 1] != '\n') {
        ls_text_append(&whole, "\n");
    }
    ls_job_log_append(&job->log, whole.data, whole.bytes);
    ls_text_release(&whole);
    ls_text_clear(&rank->line);
}

static void copy_lines(ls_local_job *job, uint32_t index, const char *data, size_t bytes)
{
    ls_local_rank *rank = &job->ranks[index];
    while (bytes > 0) {
        const char *end = memchr(data, '\n', bytes);
        const size_t part = end ? (size_t)(end - data) + 1 : bytes;
        ls_text_append_bytes(&rank->line, data, part);
        if (end || rank->line.bytes > LINE_BYTES_MAX) {
            flush_line(job, index);
        }
        data += part;
        bytes -= part;
    }
}

void ls_local_rank_close(ls_local_job *job, uint32_t index)
{
    ls_local_rank *rank = &job->ranks[index];
    flush_line(job, index);
    ls_text_release(&rank->line);
    if (rank->output >= 0) {
        close(rank->output);
        rank->output = -1; /* its log stays open: its last words are read from there */
    }
}

void ls_local_rank_copy(ls_local_job *job, uint32_t index)
{
    ls_local_rank *rank = &job->ranks[index];
    char data[COPY_BYTES];
    const ssize_t got = read(rank->output, data, sizeof data);
    if (got > 0 && job->processes == 1) {
        ls_job_log_append(&job->log, data, (size_t)got);
    } else if (got > 0) {
        ls_job_log_append(&rank->log, data, (size_t)got);
        copy_lines(job, index, data, (size_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ls_local_rank_close(job, index);
    }
}

/* ---- start ---- */

/* In the child: only calls that are safe between fork and exec. failure: a pipe that reports why
 * exec failed. */
static _Noreturn void become_rank(const ls_local_job *job, const char **argv, char **variables, int output,
                                  int failure)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < 32; number++) {
        signal(number, SIG_DFL); /* this process ignores some signals */
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != job->pid) {
        _exit(127); /* the parent died before the line above */
    }
    setpgid(0, 0);
    umask(job->umask);
    const int input = open("/dev/null", O_RDONLY);
    dup2(input, 0);
    dup2(output, 1);
    dup2(output, 2);
    execvpe(argv[0], (char **)(uintptr_t)argv, variables);
    const int error = errno;
    (void)!write(failure, &error, sizeof error);
    _exit(127);
}

/* execvpe searches this process's PATH, but the job's own must count. */
static void use_path_of(char **variables)
{
    for (char **at = variables; *at; at++) {
        if (strncmp(*at, "PATH=", 5) == 0) {
            setenv("PATH", *at + 5, 1);
        }
    }
}

/* Explains why exec failed, for the user who wrote the command. */
static ls_status explain(const ls_local_job *job, char *const *variables, int error)
{
    const char *program = job->argv[0];
    const bool has_path = strchr(program, '/') != NULL;
    struct stat info;
    const bool is_there = has_path && stat(program, &info) == 0;
    const char *path = "";
    for (; *variables; variables++) {
        path = strncmp(*variables, "PATH=", 5) == 0 ? *variables + 5 : path;
    }
    if (error == ENOENT && !has_path) {
        return ls_fail(LS_ERR_INVALID, "program '%s' not found in PATH (%.200s)", program, path);
    }
    if (error == ENOENT && is_there) {
        return ls_fail(LS_ERR_INVALID,
                       "cannot start '%s': the interpreter that its first line names (#!), or its dynamic "
                       "loader, does not exist",
                       program);
    }
    if (error == ENOENT) {
        return ls_fail(LS_ERR_INVALID, "program '%s' does not exist%s%s", program,
                       program[0] == '/' ? "" : " in ", program[0] == '/' ? "" : job->directory);
    }
    if (error == EACCES && is_there && S_ISDIR(info.st_mode)) {
        return ls_fail(LS_ERR_INVALID, "cannot start '%s': it is a folder", program);
    }
    if (error == EACCES) {
        return ls_fail(LS_ERR_INVALID, "cannot start '%s': it is not executable (chmod +x)", program);
    }
    return ls_fail_errno(error, "cannot start '%s'", program);
}

static ls_status enter_directory(const ls_local_job *job)
{
    if (chdir(job->directory) == 0) {
        return LS_OK;
    }
    return errno == ENOENT || errno == ENOTDIR
               ? ls_fail(LS_ERR_INVALID, "the folder %s, from which the job was submitted, no longer exists",
                         job->directory)
               : ls_fail_errno(errno, "cannot run in the folder %s, from which the job was submitted",
                               job->directory);
}

static ls_status open_output(ls_local_job *job, uint32_t index, int *output_out)
{
    ls_local_rank *rank = &job->ranks[index];
    int output[2];
    if (job->processes > 1) {
        char name[24];
        snprintf(name, sizeof name, "log.%u", index);
        LS_TRY(ls_job_log_open(job->folder, name, job->log_bytes_max / job->processes, &rank->log));
    }
    if (pipe2(output, O_CLOEXEC) != 0) {
        return ls_fail_errno(errno, "cannot create a pipe for the output of rank %u", index);
    }
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    rank->output = output[0];
    *output_out = output[1];
    return LS_OK;
}

static ls_status start_rank(ls_local_job *job, uint32_t index, uint16_t port)
{
    ls_local_rank *rank = &job->ranks[index];
    int output = -1, failure[2];
    char **variables = make_environment(job, index, port);
    use_path_of(variables);
    const char **argv = job->argv, *image = json_string_value(json_object_get(job->ticket, "image"));
    if (image && image[0]) {
        LS_TRY(ls_local_container_words(job, variables, image, &argv));
    }
    LS_TRY(open_output(job, index, &output));
    if (pipe2(failure, O_CLOEXEC) != 0) {
        const int error = errno;
        close(output);
        return ls_fail_errno(error, "cannot create a pipe for the output of rank %u", index);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        become_rank(job, argv, variables, output, failure[1]);
    }
    const int fork_error = errno;
    close(failure[1]);
    close(output);
    int error = fork_error;
    if (pid > 0) {
        rank->pid = pid;
        job->running++;
        error = read(failure[0], &error, sizeof error) == (ssize_t)sizeof error ? error : 0;
    }
    close(failure[0]);
    return error ? explain(job, variables, error) : LS_OK;
}

ls_status ls_local_ranks_start(ls_local_job *job)
{
    job->pid = getpid();
    LS_TRY(ls_job_log_open(job->folder, "log", job->log_bytes_max, &job->log));
    LS_TRY(enter_directory(job));
    const uint16_t port = job->signals_group ? meeting_port(job) : 0;
    for (uint32_t i = 0; i < job->processes; i++) {
        LS_TRY(start_rank(job, i, port));
    }
    return LS_OK;
}
