// SPDX-License-Identifier: Apache-2.0
/* Service: tells the service manager that started this process (systemd, Type=notify) how it is. */
#ifndef LS_ORCHESTRATION_DAEMON_SERVICE_H
#define LS_ORCHESTRATION_DAEMON_SERVICE_H

/* words: "READY=1", "STOPPING=1", as in sd_notify(3). Does nothing where no manager listens
 * (NOTIFY_SOCKET). */
void ls_service_tell(const char *words);

#endif
