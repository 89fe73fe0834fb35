// SPDX-License-Identifier: Apache-2.0
/* metrics.jsonl and events.jsonl: the readers walk over anything, line by line, to the end. */
#include "telemetry/record/metrics_reader.h"

#include <math.h>
#include <stdlib.h>

static void check(int holds)
{
    if (!holds) {
        abort();
    }
}

static void walk_metrics(const char *text, size_t bytes)
{
    ls_line_reader reader = {.text = text, .bytes = bytes};
    ls_step_metrics m;
    size_t expected_offset = 0;
    for (ls_line_kind kind; (kind = ls_metrics_reader_next(&reader, &m)) != LS_LINE_END;) {
        check(reader.line_offset == expected_offset && reader.offset > reader.line_offset &&
              reader.offset <= bytes);
        check(kind != LS_LINE_TORN || reader.offset == bytes);
        check(kind != LS_LINE_GOOD || (m.step >= 1 && isfinite(m.loss)));
        expected_offset = reader.offset;
    }
    check(reader.offset == bytes);
}

static void walk_events(const char *text, size_t bytes)
{
    ls_line_reader reader = {.text = text, .bytes = bytes};
    json_t *event = NULL;
    for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
        if (kind == LS_LINE_GOOD) {
            uint64_t step = 0;
            check(json_is_string(json_object_get(event, "event")));
            (void)ls_event_step(event, &step);
            json_decref(event);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk_metrics((const char *)data, size);
    walk_events((const char *)data, size);
    return 0;
}
