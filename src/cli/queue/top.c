// SPDX-License-Identifier: Apache-2.0
/* top: a live view of the queue in a terminal; printed once when the output is not a terminal. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"

#include <inttypes.h>
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

static const ls_option top_options[] = {
    LS_ROW_DURATION(top_settings, every, every, "1s", 0.2, 3600, "time between two updates of the view",
                    .letter = 'd'),
    LS_ROW_JSON(top_settings),
};

/* ---- one view ---- */

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
    const int64_t in_use = used < devices ? used : devices;
    const int64_t full = devices > 0 ? (in_use * cells + devices - 1) / devices : 0;
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
    size_t waiting = 0, held = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const char *state = ls_queue_string(json_array_get(jobs, i), "state");
        waiting += state && strcmp(state, "QUEUED") == 0;
        held += state && strcmp(state, "HELD") == 0;
    }
    append_bar(used, devices, text);
    ls_text_printf(text, " %" PRId64 " of %" PRId64 " devices in use, %zu running, %zu waiting", used,
                   devices, json_array_size(jobs) - waiting - held, waiting);
    if (held > 0) {
        ls_text_printf(text, ", %zu held", held);
    }
    ls_text_append(text, "\n");
    const char *paused = ls_queue_string(seen->status, "paused");
    if (paused) {
        ls_text_append(text, "changes are not possible at the moment: ");
        ls_text_append_printable(text, paused, strlen(paused), "");
        ls_text_append(text, "\n");
    }
}

/* Running jobs and when they end. */
static void append_running(const json_t *jobs, ls_arena *arena, size_t width, ls_text *text)
{
    static const char *const titles[] = {"JOB", "RUNS", "STATE", "ACCOUNT", "RANKS", "FOR", "LEFT"};
    static const bool right[] = {true, false, false, false, true, true, true};
    static const bool whole[] = {false, false, true, false, false, false, false};
    ls_table table = {.titles = titles, .right = right, .whole = whole, .columns = 7, .arena = arena};
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (ls_queue_waits(ls_queue_string(job, "state"))) {
            continue;
        }
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "job"));
        ls_table_add(&table, ls_queue_string(job, "name"));
        ls_table_add(&table, ls_queue_string(job, "state"));
        ls_table_add(&table, ls_queue_string(job, "account"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "ranks"));
        ls_table_add_span(&table, now_s - ls_queue_number(job, "started"));
        ls_table_add_span(&table, ls_queue_number(job, "ends") - now_s);
    }
    if (table.count > 0) {
        ls_table_append(&table, width, text);
    }
}

/* Waiting jobs and why they wait. */
static void append_waiting(const json_t *jobs, ls_arena *arena, size_t width, ls_text *text)
{
    static const char *const titles[] = {"JOB", "WAITS", "ACCOUNT", "PRIORITY", "RANKS", "FOR", "WHY"};
    static const bool right[] = {true, false, false, false, true, true, false};
    static const bool whole[] = {false, false, false, true, false, false, false};
    ls_table table = {.titles = titles, .right = right, .whole = whole, .columns = 7, .arena = arena};
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        if (!ls_queue_waits(ls_queue_string(job, "state"))) {
            continue;
        }
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "job"));
        ls_table_add(&table, ls_queue_string(job, "name"));
        ls_table_add(&table, ls_queue_string(job, "account"));
        ls_table_add(&table, ls_queue_string(job, "priority"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(job, "ranks"));
        ls_table_add_span(&table, now_s - ls_queue_number(job, "queued"));
        ls_table_add(&table, ls_queue_string(job, "why"));
    }
    if (table.count > 0) {
        ls_text_append(text, text->bytes > 0 ? "\n" : "");
        ls_table_append(&table, width, text);
    }
}

/* head: stays at the top; jobs: can be scrolled. */
static void append_look(const look *seen, size_t width, ls_text *head, ls_text *jobs)
{
    ls_arena arena = {0};
    const json_t *list = json_object_get(seen->jobs, "jobs");
    append_summary(seen, head);
    ls_text_append(head, "\n");
    ls_queue_append_nodes(json_object_get(seen->nodes, "nodes"), &arena, width, head);
    append_running(list, &arena, width, jobs);
    append_waiting(list, &arena, width, jobs);
    ls_arena_release(&arena);
}

/* ---- the terminal ---- */

static volatile sig_atomic_t is_interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    is_interrupted = 1;
}

/* Interrupts poll(), so that everything is drawn in the new size. */
static void resized(int signal_number)
{
    (void)signal_number;
}

static size_t terminal_rows(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++) {
        lines += *text == '\n';
    }
    return lines;
}

/* At most `rows` lines of a text from line `first` on, each cut to the width and cleared to its
 * end. Returns how many. */
static size_t append_lines(const char *text, size_t first, size_t rows, size_t width, ls_text *frame)
{
    size_t drawn = 0;
    for (const char *line = text; *line && drawn < rows;) {
        const size_t bytes = strcspn(line, "\n");
        size_t kept = 0, seen = 0;
        for (; kept < bytes; kept++) {
            const bool begins = ((unsigned char)line[kept] & 0xC0) != 0x80;
            if (begins && seen++ == width) {
                break;
            }
        }
        if (first > 0) {
            first--;
        } else {
            ls_text_append_bytes(frame, line, kept);
            ls_text_append(frame, "\033[K\r\n");
            drawn++;
        }
        line += bytes + (line[bytes] == '\n');
    }
    return drawn;
}

/* The head takes at most half of the screen and the last row explains the keys; the rest shows jobs
 * from line *first on. */
static void draw(const char *head, const char *jobs, size_t width, size_t *first)
{
    ls_text frame = {0}, keys = {0};
    const size_t rows = terminal_rows(), lines = count_lines(jobs);
    ls_text_append(&frame, "\033[H");
    size_t used = append_lines(head, 0, rows / 2, width, &frame);
    if (used + 2 < rows) {
        ls_text_append(&frame, "\033[K\r\n");
        used++;
    }
    const size_t room = rows > used + 1 ? rows - used - 1 : 0, last = lines > room ? lines - room : 0;
    *first = *first < last ? *first : last;
    append_lines(jobs, *first, room, width, &frame);
    ls_text_append(&frame, "\033[J");
    ls_text_printf(&keys, "q quits%s", last > 0 ? ", arrows scroll" : "");
    if (last > 0) {
        ls_text_printf(&keys, "; lines %zu to %zu of %zu", *first + 1, *first + room, lines);
    }
    ls_text_printf(&frame, "\033[%zu;1H%.*s", rows, (int)width, ls_text_string(&keys));
    fputs(ls_text_string(&frame), stdout);
    fflush(stdout);
    ls_text_release(&keys);
    ls_text_release(&frame);
}

typedef enum key { KEY_NONE, KEY_END, KEY_DOWN, KEY_UP, KEY_PAGE_DOWN, KEY_PAGE_UP } key;

/* The key that `text` begins with; text is advanced past it. */
static key take_key(const char **text)
{
    static const struct {
        const char *sent;
        key is;
    } keys[] = {{"q", KEY_END},          {"Q", KEY_END},       {"\003", KEY_END},  {"j", KEY_DOWN},
                {"\033[B", KEY_DOWN},    {"\033OB", KEY_DOWN}, {"k", KEY_UP},      {"\033[A", KEY_UP},
                {"\033OA", KEY_UP},      {" ", KEY_PAGE_DOWN}, {"b", KEY_PAGE_UP}, {"\033[6~", KEY_PAGE_DOWN},
                {"\033[5~", KEY_PAGE_UP}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const size_t bytes = strlen(keys[i].sent);
        if (strncmp(*text, keys[i].sent, bytes) == 0) {
            *text += bytes;
            return keys[i].is;
        }
    }
    *text += 1;
    return KEY_NONE;
}

/* Waits until the next update is due, or for keys, which move *first. True: q was pressed. */
static bool wait_for_key(double every_s, bool has_keys, size_t *first)
{
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    char typed[64] = "";
    if (poll(&wait, has_keys ? 1 : 0, (int)(1e3 * every_s)) <= 0) {
        return is_interrupted != 0;
    }
    const ssize_t bytes = read(STDIN_FILENO, typed, sizeof typed - 1);
    const size_t page = terminal_rows() / 2;
    bool ends = bytes <= 0;
    for (const char *at = typed; *at && !ends;) {
        const key pressed = take_key(&at);
        ends = pressed == KEY_END;
        *first += pressed == KEY_DOWN ? 1 : pressed == KEY_PAGE_DOWN ? page : 0;
        const size_t back = pressed == KEY_UP ? 1 : pressed == KEY_PAGE_UP ? page : 0;
        *first -= *first < back ? *first : back;
    }
    return ends;
}

static ls_status watch(const top_settings *settings, bool has_keys)
{
    for (size_t first = 0;;) {
        look seen;
        ls_text head = {0}, jobs = {0};
        const ls_status status = take_look(&seen);
        if (status == LS_ERR_FAILED || status == LS_ERR_IO) { /* the daemon may return soon */
            ls_text_printf(&head, "%s\n", ls_error_text());
        } else if (status != LS_OK) {
            return status;
        }
        const size_t width = ls_terminal_width();
        if (status == LS_OK) {
            append_look(&seen, width, &head, &jobs);
            release_look(&seen);
        }
        draw(ls_text_string(&head), ls_text_string(&jobs), width, &first);
        ls_text_release(&head);
        ls_text_release(&jobs);
        if (is_interrupted || wait_for_key(settings->every, has_keys, &first)) {
            return LS_OK;
        }
    }
}

/* Uses the alternate screen and keys without echo; everything is restored, after SIGINT and SIGTERM
 * as well. */
static ls_status run_live(const top_settings *settings)
{
    struct termios before, raw;
    const bool has_keys = tcgetattr(STDIN_FILENO, &before) == 0;
    struct sigaction action = {.sa_handler = interrupt}, redraw = {.sa_handler = resized}, old_int, old_term,
                     old_size;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    sigaction(SIGWINCH, &redraw, &old_size);
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
    sigaction(SIGWINCH, &old_size, NULL);
    return status;
}

static ls_status run_top(const ls_invocation *invocation)
{
    const top_settings *settings = invocation->settings;
    look seen;
    LS_TRY(take_look(&seen)); /* without a daemon, the error appears on the normal screen */
    if (settings->json) {
        json_t *root =
            json_pack("{s:O, s:O, s:O}", "status", seen.status, "nodes", json_object_get(seen.nodes, "nodes"),
                      "jobs", json_object_get(seen.jobs, "jobs"));
        ls_print_json(root);
        json_decref(root);
    } else if (ls_terminal_width() == 0) {
        ls_text head = {0}, jobs = {0};
        append_look(&seen, 0, &head, &jobs);
        printf("%s\n%s", ls_text_string(&head), ls_text_string(&jobs));
        ls_text_release(&head);
        ls_text_release(&jobs);
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
    .summary = "show a live view of the queue",
    .details = "Shows machines, running jobs and when they end, waiting jobs and why they wait,\n"
               "and updates once a second. Arrows, j, k, space and b scroll; q quits. When the\n"
               "output is not a terminal, prints once and exits.\n"
               "\n"
               "Example:\n"
               "  lockstep top --every 5s",
    LS_SETTINGS(top_settings, top_options),
    .run = run_top,
};
