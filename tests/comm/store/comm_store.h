// SPDX-License-Identifier: Apache-2.0
/* A store in memory that forked processes inherit, for tests of code that uses a store. */
#ifndef LS_TESTS_COMM_STORE_H
#define LS_TESTS_COMM_STORE_H

#include "base/clock.h"
#include "comm/store/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct test_entry {
    char key[256];
    size_t bytes;
    char value[4096];
} test_entry;

static struct test_store {
    atomic_flag lock;
    size_t count;
    test_entry entries[1024];
} * test_store;

static void test_store_open(void)
{
    test_store = mmap(NULL, sizeof *test_store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void test_store_close(void)
{
    munmap(test_store, sizeof *test_store);
}

static test_entry *test_store_find(const char *key, bool create)
{
    for (size_t i = 0; i < test_store->count; i++) {
        if (strcmp(test_store->entries[i].key, key) == 0) {
            return &test_store->entries[i];
        }
    }
    if (!create) {
        return NULL;
    }
    test_entry *entry = &test_store->entries[test_store->count++];
    snprintf(entry->key, sizeof entry->key, "%s", key);
    return entry;
}

static void test_store_lock(void)
{
    while (atomic_flag_test_and_set(&test_store->lock)) {
        usleep(100);
    }
}

ls_status ls_store_connect(const ls_store_client_options *options, ls_store **store_out)
{
    (void)options;
    *store_out = (ls_store *)test_store;
    return LS_OK;
}

void ls_store_clear_is_over(ls_store *store)
{
    (void)store;
}

void ls_store_close(ls_store *store)
{
    (void)store;
}

ls_status ls_store_put(ls_store *store, const char *key, const void *value, size_t bytes)
{
    (void)store;
    test_store_lock();
    test_entry *entry = test_store_find(key, true);
    memcpy(entry->value, value, bytes);
    entry->bytes = bytes;
    atomic_flag_clear(&test_store->lock);
    return LS_OK;
}

ls_status ls_store_get(ls_store *store, const char *key, double timeout_s, void *value_out,
                       size_t value_bytes, size_t *bytes_out)
{
    (void)store;
    const double end_s = ls_clock_monotonic_s() + timeout_s;
    for (;;) {
        test_store_lock();
        const test_entry *entry = test_store_find(key, false);
        const bool is_there = entry && entry->bytes <= value_bytes;
        if (is_there) {
            memcpy(value_out, entry->value, entry->bytes);
            *bytes_out = entry->bytes;
        }
        atomic_flag_clear(&test_store->lock);
        if (is_there) {
            return LS_OK;
        }
        if (ls_clock_monotonic_s() >= end_s) {
            return ls_fail(LS_ERR_TIMEOUT, "%s was not put in time", key);
        }
        usleep(500);
    }
}

ls_status ls_store_add(ls_store *store, const char *key, int64_t delta, int64_t *value_out)
{
    (void)store;
    test_store_lock();
    test_entry *entry = test_store_find(key, true);
    int64_t value = 0;
    memcpy(&value, entry->value, sizeof value);
    value += delta;
    memcpy(entry->value, &value, sizeof value);
    entry->bytes = sizeof value;
    *value_out = value;
    atomic_flag_clear(&test_store->lock);
    return LS_OK;
}

ls_status ls_store_thread_start(const ls_store_server_options *options, ls_store_thread **thread_out)
{
    (void)options;
    *thread_out = NULL;
    return LS_OK;
}

void ls_store_thread_stop(ls_store_thread *thread)
{
    (void)thread;
}

#endif
