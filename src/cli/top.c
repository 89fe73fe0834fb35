// SPDX-License-Identifier: Apache-2.0
/* top: the queue as it goes on, in a terminal. Where output is no terminal, one print of it. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue.h"
#include "cli/table.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

typedef struct top_settings {
    double every;
    bool json;
} top_settings;

#define FIELD(name) .offset = offsetof(top_settings, name)

static const ls_option top_options[] = {
    {.key = "every",
     .letter = 'd',
     .type = LS_OPTION_DURATION,
     FIELD(every),
     .default_text = "1s",
     .min = 0.2,
     .max = 3600,
     .help = "time between two looks"},
    LS_ROW_JSON(top_settings),
};
static const ls_option_table top_table = LS_OPTIONS(top_options);

/* ---- one look ---- */

typedef struct look {
    json_t *status, *nodes, *jobs;
} look;

static void release_look(look *seen)
{
    json_decref(seen->status);
    json_decref(seen->nodes);
    json_decref(seen->jobs);
    *seen = (look){0};
}

static ls_status take_look(look *seen_out)
{
    look seen = {0};
    ls_status status = ls_queue_get(&seen.status, "/v1/status");
    status = status != LS_OK ? status : ls_queue_get(&seen.nodes, "/v1/nodes");
    status = status != LS_OK ? status : ls_queue_get(&seen.jobs, "/v1/jobs");
    if (status != LS_OK) {
        release_look(&seen);
        return status;
    }
    *seen_out = seen;
    return LS_OK;
}

static void append_bar(int64_t used, int64_t devices, ls_text *text)
{
    enum { WIDE = 32 };
    const int64_t cells = devices < WIDE ? devices : WIDE;
    const int64_t full = devices > 0 ? (used * cells + devices - 1) / devices : 0;
    ls_text_append(text, "[");
    ls_text_repeat(text, '#', (size_t)full);
    ls_text_repeat(text, '.', (size_t)(cells - full));
    ls_text_append(text, "]");
}

static void append_summary(const look *seen, ls_text *text)
{
    const int64_t devices = ls_queue_integer(seen->status, "devices"),
                  used = ls_queue_integer(seen->status, "devices_used");
    const json_t *jobs = json_object_get(seen->jobs, "jobs");
    size_t waiting = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        waiting += ls_queue_waits(ls_queue_string(json_array_get(jobs, i), "state"));
    }
    append_bar(used, devices, text);
    ls_text_printf(text, " %" PRId64 " of %" PRId64 " devices in use, %zu running, %zu waiting\n", used,
                   devices, json_array_size(jobs) - waiting, waiting);
    const char *paused = ls_queue_string(seen->status, "paused");
    if (paused) {
        ls_text_append(text, "nothing can be changed for now: ");
        ls_text_append_printable(text, paused, strlen(paused), "");
        ls_text_append(text, "\n");
    }
}

static void append_look(const look *seen, size_t width, ls_text *text)
{
    ls_arena arena = {0};
    append_summary(seen, text);
    ls_text_append(text, "\n");
    ls_queue_append_nodes(json_object_get(seen->nodes, "nodes"), &arena, width, text);
    ls_text_append(text, "\n");
    ls_queue_append_jobs(json_object_get(seen->jobs, "jobs"), &arena, width, text);
    ls_arena_release(&arena);
}

/* ---- the terminal ---- */

static volatile sig_atomic_t is_interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    is_interrupted = 1;
}

static size_t terminal_rows(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* As many lines as fit, each cut to the width and cleared to its end; then everything below is cleared. */
static void draw(const char *page, size_t width)
{
    ls_text frame = {0};
    size_t rows = terminal_rows();
    ls_text_append(&frame, "\033[H");
    for (const char *line = page; *line && rows > 1; rows--) {
        const size_t bytes = strcspn(line, "\n");
        size_t kept = 0, seen = 0;
        for (; kept < bytes; kept++) {
            const bool begins = ((unsigned char)line[kept] & 0xC0) != 0x80;
            if (begins && seen++ == width) {
                break;
            }
        }
        ls_text_append_bytes(&frame, line, kept);
        ls_text_append(&frame, "\033[K\r\n");
        line += bytes + (line[bytes] == '\n');
    }
    ls_text_append(&frame, "\033[J");
    fputs(ls_text_string(&frame), stdout);
    fflush(stdout);
    ls_text_release(&frame);
}

/* Waits for the next look. True: a key asks for the end. */
static bool wait_for_key(double every_s, bool has_keys)
{
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    if (poll(&wait, has_keys ? 1 : 0, (int)(1e3 * every_s)) <= 0) {
        return is_interrupted != 0;
    }
    const ssize_t bytes = read(STDIN_FILENO, &key, 1);
    return bytes <= 0 || key == 'q' || key == 'Q' || key == 3;
}

static ls_status watch(const top_settings *settings, bool has_keys)
{
    for (;;) {
        look seen;
        ls_text page = {0};
        const ls_status status = take_look(&seen);
        if (status == LS_ERR_FAILED || status == LS_ERR_IO) { /* it may be back in a moment */
            ls_text_printf(&page, "%s\n", ls_error_text());
        } else if (status != LS_OK) {
            return status;
        }
        const size_t width = ls_terminal_width();
        if (status == LS_OK) {
            append_look(&seen, width, &page);
            release_look(&seen);
        }
        ls_text_append(&page, "\nq ends");
        draw(ls_text_string(&page), width);
        ls_text_release(&page);
        if (is_interrupted || wait_for_key(settings->every, has_keys)) {
            return LS_OK;
        }
    }
}

/* The alternate screen, keys without echo; everything is put back, also behind SIGINT and SIGTERM. */
static ls_status run_live(const top_settings *settings)
{
    struct termios before, raw;
    const bool has_keys = tcgetattr(STDIN_FILENO, &before) == 0;
    struct sigaction action = {.sa_handler = interrupt}, old_int, old_term;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    if (has_keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout);
    const ls_status status = watch(settings, has_keys);
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (has_keys) {
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    return status;
}

static ls_status run_top(const ls_invocation *invocation)
{
    const top_settings *settings = invocation->settings;
    look seen;
    LS_TRY(take_look(&seen)); /* no daemon is said on the normal screen */
    if (settings->json) {
        json_t *root =
            json_pack("{s:O, s:O, s:O}", "status", seen.status, "nodes", json_object_get(seen.nodes, "nodes"),
                      "jobs", json_object_get(seen.jobs, "jobs"));
        ls_print_json(root);
        json_decref(root);
    } else if (ls_terminal_width() == 0) {
        ls_text text = {0};
        append_look(&seen, 0, &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    } else {
        release_look(&seen);
        return run_live(settings);
    }
    release_look(&seen);
    return LS_OK;
}

const ls_command ls_command_top = {
    .name = "top",
    .words = "",
    .summary = "the queue as it goes on, in this terminal",
    .details =
        "Machines, jobs that run and jobs that wait, looked at once a second; q ends it. Where output is no "
        "terminal, it prints once and ends.",
    .options = &top_table,
    .settings_bytes = sizeof(top_settings),
    .run = run_top,
};
