// SPDX-License-Identifier: Apache-2.0
/*
 * Status codes and error text: public, so that the manual is include/lockstep/status.h.
 */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include "lockstep/status.h" // IWYU pragma: export

#endif
