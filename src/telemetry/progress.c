// SPDX-License-Identifier: Apache-2.0
#include "telemetry/progress.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct ls_progress {
    ls_progress_options options;
    bool terminal;
    ls_step_metrics last;
    double val_loss; /* NaN: none */
    double begun_s, drawn_s;
    double speed; /* tokens per second, smoothed */
    double step_s;
    const char *activity;
    char advice[256];
    ls_text line;
};

ls_status ls_progress_create(const ls_progress_options *options, ls_progress **progress_out)
{
    ls_progress *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the progress line");
    }
    p->options = *options;
    const char *term = getenv("TERM");
    p->terminal = options->out && isatty(fileno(options->out)) && term && strcmp(term, "dumb") != 0;
    p->val_loss = NAN;
    p->begun_s = ls_clock_monotonic_s();
    if (p->options.every_steps == 0) {
        p->options.every_steps = options->steps / 20 ? options->steps / 20 : 1;
    }
    *progress_out = p;
    return LS_OK;
}

/* ---- the line ---- */

static int terminal_columns(const ls_progress *p)
{
    struct winsize size;
    if (ioctl(fileno(p->options.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return 80;
}

static void append_grouped(ls_text *line, double value)
{
    char digits[32];
    const int count = snprintf(digits, sizeof digits, "%.0f", value);
    for (int i = 0; i < count; i++) {
        ls_text_printf(line, "%s%c", i > 0 && (count - i) % 3 == 0 ? "," : "", digits[i]);
    }
}

static void append_duration(ls_text *line, double seconds)
{
    const uint64_t s = seconds > 0.0 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600) {
        ls_text_printf(line, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    } else {
        ls_text_printf(line, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    }
}

static void append_bar(ls_text *line, double fraction)
{
    const int cells = 10, full = (int)(fraction * cells);
    ls_text_append(line, " [");
    ls_text_repeat(line, '#', (size_t)full);
    ls_text_repeat(line, '-', (size_t)(cells - full));
    ls_text_append(line, "]");
}

static void compose(ls_progress *p, bool bar)
{
    ls_text *line = &p->line;
    const ls_step_metrics *m = &p->last;
    ls_text_clear(line);
    ls_text_printf(line, "step %" PRIu64 "/%" PRIu64, m->step, p->options.steps);
    if (bar) {
        append_bar(line, p->options.steps ? (double)m->step / (double)p->options.steps : 1.0);
    }
    ls_text_printf(line, " loss %.4f", (double)m->loss);
    if (isfinite(p->val_loss)) {
        ls_text_printf(line, " val %.4f", p->val_loss);
    }
    ls_text_append(line, " | ");
    append_grouped(line, p->speed);
    ls_text_append(line, " tok/s");
    if (m->mfu > 0.0) {
        ls_text_printf(line, " | MFU %.0f %%", 100.0 * m->mfu);
    }
    ls_text_printf(line, " | %.0f MiB | ", (double)m->rss_bytes / 1048576.0);
    append_duration(line, (double)(p->options.steps - m->step) * p->step_s);
    ls_text_append(line, " left");
    if (p->activity) {
        ls_text_printf(line, " | %s", p->activity);
    } else if (p->advice[0]) {
        ls_text_printf(line, " | %s", p->advice);
    }
}

static void draw(ls_progress *p)
{
    compose(p, true);
    const int columns = terminal_columns(p);
    if ((int)p->line.bytes >= columns) {
        compose(p, false);
    }
    fprintf(p->options.out, "\r\033[K%.*s", columns - 1, ls_text_string(&p->line));
    fflush(p->options.out);
    p->drawn_s = ls_clock_monotonic_s();
}

/* ---- calls ---- */

void ls_progress_step(ls_progress *p, const ls_step_metrics *metrics)
{
    const bool first = p->last.step == 0;
    p->last = *metrics;
    p->speed = first ? metrics->tokens_per_s : 0.9 * p->speed + 0.1 * metrics->tokens_per_s;
    p->step_s = first ? metrics->step_s : 0.9 * p->step_s + 0.1 * metrics->step_s;
    if (!p->options.out) {
        return;
    }
    const bool last = metrics->step >= p->options.steps;
    if (p->terminal) {
        if (first || last || ls_clock_monotonic_s() - p->drawn_s > 0.1) {
            draw(p);
        }
    } else if (first || last || metrics->step % p->options.every_steps == 0) {
        compose(p, false);
        fprintf(p->options.out, "%s\n", ls_text_string(&p->line));
        fflush(p->options.out);
    }
}

void ls_progress_validation(ls_progress *p, double val_loss)
{
    p->val_loss = val_loss;
    if (p->options.out && !p->terminal) {
        ls_progress_print(p, "step %" PRIu64 " validation loss %.4f", p->last.step, val_loss);
    }
}

void ls_progress_activity(ls_progress *p, const char *what)
{
    p->activity = what;
    if (p->terminal && p->last.step > 0) {
        draw(p);
    }
}

void ls_progress_advice(ls_progress *p, const char *advice)
{
    snprintf(p->advice, sizeof p->advice, "%s", advice ? advice : "");
}

void ls_progress_print(ls_progress *p, const char *format, ...)
{
    if (!p->options.out) {
        return;
    }
    if (p->terminal) {
        fputs("\r\033[K", p->options.out);
    }
    va_list args;
    va_start(args, format);
    vfprintf(p->options.out, format, args);
    va_end(args);
    fputc('\n', p->options.out);
    if (p->terminal && p->last.step > 0) {
        draw(p);
    }
    fflush(p->options.out);
}

void ls_progress_destroy(ls_progress *p)
{
    if (!p) {
        return;
    }
    if (p->terminal && p->last.step > 0) {
        draw(p);
        fputc('\n', p->options.out);
        fflush(p->options.out);
    }
    ls_text_release(&p->line);
    free(p);
}
