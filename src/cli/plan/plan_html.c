// SPDX-License-Identifier: Apache-2.0
/* plan --html: the answer as a page with pictures. */
#include "base/file.h"
#include "cli/plan/plan.h"
#include "telemetry/plan_page/plan_page.h"

#include <time.h>

static ls_status measure_accuracy(const ls_plan_answer *answer, ls_accuracy *accuracy_out)
{
    ls_published *published = ls_arena_new(answer->arena, ls_published, 1);
    LS_TRY(ls_published_shipped(answer->arena, &answer->catalogue, published));
    ls_accuracy_compute(answer->arena, published, accuracy_out);
    return LS_OK;
}

ls_status ls_plan_draw(const ls_plan_answer *answer, int figure, int width, ls_text *text)
{
    ls_accuracy accuracy;
    LS_TRY(measure_accuracy(answer, &accuracy));
    const ls_plan_page page = {.plan = answer, .accuracy = &accuracy};
    return ls_plan_figure_draw(&page, (ls_plan_figure)figure, width, text);
}

ls_status ls_plan_write_html(const ls_plan_answer *answer, const char *path)
{
    const time_t now = time(NULL);
    struct tm day;
    char date[16];
    ls_accuracy accuracy;
    ls_text text = {0};
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    LS_TRY(measure_accuracy(answer, &accuracy));
    const ls_plan_page page = {.plan = answer, .accuracy = &accuracy, .date = date};
    ls_plan_page_append(&page, &text);
    const ls_status status = ls_file_write_atomic(path, text.data, text.bytes);
    ls_text_release(&text);
    return status;
}
