// SPDX-License-Identifier: Apache-2.0
/*
 * Messenger: sends alerts out of the house, to a webhook and by mail.
 *
 *   daemon ── ls_messenger_send ──▶ at most QUEUE_MAX alerts ──▶ a thread ──▶ POST, sendmail
 *
 * Sending never waits: what finds the queue full replaces the oldest alert, which is logged. The
 * thread delivers one alert after the other. A webhook that fails is tried again after 1, 2, 4, 8
 * and 16 s, and each try takes at most ANSWER_S; then the alert is given up, with a line in the
 * log.
 *
 * The body is {"id", "kind", "time", "job", "account", "text", "host"}, or for Slack {"text"} with
 * its markup escaped. With a secret, the header X-Lockstep-Signature is "t=SECONDS,sha256=HEX":
 * HMAC-SHA256 of "SECONDS.BODY". Addresses of webhooks hold secrets, too: logs name their host
 * only.
 */
#ifndef LS_ORCHESTRATION_DAEMON_MESSENGER_H
#define LS_ORCHESTRATION_DAEMON_MESSENGER_H

#include "orchestration/control/controller.h"

typedef struct ls_messenger ls_messenger;

typedef enum ls_webhook_format { LS_WEBHOOK_JSON, LS_WEBHOOK_SLACK } ls_webhook_format;

/* Strings outlive the messenger. */
typedef struct ls_messenger_settings {
    const char *webhook; /* "": none */
    ls_webhook_format format;
    const char *secret_file; /* "": bodies are not signed */
    ls_option_strings mail;  /* addresses */
    const char *sendmail;    /* program */
} ls_messenger_settings;

/* Errors: LS_ERR_INVALID for an address that is none, or a secret that cannot be read; the text
 * never holds them. */
LS_MUST_CHECK ls_status ls_messenger_check(const ls_messenger_settings *settings);

/* Without settings: nothing is sent. */
ls_messenger *ls_messenger_create(void);
/* Waits a second at most for what is under way. NULL allowed. */
void ls_messenger_destroy(ls_messenger *messenger);
/* Settings that ls_messenger_check has accepted. */
void ls_messenger_configure(ls_messenger *messenger, const ls_messenger_settings *settings);
void ls_messenger_send(ls_messenger *messenger, const ls_alert *alert);

#endif
