// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "telemetry/store/run_metrics.h"
#include "telemetry/store/tensorboard_reader.h"

#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

ls_feed_kind ls_feed_kind_of(const char *name)
{
    return strstr(name, ".tfevents.")  ? LS_FEED_TENSORBOARD
           : ends_with(name, ".jsonl") ? LS_FEED_JSON
                                       : LS_FEED_TEXT;
}

uint64_t ls_feed_from(const ls_feed *feed)
{
    return feed->offset - feed->tail_bytes;
}

/* Takes the whole lines of `text`; returns their bytes. */
static size_t take_lines(ls_feed_kind kind, ls_run_metrics *data, const char *text, size_t bytes)
{
    ls_pairs *pairs = calloc(1, sizeof *pairs);
    size_t at = 0;
    LS_ASSERT(pairs && "not enough memory for a line of metrics");
    for (const char *end; at < bytes && (end = memchr(text + at, '\n', bytes - at));) {
        const char *line = text + at;
        const size_t line_bytes = (size_t)(end - line);
        at += line_bytes + 1;
        if (kind == LS_FEED_TEXT && line[0] != '{') {
            ls_metric_line_text(line, line_bytes, pairs);
        } else if (!ls_metric_line_json(line, line_bytes, pairs)) {
            data->damaged += line_bytes > 0;
            continue;
        }
        ls_run_metrics_add_line(data, pairs);
    }
    free(pairs);
    return at;
}

/* Moves on by `taken` bytes, the last of `text[0..all)`, and by `ahead` that were not read. */
static void advance(ls_feed *feed, const char *text, size_t all, size_t taken, uint64_t ahead)
{
    if (ahead > 0) {
        feed->offset += taken + ahead;
        feed->tail_bytes = 0;
    } else if (taken > 0) {
        feed->offset += taken;
        feed->tail_bytes = all < sizeof feed->tail ? all : sizeof feed->tail;
        memmove(feed->tail, text + all - feed->tail_bytes, feed->tail_bytes);
    }
}

ls_feed_next ls_feed_take(ls_feed *feed, ls_run_metrics *data, uint64_t offset, const char *text,
                          size_t bytes, size_t wanted)
{
    const size_t seen = feed->tail_bytes;
    const bool is_full = bytes == wanted;
    LS_ASSERT(offset == ls_feed_from(feed));
    if (bytes < seen || (seen > 0 && memcmp(text, feed->tail, seen) != 0)) {
        return LS_FEED_REWOUND;
    }
    if (feed->is_broken) {
        return LS_FEED_END;
    }
    if (feed->kind == LS_FEED_TENSORBOARD) {
        const ls_tensorboard_part r = ls_tensorboard_take(data, text + seen, bytes - seen);
        feed->is_broken = r.is_broken;
        data->damaged += r.is_broken;
        advance(feed, text, seen + r.taken, r.taken, r.ahead);
        return (is_full || r.ahead > 0) && !r.is_broken ? LS_FEED_MORE : LS_FEED_END;
    }
    size_t taken = take_lines(feed->kind, data, text + seen, bytes - seen);
    if (taken == 0 && is_full) {
        taken = bytes - seen; /* a line as long as a slice: none that holds metrics */
        data->damaged++;
    }
    advance(feed, text, seen + taken, taken, 0);
    return is_full ? LS_FEED_MORE : LS_FEED_END;
}
