// SPDX-License-Identifier: Apache-2.0
/* report: an HTML page about a run. */
#include "telemetry/report/report.h"

#include "base/file.h"
#include "cli/command.h"

#include <stdio.h>

typedef struct report_settings {
    const char *html;
} report_settings;

static const ls_option report_options[] = {
    LS_ROW_TEXT(report_settings, html, "FILE", "file to write the page to; default RUN/report.html",
                .letter = 'o'),
};

static ls_status run_report(const ls_invocation *invocation)
{
    const report_settings *settings = invocation->settings;
    const char *dir = invocation->words[0];
    const char *path =
        settings->html[0] ? settings->html : ls_path_join(invocation->arena, dir, "report.html");
    LS_TRY(ls_report_write(dir, path));
    printf("%s\n", path);
    return LS_OK;
}

const ls_command ls_command_report = {
    .name = "report",
    LS_WORDS("RUN", 1, 1),
    .summary = "write an HTML page about a run",
    .details = "RUN is a run directory, also of a run in progress. Writes one self-contained\n"
               "HTML page: loss, learning rate, gradient norm, speed, where the time went,\n"
               "samples. Prints the path of the page.\n"
               "\n"
               "Example:\n"
               "  lockstep report runs/mine",
    LS_SETTINGS(report_settings, report_options),
    .run = run_report,
};
