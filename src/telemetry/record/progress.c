// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/progress.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 20, REDRAW_MS = 100, SILENCE_S = 30 };

struct ls_progress {
    ls_progress_options options;
    bool terminal, color, unicode;
    ls_step_metrics last;
    double val_loss; /* NaN: none */
    double begun_s;
    double spoke_s; /* when the line was last drawn */
    double stepped_s;
    uint64_t seen;               /* steps seen */
    double speed;                /* tokens per second within steps, smoothed */
    double sent, dense, saved_s; /* as in ls_step_metrics, of all steps seen */
    double interval_s;           /* wall time from step to step, with all between; smoothed */
    const char *activity;
    char advice[256];
    char told_remedy[256]; /* of the advice that was printed in full */
    ls_text line;
};

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && value[0];
}

static bool locale_is_utf8(void)
{
    const char *value = is_set("LC_ALL")     ? getenv("LC_ALL")
                        : is_set("LC_CTYPE") ? getenv("LC_CTYPE")
                                             : getenv("LANG");
    return value && (strstr(value, "UTF-8") || strstr(value, "utf8"));
}

ls_status ls_progress_create(const ls_progress_options *options, ls_progress **progress_out)
{
    ls_progress *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the progress line");
    }
    p->options = *options;
    const char *term = getenv("TERM");
    p->terminal = options->out && isatty(fileno(options->out)) && term && strcmp(term, "dumb") != 0;
    p->color = p->terminal && !is_set("NO_COLOR");
    p->unicode = p->terminal && locale_is_utf8();
    p->val_loss = NAN;
    p->begun_s = p->spoke_s = ls_clock_monotonic_s();
    if (p->options.every_steps == 0) {
        p->options.every_steps = options->steps / 20 ? options->steps / 20 : 1;
    }
    *progress_out = p;
    return LS_OK;
}

/* ---- pieces of the line ---- */

static int terminal_columns(const ls_progress *p)
{
    struct winsize size;
    if (ioctl(fileno(p->options.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return 80;
}

/* Number of columns of a line: code points, without escape sequences. */
static int display_width(const char *text)
{
    int width = 0;
    for (; *text; text++) {
        if (*text == '\033') {
            while (*text && *text != 'm') {
                text++;
            }
            if (!*text) {
                break;
            }
        } else if (((unsigned char)*text & 0xc0) != 0x80) {
            width++;
        }
    }
    return width;
}

static void style(const ls_progress *p, ls_text *line, const char *sgr)
{
    if (p->color) {
        ls_text_printf(line, "\033[%sm", sgr);
    }
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
    const uint64_t s = seconds > 0.0 && seconds < 1e15 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 48 * 3600) {
        ls_text_printf(line, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
    } else if (s >= 3600) {
        ls_text_printf(line, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    } else if (s >= 60) {
        ls_text_printf(line, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    } else {
        ls_text_printf(line, "%" PRIu64 "s", s);
    }
}

static void append_memory(ls_text *line, double bytes)
{
    const bool gib = bytes >= 10.0 * 1073741824.0;
    ls_text_printf(line, gib ? "  %.1f GiB" : "  %.0f MiB", bytes / (gib ? 1073741824.0 : 1048576.0));
}

static double fraction_done(const ls_progress *p)
{
    const double steps = (double)p->options.steps, step = (double)p->last.step;
    return p->options.steps > 0 && step < steps ? step / steps : 1.0;
}

static void append_bar(const ls_progress *p, ls_text *line, int cells)
{
    const int full = (int)(fraction_done(p) * cells);
    ls_text_append(line, p->unicode ? "  " : "  [");
    style(p, line, "36");
    for (int i = 0; i < full; i++) {
        ls_text_append(line, p->unicode ? "\u2501" : "#");
    }
    style(p, line, "0;2");
    for (int i = full; i < cells; i++) {
        ls_text_append(line, p->unicode ? "\u2500" : "-");
    }
    style(p, line, "0");
    ls_text_append(line, p->unicode ? "" : "]");
}

/* ---- the line ---- */

/* Forms of the line, each shorter than the one before it. */
typedef struct line_form {
    int bar_cells;
    bool memory, mfu, pace, speed, val;
} line_form;

static const line_form forms[] = {
    {BAR_CELLS, true, true, true, true, true}, {BAR_CELLS / 2, true, true, true, true, true},
    {0, true, true, true, true, true},         {0, false, true, true, true, true},
    {0, false, false, true, true, true},       {0, false, false, false, true, true},
    {0, false, false, false, false, true},     {0, false, false, false, false, false},
};
enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

/* Of a step, in the mean of all: with local steps most send nothing. */
static void append_link(const ls_progress *p, ls_text *line)
{
    ls_text_printf(line, "  %.3g MB sent", 1e-6 * p->sent / (double)p->seen);
    if (p->dense > p->sent) {
        ls_text_printf(line, " (%.3gx less", p->dense / p->sent);
        if (p->saved_s >= 1.0) {
            ls_text_append(line, ", ");
            append_duration(line, p->saved_s);
            ls_text_append(line, " saved");
        }
        ls_text_append(line, ")");
    }
    if (p->last.residual_norm > 0.0) {
        ls_text_printf(line, "  left over %.3g", p->last.residual_norm);
    }
}

static void compose_numbers(const ls_progress *p, const line_form *form, ls_text *line)
{
    const ls_step_metrics *m = &p->last;
    ls_text_printf(line, "step %" PRIu64 "/%" PRIu64, m->step, p->options.steps);
    if (form->bar_cells > 0) {
        append_bar(p, line, form->bar_cells);
    }
    ls_text_printf(line, " %3.0f %%  loss ", floor(100.0 * fraction_done(p)));
    style(p, line, "1");
    ls_text_printf(line, "%.4f", (double)m->loss);
    style(p, line, "0");
    if (form->val && isfinite(p->val_loss)) {
        ls_text_printf(line, "  val %.4f", p->val_loss);
    }
    if (form->pace && (m->lr > 0.0 || m->grad_norm > 0.0)) {
        ls_text_printf(line, "  lr %.3g  norm %.3g", m->lr, m->grad_norm);
    }
    if (form->speed) {
        ls_text_append(line, "  ");
        append_grouped(line, p->speed);
        ls_text_append(line, " tok/s");
    }
    if (form->mfu && m->mfu > 0.0 && m->tokens_per_s > 0.0) { /* at that speed */
        ls_text_printf(line, "  MFU %.0f %%", 100.0 * m->mfu * p->speed / m->tokens_per_s);
    }
    if (form->memory && p->sent > 0.0) {
        append_link(p, line);
    }
    if (form->memory && m->rss_bytes > 0) {
        append_memory(line, (double)m->rss_bytes);
    }
    if (p->options.steps > m->step) {
        ls_text_append(line, "  ");
        append_duration(line, (double)(p->options.steps - m->step) * p->interval_s);
        ls_text_append(line, " left");
    } else {
        ls_text_append(line, "  in ");
        append_duration(line, ls_clock_monotonic_s() - p->begun_s);
    }
}

/* The activity, or the first `bytes` of the advice, in yellow. */
static void compose(ls_progress *p, const line_form *form, size_t advice_bytes)
{
    ls_text_clear(&p->line);
    compose_numbers(p, form, &p->line);
    if (p->activity) {
        ls_text_printf(&p->line, "  %s%s", p->activity, p->unicode ? "\u2026" : "...");
    } else if (advice_bytes > 0) {
        ls_text_append(&p->line, "  ");
        style(p, &p->line, "33");
        ls_text_append_bytes(&p->line, p->advice, advice_bytes);
        style(p, &p->line, "0");
    }
}

/*
 * Chooses the form that fits. Advice is tried in full ("61 % busy: 28 % waiting for data, try
 * ..."), without its remedy, and as its first words, each with as many numbers as leave room; then
 * numbers alone.
 */
static void compose_for_width(ls_progress *p, int columns)
{
    /* forms_tried[i]: with advice of advice_bytes[i], how many of the forms are tried */
    const char *remedy = strstr(p->advice, ", try "), *loss = strstr(p->advice, ": ");
    const size_t advice_bytes[] = {strlen(p->advice), remedy ? (size_t)(remedy - p->advice) : 0,
                                   loss ? (size_t)(loss - p->advice) : 0, 0};
    static const int forms_tried[] = {3, 3, 6, FORM_COUNT};
    for (int i = 0; i < 4; i++) {
        for (int form = 0; form < forms_tried[i]; form++) {
            compose(p, &forms[form], advice_bytes[i]);
            if (display_width(ls_text_string(&p->line)) < columns) {
                return;
            }
        }
    }
    ls_text_clear(&p->line);
    ls_text_printf(&p->line, "%" PRIu64 "/%" PRIu64 " %.4f", p->last.step, p->options.steps,
                   (double)p->last.loss);
    if ((int)p->line.bytes >= columns && columns > 1) {
        p->line.data[columns - 1] = '\0';
    }
}

static void draw(ls_progress *p)
{
    compose_for_width(p, terminal_columns(p));
    fprintf(p->options.out, "\r\033[K%s", ls_text_string(&p->line));
    fflush(p->options.out);
    p->spoke_s = ls_clock_monotonic_s();
}

static void print_plain(ls_progress *p)
{
    static const line_form plain = {0, true, true, true, true, true};
    const char *activity = p->activity;
    p->activity = NULL;
    compose(p, &plain, strlen(p->advice));
    p->activity = activity;
    fprintf(p->options.out, "%s\n", ls_text_string(&p->line));
    fflush(p->options.out);
    p->spoke_s = ls_clock_monotonic_s();
}

/* ---- calls ---- */

/* Means over about the last 30 steps. The first step warms up, so it counts only while there is no
 * other. */
static void smooth(ls_progress *p, const ls_step_metrics *m, double now_s)
{
    const double share = p->seen < 2 ? 1.0 : fmax(1.0 / (double)p->seen, 1.0 / 30);
    p->speed += share * (m->tokens_per_s - p->speed);
    const double interval_s = p->seen == 0 ? m->step_s : now_s - p->stepped_s;
    p->interval_s += share * (interval_s - p->interval_s);
    p->stepped_s = now_s;
    p->sent += (double)m->link_bytes;
    p->dense += (double)m->dense_bytes;
    p->saved_s += m->saved_s;
    p->seen++;
}

void ls_progress_step(ls_progress *p, const ls_step_metrics *metrics)
{
    const bool first = p->seen == 0, last = metrics->step >= p->options.steps;
    const double now_s = ls_clock_monotonic_s();
    p->last = *metrics;
    smooth(p, metrics, now_s);
    if (!p->options.out) {
        return;
    }
    if (p->terminal) {
        if (first || last || now_s - p->spoke_s > 1e-3 * REDRAW_MS) {
            draw(p);
        }
    } else if (first || last || metrics->step % p->options.every_steps == 0 ||
               now_s - p->spoke_s > SILENCE_S) {
        print_plain(p);
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
    if (p->terminal && p->seen > 0) {
        draw(p);
    }
}

/* The line of a terminal may be too short for the remedy, so the advice is printed once in full. */
void ls_progress_advice(ls_progress *p, const char *advice)
{
    snprintf(p->advice, sizeof p->advice, "%s", advice ? advice : "");
    const char *remedy = strstr(p->advice, ", try ");
    if (p->terminal && remedy && strcmp(p->told_remedy, remedy) != 0) {
        snprintf(p->told_remedy, sizeof p->told_remedy, "%s", remedy);
        ls_progress_print(p, "%s", p->advice);
    }
}

/*
 * A printed text may come from a model. A control character in it (escape sequences begin with one)
 * would act on the terminal, and U+FFFD, which stands for half a character, looks like a fault of
 * the program: each becomes a middle dot. New lines and tabs stay. C1 controls are two bytes in
 * UTF-8, 0xc2 and 0x80 to 0x9f.
 */
static void append_harmless(ls_text *line, const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        const bool c0 = (*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f;
        const bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        const bool half = at[0] == 0xef && at[1] == 0xbf && at[2] == 0xbd;
        if (c0 || c1 || half) {
            ls_text_append(line, "\u00b7");
            at += c1 ? 1 : half ? 2 : 0;
        } else {
            ls_text_append_bytes(line, at, 1);
        }
    }
}

void ls_progress_print(ls_progress *p, const char *format, ...)
{
    if (!p->options.out) {
        return;
    }
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    ls_text_clear(&p->line);
    append_harmless(&p->line, ls_text_string(&text));
    ls_text_release(&text);
    fprintf(p->options.out, "%s%s\n", p->terminal ? "\r\033[K" : "", ls_text_string(&p->line));
    if (p->terminal && p->seen > 0) {
        draw(p);
    }
    fflush(p->options.out);
}

void ls_progress_destroy(ls_progress *p)
{
    if (!p) {
        return;
    }
    if (p->terminal && p->seen > 0) {
        draw(p);
        fputc('\n', p->options.out);
        fflush(p->options.out);
    }
    ls_text_release(&p->line);
    free(p);
}
