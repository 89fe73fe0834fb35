// SPDX-License-Identifier: Apache-2.0
/*
 * The catalogue: accelerators, nodes and sites, and their prices.
 *
 * The rows that ship (data/hardware.csv, data/sites.csv) are built into the program; user files
 * with the same columns add rows and replace rows of the same name. All figures are in SI units. 0
 * means "not published": code that needs such a figure reports that instead of guessing.
 *
 * Names are matched without regard to case and punctuation. Short names stand for the usual
 * variant: h100 is H100-SXM5-80GB, a100 is A100-SXM4-80GB, ... Ownership: all strings and tables
 * live in the arena given to ls_catalogue_load. Read-only afterwards: any number of threads.
 */
#ifndef LS_PLANNING_HARDWARE_CATALOGUE_H
#define LS_PLANNING_HARDWARE_CATALOGUE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A price range as published; low is the price of a careful buyer, high is the list price. 0, 0:
 * not known. */
typedef struct ls_price {
    double low, high; /* USD */
    /* a published median; else the geometric mean of low and high; 0: not known */
    double typical;
    const char *date; /* "2026-05", as in the source */
    const char *confidence;
} ls_price;

typedef enum ls_accelerator_class {
    LS_CLASS_GPU,
    LS_CLASS_TPU,
    LS_CLASS_APPLE,
    LS_CLASS_CPU
} ls_accelerator_class;

typedef struct ls_accelerator {
    const char *name;    /* "H100-SXM5-80GB" */
    const char *aliases; /* short names between blanks: "h100 h100-sxm" */
    /* "h100": what the constants of software stacks are keyed by (planning/hardware/stack.h) */
    const char *generation;
    ls_accelerator_class class;
    int year;
    double bf16_flops, fp8_flops, tf32_flops; /* dense, per second; bf16 also stands for fp16 */
    double fp32_flops;                        /* of the vector units; 0: not known */
    double memory_bytes;                      /* 80 "GB" are 80 * 2^30 bytes */
    double memory_bytes_ps;
    double scaleup_bytes_ps; /* NVLink and the like, each way, per accelerator */
    int64_t scaleup_domain;  /* accelerators connected by it; 1: none */
    double pcie_bytes_ps;    /* each way */
    int64_t sms;             /* units a wave of tiles fills */
    double tdp_w;
    /* each way, per accelerator, in the node it usually comes in; 0: not published */
    double nic_bytes_ps;
    ls_price price;     /* one accelerator */
    ls_price rent_hour; /* one accelerator for an hour */
    const char *notes;
} ls_accelerator;

typedef struct ls_node {
    const char *name; /* "DGX-H100" */
    const char *aliases;
    const ls_accelerator *accelerator;
    int64_t count;       /* accelerators */
    double power_w;      /* the whole node, maximum */
    double nic_bytes_ps; /* each way, per accelerator */
    ls_price price;      /* the whole node */
    ls_price rent_hour;  /* one accelerator of it for an hour */
    const char *notes;
} ls_node;

/* The cooling of a rack. */
typedef struct ls_cooling {
    const char *name; /* "air", "contained-air", "rear-door", "direct-liquid" */
    const char *aliases;
    double rack_w; /* the most heat it removes from one rack */
    bool liquid;   /* water reaches the rack */
    const char *notes;
} ls_cooling;

/* A place for machines. */
typedef struct ls_site {
    const char *name; /* "colocation" */
    const char *aliases;
    double pue;                               /* energy of the whole over that of the machines */
    double rack_w;                            /* power a rack can have */
    double power_w;                           /* of the whole site; 0: no limit */
    int64_t racks;                            /* 0: no limit */
    const ls_cooling *cooling;                /* the strongest it has */
    double energy_usd_kwh, colo_usd_kw_month; /* 0: not known, or not rented by the kilowatt */
    const char *date, *confidence, *notes;
} ls_site;

typedef struct ls_catalogue {
    const ls_accelerator *accelerators;
    size_t accelerator_count;
    const ls_node *nodes;
    size_t node_count;
    const ls_cooling *coolings; /* from the weakest to the strongest, as the files have them */
    size_t cooling_count;
    const ls_site *sites;
    size_t site_count;
} ls_catalogue;

/*
 * The catalogue that ships, with the rows of `files` on top (path by path, later ones win). A row's
 * kind (gpu, tpu, apple, cpu, node, site, cooling) says what it is; a file may hold several kinds,
 * and only the columns it needs. A row of a name that is there already replaces it as a whole.
 * Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA naming file, line, column, the value and what is allowed;
 * catalogue_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_catalogue_load(ls_arena *arena, const char *const *files, size_t file_count,
                                          ls_catalogue *catalogue_out);

/* Whether it multiplies in bf16, as GPUs do since 2020 (A100, MI100). Older ones have only fp16, at
 * the rate in bf16_flops. */
bool ls_accelerator_has_bf16(const ls_accelerator *accelerator);

/* Errors: LS_ERR_NOT_FOUND naming the nearest names. */
LS_MUST_CHECK ls_status ls_catalogue_find_accelerator(const ls_catalogue *catalogue, const char *name,
                                                      const ls_accelerator **accelerator_out);
LS_MUST_CHECK ls_status ls_catalogue_find_node(const ls_catalogue *catalogue, const char *name,
                                               const ls_node **node_out);
LS_MUST_CHECK ls_status ls_catalogue_find_site(const ls_catalogue *catalogue, const char *name,
                                               const ls_site **site_out);
LS_MUST_CHECK ls_status ls_catalogue_find_cooling(const ls_catalogue *catalogue, const char *name,
                                                  const ls_cooling **cooling_out);
/* The usual node of an accelerator: the first one of the catalogue that contains it. Where there is
 * none, a generic node in `arena`: as many accelerators as are connected to each other (at most
 * 16), twice their power, the accelerator's own network. */
const ls_node *ls_catalogue_usual_node(const ls_catalogue *catalogue, ls_arena *arena,
                                       const ls_accelerator *accelerator);

#endif
