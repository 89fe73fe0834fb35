// SPDX-License-Identifier: Apache-2.0
/*
 * A site of one's own: where machines would stand, what the place feeds and cools, and what that costs. `plan --site NAME|FILE`.
 *
 * A name is one of the catalogue's sites (data/sites.csv: hyperscale, colocation, server-room, office-230v, ...). A file is YAML; every key may be left out, and
 * is then that of the site it is like:
 *
 *   like: server-room         # a site of the catalogue                                       [colocation]
 *   name: cellar              # how it is called in answers                                   [the file's name]
 *   power_kw: 60              # what the place feeds in all, at the meter; without: what the site it is like feeds; no limit where that has none
 *   racks: 4                  # as power_kw
 *   rack_kw: 15               # what one rack may draw; with cooling given and this not: what the cooling carries
 *   cooling: contained-air    # the best there is: air, contained-air, rear-door, direct-liquid
 *   pue: 1.4                  # 1 to 3: at the meter over at the machines
 *   energy_usd_kwh: 0.10
 *   colo_usd_kw_month: 0      # rent of the place, per kW reserved
 *   circuit: {volts: 230, amps: 16}   # a wall circuit feeds it all: 80 % of it may be drawn all day
 *
 * Bad values are refused with file, line and range (examples/plan/site.yaml).
 */
#ifndef LS_PLANNING_HARDWARE_SITE_H
#define LS_PLANNING_HARDWARE_SITE_H

#include "planning/hardware/catalogue.h"

#define LS_SITE_USUAL         "colocation"
#define LS_SITE_CIRCUIT_SHARE 0.8 /* of a breaker's rating, for loads that last */

/* "" stands for LS_SITE_USUAL; what has a dot or a slash in it is a file. Errors: LS_ERR_NOT_FOUND with the nearest names, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_site_load(ls_arena *arena, const ls_catalogue *catalogue, const char *name_or_path,
                                     ls_site *site_out);
LS_MUST_CHECK ls_status ls_site_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text,
                                      size_t bytes, const char *name, ls_site *site_out);

/* The weakest cooling that a rack of so much power needs; the strongest there is when none carries it. */
const ls_cooling *ls_site_cooling_for(const ls_catalogue *catalogue, double rack_w);

#endif
