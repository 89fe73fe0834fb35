// SPDX-License-Identifier: Apache-2.0
/*
 * Home trust: may a daemon believe the files of its folder? As with sshd's StrictModes: whoever can
 * write the token, the database or the configuration, or swap a folder above them, could give the
 * daemon orders, and a daemon of root would run them as root.
 *
 * Every file and every folder on the way to it must belong to root or to the daemon's user, and no
 * other user may write it. Two exceptions: a folder with the sticky bit, such as /tmp, above one
 * that is safe; and write permission for a user's private group (of the same name, without other
 * members), as in Debian's sshd. Access control lists are not looked at. Reads only.
 */
#ifndef LS_ORCHESTRATION_DAEMON_HOME_TRUST_H
#define LS_ORCHESTRATION_DAEMON_HOME_TRUST_H

#include "base/status.h"

/*
 * home: absolute, without links; it exists. Errors: LS_ERR_INVALID, with the path, its owner and
 * mode, and the command that helps; LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_home_trust(const char *home);

#endif
