// SPDX-License-Identifier: Apache-2.0
/* plan --html: the answer as a page with pictures. */
#include "base/file.h"
#include "cli/plan.h"
#include "telemetry/plan_page.h"

#include <inttypes.h>
#include <time.h>

/* The command that asks the same question again: what was given, in the order of the help. */
static const char *write_command(const ls_plan_answer *answer)
{
    const ls_plan_settings *s = answer->settings;
    const struct {
        const char *option, *value;
    } given[] = {{"tokens", s->tokens},        {"gpus", s->gpus},           {"nodes", s->nodes},
                 {"strategy", s->strategy},    {"stack", s->stack},         {"budget", s->budget},
                 {"quote", s->quote},          {"portfolio", s->portfolio}, {"site", s->site},
                 {"api_tokens", s->api_tokens}};
    ls_text text = {0};
    ls_text_printf(&text, "lockstep plan %s", answer->shape.name);
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i].value[0]) {
            ls_text_printf(&text, " --%s %s", given[i].option, given[i].value);
        }
    }
    ls_text_printf(&text, s->global_batch > 0 ? " --global_batch %" PRIu64 : "", s->global_batch);
    ls_text_printf(&text, s->seq > 0 ? " --seq %" PRIu64 : "", s->seq);
    const char *command = ls_arena_strdup(answer->arena, ls_text_string(&text));
    ls_text_release(&text);
    return command;
}

static ls_status measure_accuracy(const ls_plan_answer *answer, ls_accuracy *accuracy_out)
{
    ls_published *published = ls_arena_new(answer->arena, ls_published, 1);
    LS_TRY(ls_published_shipped(answer->arena, &answer->catalogue, published));
    ls_accuracy_compute(answer->arena, published, accuracy_out);
    return LS_OK;
}

/* `date` and `accuracy` outlive the page. */
static ls_status make_page(const ls_plan_answer *answer, const char *date, ls_accuracy *accuracy,
                           ls_plan_page *page_out)
{
    LS_TRY(measure_accuracy(answer, accuracy));
    *page_out = (ls_plan_page){
        .command = write_command(answer),
        .date = date,
        .catalogue = &answer->catalogue,
        .setting = &answer->setting,
        .estimate = &answer->estimate,
        .tokens = answer->tokens,
        .days = answer->days,
        .step_s_low = answer->band.low_s,
        .step_s_high = answer->band.high_s,
        .band_from = answer->band.from,
        .refusal = answer->refusal,
        .search = answer->search ? answer->search : answer->instead,
        .scaling = answer->curve,
        .failure_setting = &answer->failure_setting,
        .failure = &answer->failure,
        .power = &answer->power,
        .site = &answer->site,
        .verdict = &answer->verdict,
        .outcome = answer->outcome,
        .accuracy = accuracy,
        .assumptions = &answer->assumptions,
    };
    return LS_OK;
}

ls_status ls_plan_draw(const ls_plan_answer *answer, int figure, int width, ls_text *text)
{
    ls_accuracy accuracy;
    ls_plan_page page;
    LS_TRY(make_page(answer, NULL, &accuracy, &page));
    return ls_plan_figure_draw(&page, (ls_plan_figure)figure, width, text);
}

ls_status ls_plan_write_html(const ls_plan_answer *answer)
{
    const time_t now = time(NULL);
    struct tm day;
    char date[16];
    ls_accuracy accuracy;
    ls_plan_page page;
    ls_text text = {0};
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    LS_TRY(make_page(answer, date, &accuracy, &page));
    ls_plan_page_append(&page, &text);
    const ls_status status = ls_file_write_atomic(answer->settings->html, text.data, text.bytes);
    ls_text_release(&text);
    return status;
}
