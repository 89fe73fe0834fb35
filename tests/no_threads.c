// SPDX-License-Identifier: Apache-2.0
/* Linked into the unit tests of LS_TESTS_WITHOUT_THREADS (cmake/tests.cmake) in the place of pthread_create. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *context);

int __wrap_pthread_create(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*start)(void *),
                          void *context)
{
    (void)thread_out, (void)attributes, (void)start, (void)context;
    fputs("this test starts a thread: take its name out of LS_TESTS_WITHOUT_THREADS in cmake/tests.cmake, so "
          "that the preset tsan runs it\n",
          stderr);
    abort();
}
