// SPDX-License-Identifier: Apache-2.0
/* What the files of the plan's page share. Each file has one or two pictures, drawn at any width,
 * and the sentences below them. */
#ifndef LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_INTERNAL_H
#define LS_TELEMETRY_PLAN_PAGE_PLAN_PAGE_INTERNAL_H

#include "base/svg_axes.h"
#include "base/template.h"
#include "telemetry/plan_page/plan_page.h"

#define LS_PAGE_GIB 1073741824.0

/* Colours that mean the same in all pictures. */
enum {
    LS_PAGE_FORWARD = 0,
    LS_PAGE_BACKWARD = 2,
    LS_PAGE_COMMUNICATION = 1,
    LS_PAGE_WAITING = 7,
    LS_PAGE_OPTIMIZER = 3,
    LS_PAGE_LIMIT = 4, /* capacities, cooling */
    LS_PAGE_MARGIN = 8,
};

/* A picture that is being drawn. Its parts come first, because its height follows from them. */
typedef struct ls_canvas {
    ls_text parts;
    double width;
    double y; /* the next free line's top */
} ls_canvas;

static inline double ls_canvas_inner(const ls_canvas *canvas)
{
    return canvas->width - 2 * LS_PAGE_MARGIN;
}
static inline bool ls_canvas_is_narrow(const ls_canvas *canvas)
{
    return canvas->width < 500;
}
/* Names with their colours, starting at the margin, and space below. */
void ls_canvas_legend(ls_canvas *canvas, const char *const *names, const int *colors, size_t count);
/* A line of small words, broken where it is too long. */
void ls_canvas_note(ls_canvas *canvas, const char *format, ...) LS_PRINTF(2, 3);

/* A picture with its name and sentences. */
typedef struct ls_page_figure {
    const char *name, *title;
    bool (*has)(const ls_plan_page *page);
    void (*draw)(const ls_plan_page *page, ls_canvas *canvas);
    /* a few sentences; ** around what is bold */
    void (*say)(const ls_plan_page *page, ls_text *text);
    /* the sentence in its place when there is nothing to draw */
    const char *missing;
} ls_page_figure;

extern const ls_page_figure ls_page_memory, ls_page_pipeline, ls_page_timeline, ls_page_scaling, ls_page_cost,
    ls_page_topology, ls_page_goodput, ls_page_power, ls_page_accuracy;

/* "2.1 s", "35 min", "12 h", "61 days", "13 years"; INFINITY: "never". */
void ls_page_append_duration(double seconds, ls_text *text);
void ls_page_append_dollars(double usd, ls_text *text);
/* "393 kW", "25.2 MW" */
void ls_page_append_kw(double kw, ls_text *text);
/* "16,384" */
void ls_page_append_count(int64_t count, ls_text *text);
void ls_page_set_count(ls_values *values, const char *name, int64_t count);

/* The schedule of a pipeline: a simulation of a few stages and micro-batches with the durations of
 * the plan. */
enum { LS_TRACE_STAGES_MOST = 8, LS_TRACE_MICRO_BATCHES_MOST = 16, LS_TRACE_CHUNKS_MOST = 4 };
enum { LS_TRACE_CELLS_MOST = 3 * LS_TRACE_STAGES_MOST * LS_TRACE_MICRO_BATCHES_MOST * LS_TRACE_CHUNKS_MOST };

typedef enum ls_trace_work { LS_TRACE_FORWARD, LS_TRACE_BACKWARD, LS_TRACE_WEIGHTS } ls_trace_work;

typedef struct ls_trace_cell {
    int stage, micro_batch, chunk;
    ls_trace_work work;
    double begin_s, end_s;
} ls_trace_cell;

typedef struct ls_trace_setting {
    int stages, chunks, micro_batches;
    ls_pipeline_schedule schedule;
    /* per chunk and micro-batch; backward includes the gradients of weights */
    double forward_s, backward_s;
    double weights_s; /* the part of backward that zero-bubble schedules postpone */
    double send_s;
} ls_trace_setting;

typedef struct ls_plan_trace {
    ls_trace_cell cells[LS_TRACE_CELLS_MOST]; /* stage by stage, each in order of time */
    size_t count;
    double end_s;
    double bubble; /* share of the time in which stages wait */
} ls_plan_trace;

/* With several chunks, micro_batches is a multiple of stages. */
void ls_trace_compute(const ls_trace_setting *setting, ls_plan_trace *trace_out);

#endif
