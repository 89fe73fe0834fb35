// SPDX-License-Identifier: Apache-2.0
/* plan --html: the answer as a page with pictures. */
#include "base/file.h"
#include "cli/plan.h"
#include "telemetry/plan_page.h"

#include <time.h>

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
        .command = ls_plan_write_command(answer),
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
