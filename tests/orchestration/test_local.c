// SPDX-License-Identifier: Apache-2.0
/* The engine of this machine with real processes: this program is the runner, too (`runner FOLDER EPOCH ...`). */
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/user_files.h"
#include "hanging_mount.h"
#include "orchestration/engines/local/local.h"
#include "orchestration/engines/local/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
    assert_int_equal(report_count, 0); /* never inside an order */
    const ls_engine_report *end = wait_for(LS_ENGINE_ENDED, 1);
    assert_non_null(find(LS_ENGINE_STARTED, 1));
    assert_int_equal(end->exit_code, 3);
    assert_int_equal(end->cause, LS_CAUSE_PROGRAM);
    engine->calls->forget(engine, job);
    ls_job_destroy(job);
}

/* Events that are lost with a full queue: that a job has begun is found all the same. (Its end would be heard of by its runner's.) */
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
    for (int i = 0; i < MANY; i++) { /* while nobody listens */
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

/* In a user namespace of its own, which may have no watch at all. 77: there can be none. */
static int run_without_watches(void)
{
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", geteuid(), geteuid());
    if (unshare(CLONE_NEWUSER) != 0 || !write_word("/proc/self/setgroups", "deny") ||
        !write_word("/proc/self/uid_map", map) || !write_word("/proc/sys/user/max_inotify_watches", "0")) {
        return 77;
    }
    open_engine(0.05); /* watches are counted for who made the queue of events */
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

/* A resize that is to be asked again must not keep a stop waiting. */
static void engine_stop_while_a_resize_waits(void **state)
{
    (void)state;
    ls_job *job = make_job(1, "true");
    job->ranks_next = 2;
    touch("resize-now");
    engine->calls->resize(engine, job); /* of a run that is not there: it is asked again, 20 times */
    wait_until_there("resized");
    poll_for(0.1); /* its end is heard of, and a timer set */
    job->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, job, LS_STOP_SAVE);
    assert_int_equal(wait_for(LS_ENGINE_ENDED, 1)->exit_code, 128 + SIGTERM);
    assert_null(find(LS_ENGINE_RESIZED, 1));
    engine->calls->forget(engine, job);
    ls_job_destroy(job);
}

/* Timers of a job that is forgotten go with it, all of them. (The address sanitiser sees what does not.) */
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
        wait_until_there("resized");
        usleep(50000); /* it has ended, and nobody has heard of that */
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

/* A claim that is locked, with the number of a process that is not its runner: the same number at another time. */
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
    /* As if that number were of one that began at another time. */
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

/* What left its session and has nothing of its environment is found by its group. */
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
    assert_int_equal(kill((pid_t)hidden, 0), 0); /* it goes on */
    job->state = LS_JOB_RECOVERING;
    engine->calls->stop(engine, job, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", hidden);
    FILE *file = fopen(path, "re");
    if (file) {
        (void)!fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    assert_true(text[0] == '\0' || strstr(text, ") Z")); /* whoever inherits it may not have buried it yet */
    ls_job_destroy(job);
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
        if (busiest(1) > 0 && find(LS_ENGINE_ACTIVITY, 2)) {
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

/* A run's folder where nothing answers keeps nobody waiting: neither this loop nor other jobs. */
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
    wait_for(LS_ENGINE_ACTIVITY, 1); /* behind the first look at it */
    engine->calls->start(engine, good);
    wait_for(LS_ENGINE_STARTED, 2);
    touch("go");
    const int code = wait_for(LS_ENGINE_ENDED, 2)->exit_code;
    lost->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, lost, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    engine->calls->forget(engine, lost); /* with questions that are open */
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

/* Behind this all that lay there has been seen a few times. */
static void wait_for_looks(void)
{
    report_count = 0;
    const double begin_s = ls_clock_monotonic_s();
    while (count_of(LS_ENGINE_ACTIVITY) < 10 && ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 10000000);
    }
    assert_true(count_of(LS_ENGINE_ACTIVITY) >= 10);
}

/* A way may lead to what is somebody else's: it is not told of as if it were the job's. */
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
    usleep(20000); /* what is written now is newer than the start, in the clock of files, too */
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

/* It has neither watch nor runner until it is given back, and all without a watch are looked at each second: that is no end of it. */
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
    engine->calls->start(engine, job); /* not one file can be opened */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    engine->calls->adopt(engine, other); /* no folder and no watch: sweeps begin */
    wait_for(LS_ENGINE_NEVER, 2);
    const double begin_s = ls_clock_monotonic_s();
    while (!find(LS_ENGINE_NEVER, 1) && !find(LS_ENGINE_ENDED, 1) &&
           ls_clock_monotonic_s() - begin_s < 120.0) {
        ls_env_poll(env, 100000000);
    }
    assert_null(find(LS_ENGINE_ENDED, 1));
    assert_non_null(find(LS_ENGINE_NEVER, 1));
    engine->calls->forget(engine, job);
    job->epoch = 2; /* and who is stopped meanwhile does not wait for the pause */
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

/* ---- devices ---- */

/* The library of the driver as far as it is asked: two devices whose use is in a file. */
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
    "    use[0] = all[*(int *)device]; return got == 2 ? 0 : 3; }\n";

/* Builds it, and begins this program anew with it in the path of libraries. Where there is no compiler: without. */
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
    ls_job *busy = start_on(1, 1, 1), *idle = start_on(2, 2, 1); /* neither takes processor time */
    /* Before the first sample it is their processor time. */
    for (int round = 0; round < 240 && (busiest(1) != 700 || busiest(2) != 0); round++) {
        report_count = 0;
        poll_for(0.5);
    }
    assert_int_equal(busiest(1), 700);
    assert_int_equal(busiest(2), 0);
    report_count = 0;
    busy->state = idle->state = LS_JOB_STOPPING;
    engine->calls->stop(engine, busy, LS_STOP_KILL);
    engine->calls->stop(engine, idle, LS_STOP_KILL);
    wait_for(LS_ENGINE_ENDED, 1);
    wait_for(LS_ENGINE_ENDED, 2);
    char path[160], line[160] = "";
    snprintf(path, sizeof path, "%s/jobs/2/log", home);
    FILE *log = fopen(path, "re");
    assert_non_null(log);
    assert_non_null(fgets(line, sizeof line, log));
    fclose(log);
    assert_string_equal(line, "order PCI_BUS_ID devices 1\n");
    ls_job_destroy(busy);
    ls_job_destroy(idle);
}

/* ---- this program as the runner ---- */

/* A run that does not listen yet. */
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
        cmocka_unit_test_setup_teardown(engine_tells_how_busy_a_job_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_goes_on_while_a_folder_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_tells_of_no_file_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_gives_back_what_could_not_start_for_now, set_up, tear_down),
        cmocka_unit_test_setup_teardown(engine_asks_devices, set_up, tear_down),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (getenv("LS_TEST_GPUS")) {
        (void)!ls_dir_remove(getenv("LD_LIBRARY_PATH"));
    }
    return failed;
}
