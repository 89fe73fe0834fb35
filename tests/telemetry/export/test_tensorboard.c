// SPDX-License-Identifier: Apache-2.0
#include "telemetry/record/run_dir.h"

#include "base/hash.h"
#include "telemetry/export/tensorboard.h"

#include <math.h>

/* A reader of its own: fixed32 and fixed64 fields, varints and byte fields, nothing else. */
typedef struct record {
    double wall_s;
    uint64_t step;
    char version[32];
    int session_status; /* -1: none */
    size_t count;
    char tags[4][32];
    float values[4];
} record;

static uint64_t little_endian(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

static void read_value(const unsigned char *at, const unsigned char *end, record *out)
{
    assert_int_equal(*at++, 0x0a);
    const size_t tag_bytes = (size_t)varint(&at);
    memcpy(out->tags[out->count], at, tag_bytes);
    at += tag_bytes;
    assert_int_equal(*at++, 0x15);
    const uint32_t bits = (uint32_t)little_endian(at, 4);
    memcpy(&out->values[out->count++], &bits, 4);
    assert_ptr_equal(at + 4, end);
}

static void read_event(const unsigned char *at, const unsigned char *end, record *out)
{
    *out = (record){.session_status = -1};
    assert_int_equal(*at++, 0x09);
    const uint64_t wall_bits = little_endian(at, 8);
    memcpy(&out->wall_s, &wall_bits, 8);
    at += 8;
    assert_int_equal(*at++, 0x10);
    out->step = varint(&at);
    const unsigned char key = *at++;
    const size_t bytes = (size_t)varint(&at);
    assert_ptr_equal(at + bytes, end);
    if (key == 0x1a) {
        memcpy(out->version, at, bytes);
    } else if (key == 0x3a) {
        assert_int_equal(at[0], 0x08);
        out->session_status = at[1];
    } else {
        assert_int_equal(key, 0x2a);
        while (at < end) {
            assert_int_equal(*at++, 0x0a);
            const size_t value_bytes = (size_t)varint(&at);
            read_value(at, at + value_bytes, out);
            at += value_bytes;
        }
    }
}

static void check_crc(const unsigned char *data, size_t bytes, uint64_t masked)
{
    const uint32_t crc = ls_crc32c(0, data, bytes);
    assert_int_equal((uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), masked);
}

/* Reads every record of a file; returns how many. */
static size_t read_file(run_dir *run, const char *name, record *records, size_t limit)
{
    char *text = NULL;
    size_t bytes = 0, count = 0;
    assert_int_equal(
        ls_file_read(&run->arena, ls_path_join(&run->arena, run->path, name), 1u << 20, &text, &bytes),
        LS_OK);
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        assert_true(count < limit);
        const size_t data_bytes = (size_t)little_endian(at, 8);
        check_crc(at, 8, little_endian(at + 8, 4));
        check_crc(at + 12, data_bytes, little_endian(at + 12 + data_bytes, 4));
        read_event(at + 12, at + 12 + data_bytes, &records[count++]);
        at += 12 + data_bytes + 4;
    }
    assert_ptr_equal(at, end);
    return count;
}

static char **list(run_dir *run, size_t *count_out)
{
    char **names = NULL;
    assert_int_equal(ls_dir_list(&run->arena, run->path, &names, count_out), LS_OK);
    return names;
}

static void tensorboard_write_reads_back(void **state)
{
    run_dir *run = *state;
    ls_tensorboard *writer = NULL;
    assert_int_equal(ls_tensorboard_open(run->path, 1, &writer), LS_OK);
    const ls_tensorboard_scalar scalars[] = {{"loss", 1.5}, {"mfu", NAN}, {"lr", 1e-3}, {"huge", 1e300}};
    assert_int_equal(ls_tensorboard_write(writer, 1.7e9 + 0.25, 300, scalars, 4), LS_OK);
    /* nothing finite: no record */
    assert_int_equal(ls_tensorboard_write(writer, 1.7e9, 301, scalars + 1, 1), LS_OK);
    ls_tensorboard_close(writer);

    size_t file_count = 0;
    char **names = list(run, &file_count);
    record records[4];
    assert_int_equal(file_count, 1);
    assert_int_equal(read_file(run, names[0], records, 4), 3);
    assert_string_equal(records[0].version, "brain.Event:2");
    assert_int_equal(records[1].session_status, 1);
    assert_int_equal(records[1].step, 1);
    assert_true(records[2].wall_s == 1.7e9 + 0.25);
    assert_int_equal(records[2].step, 300);
    assert_int_equal(records[2].count, 2);
    assert_string_equal(records[2].tags[0], "loss");
    assert_string_equal(records[2].tags[1], "lr");
    assert_true(records[2].values[0] == 1.5f && records[2].values[1] == 1e-3f);
}

/* Two processes within a second: the second file still sorts behind the first, and says from where
 * it counts. */
static void tensorboard_open_again_sorts_behind(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "events.out.tfevents.4000000000.zz.1", "");
    for (uint64_t first_step = 1; first_step <= 13; first_step += 6) {
        ls_tensorboard *writer = NULL;
        assert_int_equal(ls_tensorboard_open(run->path, first_step, &writer), LS_OK);
        ls_tensorboard_close(writer);
    }
    size_t file_count = 0;
    char **names = list(run, &file_count);
    assert_int_equal(file_count, 4);
    for (size_t i = 1; i < 4; i++) { /* names are sorted */
        record records[2];
        assert_int_equal(read_file(run, names[i], records, 2), 2);
        assert_int_equal(records[1].step, 1 + 6 * (i - 1));
    }
}

static void tensorboard_open_on_a_file_fails(void **state)
{
    run_dir *run = *state;
    run_dir_write(run, "tb", "no folder");
    ls_tensorboard *writer = NULL;
    assert_int_not_equal(ls_tensorboard_open(ls_path_join(&run->arena, run->path, "tb"), 1, &writer), LS_OK);
    assert_null(writer);
}

#define run_case(function) cmocka_unit_test_setup_teardown(function, run_dir_setup, run_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        run_case(tensorboard_write_reads_back),
        run_case(tensorboard_open_again_sorts_behind),
        run_case(tensorboard_open_on_a_file_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
