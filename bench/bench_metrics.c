// SPDX-License-Identifier: Apache-2.0
/*
 * The metric store: points per second from metrics.jsonl and from event files of TensorBoard, and
 * the processor time of an answer.
 *
 *   bench_metrics                     100 metrics of 100,000 steps, one of 20,000,000 points
 *   bench_metrics events FILE BYTES   writes an event file of that size, to be shown by 'lockstep view'
 */
#include "base/hash.h"
#include "telemetry/store/run_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { METRICS = 100, STEPS = 100000, SLICE_BYTES = 512 * 1024 };

/* Processor time: what it costs, whatever else runs. One thread does it all. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double value_of(uint64_t step, unsigned metric)
{
    const uint64_t mixed = (step * 0x9e3779b97f4a7c15u) ^ (metric * UINT64_C(0xc2b2ae3d27d4eb4f));
    return 3.0 / sqrt((double)step + 1.0) + (double)((mixed >> 40) % 1000) / 10000.0;
}

/* ---- metrics.jsonl ---- */

static void append_line(ls_text *text, uint64_t step)
{
    ls_text_printf(text, "{\"step\": %" PRIu64, step);
    for (unsigned i = 0; i < METRICS; i++) {
        ls_text_printf(text, ", \"metric_%u\": %.9g", i, value_of(step, i));
    }
    ls_text_append(text, "}\n");
}

/* Gives the file to a feed in slices, as the program reads it. */
static double feed_all(ls_feed *feed, ls_run_metrics *data, const char *text, size_t bytes)
{
    const double begin_s = 1e-9 * (double)cpu_ns();
    for (;;) {
        const uint64_t from = ls_feed_from(feed);
        const size_t left = bytes - (size_t)from, part = left < SLICE_BYTES ? left : SLICE_BYTES;
        if (ls_feed_take(feed, data, from, text + from, part, SLICE_BYTES) != LS_FEED_MORE) {
            return 1e-9 * (double)cpu_ns() - begin_s;
        }
    }
}

static void time_answers(const ls_run_metrics *data)
{
    static const struct {
        uint64_t from, to;
        const char *keys;
    } zooms[] = {{0, UINT64_MAX, NULL}, {0, UINT64_MAX, "metric_7"}, {50000, 50999, "metric_7"}};
    for (size_t i = 0; i < sizeof zooms / sizeof zooms[0]; i++) {
        ls_text text = {0};
        const uint64_t begin_ns = cpu_ns();
        ls_run_metrics_append_metrics(
            data,
            &(ls_metrics_question){
                .from = zooms[i].from, .to = zooms[i].to, .points = 500, .keys = zooms[i].keys},
            &text);
        printf("  answer, 500 columns, %s, %s: %.2f ms, %zu bytes\n",
               zooms[i].keys ? "1 metric" : "all metrics", zooms[i].from ? "1,000 steps" : "all steps",
               1e-6 * (double)(cpu_ns() - begin_ns), text.bytes);
        ls_text_release(&text);
    }
}

static size_t kept_bytes(const ls_run_metrics *data)
{
    size_t bytes = 0;
    for (size_t i = 0; i < data->count; i++) {
        bytes += data->metrics[i].series.bytes;
    }
    return bytes;
}

static void bench_lines(void)
{
    ls_text text = {0};
    for (uint64_t step = 1; step <= STEPS; step++) {
        append_line(&text, step);
    }
    ls_run_metrics data = {0};
    ls_feed feed = {.kind = LS_FEED_JSON};
    const double seconds = feed_all(&feed, &data, ls_text_string(&text), text.bytes);
    printf("metrics.jsonl: %.2f M points/s, %.0f MB/s, %.1f bytes kept per point\n",
           1e-6 * (double)data.points / seconds, 1e-6 * (double)text.bytes / seconds,
           (double)kept_bytes(&data) / (double)data.points);
    time_answers(&data);
    ls_run_metrics_release(&data);
    ls_text_release(&text);
}

/* ---- event files ---- */

static unsigned char *put(unsigned char *at, const void *data, size_t bytes)
{
    memcpy(at, data, bytes);
    return at + bytes;
}

static unsigned char *put_sum(unsigned char *at, const void *data, size_t bytes)
{
    const uint32_t crc = ls_crc32c(0, data, bytes), masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
    return put(at, &masked, sizeof masked);
}

static unsigned char *put_varint(unsigned char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *at++ = (unsigned char)(value | 0x80);
    }
    *at++ = (unsigned char)value;
    return at;
}

/* One scalar, as SummaryWriter.add_scalar writes it. */
static size_t make_record(uint64_t step, unsigned metric, unsigned char out[256])
{
    unsigned char event[128], *at = event;
    char tag[32];
    const unsigned tag_bytes = (unsigned)snprintf(tag, sizeof tag, "train/metric_%u", metric);
    const double time_s = 1.7e9 + 0.1 * (double)step;
    const float value = (float)value_of(step, metric);
    *at++ = 0x09;
    at = put(at, &time_s, sizeof time_s);
    *at++ = 0x10;
    at = put_varint(at, step);
    *at++ = 0x2a;
    *at++ = (unsigned char)(tag_bytes + 9);
    *at++ = 0x0a;
    *at++ = (unsigned char)(tag_bytes + 7);
    *at++ = 0x0a;
    *at++ = (unsigned char)tag_bytes;
    at = put(at, tag, tag_bytes);
    *at++ = 0x15;
    at = put(at, &value, sizeof value);
    const uint64_t length = (uint64_t)(at - event);
    unsigned char *end = put(out, &length, sizeof length);
    end = put_sum(end, &length, sizeof length);
    end = put(end, event, (size_t)length);
    end = put_sum(end, event, (size_t)length);
    return (size_t)(end - out);
}

static void bench_events(void)
{
    enum { POINTS = 20000000 };
    ls_text text = {0};
    unsigned char record[256];
    for (uint64_t i = 0; i < POINTS; i++) {
        ls_text_append_bytes(&text, record, make_record(i / 10, (unsigned)(i % 10), record));
    }
    ls_run_metrics data = {0};
    ls_feed feed = {.kind = LS_FEED_TENSORBOARD};
    const double seconds = feed_all(&feed, &data, ls_text_string(&text), text.bytes);
    printf("event file: %.2f M points/s, %.0f MB/s, %.1f bytes kept per point\n",
           1e-6 * (double)data.points / seconds, 1e-6 * (double)text.bytes / seconds,
           (double)kept_bytes(&data) / (double)data.points);
    ls_run_metrics_release(&data);
    ls_text_release(&text);
}

static int write_events(const char *path, double bytes)
{
    FILE *file = fopen(path, "wb");
    unsigned char record[256];
    double written = 0;
    for (uint64_t i = 0; file && written < bytes; i++) {
        const size_t length = make_record(i / 10, (unsigned)(i % 10), record);
        if (fwrite(record, 1, length, file) != length) {
            break;
        }
        written += (double)length;
    }
    const bool good = file && written >= bytes;
    if (!file || fclose(file) != 0 || !good) {
        perror(path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "events") == 0) {
        return write_events(argv[2], strtod(argv[3], NULL));
    }
    bench_lines();
    bench_events();
    return 0;
}
