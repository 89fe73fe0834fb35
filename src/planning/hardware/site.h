// SPDX-License-Identifier: Apache-2.0
/*
 * The site of your own machines: its power supply, its cooling, and what they cost.
 * `plan --site NAME|FILE`.
 *
 * A name is one of the catalogue's sites (data/sites.csv: hyperscale, colocation, server-room,
 * office-230v, ...). A file is YAML; a missing key has the value of the site named by `like`:
 *
 *   like: server-room         # a site of the catalogue  [colocation]
 *   name: cellar              # name in answers  [the file's name]
 *   power_kw: 60              # supply of the whole site at the meter; default: that of `like`, or
 *                             # no limit where that has none
 *   racks: 4                  # number of racks; default as for power_kw
 *   rack_kw: 15               # power limit of one rack; where only cooling is given, what the
 *                             # cooling supports
 *   cooling: contained-air    # the strongest: air, contained-air, rear-door, direct-liquid
 *   pue: 1.4                  # power at the meter over power of the machines, 1 to 3
 *   energy_usd_kwh: 0.10
 *   colo_usd_kw_month: 0      # rent of space, per reserved kW
 *   circuit: {volts: 230, amps: 16}   # a wall circuit supplies the site; 80 % of it may be drawn
 *                                     # continuously
 *
 * Bad values are refused with file, line and range (examples/plan/site.yaml).
 */
#ifndef LS_PLANNING_HARDWARE_SITE_H
#define LS_PLANNING_HARDWARE_SITE_H

#include "planning/hardware/catalogue.h"

#define LS_SITE_USUAL         "colocation"
#define LS_SITE_CIRCUIT_SHARE 0.8 /* share of a breaker's rating that continuous loads may use */

/* Loads a site by name or file; "" means LS_SITE_USUAL, and a name with a dot or a slash is a file.
 * Errors: LS_ERR_NOT_FOUND with the nearest names, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_site_load(ls_arena *arena, const ls_catalogue *catalogue, const char *name_or_path,
                                     ls_site *site_out);
/* The same from a text; NULL: from the file `name`. */
LS_MUST_CHECK ls_status ls_site_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text,
                                      size_t bytes, const char *name, ls_site *site_out);

/* The weakest cooling that supports a rack of this power; the strongest one where none does. */
const ls_cooling *ls_site_cooling_for(const ls_catalogue *catalogue, double rack_w);

#endif
