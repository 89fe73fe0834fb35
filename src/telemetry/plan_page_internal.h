// SPDX-License-Identifier: Apache-2.0
/* What the files of the plan's page share: one file for each picture or two, drawn at any width, and the sentences below them. */
#ifndef LS_TELEMETRY_PLAN_PAGE_INTERNAL_H
#define LS_TELEMETRY_PLAN_PAGE_INTERNAL_H

#include "base/svg_axes.h"
#include "telemetry/plan_page.h"

#define LS_PAGE_GIB 1073741824.0

/* Colours that stand for the same thing in all pictures. */
enum {
    LS_PAGE_FORWARD = 0,
    LS_PAGE_BACKWARD = 2,
    LS_PAGE_COMMUNICATION = 1,
    LS_PAGE_WAITING = 7,
    LS_PAGE_OPTIMIZER = 3,
    LS_PAGE_LIMIT = 4, /* capacities, cooling */
    LS_PAGE_MARGIN = 8,
};

/* A picture that is being drawn: its parts first, as its height follows from them. */
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
/* Names with their colours, from the margin on, and room below. */
void ls_canvas_legend(ls_canvas *canvas, const char *const *names, const int *colors, size_t count);
/* A small line of words, broken where it is too long. */
void ls_canvas_note(ls_canvas *canvas, const char *format, ...) LS_PRINTF(2, 3);

/* What a picture consists of. */
typedef struct ls_page_figure {
    const char *name, *title;
    bool (*has)(const ls_plan_page *page);
    void (*draw)(const ls_plan_page *page, ls_canvas *canvas);
    void (*say)(const ls_plan_page *page, ls_text *text); /* HTML, one or two sentences */
    const char *missing;                                  /* the sentence when there is nothing to draw */
} ls_page_figure;

extern const ls_page_figure ls_page_memory, ls_page_pipeline, ls_page_timeline, ls_page_scaling, ls_page_cost,
    ls_page_topology, ls_page_goodput, ls_page_power, ls_page_accuracy;

/* "2.1 s", "35 min", "12 h", "61 days", "13 years"; INFINITY: "never". */
void ls_page_append_duration(double seconds, ls_text *text);
void ls_page_append_dollars(double usd, ls_text *text);
/* "393 kW", "25.2 MW" */
void ls_page_kw(double kw, char *text, size_t bytes);
void ls_page_append_kw(double kw, ls_text *text);
/* "16,384" */
void ls_page_append_count(int64_t count, ls_text *text);

/* How often the stages' schedule is drawn: a simulation of at most a few stages and micro-batches with the plan's own durations. */
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
    double forward_s, backward_s; /* of a chunk and micro-batch; backward with the gradients of weights */
    double weights_s;             /* of it, what zero-bubble schedules put off */
    double send_s;
} ls_trace_setting;

typedef struct ls_trace {
    ls_trace_cell cells[LS_TRACE_CELLS_MOST]; /* stage by stage, each in the order of time */
    size_t count;
    double end_s;
    double bubble; /* share of the stages' time in which they wait */
} ls_trace;

/* micro_batches is a multiple of stages where there are several chunks. */
void ls_trace_compute(const ls_trace_setting *setting, ls_trace *trace_out);

#endif
