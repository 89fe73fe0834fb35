// SPDX-License-Identifier: Apache-2.0
/*
 * The plan as a page with nine pictures (web/plan.html): `lockstep plan --html FILE`. Each picture
 * has a few sentences below it that explain it with the numbers of this plan.
 *
 * Everything is computed before; the page draws it, and asks planning/ only for more points of
 * curves. What the answer leaves out (planning/answer/answer.h) has a sentence in place of its
 * picture. Pure; thread-safe for separate texts.
 */
#ifndef LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_H
#define LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_H

#include "base/text.h"
#include "planning/answer/answer.h"

typedef struct ls_plan_page {
    const ls_plan_answer *plan;
    const ls_accuracy *accuracy; /* NULL: none */
    const char *date;            /* "2026-11-21", of the reader's clock; NULL: left out */
} ls_plan_page;

typedef enum ls_plan_figure {
    LS_PLAN_MEMORY,   /* bytes of the fullest GPU, and of each stage's, against the capacity */
    LS_PLAN_PIPELINE, /* stages over time */
    LS_PLAN_TIMELINE, /* a step in lanes: what hides under what */
    LS_PLAN_SCALING,  /* speed and efficiency over GPUs, and which term takes over */
    LS_PLAN_COST,     /* owning and renting, cumulated */
    LS_PLAN_TOPOLOGY, /* nodes and groups */
    LS_PLAN_GOODPUT,  /* against the interval between checkpoints */
    LS_PLAN_POWER,    /* of racks, against cooling */
    LS_PLAN_ACCURACY, /* predicted against measured */
    LS_PLAN_FIGURES
} ls_plan_figure;
/* "memory", ...: the element's id on the page, and, after "plan-", its name for tools/figures. */
const char *ls_plan_figure_name(ls_plan_figure figure);

/* Appends one picture as an SVG of its own, `width` units wide (320 or more; 440 in the guide).
 * Errors: LS_ERR_INVALID when there is nothing to draw; nothing is appended then. */
LS_MUST_CHECK ls_status ls_plan_figure_draw(const ls_plan_page *page, ls_plan_figure figure, int width,
                                            ls_text *text);

/* Appends the page. */
void ls_plan_page_append(const ls_plan_page *page, ls_text *text);

#endif
