// SPDX-License-Identifier: Apache-2.0
/*
 * A site: the place a machine of one's own would stand, what it can feed and cool, and what that costs. `plan --site FILE`.
 *
 * The file is YAML; every key may be left out (what it is then stands in brackets), `like` first:
 *
 *   like: server-room         # start from a named one: home, office, server-room, colocation, hyperscale   [colocation]
 *   name: cellar              #                                                                             [the file's name]
 *   power_kw: 60              # what the site can feed in all, at the meter; 0: no limit
 *   racks: 4                  # 0: no limit
 *   rack_kw: 15               # what one rack may draw; 0: no limit
 *   cooling: contained-air    # the best there is: air, contained-air, rear-door, liquid
 *   pue: 1.4                  # 1 to 3: at the meter over at the machines
 *   energy_usd_kwh: 0.10
 *   colo_usd_kw_month: 0      # rent of the place, per kW reserved
 *   circuit: {volts: 230, amps: 16}   # a wall circuit; 80 % of it may be drawn all day. 0: none
 *
 * Bad values are refused with file, line and range (examples/plan/site.yaml).
 */
#ifndef LS_PLANNING_SITE_H
#define LS_PLANNING_SITE_H

#include "base/arena.h"

#include <stdint.h>

/* What takes the heat away, by the kW of a rack: up to 15, 30, 60, and above. */
typedef enum ls_cooling {
    LS_COOLING_AIR,
    LS_COOLING_CONTAINED_AIR,
    LS_COOLING_REAR_DOOR,
    LS_COOLING_LIQUID
} ls_cooling;

typedef struct ls_site {
    const char *name;
    double power_kw; /* 0: no limit */
    uint64_t racks;  /* 0: no limit */
    double rack_kw;  /* 0: no limit but the cooling's */
    int cooling;     /* an ls_cooling: the best there is */
    double pue;
    double energy_usd_kwh;
    double colo_usd_kw_month;
    double circuit_volts, circuit_amps; /* 0: fed otherwise */
    const char *like;
} ls_site;

#define LS_SITE_CIRCUIT_SHARE 0.8 /* of a breaker's rating, for loads that last */

/* The names of the sites that ship, NULL at the end. */
const char *const *ls_site_names(void);
/* A shipped site; "" or NULL: colocation. Errors: LS_ERR_NOT_FOUND with the names there are. */
LS_MUST_CHECK ls_status ls_site_find(const char *name, ls_site *site_out);
/* A name of a shipped site, else a file. */
LS_MUST_CHECK ls_status ls_site_load(ls_arena *arena, const char *name_or_path, ls_site *site_out);
LS_MUST_CHECK ls_status ls_site_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                                      ls_site *site_out);

/* "air", "contained-air", "rear-door", "liquid": JSON and files. */
const char *ls_cooling_name(ls_cooling cooling);
/* "ordinary air", "rear-door heat exchangers or direct liquid cooling", ...: sentences. */
const char *ls_cooling_words(ls_cooling cooling);
/* What a rack of so many kW needs. */
ls_cooling ls_cooling_for(double rack_kw);
/* The most kW that a rack may have with it; INFINITY for liquid. */
double ls_cooling_limit_kw(ls_cooling cooling);

#endif
