// SPDX-License-Identifier: Apache-2.0
/*
 * The plan as one page with nine pictures, for people: `lockstep plan --html FILE`. The page needs no network, no script and no other file, and is read on a phone and
 * in the dark; each picture comes with a sentence that says what to see in it, with the numbers of this plan.
 *
 * Everything is worked out before; the page draws it, and asks planning/ only for points of curves between. What is NULL or 0 below was not worked out: the page then
 * says so where its picture would be. Pure; thread-safe for separate texts.
 */
#ifndef LS_TELEMETRY_PLAN_PAGE_H
#define LS_TELEMETRY_PLAN_PAGE_H

#include "base/text.h"
#include "planning/assumptions.h"
#include "planning/check/accuracy.h"
#include "planning/money/failure.h"
#include "planning/money/power.h"
#include "planning/money/verdict.h"
#include "planning/step/scaling.h"
#include "planning/step/search.h"

typedef struct ls_plan_page {
    const char *command; /* the command line that makes this page again; NULL: left out */
    const char *date;    /* "2026-11-21", of the reader's clock; NULL: left out */

    const ls_catalogue *catalogue;
    const ls_setting *setting;
    const ls_estimate *estimate;
    double tokens, days;            /* 0: not known */
    double step_s_low, step_s_high; /* 10 % and 90 % of the error table; 0: not known */
    const char *band_from;          /* which part of the table; NULL: not known */
    const char *refusal; /* why a strategy that was given is refused, and what fits; NULL: it is not */
    const ls_search_result *search; /* NULL: the strategy was given */
    const ls_scaling *scaling;      /* NULL: none */
    const ls_failure_setting *failure_setting;
    const ls_failure_estimate *failure; /* NULL with failure_setting: none */
    const ls_power *power;              /* NULL: none */
    const ls_site *site;                /* of the power */
    const ls_verdict *verdict;          /* NULL, or without outcomes: no price is known */
    const ls_path_outcome *outcome;     /* the one that is told about; NULL: none */
    const ls_accuracy *accuracy;        /* NULL: none */
    const ls_assumptions *assumptions;
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
const char *ls_plan_figure_name(
    ls_plan_figure
        figure); /* "memory", ...: the element's id on the page, the picture's name of `lockstep draw` */

/* One picture as an SVG of its own, `width` units wide (320 or more; 440 in the guide). Errors: LS_ERR_INVALID when there is nothing to draw; nothing is appended then. */
LS_MUST_CHECK ls_status ls_plan_figure_draw(const ls_plan_page *page, ls_plan_figure figure, int width,
                                            ls_text *text);

/* The page. */
void ls_plan_page_append(const ls_plan_page *page, ls_text *text);

#endif
