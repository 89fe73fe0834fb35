// SPDX-License-Identifier: Apache-2.0
/* A daemon that does not answer: every request gives up after its limit and says so. */
#include "test.h"

#include "base/clock.h"
#include "orchestration/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket with room for `waiting` connections that nobody accepts. */
static int listen_in(const char *home, int waiting)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", home);
    assert_true(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    assert_int_equal(listen(fd, waiting), 0);
    return fd;
}

static void client_of_a_silent_daemon_gives_up(void **state)
{
    (void)state;
    char home[] = "/tmp/lockstep-client-XXXXXX", path[64];
    assert_non_null(mkdtemp(home));
    setenv("LOCKSTEP_HOME", home, 1);
    const int fd = listen_in(home, 0);
    const ls_client_request request = {.method = "GET", .path = "/v1/status", .timeout_s = 0.3};
    /* the first ones wait for an answer, the others for a place in the queue of connections */
    for (int i = 0; i < 4; i++) {
        json_t *answer = NULL;
        const double begin_s = ls_clock_monotonic_s();
        assert_int_equal(ls_client_ask(&request, &answer), LS_ERR_TIMEOUT);
        assert_non_null(strstr(ls_error_text(), "the daemon has not answered for 0.3 s"));
        assert_true(ls_clock_monotonic_s() - begin_s >= 0.2);
    }
    close(fd);
    snprintf(path, sizeof path, "%s/socket", home);
    unlink(path);
    rmdir(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(client_of_a_silent_daemon_gives_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
