// SPDX-License-Identifier: Apache-2.0
/* The runner of jobs on this machine, as a process: what it records about an end. */
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "orchestration/engines/job_files.h"
#include "orchestration/engines/local/runner.h"
#include "orchestration/engines/local/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[96], work[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep_runner_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(work, sizeof work, "%s/work", folder);
    assert_int_equal(mkdir(work, 0700), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(ls_dir_remove(folder), LS_OK);
    return 0;
}

static json_int_t log_max = 1 << 30;

static void write_ticket(const char *directory, json_t *words, int processes, double grace_s, double limit_s)
{
    json_t *ticket =
        json_pack("{s:i, s:i, s:s, s:o, s:i, s:[], s:b, s:f, s:f, s:[s], s:b, s:I, s:i, s:i}", "job", 7,
                  "epoch", 1, "directory", directory, "argv", words, "processes", processes, "devices",
                  "gpus", 0, "grace_s", grace_s, "limit_s", limit_s, "variables", "PATH=/usr/bin:/bin",
                  "group_signal", 1, "log_max", log_max, "umask", 027, "cpus", 3);
    assert_non_null(ticket);
    assert_int_equal(ls_ticket_write(folder, 1, ticket, geteuid(), getegid()), LS_OK);
    json_decref(ticket);
}

static pid_t start_runner(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        const ls_runner_options options = {.folder = folder, .epoch = 1};
        _exit(ls_status_exit_code(ls_runner_run(&options)));
    }
    assert_true(pid > 0);
    return pid;
}

static ls_ticket_exit wait_for(pid_t runner)
{
    int status = 0;
    ls_ticket_state state = {0};
    assert_int_equal(waitpid(runner, &status, 0), runner);
    assert_int_equal(status, 0);
    assert_int_equal(ls_ticket_look(folder, 1, true, &state), LS_OK);
    assert_int_equal(state.stage, LS_TICKET_ENDED);
    return state.end;
}

static ls_ticket_exit run(json_t *words, int processes, double grace_s, double limit_s)
{
    write_ticket(work, words, processes, grace_s, limit_s);
    return wait_for(start_runner());
}

static ls_ticket_exit run_shell(const char *text)
{
    return run(json_pack("[s, s, s]", "bash", "-c", text), 1, 5.0, 0.0);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", work, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void runner_says_why_nothing_began(void **state)
{
    (void)state;
    write_file("plain", "text\n", 0600);
    write_file("odd", "#!/nonexistent/interpreter\n", 0700);
    static const struct {
        const char *program, *text;
    } cases[] = {
        {"no-such-program", "program 'no-such-program' not found in PATH (/usr/bin:/bin)"},
        {"/nonexistent/program", "program '/nonexistent/program' does not exist"},
        {"./none", "program './none' does not exist in /tmp/"},
        {"./plain", "cannot start './plain': it is not executable"},
        {"./odd", "cannot start './odd': the interpreter that its first line names"},
        {"/tmp", "cannot start '/tmp': it is a folder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_ticket_exit end = run(json_pack("[s]", cases[i].program), 2, 5.0, 0.0);
        assert_int_equal(end.cause, LS_CAUSE_START);
        assert_int_equal(end.code, 1);
        assert_ptr_equal(strstr(end.text, cases[i].text), end.text);
        assert_string_equal(end.error, "");
        ls_ticket_clear(folder, 1);
    }
    write_ticket("/nonexistent/folder", json_pack("[s]", "true"), 1, 5.0, 0.0);
    const ls_ticket_exit gone = wait_for(start_runner());
    assert_int_equal(gone.cause, LS_CAUSE_START);
    assert_string_equal(gone.text,
                        "the folder /nonexistent/folder, from which the job was submitted, no longer exists");
}

static void runner_keeps_the_line_that_tells_of_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *shell, *error;
    } cases[] = {
        {"exit 3", ""},
        {"echo all is well; echo bye; exit 3", ""},
        {"echo hi; kill -9 $$", ""},
        {"echo Traceback '(most recent call last):'; echo '  File a'; echo StopIteration; exit 1",
         "StopIteration"},
        {"echo step 1; echo 'ValueError: bad shape' >&2; echo cleaning up; exit 1", "ValueError: bad shape"},
        {"printf '10 %%\\r20 %%\\r\\033[1;31mfatal:\\033[0m no\\n\\n'; exit 1", "fatal: no"},
        {"printf 'error: \\a\\376 <b>'; exit 1", "error: \\x07\\xfe <b>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0];
         i++) { /* all write to one log: only what this one printed counts */
        const ls_ticket_exit end = run_shell(cases[i].shell);
        assert_int_equal(end.cause, LS_CAUSE_PROGRAM);
        assert_string_equal(end.error, cases[i].error);
        ls_ticket_clear(folder, 1);
    }
    const ls_ticket_exit well = run_shell("echo error: none");
    assert_int_equal(well.code, 0);
    assert_string_equal(well.error, "");
    ls_ticket_clear(folder, 1);
    const ls_ticket_exit large = run_shell("printf 'error: '; head -c 10000 /dev/zero | tr '\\0' x; exit 1");
    assert_int_equal(strlen(large.error), sizeof large.error - 1);
    ls_ticket_clear(folder, 1);
    /* with several ranks: from the one that failed first */
    const ls_ticket_exit gang = run(
        json_pack(
            "[s, s, s]", "bash", "-c",
            "if [ $RANK = 1 ]; then echo error: of rank 1; exit 9; fi; echo error: of another; sleep 600"),
        3, 1.0, 0.0);
    assert_string_equal(gang.text, "rank 1 ended with exit code 9");
    assert_string_equal(gang.error, "error: of rank 1");
    assert_int_equal(gang.code, 9);
}

static void runner_keeps_the_time_limit(void **state)
{
    (void)state;
    const double begin_s = ls_clock_monotonic_s();
    const ls_ticket_exit told = run(json_pack("[s, s]", "sleep", "600"), 2, 600.0, 2.0);
    /* not before the limit, whatever the grace period is */
    assert_true(ls_clock_monotonic_s() - begin_s >= 2.0);
    assert_int_equal(told.cause, LS_CAUSE_LIMIT);
    assert_int_equal(told.code, 128 + SIGTERM);
    /* whichever rank was first */
    assert_non_null(strstr(told.text, "was ended by signal 15 (Terminated)"));
    ls_ticket_clear(folder, 1);
    const ls_ticket_exit deaf =
        run(json_pack("[s, s, s]", "bash", "-c", "trap '' TERM; while :; do sleep 0.05; done"), 1, 0.5, 1.0);
    assert_int_equal(deaf.cause, LS_CAUSE_LIMIT);
    assert_int_equal(deaf.code, 128 + SIGKILL);
    ls_ticket_clear(folder, 1);
    const ls_ticket_exit saves =
        run(json_pack("[s, s, s]", "bash", "-c", "trap 'exit 75' TERM; while :; do sleep 0.05; done"), 1,
            600.0, 1.0);
    assert_int_equal(saves.cause, LS_CAUSE_LIMIT);
    assert_int_equal(saves.code, 75);
    ls_ticket_clear(folder, 1);
    const ls_ticket_exit quick = run(json_pack("[s]", "true"), 1, 5.0, 600.0);
    assert_int_equal(quick.cause, LS_CAUSE_NONE);
    assert_int_equal(quick.code, 0);
}

/* Reads a file of the job's folder. */
static char *read_whole(const char *name, size_t *bytes_out)
{
    char path[160];
    ls_text text = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char part[4096];
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) {
        ls_text_append_bytes(&text, part, got);
    }
    fclose(file);
    *bytes_out = text.bytes;
    char *copy = strdup(ls_text_string(&text));
    ls_text_release(&text);
    return copy;
}

/* Beginning and end stay, and the line between them counts what was dropped: head + line + tail and
 * the dropped bytes are all that was printed. */
static void check_log(const char *name, size_t printed, const char *first, const char *last)
{
    size_t bytes = 0;
    unsigned long long dropped = 0;
    char *log = read_whole(name, &bytes);
    assert_true(bytes <= 128 * 1024 && bytes > 32 * 1024);
    assert_ptr_equal(strstr(log, first), log);
    assert_non_null(strstr(log + bytes - 64, last));
    const char *line = strstr(log, "\n[lockstep: ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\n[lockstep: %llu bytes were dropped here", &dropped), 1);
    const char *end = strchr(line + 1, '\n');
    assert_int_equal(bytes - (size_t)(end - line) + dropped, printed);
    assert_null(strstr(end, "[lockstep: "));
    free(log);
}

static void runner_cuts_a_long_log(void **state)
{
    (void)state;
    size_t bytes = 0;
    log_max = 128 * 1024;
    assert_int_equal(run_shell("seq 100000 199999; echo end; exit 3").code, 3);
    check_log("log", 7 * 100000 + 4, "100000\n100001\n", "199999\nend\n");
    ls_ticket_clear(folder, 1);
    char path[160];
    snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(unlink(path), 0);
    /* of several ranks, each with a log of its own */
    log_max = 256 * 1024;
    assert_int_equal(
        run(json_pack("[s, s, s]", "bash", "-c",
                      "[ $RANK = 1 ] && exec sleep 600; seq 100000 199999; echo error: end; exit 3"),
            2, 5.0, 0.0)
            .code,
        3);
    check_log("log.0", 7 * 100000 + 11, "100000\n100001\n", "199999\nerror: end\n");
    log_max = 1 << 30;
    free(read_whole("log", &bytes));
    assert_true(bytes <= 256 * 1024);
}

static void runner_sets_up_what_was_asked(void **state)
{
    (void)state;
    size_t bytes = 0;
    unsigned port = 0, low = 32768;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    assert_int_equal(run_shell("umask; echo $OMP_NUM_THREADS $MASTER_PORT").code, 0);
    char *log = read_whole("log", &bytes);
    assert_int_equal(sscanf(log, "0027\n3 %u", &port), 1);
    free(log);
    if (range) {
        assert_int_equal(fscanf(range, "%u", &low), 1);
        fclose(range);
    }
    /* no port that an outgoing connection may get in the meantime */
    assert_in_range(port, 20000, low > 20100 ? low - 1 : 65535);
}

/* Fills the rest of the disk. */
static void fill(const char *path)
{
    char block[4096] = {1};
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0 && write(fd, block, sizeof block) > 0) {
    }
    close(fd);
    for (int i = 0; i < 1000; i++) { /* and all file names */
        char name[160];
        snprintf(name, sizeof name, "%s.%d", path, i);
        const int more = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (more < 0) {
            return;
        }
        close(more);
    }
}

static void runner_on_a_disk_that_fills_up(void **state)
{
    (void)state;
    char path[sizeof folder + 8], plain[sizeof folder];
    memcpy(plain, folder, sizeof plain);
    snprintf(path, sizeof path, "%s/tiny", plain);
    assert_int_equal(mkdir(path, 0700), 0);
    if (mount("lockstep", path, "tmpfs", 0, "size=256k,nr_inodes=64") != 0) {
        print_message("no tmpfs to be had here\n");
        skip();
    }
    char full[128];
    snprintf(full, sizeof full, "%s/full", path);
    snprintf(folder, sizeof folder, "%.*s", (int)sizeof folder - 1, path);
    ls_ticket_state full_state = {0}, after = {0};
    int taken_full = -1, status = 0;
    /* a disk that is full when the ticket should be taken: not now, and nothing is lost */
    write_ticket(work, json_pack("[s]", "true"), 1, 5.0, 0.0);
    fill(full);
    const pid_t early = start_runner();
    waitpid(early, &taken_full, 0);
    const ls_status looked_full = ls_ticket_look(folder, 1, true, &full_state);
    for (int i = 0; i < 1000; i++) {
        char name[208];
        snprintf(name, sizeof name, "%s.%d", full, i);
        unlink(name);
    }
    unlink(full);
    /* a disk that is full from then on: the runner's files have reserved space */
    const pid_t runner = fork();
    if (runner == 0) {
        json_t *ticket = NULL;
        ls_ticket_state said = {0};
        const ls_ticket_exit end = {.code = 3, .cause = LS_CAUSE_PROGRAM, .text = "text", .error = "error"};
        bool good = ls_ticket_take(folder, 1, &ticket) == LS_OK && ticket;
        fill(full);
        good = good && ls_ticket_say_running(folder, 1) == LS_OK;
        good = good && ls_ticket_look(folder, 1, false, &said) == LS_OK && said.is_running;
        good = good && said.stage == LS_TICKET_RUNS && said.pid == getpid() &&
               said.ticks == ls_process_ticks(getpid());
        good = good && ls_ticket_say_exit(folder, 1, &end) == LS_OK;
        _exit(good ? 0 : 1);
    }
    waitpid(runner, &status, 0);
    const ls_status looked = ls_ticket_look(folder, 1, true, &after);
    umount2(path, MNT_DETACH);
    memcpy(folder, plain, sizeof folder);
    assert_int_equal(WEXITSTATUS(taken_full), 4);
    assert_int_equal(looked_full, LS_OK);
    assert_int_equal(full_state.stage, LS_TICKET_WAITS);
    assert_int_equal(status, 0);
    assert_int_equal(looked, LS_OK);
    assert_int_equal(after.stage, LS_TICKET_ENDED);
    assert_int_equal(after.end.code, 3);
    assert_string_equal(after.end.text, "text");
    assert_string_equal(after.end.error, "error");
}

/* The folder belongs to the user: what is read there is trusted no more than necessary. */
static void runner_exit_of_somebody_else(void **state)
{
    (void)state;
    write_ticket(work, json_pack("[s]", "true"), 1, 5.0, 0.0);
    wait_for(start_runner());
    char path[160];
    snprintf(path, sizeof path, "%s/exit-1", folder);
    const char text[] =
        "{\"code\":3,\"cause\":\"lost\",\"text\":\"\\u001b[2Jtext\",\"error\":\"\\u0007\\u202e\"}";
    assert_int_equal(ls_job_file_write(path, text, strlen(text), geteuid(), getegid()), LS_OK);
    ls_ticket_state found = {0};
    assert_int_equal(ls_ticket_look(folder, 1, true, &found), LS_OK);
    assert_int_equal(found.stage, LS_TICKET_ENDED);
    assert_int_equal(found.end.cause, LS_CAUSE_NONE);
    assert_string_equal(found.end.text, "\\x1b[2Jtext");
    assert_string_equal(found.end.error, "\\x07\\xe2\\x80\\xae");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runner_says_why_nothing_began, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_keeps_the_line_that_tells_of_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_keeps_the_time_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_cuts_a_long_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_sets_up_what_was_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_on_a_disk_that_fills_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(runner_exit_of_somebody_else, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
