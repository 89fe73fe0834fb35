// SPDX-License-Identifier: Apache-2.0
/*
 * plan: the first screen. What a reader needs to decide, in at most 20 lines of at most 80 columns:
 * verdict, run, memory, step, strategy, cost, alternatives, and the assumptions that matter most.
 * Long lines are wrapped; alternatives and assumptions give way where the verdict needs the room.
 */
#include "cli/plan/plan.h"

#include <inttypes.h>

enum { COLUMNS = 80, INDENT = 12, LINES_MOST = 20 };

/* Bytes up to the next blank where a line may break: a number keeps its percent sign. */
static size_t word_bytes(const char *at)
{
    size_t bytes = strcspn(at, " ");
    while (at[bytes] == ' ' && at[bytes + 1] == '%') {
        bytes += 1 + strcspn(at + bytes + 1, " ");
    }
    return bytes;
}

/* A heading and `words`, broken at blanks; further lines are indented. */
static void append_wrapped(const char *heading, const char *words, ls_text *text)
{
    ls_text_printf(text, "%-*s", INDENT, heading);
    size_t column = INDENT;
    for (const char *at = words; *at;) {
        const size_t bytes = word_bytes(at);
        if (column + bytes + (column > INDENT) > COLUMNS && column > INDENT) {
            ls_text_printf(text, "\n%*s", INDENT, "");
            column = INDENT;
        }
        if (column > INDENT) {
            ls_text_append(text, " ");
            column++;
        }
        ls_text_append_bytes(text, at, bytes);
        column += bytes;
        at += bytes + strspn(at + bytes, " ");
    }
    ls_text_append(text, "\n");
}

static void append_owned(const char *heading, ls_text *line, ls_text *text)
{
    append_wrapped(heading, ls_text_string(line), text);
    ls_text_release(line);
}

static void append_verdict(const ls_plan_answer *answer, ls_text *text)
{
    const bool is_refused = answer->refusal != NULL;
    const ls_verdict_kind kind = is_refused ? LS_VERDICT_DONT : answer->verdict.kind;
    append_wrapped(ls_verdict_kind_name(kind), is_refused ? answer->refusal : answer->verdict.reason, text);
}

/* A whole portfolio in one line; --all has the table. */
static void append_portfolio(const ls_plan_answer *answer, ls_text *text)
{
    if (!answer->runs || answer->runs->table.count == 0) {
        return;
    }
    const ls_runs *table = &answer->runs->table;
    ls_text line = {0};
    ls_text_printf(&line, "%zu models, %s runs a month for %s (--all lists them); below is %s", table->count,
                   ls_plain_of(table->runs_per_month).text, ls_usd_of(table->month_usd).text,
                   answer->examined ? answer->examined->name : answer->shape.name);
    append_owned("portfolio", &line, text);
}

static void append_run(const ls_plan_answer *answer, ls_text *text)
{
    const double step_s = answer->estimate.time.step_s;
    ls_text line = {0};
    ls_text_printf(&line, "%s, %s tokens on %" PRId64 " x %s: %s (%+.0f to %+.0f %%)", answer->shape.name,
                   ls_quantity_of(answer->tokens).text, answer->setting.gpus, answer->node.accelerator->name,
                   ls_time_of(86400.0 * answer->days).text, 100.0 * (answer->band.low_s / step_s - 1.0),
                   100.0 * (answer->band.high_s / step_s - 1.0));
    append_owned("run", &line, text);
}

static void append_memory(const ls_plan_answer *answer, ls_text *text)
{
    const ls_memory_estimate *memory = &answer->estimate.memory;
    ls_text line = {0};
    ls_text_printf(&line, "%.1f of %.0f GiB per GPU: %s", memory->total / LS_PLAN_GIB,
                   memory->capacity / LS_PLAN_GIB, ls_plan_fit_name(answer->estimate.fit));
    append_owned("memory", &line, text);
}

static void append_step(const ls_plan_answer *answer, ls_text *text)
{
    const ls_estimate *estimate = &answer->estimate;
    ls_text line = {0};
    ls_text_printf(&line, "%s (%s to %s), MFU %.1f %%, %s tokens/s", ls_time_of(estimate->time.step_s).text,
                   ls_time_of(answer->band.low_s).text, ls_time_of(answer->band.high_s).text,
                   100.0 * estimate->mfu, ls_quantity_of(estimate->tokens_ps).text);
    append_owned("step", &line, text);
}

static void append_strategy(const ls_plan_answer *answer, ls_text *text)
{
    char strategy[192];
    ls_strategy_describe(&answer->estimate.strategy, strategy, sizeof strategy);
    append_wrapped("strategy", strategy, text);
}

static void append_cost(const ls_plan_answer *answer, ls_text *text)
{
    const ls_path_outcome *o = answer->outcome;
    double usd;
    if (!o || !ls_plan_run_usd(answer, &usd)) {
        return;
    }
    ls_text line = {0};
    ls_text_printf(&line, "%s per run (%s)", ls_usd_of(usd).text, o->name);
    if (o->upfront_usd > 0.0) {
        ls_text_printf(&line, ", %s upfront", ls_usd_of(o->upfront_usd).text);
    }
    if (o->month_usd > 0.0) {
        ls_text_printf(&line, ", %s a month", ls_usd_of(o->month_usd).text);
    }
    ls_text_printf(&line, "; at most %s is lost if the result is useless", ls_usd_of(o->max_loss_usd).text);
    append_owned("cost", &line, text);
}

/* ---- alternatives ---- */

/* The cheapest possible path after `before`, which is not the answer's; NULL: none is left. */
static const ls_path_outcome *next_path(const ls_plan_answer *answer, const ls_path_outcome *before)
{
    const ls_verdict *v = &answer->verdict;
    const ls_path_outcome *best = NULL;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        const bool is_later = !before || o->run_usd_slow > before->run_usd_slow ||
                              (o->run_usd_slow == before->run_usd_slow && o > before);
        if (o != answer->outcome && o->possible && o->path->node && is_later &&
            (!best || o->run_usd_slow < best->run_usd_slow)) {
            best = o;
        }
    }
    return best;
}

static size_t append_paths(const ls_plan_answer *answer, size_t most, ls_text *text)
{
    const ls_path_outcome *o = NULL;
    size_t count = 0;
    while (count < most && (o = next_path(answer, o)) != NULL) {
        ls_text line = {0};
        ls_text_printf(&line, "%" PRId64 " x %s: %s, %s per run", o->machines, o->name,
                       ls_span_of(o->days).text, ls_usd_of(o->run_usd).text);
        if (o->upfront_usd > 0.0) {
            ls_text_printf(&line, ", %s upfront", ls_usd_of(o->upfront_usd).text);
        }
        append_owned(count++ == 0 ? "instead" : "", &line, text);
    }
    return count;
}

static void append_rival(const ls_estimate *rival, bool is_first, ls_text *text)
{
    char strategy[192];
    ls_text line = {0};
    ls_strategy_describe(&rival->strategy, strategy, sizeof strategy);
    ls_text_printf(&line, "%s: %s per step", strategy, ls_time_of(rival->time.step_s).text);
    append_owned(is_first ? "instead" : "", &line, text);
}

/* Other strategies, where too few other paths are open: slower ones, or what fits where the answer
 * does not. */
static void append_rivals(const ls_plan_answer *answer, size_t shown, size_t most, ls_text *text)
{
    const ls_search_result *result = answer->search ? answer->search : answer->instead;
    if (answer->instead && shown < most) {
        append_rival(&answer->instead->best, shown++ == 0, text);
    }
    for (size_t i = 0; result && i < result->ranked_count && shown < most; i++) {
        const ls_estimate *rival = &result->ranked[i].estimate;
        if (rival->time.step_s >= answer->estimate.time.step_s || answer->instead) {
            append_rival(rival, shown++ == 0, text);
        }
    }
}

/* ---- the screen ---- */

static void append_key_assumptions(const ls_plan_answer *answer, size_t most, ls_text *text)
{
    for (size_t i = 0; i < most && i < answer->key_count; i++) {
        append_wrapped(i == 0 ? "assumed" : "", answer->key_assumptions[i], text);
    }
}

static void append_all(const ls_plan_answer *answer, size_t alternatives, size_t assumptions, ls_text *text)
{
    append_verdict(answer, text);
    append_portfolio(answer, text);
    append_run(answer, text);
    append_memory(answer, text);
    append_step(answer, text);
    append_strategy(answer, text);
    append_cost(answer, text);
    if (answer->links && !answer->asked->link[0]) {
        append_wrapped("slow link", ls_plan_link_line(answer), text);
    }
    append_rivals(answer, append_paths(answer, alternatives, text), alternatives, text);
    append_key_assumptions(answer, assumptions, text);
    append_wrapped("more", "--why, --assumptions, --all, --explain TERM, --memo FILE, --help", text);
}

static size_t count_lines(const ls_text *text)
{
    size_t count = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        count += text->data[i] == '\n';
    }
    return count;
}

void ls_plan_append_screen(const ls_plan_answer *answer, ls_text *text)
{
    /* from the fullest screen to the barest, until one fits */
    static const unsigned char tried[][2] = {{3, 3}, {2, 3}, {2, 2}, {1, 2}, {1, 1}, {0, 1}, {0, 0}};
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        ls_text screen = {0};
        append_all(answer, tried[i][0], tried[i][1], &screen);
        const bool is_last = i + 1 == sizeof tried / sizeof tried[0];
        if (count_lines(&screen) <= LINES_MOST || is_last) {
            ls_text_append(text, ls_text_string(&screen));
            ls_text_release(&screen);
            return;
        }
        ls_text_release(&screen);
    }
}
