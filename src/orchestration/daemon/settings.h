// SPDX-License-Identifier: Apache-2.0
/*
 * Settings of a daemon: from HOME/config.yaml, then from the command line of `lockstep up`. One
 * options table (base/options.h) reads both.
 */
#ifndef LS_ORCHESTRATION_DAEMON_SETTINGS_H
#define LS_ORCHESTRATION_DAEMON_SETTINGS_H

#include "base/arena.h"
#include "base/options.h"
#include "base/status.h"
#include "orchestration/control/controller.h"
#include "orchestration/daemon/messenger.h"
#include "planning/hardware/calibration.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_engine_kind { LS_ENGINE_LOCAL, LS_ENGINE_SLURM } ls_engine_kind;

typedef struct ls_daemon_settings {
    ls_engine_kind engine;
    bool slurm_accounts;
    uint64_t slots;
    bool spot;          /* this machine may be taken away */
    const char *listen; /* HOST:PORT; "": the Unix socket only; "auto": see ls_api_settings */
    int loopback;       /* index into auto, open, token */
    bool show_names;
    const char *certificate, *key;
    int order; /* index into the names of policy.order */
    bool preempt;
    uint64_t reservations;
    double half_life_s, min_run_s, resize_pause_s, start_timeout_s;
    double idle_s, idle_stop_s, idle_interactive_s, idle_fraction, look_s;
    double busy_below, busy_for_s; /* alerts */
    uint64_t disk_bytes;
    const char *webhook, *webhook_secret, *sendmail;
    int webhook_format; /* an ls_webhook_format */
    ls_option_strings mail;
    double price, storage_price, egress_price;
    ls_option_strings kind_prices; /* KIND=PRICE */
    const char *currency;
    int strict_accounts; /* index into auto, false, own, true */
    uint64_t jobs_max, user_jobs_max, bytes_max, user_bytes_max, ended_max, jobs_kept;
    double kept_s;
    ls_option_strings accounts; /* NAME[:key=value,...] */
    /* Of this machine; outlives the daemon; NULL: none. Not an option: `lockstep up` finds it. */
    const ls_calibration *calibration;
} ls_daemon_settings;

const ls_option_table *ls_daemon_settings_table(void);

/* Defaults, then the file if it exists. Errors: LS_ERR_INVALID, with file and line. */
LS_MUST_CHECK ls_status ls_daemon_settings_load(const char *path, ls_arena *arena,
                                                ls_daemon_settings *settings_out);

ls_messenger_settings ls_daemon_messenger_settings(const ls_daemon_settings *settings);
/* The part of the settings that concerns the controller. */
ls_controller_settings ls_daemon_controller_settings(const ls_daemon_settings *settings);

/* Whether these need a token over TCP on loopback: the daemon's owner; other users. */
void ls_daemon_token_needs(const ls_daemon_settings *settings, bool *owner_out, bool *users_out);

/* Parses "research:weight=2,quota=8,borrow=4,lend=8,users=ann+bob,priority_max=high". Errors:
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_daemon_account_parse(const char *text, ls_account *account_out);

/* Parses every entry of accounts.list and money.kinds. Errors: LS_ERR_INVALID, also for an account
 * or a kind that is listed twice. */
LS_MUST_CHECK ls_status ls_daemon_lists_check(const ls_daemon_settings *settings);

#endif
