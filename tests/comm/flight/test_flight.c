// SPDX-License-Identifier: Apache-2.0
/* The flight recorder: what is written is what is read, also while the writer goes on, after kill
 * -9, and from damaged files. */
#include "test.h"

#include "comm/flight/flight_reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[96];

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-flight-XXXXXX");
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/rank-1", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static ls_flight *create(uint32_t rank, uint32_t size)
{
    ls_flight *flight = NULL;
    assert_int_equal(ls_flight_create(path, rank, size, 7, &flight), LS_OK);
    ls_flight_install(flight);
    return flight;
}

static ls_flight_reader *open_reader(void)
{
    ls_flight_reader *reader = NULL;
    const ls_status status = ls_flight_reader_open(path, &reader);
    if (status != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return reader;
}

/* A call whose fields all follow from its number, so that a mixed copy shows. */
static ls_flight_call call_of(uint64_t seq, uint8_t slot)
{
    return (ls_flight_call){.seq = seq,
                            .fingerprint = seq * 0x9e3779b97f4a7c15u,
                            .count = seq * 3,
                            .comm_id = (uint32_t)seq ^ 0x55,
                            .peer = (uint32_t)seq + 9,
                            .site = (uint16_t)(seq % 200),
                            .kind = LS_COMM_ALL_REDUCE,
                            .dtype = (uint8_t)(seq % 6),
                            .slot = slot};
}

static bool is_call(const ls_flight_record *r)
{
    const ls_flight_call c = call_of(r->seq, r->slot);
    return r->fingerprint == c.fingerprint && r->count == c.count && r->comm_id == c.comm_id &&
           r->peer == c.peer && r->site == c.site && r->kind == c.kind && r->dtype == c.dtype;
}

static void flight_create_writes_who(void **state)
{
    (void)state;
    ls_flight *flight = create(1, 4);
    ls_flight_reader *reader = open_reader();
    ls_flight_header header;
    assert_int_equal(ls_flight_reader_header(reader, &header), LS_OK);
    assert_int_equal(header.rank, 1);
    assert_int_equal(header.size, 4);
    assert_int_equal(header.epoch, 7);
    assert_int_equal(header.pid, getpid());
    assert_true(header.pid_start > 0);
    assert_int_equal(strlen(header.boot_id), 36);
    assert_int_equal(header.outcome, LS_FLIGHT_RUNNING);
    ls_flight_close(flight);
    ls_flight_note_exit(path, 9);
    assert_int_equal(ls_flight_reader_header(reader, &header), LS_OK);
    assert_int_equal(header.outcome, LS_FLIGHT_FINISHED);
    assert_int_equal(header.has_exit_status, 1);
    assert_int_equal(header.exit_status, 9);
    ls_flight_reader_close(reader);
}

static void flight_without_recorder_does_nothing(void **state)
{
    (void)state;
    const ls_flight_call call = call_of(1, 0);
    assert_null(ls_flight_begin(&call));
    ls_flight_end(NULL, 0, 0, 0, LS_OK);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    ls_flight_position(1, 2);
    ls_flight_last_words("x");
    assert_int_equal(ls_flight_site(__FILE__, 1), 0);
    assert_int_equal(ls_flight_join(1, 0, 2, NULL), 0);
    ls_flight_leave(0);
}

static void flight_records_read_back(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    const uint8_t slot = ls_flight_join(42, 0, 2, "world");
    assert_int_equal(slot, 1);
    ls_flight_call call = call_of(1, slot);
    ls_flight_record *done = ls_flight_begin(&call);
    ls_flight_end(done, 0, 1, 5000, LS_OK);
    call = call_of(2, slot);
    ls_flight_record *failed = ls_flight_begin(&call);
    ls_flight_end(failed, 0, UINT32_MAX, 0, LS_ERR_TIMEOUT);
    call = call_of(3, slot);
    call.begin_ns = 77;
    (void)ls_flight_begin(&call);

    ls_flight_entry entries[8];
    uint32_t count = 0;
    uint64_t next = 0;
    assert_int_equal(ls_flight_reader_records(reader, 0, 8, entries, &count, &next), LS_OK);
    assert_int_equal(count, 3);
    assert_int_equal(next, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(entries[i].number, i);
        assert_true(is_call(&entries[i].record));
    }
    assert_int_equal(entries[0].record.last_rank, 1);
    assert_int_equal(entries[0].record.wait_us, 5);
    assert_true(entries[0].record.end_ns >= entries[0].record.begin_ns);
    assert_int_equal(entries[1].record.flags, LS_FLIGHT_FAILED);
    assert_int_equal(entries[2].record.begin_ns, 77);
    assert_int_equal(entries[2].record.end_ns, 0);

    ls_flight_comm comms[LS_FLIGHT_COMMS];
    assert_int_equal(ls_flight_reader_comms(reader, comms), LS_OK);
    assert_int_equal(comms[1].state, LS_FLIGHT_COMM_OPEN);
    assert_int_equal(comms[1].id, 42);
    assert_int_equal(comms[1].entered, 3);
    assert_int_equal(comms[1].left, 1);
    assert_string_equal(comms[1].name, "world");
    ls_flight_leave(slot);
    assert_int_equal(ls_flight_reader_comms(reader, comms), LS_OK);
    assert_int_equal(comms[1].state, LS_FLIGHT_COMM_CLOSED);

    /* In pieces, and beyond the end. */
    assert_int_equal(ls_flight_reader_records(reader, 1, 1, entries, &count, &next), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(next, 2);
    assert_int_equal(entries[0].number, 1);
    assert_int_equal(ls_flight_reader_records(reader, 900, 8, entries, &count, &next), LS_OK);
    assert_int_equal(count, 0);
    assert_int_equal(next, 3);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

static void flight_join_takes_closed_slots_when_all_were_used(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    for (uint32_t i = 1; i < LS_FLIGHT_COMMS; i++) {
        assert_int_equal(ls_flight_join(i, 0, 2, NULL), i);
    }
    assert_int_equal(ls_flight_join(1000, 0, 2, NULL), 0);
    ls_flight_leave(5);
    assert_int_equal(ls_flight_join(1001, 0, 2, NULL), 5);
    ls_flight_close(flight);
}

static void flight_ring_keeps_the_newest(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    enum { CALLS = LS_FLIGHT_RECORDS * 2 + 100 };
    for (uint64_t seq = 0; seq < CALLS; seq++) {
        const ls_flight_call call = call_of(seq, 0);
        ls_flight_end(ls_flight_begin(&call), 0, UINT32_MAX, 0, LS_OK);
    }
    ls_flight_entry *entries = malloc(sizeof *entries * LS_FLIGHT_RECORDS);
    uint32_t count = 0;
    uint64_t next = 0;
    assert_int_equal(ls_flight_reader_records(reader, 0, LS_FLIGHT_RECORDS, entries, &count, &next), LS_OK);
    assert_int_equal(count, LS_FLIGHT_RECORDS);
    assert_int_equal(next, CALLS);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(entries[i].number, CALLS - LS_FLIGHT_RECORDS + i);
        assert_int_equal(entries[i].record.seq, entries[i].number);
        assert_true(is_call(&entries[i].record));
    }
    free(entries);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

static void *write_calls(void *argument)
{
    const bool *stop = argument;
    for (uint64_t seq = 1; !__atomic_load_n(stop, __ATOMIC_RELAXED); seq++) {
        const ls_flight_call call = call_of(seq, 0);
        ls_flight_end(ls_flight_begin(&call), 0, UINT32_MAX, 0, LS_OK);
        ls_flight_activity(seq & 1 ? LS_ACTIVITY_DATA : LS_ACTIVITY_FORWARD, (uint32_t)seq);
    }
    return NULL;
}

/* The writer runs as fast as it can: whatever the reader hands out is whole, and belongs to its
 * number. */
static void flight_reader_tells_torn_copies(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    bool stop = false;
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_calls, &stop), 0);
    ls_flight_entry *entries = malloc(sizeof *entries * LS_FLIGHT_RECORDS);
    uint64_t copied = 0, bad = 0, bad_now = 0;
    const uint64_t until_ns = ls_clock_monotonic_ns() + 500000000u;
    while (ls_clock_monotonic_ns() < until_ns) {
        uint32_t count = 0;
        uint64_t next = 0;
        if (ls_flight_reader_records(reader, 0, LS_FLIGHT_RECORDS, entries, &count, &next) != LS_OK) {
            bad++;
        }
        for (uint32_t i = 0; i < count; i++) {
            bad += !is_call(&entries[i].record) || entries[i].record.seq != entries[i].number + 1;
        }
        copied += count;
        ls_flight_now now;
        bool torn = true;
        bad += ls_flight_reader_now(reader, &now, &torn) != LS_OK;
        bad_now += !torn && now.number > 0 &&
                   now.activity != (uint32_t)(now.number & 1 ? LS_ACTIVITY_DATA : LS_ACTIVITY_FORWARD);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    assert_int_equal(bad, 0);
    assert_int_equal(bad_now, 0);
    assert_true(copied > 1000);
    free(entries);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

static void *intern_many(void *argument)
{
    uint16_t *indices = argument;
    for (uint32_t line = 1; line <= 200; line++) {
        indices[line] = ls_flight_site("/a/b/src/execution/executor.c", line);
    }
    return NULL;
}

static void flight_site_interns_each_place_once(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    static uint16_t first[201], second[201];
    pthread_t a, b;
    assert_int_equal(pthread_create(&a, NULL, intern_many, first), 0);
    assert_int_equal(pthread_create(&b, NULL, intern_many, second), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    for (uint32_t line = 1; line <= 200; line++) {
        char name[LS_FLIGHT_SITE_BYTES], expected[LS_FLIGHT_SITE_BYTES];
        assert_true(first[line] > 0);
        assert_int_equal(first[line], second[line]);
        snprintf(expected, sizeof expected, "src/execution/executor.c:%u", line);
        assert_int_equal(ls_flight_reader_site(reader, first[line], name), LS_OK);
        assert_string_equal(name, expected);
    }
    /* Another copy of the same string, as in another file that includes the same inline
     * function. */
    char copy[] = "/a/b/src/execution/executor.c";
    assert_int_equal(ls_flight_site(copy, 7), first[7]);
    /* Full: 255 places have a name. */
    for (uint32_t line = 1000; line < 1055; line++) {
        assert_true(ls_flight_site(__FILE__, line) > 0);
    }
    assert_int_equal(ls_flight_site(__FILE__, 2000), 0);
    char name[LS_FLIGHT_SITE_BYTES];
    assert_int_equal(ls_flight_reader_site(reader, 0, name), LS_OK);
    assert_string_equal(name, "?");
    assert_int_equal(ls_flight_reader_site(reader, 60000, name), LS_OK);
    assert_string_equal(name, "?");
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

static void site_path_keeps_the_end_that_says_enough(void **state)
{
    (void)state;
    assert_string_equal(ls_site_path("/home/a/src/lockstep/src/execution/executor.c"),
                        "src/execution/executor.c");
    assert_string_equal(ls_site_path("../examples/ring.c"), "examples/ring.c");
    assert_string_equal(ls_site_path("main.c"), "main.c");
    assert_int_equal(
        strlen(ls_site_path("/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/x.c")), 55);
}

static void sleep_us(long us)
{
    const struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, NULL);
}

static void flight_activity_leaves_spans(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    ls_flight_position(12, 3);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    sleep_us(200);
    ls_flight_activity(LS_ACTIVITY_FORWARD, 5);
    sleep_us(200);
    ls_flight_activity(LS_ACTIVITY_IDLE, 0);
    ls_flight_now now;
    bool torn = true;
    assert_int_equal(ls_flight_reader_now(reader, &now, &torn), LS_OK);
    assert_false(torn);
    assert_int_equal(now.activity, LS_ACTIVITY_IDLE);
    assert_int_equal(now.step, 12);
    assert_int_equal(now.leaf, 3);
    ls_flight_span *spans = malloc(sizeof *spans * LS_FLIGHT_SPANS);
    uint32_t count = 0;
    assert_int_equal(ls_flight_reader_spans(reader, spans, &count), LS_OK);
    assert_true(count >= 2);
    const ls_flight_span *data = &spans[count - 2], *forward = &spans[count - 1];
    assert_int_equal(data->activity, LS_ACTIVITY_DATA);
    assert_int_equal(forward->activity, LS_ACTIVITY_FORWARD);
    assert_int_equal(forward->number, 5);
    assert_int_equal(forward->step, 12);
    assert_int_equal(forward->leaf, 3);
    assert_true(forward->end_ns - forward->begin_ns >= 200000);
    assert_int_equal(data->end_ns, forward->begin_ns);
    free(spans);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

/* The sign of life needs no recorder, and is the begin of the activity when there is one. */
static void flight_activity_is_a_sign_of_life(void **state)
{
    (void)state;
    static _Atomic uint64_t alive_ns;
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    ls_flight_activity(LS_ACTIVITY_FORWARD, 1);
    assert_int_equal(atomic_load(&alive_ns), 0);
    ls_flight_pulse(&alive_ns);
    ls_flight_activity(LS_ACTIVITY_FORWARD, 2);
    const uint64_t first_ns = atomic_load(&alive_ns);
    assert_true(first_ns >= begin_ns);
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    sleep_us(2);
    ls_flight_activity(LS_ACTIVITY_FORWARD, 3);
    ls_flight_now now;
    assert_int_equal(ls_flight_reader_now(reader, &now, NULL), LS_OK);
    assert_true(now.since_ns > first_ns);
    assert_int_equal(atomic_load(&alive_ns), now.since_ns);
    ls_flight_pulse(NULL);
    ls_flight_activity(LS_ACTIVITY_FORWARD, 4);
    assert_int_equal(atomic_load(&alive_ns), now.since_ns);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

/* Span n of a full ring, oldest first, without the one being overwritten next. */
static void flight_spans_come_oldest_first(void **state)
{
    (void)state;
    ls_flight *flight = create(0, 2);
    ls_flight_reader *reader = open_reader();
    enum { COUNT = LS_FLIGHT_SPANS + 100 };
    for (uint64_t i = 0; i < COUNT; i++) {
        ls_flight_mapped->spans[i % LS_FLIGHT_SPANS] = (ls_flight_span){.begin_ns = i};
        LS_FLIGHT_PUT(ls_flight_mapped->span_head, i + 1);
    }
    ls_flight_span *spans = malloc(sizeof *spans * LS_FLIGHT_SPANS);
    uint32_t count = 0;
    assert_int_equal(ls_flight_reader_spans(reader, spans, &count), LS_OK);
    assert_int_equal(count, LS_FLIGHT_SPANS - 1);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(spans[i].begin_ns, COUNT - LS_FLIGHT_SPANS + 1 + i);
    }
    free(spans);
    ls_flight_reader_close(reader);
    ls_flight_close(flight);
}

static void flight_survives_kill(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        ls_flight *flight = NULL;
        if (ls_flight_create(path, 1, 2, 1, &flight) != LS_OK) {
            _exit(1);
        }
        ls_flight_install(flight);
        ls_flight_position(3, 1);
        ls_flight_activity(LS_ACTIVITY_BACKWARD, 17);
        ls_flight_last_words("it hurts\nhere");
        const ls_flight_call call = call_of(9, 0);
        (void)ls_flight_begin(&call);
        kill(getpid(), SIGKILL);
    }
    int wait_status = 0;
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
    ls_flight_reader *reader = open_reader();
    ls_flight_now now;
    assert_int_equal(ls_flight_reader_now(reader, &now, NULL), LS_OK);
    assert_int_equal(now.activity, LS_ACTIVITY_BACKWARD);
    assert_int_equal(now.number, 17);
    assert_int_equal(now.step, 3);
    ls_flight_entry entry;
    uint32_t count = 0;
    uint64_t next = 0;
    assert_int_equal(ls_flight_reader_records(reader, 0, 1, &entry, &count, &next), LS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(entry.record.seq, 9);
    assert_int_equal(entry.record.end_ns, 0);
    char words[LS_FLIGHT_TEXT_BYTES];
    assert_int_equal(ls_flight_reader_last_words(reader, words), LS_OK);
    assert_string_equal(words, "it hurts\nhere");
    ls_flight_reader_close(reader);
}

static void expect_refused(const char *what)
{
    ls_flight_reader *reader = NULL;
    assert_int_equal(ls_flight_reader_open(path, &reader), LS_ERR_DATA);
    assert_null(reader);
    if (!strstr(ls_error_text(), what)) {
        fail_msg("'%s' is not in '%s'", what, ls_error_text());
    }
}

static void patch(size_t offset, const void *data, size_t bytes)
{
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, bytes, (off_t)offset), bytes);
    close(fd);
}

static void reader_refuses_what_is_no_flight_file(void **state)
{
    (void)state;
    ls_flight_reader *reader = NULL;
    assert_int_equal(ls_flight_reader_open(path, &reader), LS_ERR_NOT_FOUND);
    ls_flight_close(create(0, 2));
    const uint32_t version = 99, rank = 5;
    patch(offsetof(ls_flight_header, version), &version, sizeof version);
    expect_refused("version 99");
    ls_flight_close(create(0, 2));
    patch(offsetof(ls_flight_header, rank), &rank, sizeof rank);
    expect_refused("rank 5 of 2");
    patch(0, "PNG", 3);
    expect_refused("does not begin with");
    ls_flight_close(create(0, 2));
    assert_int_equal(truncate(path, 100000), 0);
    expect_refused("cut short");
    assert_int_equal(truncate(path, 0), 0);
    expect_refused("ends after 0 bytes");

    /* Cut while it is being read. */
    ls_flight_close(create(0, 2));
    reader = open_reader();
    assert_int_equal(truncate(path, 100), 0);
    ls_flight_now now;
    assert_int_equal(ls_flight_reader_now(reader, &now, NULL), LS_ERR_DATA);
    ls_flight_reader_close(reader);
}

static void flight_create_names_the_path(void **state)
{
    (void)state;
    ls_flight *flight = NULL;
    assert_int_equal(ls_flight_create("/nowhere/at/all", 0, 1, 0, &flight), LS_ERR_NOT_FOUND);
    assert_null(flight);
    assert_non_null(strstr(ls_error_text(), "/nowhere/at/all"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(flight_create_writes_who),
        CASE(flight_without_recorder_does_nothing),
        CASE(flight_records_read_back),
        CASE(flight_join_takes_closed_slots_when_all_were_used),
        CASE(flight_ring_keeps_the_newest),
        CASE(flight_reader_tells_torn_copies),
        CASE(flight_site_interns_each_place_once),
        cmocka_unit_test(site_path_keeps_the_end_that_says_enough),
        CASE(flight_activity_leaves_spans),
        CASE(flight_activity_is_a_sign_of_life),
        CASE(flight_spans_come_oldest_first),
        CASE(flight_survives_kill),
        CASE(reader_refuses_what_is_no_flight_file),
        cmocka_unit_test(flight_create_names_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
