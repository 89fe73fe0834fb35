// SPDX-License-Identifier: Apache-2.0
/* The engine of this machine with real processes. This program is also the runner (`runner FOLDER
 * EPOCH ...`). */
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "env/user/user_files.h"
#include "hanging_mount.h"
#include "orchestration/engines/local/local.h"
#include "orchestration/engines/local/local_internal.h"
#include "orchestration/engines/local/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORTS_MAX = 64 };

static char program[512], home[64];
static uint32_t slots = 4;
static ls_env *env;
static ls_user_files *files;
static ls_engine *engine;
static ls_engine_report reports[REPORTS_MAX];
static char texts[REPORTS_MAX][256];
static int report_count;

static void hear(void *context, const ls_engine_report *report)
{
    (void)context;
    if (report_count < REPORTS_MAX) {
        snprintf(texts[report_count], sizeof texts[0], "%s", report->text ? report->text : "");
        reports[report_count] = *report;
        reports[report_count].text = reports[report_count].error = NULL;
        report_count++;
    }
}

static void open_engine(double look_s)
{
    report_count = 0;
    assert_int_equal(ls_env_real_create(&env), LS_OK);
    assert_int_equal(ls_user_files_create(env, UINT64_C(5000000000), &files), LS_OK);
    const ls_local_settings settings = {.env = env,
                                        .files = files,
                                        .home = home,
                                        .program = program,
                                        .slots = slots,
                                        .look_s = look_s,
                                        .patience_s = 0.5,
                                        .hear = hear};
    assert_int_equal(ls_local_engine_create(&settings, &engine), LS_OK);
}

static void close_engine(void)
{
    engine->calls->destroy(engine);
    ls_user_files_destroy(files);
    ls_env_real_destroy(env);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(home, sizeof home, "/tmp/lockstep_local_XXXXXX");
    assert_non_null(mkdtemp(home));
    open_engine(0.05);
    return 0;
}

/* Where a folder has the name of the file that names the control groups, there are none. */
static int set_up_without_groups(void **state)
{
    (void)state;
    char path[96];
    snprintf(home, sizeof home, "/tmp/lockstep_local_XXXXXX");
    assert_non_null(mkdtemp(home));
    snprintf(path, sizeof path, "%s/group", home);
    assert_int_equal(mkdir(path, 0700), 0);
    open_engine(0.05);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close_engine();
    assert_int_equal(ls_dir_remove(home), LS_OK);
    return 0;
}

/* A job in STARTING(epoch) that runs a shell. */
static ls_job *make_job(uint64_t id, const char *shell)
{
    char file[1024];
    snprintf(file, sizeof file, "job:\n  command: [bash, -c, '%s']\n  grace: 5s\n", shell);
    json_t *request = json_pack("{s:s, s:s}", "file", file, "directory", home);
    ls_job *job = NULL;
    assert_int_equal(ls_job_create(id, request, &job), LS_OK);
    ls_job_set_user(job, geteuid(), getegid(), "user");
    job->state = LS_JOB_STARTING;
    job->epoch = 1;
    job->ranks_now = 1;
    return job;
}

static const ls_engine_report *find(ls_engine_report_kind kind, uint64_t job)
{
    for (int i = 0; i < report_count; i++) {
        if (reports[i].kind == kind && reports[i].job == job) {
            return &reports[i];
        }
    }
    return NULL;
}

static const ls_engine_report *wait_for(ls_engine_report_kind kind, uint64_t job)
{
    const double begin_s = ls_clock_monotonic_s();
    while (!find(kind, job) && ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 100000000);
    }
    assert_non_null(find(kind, job));
    return find(kind, job);
}

static void poll_for(double time_s)
{
    for (const double begin_s = ls_clock_monotonic_s(); ls_clock_monotonic_s() - begin_s < time_s;) {
        ls_env_poll(env, 10000000);
    }
}

static bool is_there(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", home, name);
    return access(path, F_OK) == 0;
}

static void touch(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", home, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void wait_until_there(const char *name)
{
    for (int round = 0; !is_there(name) && round < 12000; round++) {
        ls_env_poll(env, 10000000);
    }
    assert_true(is_there(name));
}

static long read_number(const char *name, const char *format)
{
    char path[160];
    long number = 0;
    snprintf(path, sizeof path, "%s/%s", home, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, format, &number), 1);
    fclose(file);
    return number;
}

/* ---- what there is to hear ---- */

static void engine_start_and_end(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "exit 3");
    engine->calls->start(engine, job);
    assert_int_equal(report_count, 0); /* never during an order */
    const ls_engine_report *end = wait_for(LS_ENGINE_ENDED, 1);
    assert_non_null(find(LS_ENGINE_STARTED, 1));
    assert_int_equal(end->exit_code, 3);
    assert_int_equal(end->cause, LS_CAUSE_PROGRAM);
    engine->calls->forget(engine, job);
    ls_job_destroy(job);
}

/* Events that are lost because the queue is full: the start of a job is noticed all the same. (Its
 * end would be noticed by that of its runner.) */
static void engine_hears_behind_an_overflow(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    int limit = MANY;
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
    if (!file || fscanf(file, "%d", &limit) != 1 || limit >= MANY) {
        print_message("the kernel's queue is longer than %d events\n", MANY);
        skip();
    }
    fclose(file);
    ls_job *noisy = make_job(1, "exec sleep 600"), *quiet = make_job(2, "exec sleep 600");
    engine->calls->start(engine, noisy);
    wait_for(LS_ENGINE_STARTED, 1);
    char path[2][160], begun[160];
    snprintf(path[0], sizeof path[0], "%s/jobs/1/exit-a", home);
    snprintf(path[1], sizeof path[1], "%s/jobs/1/exit-b", home);
    snprintf(begun, sizeof begun, "%s/jobs/2/running-1", home);
    touch("jobs/1/exit-a");
    for (int i = 0; i < MANY; i++) { /* while nobody reads them */
        assert_int_equal(rename(path[i % 2], path[1 - i % 2]), 0);
    }
    engine->calls->start(engine, quiet);
    for (int round = 0; access(begun, F_OK) != 0 && round < 12000; round++) {
        usleep(10000);
    }
    assert_int_equal(access(begun, F_OK), 0);
    wait_for(LS_ENGINE_STARTED, 2);
    noisy->state = quiet->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, noisy, LS_STOP_KILL);
    engine->calls->stop(engine, quiet, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    wait_for(LS_ENGINE_ENDED, 2);
    ls_job_destroy(noisy);
    ls_job_destroy(quiet);
}

static bool write_word(const char *path, const char *word)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool good = fd >= 0 && write(fd, word, strlen(word)) == (ssize_t)strlen(word);
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

/*
 * In a user namespace of its own, which may not have any watches. 77: namespaces are not available.
 */
static int run_without_watches(void)
{
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", geteuid(), geteuid());
    if (unshare(CLONE_NEWUSER) != 0 || !write_word("/proc/self/setgroups", "deny") ||
        !write_word("/proc/self/uid_map", map) || !write_word("/proc/sys/user/max_inotify_watches", "0")) {
        return 77;
    }
    open_engine(0.05); /* watches count for the user who created the queue of events */
    ls_job *job = make_job(1, "until [ -e go ]; do sleep 0.02; done; exit 5");
    engine->calls->start(engine, job);
    const bool started = wait_for(LS_ENGINE_STARTED, 1) != NULL;
    touch("go");
    return started && wait_for(LS_ENGINE_ENDED, 1)->exit_code == 5 ? 0 : 1;
}

static void engine_hears_without_watches(void **state)
{
    (void)state;
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(run_without_watches());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 77) {
        print_message("no user namespaces to be had here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- timers ---- */

/* A resize that will be tried again must not delay a stop. */
static void engine_stop_while_a_resize_waits(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "true");
    job->ranks_next = 2;
    touch("resize-now");
    /* of a run that does not exist: it is tried again, 20 times */
    engine->calls->resize(engine, job);
    wait_until_there("resized");
    poll_for(0.1); /* its end is noticed, and a timer is set */
    job->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, job, LS_STOP_SAVE);
    assert_int_equal(wait_for(LS_ENGINE_ENDED, 1)->exit_code, 128 + SIGTERM);
    assert_null(find(LS_ENGINE_RESIZED, 1));
    engine->calls->forget(engine, job);
    ls_job_destroy(job);
}

/* Until a child has ended, which is not waited for. */
static void wait_until_ended(void)
{
    siginfo_t ended = {0};
    for (int round = 0; ended.si_pid == 0 && round < 12000; round++) {
        usleep(round > 0 ? 10000 : 0);
        assert_int_equal(waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    assert_true(ended.si_pid != 0);
}

/* All timers of a job end when it is forgotten. (The address sanitiser finds those that do not.) */
static void engine_forget_with_timers(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        ls_job *job = make_job((uint64_t)i + 1, "true");
        job->ranks_next = 2;
        engine->calls->resize(engine, job);
        wait_until_there("resizing");
        job->state = i == 2 ? LS_JOB_RECOVERING : LS_JOB_STOPPING;
        touch("resize-now");
        wait_until_ended(); /* the engine has not noticed yet, because nothing polls */
        assert_true(is_there("resized"));
        engine->calls->stop(engine, job, LS_STOP_KILL);
        ls_env_poll(env, 0); /* the first timer is set, then that of the resize */
        engine->calls->forget(engine, job);
        poll_for(0.7);
        ls_job_destroy(job);
        char path[160];
        const char *const names[] = {"resizing", "resized", "resize-now"};
        for (int n = 0; n < 3; n++) {
            snprintf(path, sizeof path, "%s/%s", home, names[n]);
            unlink(path);
        }
    }
}

/* ---- who it is ---- */

/* A locked claim with the number of a process that is not its runner: the same number at another
 * time. */
static void engine_adopt_knows_a_runner_by_its_start(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "exec sleep 600");
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    close_engine();
    char path[160], claim[4096];
    snprintf(path, sizeof path, "%s/jobs/1/claim-1", home);
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    const size_t bytes = fread(claim, 1, sizeof claim - 1, file);
    claim[bytes] = '\0';
    long runner = 0;
    char *line = strstr(claim, "{\"pid\":");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "{\"pid\":%ld", &runner), 1);
    /* as if the number were that of a process started at another time */
    fseek(file, line - claim, SEEK_SET);
    fprintf(file, "{\"pid\":%ld,\"start\":1}", runner);
    for (long at = ftell(file); at < (long)bytes - 1; at++) {
        fputc(' ', file);
    }
    fclose(file);
    open_engine(0.05);
    engine->calls->adopt(engine, job);
    wait_for(LS_ENGINE_LOST, 1);
    kill((pid_t)runner, SIGKILL);
    job->state = LS_JOB_RECOVERING;
    engine->calls->stop(engine, job, LS_STOP_KILL);
    assert_int_equal(wait_for(LS_ENGINE_ENDED, 1)->cause, LS_CAUSE_LOST);
    ls_job_destroy(job);
}

/* One that has ended may not have been reaped yet. */
static bool is_alive(long pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        (void)!fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    return text[0] != '\0' && !strstr(text, ") Z");
}

/* A job that stops its runner is ended all the same, and with it what has left its session and cleared
 * its environment. */
static void engine_ends_a_job_that_stops_its_runner(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "env -i setsid sleep 600 & echo $! >hidden.new; mv hidden.new hidden; "
                              "until [ -e started ]; do sleep 0.02; done; kill -STOP $PPID; touch stopped; "
                              "while :; do sleep 1; done");
    job->spec.grace_s = 0.2;
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    touch("started");
    wait_until_there("stopped");
    const long hidden = read_number("hidden", "%ld");
    assert_true(is_alive(hidden));
    job->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, job, LS_STOP_SAVE);
    const ls_engine_report *end = wait_for(LS_ENGINE_ENDED, 1);
    assert_int_equal(end->exit_code, 128 + SIGKILL);
    assert_int_equal(end->cause, LS_CAUSE_LOST);
    assert_false(is_alive(hidden));
    assert_null(find(LS_ENGINE_LOST, 1)); /* it was to end: it is not started again */
    ls_job_destroy(job);
}

/* An end that a job has written down itself, with its runner killed, gives no devices back while
 * something of the job is alive. */
static void engine_believes_no_end_of_what_lives(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "setsid sleep 600 & echo $! >hidden.new; mv hidden.new hidden; "
                              "until [ -e started ]; do sleep 0.02; done; cd $LOCKSTEP_JOB_DIR; "
                              "printf \"{\\\"code\\\":0,\\\"cause\\\":\\\"none\\\"}\" >x; mv x exit-1; "
                              "kill -9 $PPID; sleep 600");
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    touch("started");
    assert_int_equal(wait_for(LS_ENGINE_ENDED, 1)->exit_code, 0);
    assert_false(is_alive(read_number("hidden", "%ld")));
    ls_job_destroy(job);
}

/* A job whose folder was removed while it ran: said so, and nothing of it is left. */
static void engine_tells_of_a_removed_folder(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "setsid sleep 600 & echo $! >hidden.new; mv hidden.new hidden; "
                              "until [ -e go ]; do sleep 0.02; done");
    char path[96];
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    wait_until_there("hidden");
    snprintf(path, sizeof path, "%s/jobs/1", home);
    assert_int_equal(ls_dir_remove(path), LS_OK);
    touch("go");
    const ls_engine_report *end = wait_for(LS_ENGINE_ENDED, 1);
    assert_int_equal(end->cause, LS_CAUSE_LOST);
    assert_non_null(strstr(texts[end - reports], "was removed while the job ran"));
    assert_false(is_alive(read_number("hidden", "%ld")));
    ls_job_destroy(job);
}

/* A process that left its session and cleared its environment is found by its group. */
static void engine_ends_what_hides(void **state)
{
    (void)state;
    if (!is_there("group")) {
        print_message("no control groups to be had here\n");
        skip();
    }
    ls_job *job = make_job(1, "env -i setsid sleep 600 & echo $! >hidden.new; mv hidden.new hidden; wait");
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    wait_until_there("hidden");
    const long hidden = read_number("hidden", "%ld"),
               runner = read_number("jobs/1/claim-1", "%*[^\n] {\"pid\":%ld");
    poll_for(0.1);
    kill((pid_t)runner, SIGKILL);
    wait_for(LS_ENGINE_LOST, 1);
    assert_int_equal(kill((pid_t)hidden, 0), 0); /* it is still running */
    job->state = LS_JOB_RECOVERING;
    engine->calls->stop(engine, job, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    assert_false(is_alive(hidden));
    ls_job_destroy(job);
}

/* What a job may use goes into the files of its group; where there are none, the engine says so. */
static void engine_limits_a_group(void **state)
{
    (void)state;
    ls_local_path group;
    snprintf(group.text, sizeof group.text, "%s/made", home);
    assert_int_equal(mkdir(group.text, 0700), 0);
    touch("made/memory.max");
    touch("made/pids.max");
    touch("made/cpu.weight");
    ls_local_group_limit(&group, &(ls_local_limits){.memory_bytes = 1 << 26, .ranks = 2, .cpus = 6});
    assert_int_equal(read_number("made/memory.max", "%ld"), 1 << 26);
    assert_int_equal(read_number("made/pids.max", "%ld"), 4096 + 2 * 1024);
    assert_int_equal(read_number("made/cpu.weight", "%ld"), 60);
    char text[256] = "", path[LS_LOCAL_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%.200s/group", home);
    FILE *file = fopen(path, "re");
    if (file && fgets(group.text, sizeof group.text, file)) {
        snprintf(path, sizeof path, "%.4000s/cgroup.subtree_control", group.text);
        fclose(file);
        file = fopen(path, "re");
        (void)!(file && fgets(text, sizeof text, file));
    }
    if (file) {
        fclose(file);
    }
    const bool is_limited = strstr(text, "memory") && strstr(text, "pids");
    assert_int_equal(ls_local_engine_note(engine)[0] == '\0', is_limited);
}

/* ---- how busy ---- */

static uint32_t busiest(uint64_t job)
{
    uint32_t most = 0;
    for (int i = 0; i < report_count; i++) {
        if (reports[i].kind == LS_ENGINE_ACTIVITY && reports[i].job == job) {
            most = reports[i].busy_permille > most ? reports[i].busy_permille : most;
        }
    }
    return most;
}

static void engine_tells_how_busy_a_job_is(void **state)
{
    (void)state;
    ls_job *busy = make_job(1, "while :; do :; done"), *idle = make_job(2, "exec sleep 600");
    engine->calls->start(engine, busy);
    engine->calls->start(engine, idle);
    wait_for(LS_ENGINE_STARTED, 1);
    wait_for(LS_ENGINE_STARTED, 2);
    for (const double begin_s = ls_clock_monotonic_s(); ls_clock_monotonic_s() - begin_s < 60.0;) {
        report_count = 0;
        poll_for(0.5);
        /* beside other load, starting takes some time of the idle one */
        if (busiest(1) > 0 && find(LS_ENGINE_ACTIVITY, 2) && busiest(2) == 0) {
            break;
        }
    }
    assert_true(busiest(1) > 0);
    assert_non_null(find(LS_ENGINE_ACTIVITY, 2));
    assert_int_equal(busiest(2), 0);
    report_count = 0;
    busy->state = idle->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, busy, LS_STOP_KILL);
    engine->calls->stop(engine, idle, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    wait_for(LS_ENGINE_ENDED, 2);
    ls_job_destroy(busy);
    ls_job_destroy(idle);
}

/* A run's folder on a file system that hangs blocks neither the loop nor other jobs. */
static void engine_goes_on_while_a_folder_hangs(void **state)
{
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s/hangs", home);
    assert_int_equal(mkdir(path, 0700), 0);
    const int fd = hanging_mount(path);
    if (fd < 0) {
        print_message("no FUSE to be had here\n");
        skip();
    }
    ls_job *lost = make_job(1, "exec sleep 600"), *good = make_job(2, "until [ -e go ]; do sleep 0.02; done");
    ls_job_set_run_dir(lost, path);
    engine->calls->start(engine, lost);
    wait_for(LS_ENGINE_STARTED, 1);
    wait_for(LS_ENGINE_ACTIVITY, 1); /* after the first look at it */
    engine->calls->start(engine, good);
    wait_for(LS_ENGINE_STARTED, 2);
    touch("go");
    const int code = wait_for(LS_ENGINE_ENDED, 2)->exit_code;
    lost->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, lost, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    engine->calls->forget(engine, lost); /* while questions about it are open */
    hanging_mount_end(path, fd);
    assert_int_equal(code, 0);
    ls_job_destroy(lost);
    ls_job_destroy(good);
}

/* ---- whose it is ---- */

static void write_file(const char *name, const char *text, uid_t uid)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", home, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fchown(fd, uid, (gid_t)-1), 0);
    assert_true(write_word(path, text));
    close(fd);
}

static void give_to_us(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", home, name);
    assert_int_equal(chown(path, geteuid(), (gid_t)-1), 0);
}

static int count_of(ls_engine_report_kind kind)
{
    int count = 0;
    for (int i = 0; i < report_count; i++) {
        count += reports[i].kind == kind;
    }
    return count;
}

/* After this, everything that was there has been looked at a few times. */
static void wait_for_looks(void)
{
    report_count = 0;
    const double begin_s = ls_clock_monotonic_s();
    while (count_of(LS_ENGINE_ACTIVITY) < 10 && ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 10000000);
    }
    assert_true(count_of(LS_ENGINE_ACTIVITY) >= 10);
}

static uint64_t coarse_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A path may lead to another user's file, which must not be reported as if it were the job's. */
static void engine_tells_of_no_file_of_another(void **state)
{
    (void)state;
    enum { OTHER = 65534 };
    if (geteuid() != 0) {
        print_message("not root: nothing can be given to another\n");
        skip();
    }
    char path[160];
    snprintf(path, sizeof path, "%s/run", home);
    assert_int_equal(mkdir(path, 0755), 0);
    ls_job *job = make_job(1, "exec sleep 600");
    ls_job_set_run_dir(job, path);
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    /* what is written now must be newer than the start, by the coarse clock of files */
    for (const uint64_t start_ns = coarse_ns(); coarse_ns() == start_ns;) {
        usleep(1000);
    }
    snprintf(path, sizeof path, "%s/run/checkpoints", home);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(chown(path, OTHER, (gid_t)-1), 0);
    write_file("run/metrics.jsonl", "{\"step\": 3, \"loss\": 2.5, \"step_s\": 0.5}\n", OTHER);
    wait_for_looks();
    assert_null(find(LS_ENGINE_SAVED, 1));
    assert_null(find(LS_ENGINE_PROGRESS, 1));
    give_to_us("run/checkpoints");
    give_to_us("run/metrics.jsonl");
    report_count = 0;
    wait_for(LS_ENGINE_SAVED, 1);
    assert_int_equal(wait_for(LS_ENGINE_PROGRESS, 1)->step, 3);
    report_count = 0;
    job->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, job, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    ls_job_destroy(job);
}

/* ---- too little for now ---- */

/* It has neither watch nor runner until its devices are given back, and jobs without a watch are
 * looked at every second: that must not count as its end. */
static void engine_gives_back_what_could_not_start_for_now(void **state)
{
    (void)state;
    struct rlimit before, none;
    ls_job *job = make_job(1, "true"), *other = make_job(2, "true");
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    engine->calls->start(engine, job); /* no file can be opened */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    engine->calls->adopt(engine, other); /* no folder and no watch: sweeps start */
    wait_for(LS_ENGINE_NEVER, 2);
    const double begin_s = ls_clock_monotonic_s();
    while (!find(LS_ENGINE_NEVER, 1) && !find(LS_ENGINE_ENDED, 1) &&
           ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 100000000);
    }
    assert_null(find(LS_ENGINE_ENDED, 1));
    assert_non_null(find(LS_ENGINE_NEVER, 1));
    engine->calls->forget(engine, job);
    job->epoch = 2; /* and a job that is stopped meanwhile does not wait for the pause */
    report_count = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    engine->calls->start(engine, job);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    job->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, job, LS_STOP_SAVE);
    while (!find(LS_ENGINE_NEVER, 1) && !find(LS_ENGINE_ENDED, 1) &&
           ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 100000000);
    }
    assert_null(find(LS_ENGINE_NEVER, 1));
    assert_int_equal(wait_for(LS_ENGINE_ENDED, 1)->exit_code, 128 + SIGTERM);
    ls_job_destroy(job);
    ls_job_destroy(other);
}

/* ---- energy ---- */

static void set_counter(const char *name, uint64_t value)
{
    char path[192], draft[200];
    snprintf(path, sizeof path, "%s/power/intel-rapl:0/%s", home, name);
    snprintf(draft, sizeof draft, "%s.new", path);
    FILE *file = fopen(draft, "we");
    assert_non_null(file);
    fprintf(file, "%" PRIu64 "\n", value);
    fclose(file);
    assert_int_equal(rename(draft, path), 0);
}

/* Millijoules in the reports about a job; 0: those that no job used. */
static uint64_t energy_told(uint64_t job)
{
    uint64_t sum = 0;
    for (int i = 0; i < report_count; i++) {
        sum += reports[i].job == job ? reports[i].energy_mj : 0;
    }
    return sum;
}

static void wait_for_energy(uint64_t job, uint64_t energy_mj)
{
    for (int round = 0; round < 600 && energy_told(job) < energy_mj; round++) {
        poll_for(0.1);
        report_count = report_count < REPORTS_MAX ? report_count : REPORTS_MAX - 1;
    }
    assert_int_equal(energy_told(job), energy_mj);
}

/* One of four devices: a quarter is the job's as long as it runs, and what is left no one's. */
static void engine_divides_energy(void **state)
{
    (void)state;
    char path[128];
    close_engine();
    snprintf(path, sizeof path, "%s/power", home);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("LOCKSTEP_POWERCAP", path, 1);
    snprintf(path, sizeof path, "%s/power/intel-rapl:0", home);
    assert_int_equal(mkdir(path, 0700), 0);
    set_counter("max_energy_range_uj", 20000000);
    set_counter("energy_uj", 1000000);
    open_engine(0.5);
    unsetenv("LOCKSTEP_POWERCAP");
    ls_job *job = make_job(1, "exec sleep 600");
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, 1);
    set_counter("energy_uj", 9000000);
    wait_for_energy(1, 2000);
    wait_for_energy(0, 6000);
    set_counter("energy_uj", 13000000);
    engine->calls->stop(engine, job, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    assert_int_equal(energy_told(1), 3000);
    set_counter("energy_uj", 1000000); /* it began anew: 7 J to its end, and 1 J */
    wait_for_energy(0, 6000 + 3000 + 8000);
    assert_int_equal(energy_told(1), 3000);
    ls_job_destroy(job);
}

/* ---- devices ---- */

/* A stand-in for the library of the driver: two devices whose utilisation is in a file. */
static const char stub_text[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "int nvmlInit_v2(void) { return 0; }\n"
    "int nvmlShutdown(void) { return 0; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { static int d[2]; *device = &d[i]; d[i] = "
    "i; return 0; }\n"
    "int nvmlDeviceGetName(void *device, char *name, unsigned limit) { strncpy(name, \"NVIDIA Stub 9000\", "
    "limit); return 0; }\n"
    "int nvmlDeviceGetUtilizationRates(void *device, unsigned *use) {\n"
    "    FILE *file = fopen(getenv(\"LS_TEST_GPUS\"), \"r\"); unsigned all[2] = {0};\n"
    "    if (!file) return 3;\n"
    "    int got = fscanf(file, \"%u %u\", &all[0], &all[1]); fclose(file);\n"
    "    use[0] = all[*(int *)device]; return got == 2 ? 0 : 3; }\n"
    "int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *ram) { ram[0] = 1 << 30; ram[2] = 1 << "
    "20; "
    "return 0; }\n"
    "int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { *mw = *(int *)device ? 0 : 100000; return 0; "
    "}\n"
    "int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 40 + *(int "
    "*)device; return 0; }\n"
    "int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) { *reasons = "
    "*(int *)device ? 0x40 : 1; return 0; }\n"
    "int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count) { "
    "return "
    "3; }\n";

/* Builds it, and starts this program again with it in the path of libraries; without a compiler,
 * the case is skipped. */
static void begin_with_stub(char **words)
{
    char folder[] = "/tmp/lockstep_stub_XXXXXX", command[256], path[128];
    if (getenv("LS_TEST_GPUS") || !mkdtemp(folder)) {
        return;
    }
    snprintf(command, sizeof command, "cc -w -shared -fPIC -x c - -o %s/libnvidia-ml.so.1 2>%s/errors",
             folder, folder);
    FILE *compiler = popen(command, "w");
    if (!compiler || fputs(stub_text, compiler) < 0 || pclose(compiler) != 0) {
        (void)!ls_dir_remove(folder);
        return;
    }
    snprintf(path, sizeof path, "%s/use", folder);
    setenv("LS_TEST_GPUS", path, 1);
    setenv("LD_LIBRARY_PATH", folder, 1);
    execv(program, words);
}

static void say_use(const char *text)
{
    char draft[160];
    snprintf(draft, sizeof draft, "%s.new", getenv("LS_TEST_GPUS"));
    FILE *file = fopen(draft, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(rename(draft, getenv("LS_TEST_GPUS")), 0);
}

static ls_job *start_on(uint64_t id, uint64_t devices, uint32_t ranks)
{
    ls_job *job = make_job(id, "echo order $CUDA_DEVICE_ORDER devices $CUDA_VISIBLE_DEVICES; exec sleep 600");
    const ls_job_share share = {.node = 0, .devices = devices};
    ls_job_set_shares(job, &share, 1);
    job->ranks_now = ranks;
    engine->calls->start(engine, job);
    wait_for(LS_ENGINE_STARTED, id);
    return job;
}

static void engine_reads_sensors(void)
{
    uint32_t count = 0;
    const ls_engine_device *devices = engine->calls->devices(engine, &count);
    assert_int_equal(count, 2);
    assert_float_equal(devices[0].utilization, 0.7, 1e-9);
    assert_float_equal(devices[0].memory_bytes, 1048576.0, 0.0);
    assert_float_equal(devices[0].memory_max_bytes, 1073741824.0, 0.0);
    assert_float_equal(devices[0].power_w, 100.0, 0.0);
    assert_float_equal(devices[1].temperature_c, 41.0, 0.0);
    assert_float_equal(devices[0].is_throttled, 0.0, 0.0);
    assert_float_equal(devices[1].is_throttled, 1.0, 0.0);
    assert_true(isnan(devices[0].ecc_errors)); /* it does not report them */
    /* 100 W of the first one are its job's; the other device has no power */
    for (int round = 0; round < 240 && energy_told(1) == 0; round++) {
        poll_for(0.5);
    }
    assert_true(energy_told(1) > 0);
    assert_int_equal(energy_told(2), 0);
}

static void engine_asks_devices(void **state)
{
    (void)state;
    if (!getenv("LS_TEST_GPUS")) {
        print_message("no compiler for a stand-in of libnvidia-ml.so.1\n");
        skip();
    }
    say_use("70 0\n");
    close_engine();
    slots = 0;
    open_engine(0.05);
    slots = 4;
    uint32_t count = 0;
    const ls_engine_node *node = engine->calls->nodes(engine, &count);
    assert_int_equal(node->devices, 2);
    assert_string_equal(node->kind, "Stub 9000");
    ls_job *busy = start_on(1, 1, 1), *idle = start_on(2, 2, 1); /* neither uses processor time */
    /* before the first sample their processor time counts */
    for (int round = 0; round < 240 && (busiest(1) != 700 || busiest(2) != 0); round++) {
        report_count = 0;
        poll_for(0.5);
    }
    assert_int_equal(busiest(1), 700);
    assert_int_equal(busiest(2), 0);
    engine_reads_sensors();
    /* its program may write later than its devices are sampled */
    char path[160], line[160] = "";
    snprintf(path, sizeof path, "%s/jobs/2/log", home);
    for (int round = 0; round < 240 && !line[0]; round++) {
        FILE *log = fopen(path, "re");
        assert_non_null(log);
        (void)!fgets(line, sizeof line, log);
        fclose(log);
        poll_for(0.05);
    }
    report_count = 0;
    busy->state = idle->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, busy, LS_STOP_KILL);
    engine->calls->stop(engine, idle, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    wait_for(LS_ENGINE_ENDED, 2);
    assert_string_equal(line, "order PCI_BUS_ID devices 1\n");
    ls_job_destroy(busy);
    ls_job_destroy(idle);
}

/* ---- this program as the runner ---- */

/* A run that is not listening yet. */
static int be_resizer(const char *folder)
{
    char path[200];
    const char *const names[] = {"resizing", "resized"};
    const int length = (int)(strstr(folder, "/jobs/") - folder);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.*s/%s", length, folder, names[i]);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        snprintf(path, sizeof path, "%.*s/resize-now", length, folder);
        for (int round = 0; access(path, F_OK) != 0 && round < 6000; round++) {
            usleep(10000);
        }
    }
    return 2;
}

static int be_runner(int count, char **words)
{
    ls_runner_options options = {.folder = words[2], .epoch = (uint32_t)strtoul(words[3], NULL, 10)};
    for (int i = 4; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--resize") == 0) {
            return be_resizer(options.folder);
        }
        options.group = strcmp(words[i], "--group") == 0 ? words[i + 1] : options.group;
    }
    return ls_status_exit_code(ls_runner_run(&options));
}

int main(int count, char **words)
{
    if (count > 3 && strcmp(words[1], "runner") == 0) {
        return be_runner(count, words);
    }
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    program[bytes > 0 ? bytes : 0] = '\0';
    begin_with_stub(words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(engine_start_and_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_hears_behind_an_overflow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_hears_without_watches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_stop_while_a_resize_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_forget_with_timers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_adopt_knows_a_runner_by_its_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_ends_what_hides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_ends_a_job_that_stops_its_runner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_believes_no_end_of_what_lives, set_up, tear_down),
        {"engine_ends_a_job_that_stops_its_runner, without groups", engine_ends_a_job_that_stops_its_runner,
         set_up_without_groups, tear_down, NULL},
        {"engine_believes_no_end_of_what_lives, without groups", engine_believes_no_end_of_what_lives,
         set_up_without_groups, tear_down, NULL},
        cmocka_unit_test_setup_teardown(engine_tells_of_a_removed_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_limits_a_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_tells_how_busy_a_job_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_goes_on_while_a_folder_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_tells_of_no_file_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_gives_back_what_could_not_start_for_now, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_asks_devices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_divides_energy, set_up, tear_down),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("LS_TEST_GPUS")) {
        (void)!ls_dir_remove(getenv("LD_LIBRARY_PATH"));
    }
    return failed;
}
