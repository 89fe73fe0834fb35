// SPDX-License-Identifier: Apache-2.0
/*
 * The energy that the processors and memory of this machine use, as they count it themselves: RAPL,
 * through the kernel's powercap files (intel-rapl:N, also on AMD). Only root may read them.
 *
 * Use it from one thread.
 */
#ifndef LS_ENV_RAPL_H
#define LS_ENV_RAPL_H

#include <stdint.h>

typedef struct ls_rapl ls_rapl;

/* folder: "/sys/class/powercap", or the value of LOCKSTEP_POWERCAP in the environment when NULL.
 * NULL: there are no such counters, or they can't be read. */
ls_rapl *ls_rapl_open(const char *folder);

/*
 * Microjoules of all packages since the last call, or since open. The counters begin anew after
 * some minutes at full power (max_energy_range_uj), so it has to be called at least once a minute.
 * A counter that can't be read now counts at the next call. Allocates nothing.
 */
uint64_t ls_rapl_take_uj(ls_rapl *rapl);

/* NULL is allowed. */
void ls_rapl_close(ls_rapl *rapl);

#endif
