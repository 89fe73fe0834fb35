// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "telemetry/store/run_metrics.h"

#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

bool ls_feed_kind_of(const char *name, ls_feed_kind *kind_out)
{
    const bool is_events = strcmp(name, "events.jsonl") == 0 || strcmp(name, "time.jsonl") == 0;
    if (ends_with(name, ".jsonl") && !is_events) {
        *kind_out = LS_FEED_JSON;
        return true;
    }
    if (ends_with(name, ".log") || ends_with(name, ".txt")) {
        *kind_out = LS_FEED_TEXT;
        return true;
    }
    return false;
}

uint64_t ls_feed_from(const ls_feed *feed)
{
    return feed->offset - feed->tail_bytes;
}

/* Takes the whole lines of `text`; returns their bytes. */
static size_t take_lines(ls_feed_kind kind, ls_run_metrics *data, const char *text, size_t bytes)
{
    static _Thread_local ls_pairs pairs;
    size_t at = 0;
    for (const char *end; at < bytes && (end = memchr(text + at, '\n', bytes - at));) {
        const char *line = text + at;
        const size_t line_bytes = (size_t)(end - line);
        at += line_bytes + 1;
        if (kind == LS_FEED_TEXT && line[0] != '{') {
            ls_metric_line_text(line, line_bytes, &pairs);
        } else if (!ls_metric_line_json(line, line_bytes, &pairs)) {
            data->damaged += line_bytes > 0;
            continue;
        }
        ls_run_metrics_add_line(data, &pairs);
    }
    return at;
}

ls_feed_next ls_feed_take(ls_feed *feed, ls_run_metrics *data, uint64_t offset, const char *text,
                          size_t bytes, size_t wanted)
{
    const size_t seen = feed->tail_bytes;
    LS_ASSERT(offset == ls_feed_from(feed));
    if (bytes < seen || (seen > 0 && memcmp(text, feed->tail, seen) != 0)) {
        return LS_FEED_REWOUND;
    }
    const bool is_full = bytes == wanted;
    size_t taken = take_lines(feed->kind, data, text + seen, bytes - seen);
    if (taken == 0 && is_full) {
        taken = bytes - seen; /* a line as long as a slice: none that holds metrics */
        data->damaged++;
    }
    if (taken > 0) {
        feed->offset += taken;
        const size_t all = seen + taken;
        feed->tail_bytes = all < sizeof feed->tail ? all : sizeof feed->tail;
        memmove(feed->tail, text + all - feed->tail_bytes, feed->tail_bytes);
    }
    return is_full ? LS_FEED_MORE : LS_FEED_END;
}
