// SPDX-License-Identifier: Apache-2.0
#include "figures/drawings.h"

#include "figures/drawings_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    INNER = LS_DRAWING_INNER,
    GREY = LS_DRAWING_GREY
};

int ls_drawing_rank_color(uint32_t rank)
{
    return (int)(rank % GREY);
}

double ls_drawing_heading(ls_text *text, double y, const char *title, const char *sentence)
{
    ls_svg_label(text, MARGIN, y + 16, LS_SVG_START, 1, title);
    ls_svg_label(text, MARGIN, y + 34, LS_SVG_START, -1, sentence);
    return y + 46;
}

void ls_drawing_finish(ls_text *text, double height, const char *title, ls_text *parts)
{
    ls_svg_begin(text, WIDTH, (int)height, title);
    ls_text_append(text, ls_text_string(parts));
    ls_svg_end(text);
    ls_text_release(parts);
}

/* ---- a step: where things are ---- */

static double leaf_pitch(const ls_step_drawing *step)
{
    return (double)INNER / step->leaves;
}

static double leaf_x(const ls_step_drawing *step, uint32_t leaf)
{
    return MARGIN + leaf * leaf_pitch(step);
}

static double leaf_width(const ls_step_drawing *step)
{
    return leaf_pitch(step) - 4;
}

static uint32_t first_leaf(const ls_step_drawing *step, uint32_t rank)
{
    return step->leaves * rank / step->ranks;
}

static uint32_t owner_of(const ls_step_drawing *step, uint32_t leaf)
{
    uint32_t rank = 0;
    while (rank + 1 < step->ranks && first_leaf(step, rank + 1) <= leaf) {
        rank++;
    }
    return rank;
}

static uint32_t wave_count(const ls_step_drawing *step)
{
    return (step->leaves + step->ranks - 1) / step->ranks;
}

/* ---- a step: batch ---- */

enum { SEQUENCE_PITCH = 8, MICRO_BATCH_GAP = 5 };

static double page_height(const ls_step_drawing *step)
{
    const uint32_t micro_batches = step->sequences_per_leaf / step->micro_batch;
    return 10.0 + step->sequences_per_leaf * SEQUENCE_PITCH + (micro_batches - 1) * MICRO_BATCH_GAP;
}

/* A leaf is a page, and each of its sequences a line on it; micro-batches are set apart. */
static void draw_page(const ls_step_drawing *step, uint32_t leaf, double y, ls_text *text)
{
    const int color = ls_drawing_rank_color(owner_of(step, leaf));
    const double x = leaf_x(step, leaf), width = leaf_width(step);
    ls_svg_box(text, (ls_svg_rect){x, y, width, page_height(step)}, color, NULL);
    double at = y + 7;
    for (uint32_t i = 0; i < step->sequences_per_leaf; i++) {
        at += i > 0 && i % step->micro_batch == 0 ? MICRO_BATCH_GAP : 0;
        ls_svg_bar(text, (ls_svg_rect){x + 5, at, width - 10, 4}, color);
        at += SEQUENCE_PITCH;
    }
    char name[16];
    snprintf(name, sizeof name, "%" PRIu32, leaf);
    ls_svg_label(text, x + width / 2, y + page_height(step) + 15, LS_SVG_MIDDLE, -1, name);
}

static double draw_batch(const ls_step_drawing *step, double y, ls_text *text)
{
    char sentence[160];
    const char *plural = step->leaves == 1 ? "leaf" : "leaves";
    const uint32_t sequences = step->leaves * step->sequences_per_leaf;
    if (step->micro_batch < step->sequences_per_leaf) {
        snprintf(sentence, sizeof sentence,
                 "%" PRIu32 " sequences in %" PRIu32 " %s, computed %" PRIu32 " at a time (micro-batches)",
                 sequences, step->leaves, plural, step->micro_batch);
    } else {
        snprintf(sentence, sizeof sentence,
                 "%" PRIu32 " sequences in %" PRIu32 " %s; each line is a sequence of tokens", sequences,
                 step->leaves, plural);
    }
    y = ls_drawing_heading(text, y, "1 · The batch, cut into leaves", sentence);
    for (uint32_t leaf = 0; leaf < step->leaves; leaf++) {
        draw_page(step, leaf, y, text);
    }
    return y + page_height(step) + 34;
}

/* ---- a step: waves ---- */

enum { RANK_NAME_WIDTH = 56, WAVE_ROW = 30 };

static void draw_wave_row(const ls_step_drawing *step, uint32_t rank, double y, ls_text *text)
{
    const double pitch = (double)(INNER - RANK_NAME_WIDTH) / wave_count(step);
    const uint32_t first = first_leaf(step, rank), end = first_leaf(step, rank + 1);
    char name[32];
    snprintf(name, sizeof name, "rank %" PRIu32, rank);
    ls_svg_label(text, MARGIN, y + 17, LS_SVG_START, 0, name);
    for (uint32_t leaf = first; leaf < end; leaf++) {
        snprintf(name, sizeof name, pitch > 60 ? "leaf %" PRIu32 : "%" PRIu32, leaf);
        ls_svg_box(
            text,
            (ls_svg_rect){MARGIN + RANK_NAME_WIDTH + (leaf - first) * pitch, y, pitch - 4, WAVE_ROW - 6},
            ls_drawing_rank_color(rank), name);
    }
}

static double draw_waves(const ls_step_drawing *step, double y, ls_text *text)
{
    const uint32_t waves = wave_count(step);
    const double pitch = (double)(INNER - RANK_NAME_WIDTH) / waves;
    char sentence[128];
    if (step->ranks == 1) {
        snprintf(sentence, sizeof sentence,
                 "One process: one leaf after the other, %" PRIu32 " wave%s of one leaf", waves,
                 waves == 1 ? "" : "s");
    } else {
        snprintf(sentence, sizeof sentence, "%" PRIu32 " processes side by side: %" PRIu32 " wave%s",
                 step->ranks, waves, waves == 1 ? "" : "s");
    }
    y = ls_drawing_heading(text, y, "2 · Waves: who computes what, and when", sentence);
    for (uint32_t wave = 0; wave < waves; wave++) {
        char name[32];
        snprintf(name, sizeof name, pitch > 50 ? "wave %" PRIu32 : "%" PRIu32, wave + 1);
        ls_svg_label(text, MARGIN + RANK_NAME_WIDTH + wave * pitch + (pitch - 4) / 2, y + 8, LS_SVG_MIDDLE,
                     -1, name);
    }
    y += 16;
    for (uint32_t rank = 0; rank < step->ranks; rank++, y += WAVE_ROW) {
        draw_wave_row(step, rank, y, text);
    }
    ls_svg_arrow(text, MARGIN + RANK_NAME_WIDTH, y + 6, WIDTH - MARGIN - 4, y + 6);
    ls_svg_label(text, MARGIN, y + 10, LS_SVG_START, -1, "time");
    return y + 34;
}

/* ---- a step: tree ---- */

enum { TREE_ROW = 42, TREE_BOX = 26 };

static uint32_t split_of(uint32_t length)
{
    uint32_t power = 1;
    while (power * 2 < length) {
        power *= 2;
    }
    return power;
}

/* Levels below the leaves that [first, first + length) needs: 0 for a leaf. */
static uint32_t tree_height(uint32_t length)
{
    uint32_t height = 0;
    for (; length > 1; length = split_of(length)) { /* the left part is never the lower one */
        height++;
    }
    return height;
}

typedef struct tree_bar {
    double x, y, width;
} tree_bar;

/* Draws the node and everything above it. Leaves are at the top, the root at the bottom. */
static tree_bar draw_node(const ls_step_drawing *step, uint32_t first, uint32_t length, double y,
                          ls_text *text)
{
    const tree_bar bar = {
        .x = leaf_x(step, first),
        .y = y + tree_height(length) * (double)TREE_ROW,
        .width = (length - 1) * leaf_pitch(step) + leaf_width(step),
    };
    const uint32_t rank = owner_of(step, first);
    const bool one_rank = owner_of(step, first + length - 1) == rank;
    char name[48];
    if (length == 1) {
        snprintf(name, sizeof name, "%" PRIu32, first);
    } else {
        snprintf(name, sizeof name,
                 length == step->leaves ? "sum of all: %" PRIu32 "–%" PRIu32 : "%" PRIu32 "–%" PRIu32, first,
                 first + length - 1);
    }
    ls_svg_box(text, (ls_svg_rect){bar.x, bar.y, bar.width, TREE_BOX},
               one_rank ? ls_drawing_rank_color(rank) : GREY, name);
    if (length > 1) {
        const uint32_t left = split_of(length);
        const tree_bar children[] = {draw_node(step, first, left, y, text),
                                     draw_node(step, first + left, length - left, y, text)};
        for (int i = 0; i < 2; i++) {
            const double middle = children[i].x + children[i].width / 2;
            ls_svg_arrow(text, middle, children[i].y + TREE_BOX, middle, bar.y);
        }
    }
    return bar;
}

static double draw_tree(const ls_step_drawing *step, double y, ls_text *text)
{
    y = ls_drawing_heading(text, y, "3 · The tree: one fixed order of additions",
                           step->ranks == 1
                               ? "Neighbours first, then pairs of pairs: always in this order"
                               : "A rank adds what has its colour; grey sums need several ranks");
    draw_node(step, 0, step->leaves, y, text);
    return y + tree_height(step->leaves) * (double)TREE_ROW + TREE_BOX + 20;
}

/* ---- a step: update ---- */

static double draw_update(double y, ls_text *text)
{
    static const char *const boxes[] = {"÷ tokens", "norm", "clip", "AdamW", "weights"};
    static const char *const notes[] = {"sum to mean", "how long", "not too long", "one update",
                                        "for step + 1"};
    enum { COUNT = sizeof boxes / sizeof boxes[0], GAP = 14 };
    const double width = (double)(INNER - 4 - (COUNT - 1) * GAP) / COUNT;
    y = ls_drawing_heading(text, y, "4 · One update", "Done once per step, on the mean gradient");
    for (int i = 0; i < COUNT; i++) {
        const double x = MARGIN + i * (width + GAP);
        ls_svg_box(text, (ls_svg_rect){x, y, width, 30}, i + 1 < COUNT ? GREY : 2, boxes[i]);
        ls_svg_label(text, x + width / 2, y + 45, LS_SVG_MIDDLE, -1, notes[i]);
        if (i > 0) {
            ls_svg_arrow(text, x - GAP + 1, y + 15, x - 1, y + 15);
        }
    }
    return y + 64;
}

/* ---- a step ---- */

static ls_status check_step(const ls_step_drawing *step)
{
    if (step->leaves < 1 || step->leaves > LS_STEP_DRAWING_LEAVES_MAX) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " leaves can't be drawn, allowed is 1 to %d", step->leaves,
                       LS_STEP_DRAWING_LEAVES_MAX);
    }
    if (step->ranks < 1 || step->ranks > step->leaves) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " ranks, allowed is 1 to the number of leaves, %" PRIu32,
                       step->ranks, step->leaves);
    }
    if (step->sequences_per_leaf < 1 || step->sequences_per_leaf > LS_STEP_DRAWING_SEQUENCES_MAX) {
        return ls_fail(LS_ERR_INVALID, "%" PRIu32 " sequences per leaf can't be drawn, allowed is 1 to %d",
                       step->sequences_per_leaf, LS_STEP_DRAWING_SEQUENCES_MAX);
    }
    if (step->micro_batch < 1 || step->sequences_per_leaf % step->micro_batch != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "a micro-batch of %" PRIu32 " does not divide the %" PRIu32 " sequences of a leaf",
                       step->micro_batch, step->sequences_per_leaf);
    }
    return LS_OK;
}

ls_status ls_drawing_step(const ls_step_drawing *step, ls_text *text)
{
    LS_TRY(check_step(step));
    ls_text parts = {0};
    double y = draw_batch(step, 14, &parts);
    y = draw_waves(step, y, &parts);
    y = draw_tree(step, y, &parts);
    y = draw_update(y, &parts);
    ls_drawing_finish(text, y, "A training step: batch, leaves, waves, tree, update", &parts);
    return LS_OK;
}

/* ---- the progress line ---- */

typedef struct piece_kind {
    /* what a piece begins with, ends with and contains; "": anything */
    const char *prefix, *suffix, *inside;
    int color;
    const char *meaning, *good, *bad;
} piece_kind;

static const piece_kind piece_kinds[] = {
    {"", "", "% busy: ", 6, "share of useful work",
     "good: absent; it is shown only while less than 70 % is useful",
     "the words after it name the largest loss and a remedy"},
    {"step ", "", "", 0, "updates done, of how many", "good: grows steadily; interrupt it whenever you like",
     "bad: does not move; the activity is named after the line"},
    {"loss ", "", "", 1, "surprise at this step's tokens",
     "good: falls fast, then slower and slower, with some jitter",
     "bad: climbs or jumps and stays; try a lower learning rate"},
    {"val ", "", "", 3, "the same on held-out text", "good: falls along with the loss, close to it",
     "bad: rises while the loss falls; the model memorises"},
    {"lr ", "", "", 2, "learning rate of this step", "good: follows the schedule: up, then slowly down",
     "not bad by itself; the loss tells whether it is too high"},
    {"norm ", "", "", 6, "steepness of the loss: gradient norm",
     "good: settles after the warm-up; single peaks do no harm",
     "bad: climbs steadily; try a lower learning rate"},
    {"", " tok/s", "", 5, "tokens learned from per second", "good: steady within a few per cent",
     "bad: drops or oscillates; another program uses the cores"},
    {"MFU ", "", "", 2, "share of the matrix-product speed",
     "good: steady; wide layers and long batches reach more",
     "bad: low with tiny layers or leaves, or on a busy machine"},
    {"", " MiB", "", 4, "most memory used so far", "good: flat soon after the first evaluation",
     "bad: near what the machine has; try a smaller micro_batch"},
    {"", " GiB", "", 4, "most memory used so far", "good: flat soon after the first evaluation",
     "bad: near what the machine has; try a smaller micro_batch"},
    {"in ", "s", "", 7, "how long the run took", "in the last line of a run, in place of the time left", ""},
    {"", " left", "", 7, "time to the end at this pace", "good: falls by a second every second",
     "bad: grows; something else slows down this machine"},
};
enum { PIECE_KINDS = sizeof piece_kinds / sizeof piece_kinds[0], PIECES_MAX = 16 };

typedef struct piece {
    char name[64];
    const piece_kind *kind;
} piece;

static bool is_kind(const piece_kind *kind, const char *name)
{
    const size_t bytes = strlen(name), prefix = strlen(kind->prefix), suffix = strlen(kind->suffix);
    return bytes >= prefix + suffix && strncmp(name, kind->prefix, prefix) == 0 &&
           strcmp(name + bytes - suffix, kind->suffix) == 0 && strstr(name, kind->inside) != NULL;
}

/* The next piece: up to two spaces, an end, or the ": " of advice. Returns where it ends. */
static const char *read_piece(const char *line, piece *piece_out)
{
    line += strspn(line, " ");
    const char *gap = strstr(line, "  ");
    size_t bytes = gap ? (size_t)(gap - line) : strcspn(line, "\n");
    const char *end = line + bytes;
    if (bytes >= sizeof piece_out->name) {
        bytes = sizeof piece_out->name - 1;
    }
    memcpy(piece_out->name, line, bytes);
    piece_out->name[bytes] = '\0';
    piece_out->kind = NULL;
    for (int i = 0; i < PIECE_KINDS && !piece_out->kind; i++) {
        piece_out->kind = is_kind(&piece_kinds[i], piece_out->name) ? &piece_kinds[i] : NULL;
    }
    char *advice = strstr(piece_out->name, "busy: ");
    if (advice) {
        memcpy(advice + 4, " ...", 5);
    }
    return end;
}

static size_t read_pieces(const char *line, piece *pieces)
{
    size_t count = 0;
    while (count < PIECES_MAX && line[strspn(line, " ")] && line[strspn(line, " ")] != '\n') {
        line = read_piece(line, &pieces[count]);
        count += pieces[count].kind != NULL; /* bars and percentages need no explanation */
    }
    return count;
}

static double piece_width(const piece *p)
{
    return 7.7 * (double)strlen(p->name) + 18;
}

/* The pieces as boxes in reading order, broken into rows as a terminal would. Returns the y below
 * them. */
static double draw_line(const piece *pieces, size_t count, double y, ls_text *text)
{
    enum { ROW = 34 };
    double x = MARGIN;
    for (size_t i = 0; i < count; i++) {
        const double width = piece_width(&pieces[i]);
        if (x > MARGIN && x + width > WIDTH - MARGIN) {
            x = MARGIN;
            y += ROW;
        }
        ls_svg_box(text, (ls_svg_rect){x, y, width, ROW - 6}, pieces[i].kind->color, pieces[i].name);
        x += width + 6;
    }
    return y + ROW;
}

static double draw_call_out(const piece *p, double y, ls_text *text)
{
    enum { NAME_WIDTH = 164 };
    ls_svg_box(text, (ls_svg_rect){MARGIN, y, NAME_WIDTH, 26}, p->kind->color, p->name);
    ls_svg_label(text, MARGIN + NAME_WIDTH + 12, y + 18, LS_SVG_START, 0, p->kind->meaning);
    ls_svg_label(text, MARGIN + 8, y + 43, LS_SVG_START, -1, p->kind->good);
    ls_svg_label(text, MARGIN + 8, y + 59, LS_SVG_START, -1, p->kind->bad);
    return y + (p->kind->bad[0] ? 76 : 60);
}

ls_status ls_drawing_progress(const char *line, ls_text *text)
{
    piece pieces[PIECES_MAX];
    const size_t count = read_pieces(line, pieces);
    if (count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "'%.60s' is not a progress line: copy one from a log, 'step 10/100  10 %%  "
                       "loss 2.3  ...'",
                       line);
    }
    ls_text parts = {0};
    double y = ls_drawing_heading(&parts, 14, "A progress line, number by number",
                                  "Printed during a run; here with its numbers set apart");
    y = draw_line(pieces, count, y, &parts) + 14;
    for (size_t i = 0; i < count; i++) {
        y = draw_call_out(&pieces[i], y, &parts);
    }
    ls_drawing_finish(text, y, "The numbers of a progress line", &parts);
    return LS_OK;
}
