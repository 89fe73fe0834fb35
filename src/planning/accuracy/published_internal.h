// SPDX-License-Identifier: Apache-2.0
/* What the files that read published runs share: published.c has files and rows, published_model.c
 * what was run on what, published_strategy.c how it was split. */
#ifndef LS_PLANNING_ACCURACY_PUBLISHED_INTERNAL_H
#define LS_PLANNING_ACCURACY_PUBLISHED_INTERNAL_H

#include "base/csv.h"
#include "planning/accuracy/published.h"

/* A file and the row that is being read. */
typedef struct ls_published_reader {
    ls_arena *arena;
    const ls_catalogue *catalogue;
    const ls_csv *csv;
    const ls_csv_row *row;
    ls_published_run *run;
    ls_strategy_request request;
    ls_text assumed; /* what was chosen for blanks, comma-separated */
    /* of the row's first cell that is not a number: file, line, column, why; NULL: none */
    const char *flaw;
} ls_published_reader;

/* Cells: "" and 0 for blanks and missing columns. A cell that is not a number is an error of the
 * row. */
const char *ls_published_text(ls_published_reader *r, const char *column);
double ls_published_number(ls_published_reader *r, const char *column);
int64_t ls_published_count(ls_published_reader *r, const char *column);
/* Compares without regard to case. */
bool ls_published_has(const char *text, const char *part);
void ls_published_assume(ls_published_reader *r, const char *format, ...) LS_PRINTF(2, 3);

/* The model as ls_shape_parse reads it; NULL: it is unknown. */
const char *ls_published_shape_text(ls_published_reader *r);
/* These set run->left_out and return false when the name is unknown. */
bool ls_published_read_shape(ls_published_reader *r, const char *text);
bool ls_published_read_machine(ls_published_reader *r, const char *accelerator_name, const char *stack_name);
ls_plan_precision ls_published_read_precision(ls_published_reader *r);

/* The request; needs gpus, shape and stack. */
void ls_published_read_strategy(ls_published_reader *r);
/* Sets run->left_out where tp, pp, cp and dp are all given and their product is not the number of
 * accelerators. */
void ls_published_check_product(ls_published_reader *r);
/* Sets run->strategy, for which the whole setting is needed; or run->left_out, where the row's
 * strategy cannot be run. */
void ls_published_choose_blanks(ls_published_reader *r);

#endif
