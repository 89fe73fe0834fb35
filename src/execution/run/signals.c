// SPDX-License-Identifier: Apache-2.0
#include "execution/run/signals.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t signal_seen;

static void note_signal(int number)
{
    if (number == SIGINT && signal_seen == SIGINT) {
        static const char text[] =
            "\nlockstep: interrupted twice: nothing saved; the newest checkpoint is unchanged\n";
        const ssize_t wrote = write(STDERR_FILENO, text, sizeof text - 1);
        (void)wrote;
        _exit(130);
    }
    signal_seen = number;
}

void ls_signals_install(void)
{
    signal_seen = 0;
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

void ls_signals_restore(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

ls_status ls_signals_status(void)
{
    return signal_seen == SIGINT ? LS_INTERRUPTED : signal_seen != 0 ? LS_STOPPED : LS_OK;
}
