// SPDX-License-Identifier: Apache-2.0
/*
 * How a search goes, from the lowest level up (choose):
 *
 *   island, node   one node that holds all ranks: buckets of each cell, tightest fit first
 *   leaf           the leaf with the best score; in it the emptiest nodes first (fill_leaf)
 *   spine, all     the tightest leaf or spine that holds the rest, else the largest, repeatedly
 *
 * A node is looked at only when a bucket that could suit has it. Counters of cells, leaves and
 * spines (free_map.h) rule out whole parts of the cluster before that, so a search costs little
 * even on 100,000 devices. Nothing here changes a free map.
 */
#include "orchestration/policy/placement.h"

#include "base/assert.h"

/* Scores, in devices for a node and in nodes for a leaf (placement.h). NONE: no place found. */
enum { BREAKS_WHOLE = 2, NO_DATA = 3, EXTRA_NODE = 4, LEFT_OVER_MOST = 4, NONE = -1 };

void ls_placer_init(ls_placer *placer, ls_arena *arena, const ls_places *places)
{
    placer->leaf_fit = ls_arena_new(arena, uint32_t, places->leaf_count);
    placer->spine_fit = ls_arena_new(arena, uint32_t, places->spine_count);
}

void ls_plan_init(ls_placement *plan, ls_arena *arena, const ls_places *places)
{
    *plan = (ls_placement){.pieces = ls_arena_new(arena, ls_gang_piece, places->node_count)};
}

uint32_t ls_distance_weight(uint64_t bytes)
{
    const uint64_t mib = UINT64_C(1) << 20;
    return bytes == 0            ? 2
           : bytes < mib         ? 0
           : bytes < 64 * mib    ? 1
           : bytes < 1024 * mib  ? 2
           : bytes < 16384 * mib ? 3
                                 : 4;
}

bool ls_shape_takes(const ls_gang_shape *shape, const ls_cell *cell)
{
    return (shape->kind < 0 || shape->kind == cell->kind) && (shape->spot || !cell->spot);
}

static bool is_constrained(const ls_gang_shape *shape)
{
    return shape->cpus_per > 0 || shape->memory_per > 0;
}

/* How many ranks a resource allows. It may be overdrawn (below 0) while a claim waits. */
static uint32_t bounded(uint32_t fit, int32_t have, uint32_t per)
{
    const uint32_t count = per == 0 ? fit : have <= 0 ? 0 : (uint32_t)have / per;
    return count < fit ? count : fit;
}

uint32_t ls_shape_fit(const ls_free_map *map, const ls_gang_shape *shape, uint32_t place)
{
    uint32_t fit = map->has[place];
    fit = bounded(fit, map->cpus[place], shape->cpus_per);
    fit = bounded(fit, map->memory_mib[place], shape->memory_per);
    return shape->per_node == 0 ? fit : fit >= shape->per_node ? shape->per_node : 0;
}

/* At most this many: cores, memory and devices per node are not looked at. */
uint32_t ls_shape_free(const ls_free_map *map, const ls_gang_shape *shape)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < map->places->class_count; i++) {
        const bool takes = (shape->kind < 0 || shape->kind == map->places->classes[i].kind) &&
                           (shape->spot || !map->places->classes[i].spot);
        sum += takes ? map->class_free[i] : 0;
    }
    return sum;
}

/* ---- devices of a node ---- */

/* The `count` lowest bits of a mask. */
static uint64_t lowest(uint64_t mask, uint32_t count)
{
    uint64_t picked = 0;
    for (uint32_t i = 0; i < count; i++) {
        picked |= mask & -mask;
        mask &= mask - 1;
    }
    return picked;
}

/* The island to take `count` from: the one where fewest are left over; when none has enough, the
 * fullest. */
static uint64_t best_island(uint64_t usable, uint32_t devices, uint32_t island_devices, uint32_t count)
{
    const uint64_t one = island_devices == 64 ? UINT64_MAX : (UINT64_C(1) << island_devices) - 1;
    uint64_t best = 0;
    uint32_t best_has = 0;
    for (uint32_t first = 0; first < devices; first += island_devices) {
        const uint64_t island = usable & one << first;
        const uint32_t has = (uint32_t)__builtin_popcountll(island);
        const bool better = best_has >= count ? has >= count && has < best_has : has > best_has;
        best = better ? island : best;
        best_has = better ? has : best_has;
    }
    return best;
}

uint64_t ls_devices_pick(uint64_t usable, uint32_t devices, uint32_t island_devices, uint32_t count)
{
    LS_ASSERT((uint32_t)__builtin_popcountll(usable) >= count);
    uint64_t picked = 0;
    /* The best island has the rest, or it is used up and the next one follows. */
    while (count > 0) {
        const uint64_t island = best_island(usable, devices, island_devices, count);
        const uint32_t has = (uint32_t)__builtin_popcountll(island);
        const uint64_t taken = has <= count ? island : lowest(island, count);
        picked |= taken;
        usable &= ~taken;
        count -= has <= count ? has : count;
    }
    return picked;
}

/* Adds `count` free devices of a node to the plan. The map is not changed, so a node is used only
 * once. */
static void add_piece(ls_placement *plan, const ls_free_map *map, uint32_t place, uint32_t count)
{
    const ls_cell *cell = &map->places->cells[map->places->nodes[place].cell];
    const uint64_t devices =
        ls_devices_pick(ls_free_map_usable(map, place), cell->devices, cell->island_devices, count);
    plan->pieces[plan->count++] = (ls_gang_piece){.place = place, .devices = devices};
}

/* ---- one node ---- */

typedef struct node_choice {
    int64_t place; /* NONE */
    uint32_t score, leaf_free;
} node_choice;

/*
 * The first node of a bucket that can take `ranks`; with `cached` only among nodes that have the
 * data. A bucket is a bitmap of the nodes of a cell with one count of free devices, so this looks
 * at words, not nodes.
 */
static int64_t first_node(const ls_free_map *map, const ls_gang_shape *shape, const ls_cell *cell,
                          size_t bits, uint32_t ranks, bool cached)
{
    for (uint32_t word = 0; word < cell->words; word++) {
        uint64_t set = map->bits[bits + word];
        if (cached) {
            set &= shape->cached[cell->words_before + word];
        }
        for (; set; set &= set - 1) {
            const uint32_t place = cell->first + word * 64 + (uint32_t)__builtin_ctzll(set);
            if (!is_constrained(shape) || ls_shape_fit(map, shape, place) >= ranks) {
                return place;
            }
        }
    }
    return NONE;
}

/* Equal scores: the node in the fuller leaf, so that emptier leaves stay free for large gangs; then
 * the lower place, because cells are walked in order. */
static void offer_node(const ls_free_map *map, int64_t place, uint32_t score, node_choice *best)
{
    if (place == NONE) {
        return;
    }
    const uint32_t leaf_free = map->leaf_free[map->places->nodes[place].leaf];
    const bool better =
        best->place == NONE || score < best->score || (score == best->score && leaf_free < best->leaf_free);
    if (better) {
        *best = (node_choice){.place = place, .score = score, .leaf_free = leaf_free};
    }
}

/*
 * The best node of one cell. Buckets are tried from the tightest fit up; the score only grows with
 * what is left over, so the search stops at the first bucket that cannot beat the best so far.
 * Nodes with the data are offered without the penalty NO_DATA.
 */
static void best_node_of_cell(const ls_free_map *map, const ls_gang_shape *shape, const ls_cell *cell,
                              uint32_t ranks, bool island, node_choice *best)
{
    const uint32_t most = island ? cell->island_devices : cell->devices;
    const size_t bits = island ? cell->island_bits : cell->bits;
    for (uint32_t has = ranks; has <= most; has++) {
        const uint32_t score = has - ranks + (has == cell->devices && has > ranks ? BREAKS_WHOLE : 0);
        if (best->place != NONE && score > best->score) {
            return;
        }
        /* Only the buckets of nodes have counters; those of islands are always looked through. */
        if (bits == cell->bits && map->counts[cell->counts + has] == 0) {
            continue;
        }
        const size_t bucket = bits + (size_t)has * cell->words;
        if (shape->cached) {
            offer_node(map, first_node(map, shape, cell, bucket, ranks, true), score, best);
        }
        offer_node(map, first_node(map, shape, cell, bucket, ranks, false),
                   score + (shape->cached ? NO_DATA : 0), best);
    }
}

/*
 * `island`: all ranks within one island of the node, so the buckets by largest free island count.
 */
static node_choice best_node(const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks, bool island)
{
    node_choice best = {.place = NONE};
    if (ranks > map->places->devices_most || (shape->per_node > 0 && ranks != shape->per_node)) {
        return best;
    }
    for (uint32_t i = 0; i < map->places->cell_count; i++) {
        if (map->cell_free[i] >= ranks && ls_shape_takes(shape, &map->places->cells[i])) {
            best_node_of_cell(map, shape, &map->places->cells[i], ranks, island, &best);
        }
    }
    return best;
}

/* ---- how much fits ---- */

/* How many ranks of a shape a cell can take. Without limits on cores and memory the counters know
 * it; with them each node has to be looked at. */
static uint32_t cell_fit(const ls_free_map *map, const ls_gang_shape *shape, uint32_t index)
{
    const ls_cell *cell = &map->places->cells[index];
    uint32_t fit = 0;
    if (!ls_shape_takes(shape, cell) || map->cell_free[index] == 0) {
        return 0;
    }
    if (is_constrained(shape)) {
        for (uint32_t place = cell->first; place < cell->first + cell->count; place++) {
            fit += ls_shape_fit(map, shape, place);
        }
        return fit;
    }
    if (shape->per_node == 0) {
        return map->cell_free[index];
    }
    for (uint32_t has = shape->per_node; has <= cell->devices; has++) {
        fit += map->counts[cell->counts + has] * shape->per_node;
    }
    return fit;
}

static uint32_t leaf_fit(const ls_free_map *map, const ls_gang_shape *shape, uint32_t leaf)
{
    const ls_range cells = map->places->leaf_cells[leaf];
    uint32_t fit = 0;
    for (uint32_t i = 0; map->leaf_free[leaf] > 0 && i < cells.count; i++) {
        fit += cell_fit(map, shape, cells.first + i);
    }
    return fit;
}

/* How many ranks each leaf and spine can take, for the choice among them. Filling uses the numbers
 * up: a domain that was used counts as 0. */
static void compute_fits(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape)
{
    const ls_places *places = map->places;
    for (uint32_t spine = 0; spine < places->spine_count; spine++) {
        const ls_range leaves = places->spine_leaves[spine];
        placer->spine_fit[spine] = 0;
        for (uint32_t leaf = leaves.first; leaf < leaves.first + leaves.count; leaf++) {
            placer->leaf_fit[leaf] = leaf_fit(map, shape, leaf);
            placer->spine_fit[spine] += placer->leaf_fit[leaf];
        }
    }
}

/* ---- one leaf ---- */

/* How many nodes of a leaf `ranks` would take, emptiest first. */
static uint32_t nodes_needed(const ls_free_map *map, const ls_gang_shape *shape, uint32_t leaf,
                             uint32_t ranks)
{
    const ls_range cells = map->places->leaf_cells[leaf];
    uint32_t nodes = 0;
    if (shape->per_node > 0) {
        return ranks / shape->per_node;
    }
    for (uint32_t has = map->places->devices_most; has > 0; has--) {
        for (uint32_t i = cells.first; i < cells.first + cells.count; i++) {
            const ls_cell *cell = &map->places->cells[i];
            if (has > cell->devices || !ls_shape_takes(shape, cell)) {
                continue;
            }
            const uint32_t there = map->counts[cell->counts + has];
            if ((uint64_t)there * has >= ranks) {
                return nodes + (ranks + has - 1) / has;
            }
            nodes += there;
            ranks -= there * has;
        }
    }
    return nodes;
}

/* Nodes of a leaf that have the data and something free: all but those in bucket 0. */
static uint32_t nodes_with_data(const ls_free_map *map, const ls_gang_shape *shape, uint32_t leaf)
{
    const ls_range cells = map->places->leaf_cells[leaf];
    uint32_t nodes = 0;
    for (uint32_t i = cells.first; i < cells.first + cells.count; i++) {
        const ls_cell *cell = &map->places->cells[i];
        for (uint32_t word = 0; ls_shape_takes(shape, cell) && word < cell->words; word++) {
            nodes += (uint32_t)__builtin_popcountll(shape->cached[cell->words_before + word] &
                                                    ~map->bits[cell->bits + word]);
        }
    }
    return nodes;
}

/* The score of a leaf (placement.h): nodes left over, nodes beyond the fewest possible weighted by
 * distance, nodes without the data. */
static uint32_t leaf_score(const ls_free_map *map, const ls_gang_shape *shape, uint32_t leaf, uint32_t ranks,
                           uint32_t left_over)
{
    const uint32_t most = map->places->devices_most;
    const uint32_t nodes = nodes_needed(map, shape, leaf, ranks);
    /* the fewest: as if all were empty and as large as the largest */
    const uint32_t least = shape->per_node ? nodes : (ranks + most - 1) / most;
    const uint32_t spare = left_over / most;
    uint32_t score = spare < LEFT_OVER_MOST ? spare : LEFT_OVER_MOST;
    score += EXTRA_NODE * shape->distance * (nodes > least ? nodes - least : 0);
    if (shape->cached) {
        const uint32_t with = nodes_with_data(map, shape, leaf);
        score += NO_DATA * (nodes > with ? nodes - with : 0);
    }
    return score;
}

typedef struct domain_choice {
    int64_t domain; /* NONE */
    uint32_t score, left_over;
} domain_choice;

/* Only leaves that hold the whole gang are scored; equal scores: the one that is left fuller. */
static domain_choice best_leaf(const ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape,
                               uint32_t ranks)
{
    domain_choice best = {.domain = NONE};
    for (uint32_t leaf = 0; leaf < map->places->leaf_count; leaf++) {
        if (placer->leaf_fit[leaf] < ranks) {
            continue;
        }
        const uint32_t left_over = placer->leaf_fit[leaf] - ranks;
        const uint32_t score = leaf_score(map, shape, leaf, ranks, left_over);
        if (best.domain == NONE || score < best.score ||
            (score == best.score && left_over < best.left_over)) {
            best = (domain_choice){.domain = leaf, .score = score, .left_over = left_over};
        }
    }
    return best;
}

/* A walk over the nodes of one bucket; nodes with the data come first. */
typedef struct bucket_walk {
    const ls_free_map *map;
    const ls_gang_shape *shape;
    const ls_cell *cell;
    size_t bits;
    uint32_t word;
    uint64_t set;
    bool with_data;
} bucket_walk;

static uint64_t walk_word(const bucket_walk *walk)
{
    const uint64_t set = walk->map->bits[walk->bits + walk->word];
    if (!walk->shape->cached) {
        return set;
    }
    const uint64_t cached = walk->shape->cached[walk->cell->words_before + walk->word];
    return walk->with_data ? set & cached : set & ~cached;
}

static bucket_walk walk_begin(const ls_free_map *map, const ls_gang_shape *shape, const ls_cell *cell,
                              uint32_t has)
{
    bucket_walk walk = {.map = map,
                        .shape = shape,
                        .cell = cell,
                        .bits = cell->bits + (size_t)has * cell->words,
                        .with_data = shape->cached != NULL};
    walk.set = walk_word(&walk);
    return walk;
}

static bool walk_next(bucket_walk *walk, uint32_t *place_out)
{
    while (!walk->set) {
        if (++walk->word == walk->cell->words) {
            if (!walk->with_data) {
                /* stays at the last word, so that a further call ends here, too */
                walk->word--;
                return false;
            }
            walk->with_data = false;
            walk->word = 0;
        }
        walk->set = walk_word(walk);
    }
    *place_out = walk->cell->first + walk->word * 64 + (uint32_t)__builtin_ctzll(walk->set);
    walk->set &= walk->set - 1;
    return true;
}

/*
 * Places the rest of a gang, which is less than a node of the current bucket has. Looks through the
 * buckets below for the node where it fits best, so that an empty node is not broken for a few
 * ranks.
 */
static bool place_rest(ls_placement *plan, const ls_free_map *map, const ls_gang_shape *shape, ls_range cells,
                       uint32_t rest, uint32_t below)
{
    for (uint32_t has = rest; has < below; has++) {
        for (uint32_t i = cells.first; i < cells.first + cells.count; i++) {
            const ls_cell *cell = &map->places->cells[i];
            if (has > cell->devices || !ls_shape_takes(shape, cell) || map->counts[cell->counts + has] == 0) {
                continue;
            }
            bucket_walk walk = walk_begin(map, shape, cell, has);
            uint32_t place = 0;
            while (walk_next(&walk, &place)) {
                if (ls_shape_fit(map, shape, place) >= rest) {
                    add_piece(plan, map, place, rest);
                    return true;
                }
            }
        }
    }
    return false;
}

/* Whether spreading out costs the job nothing. Then it takes what no other job can use well. */
static bool may_scatter(const ls_gang_shape *shape)
{
    return shape->distance == 0 && shape->preferred >= LS_LEVEL_LEAF;
}

/* Takes nodes of one bucket in all cells of a leaf. Returns how many ranks are left to place. */
static uint32_t fill_from_bucket(ls_placement *plan, const ls_free_map *map, const ls_gang_shape *shape,
                                 ls_range cells, uint32_t has, uint32_t rest)
{
    for (uint32_t i = cells.first; i < cells.first + cells.count; i++) {
        const ls_cell *cell = &map->places->cells[i];
        if (has > cell->devices || !ls_shape_takes(shape, cell) || map->counts[cell->counts + has] == 0) {
            continue;
        }
        bucket_walk walk = walk_begin(map, shape, cell, has);
        uint32_t place = 0;
        while (rest > 0 && walk_next(&walk, &place)) {
            const uint32_t fit = ls_shape_fit(map, shape, place);
            if (fit == 0) { /* too few cores, or too little memory */
                continue;
            }
            /* The rest is less than this node has: a fuller node may just hold it. */
            if (shape->per_node == 0 && !may_scatter(shape) && rest < has &&
                place_rest(plan, map, shape, cells, rest, has)) {
                return 0;
            }
            const uint32_t count = fit < rest ? fit : rest;
            add_piece(plan, map, place, count);
            rest -= count;
        }
    }
    return rest;
}

/* Fills a leaf. Emptiest nodes first, so that the gang is on few nodes; fullest nodes first where
 * that does not matter to the job, so that whole nodes stay whole for jobs that need them. */
static uint32_t fill_leaf(ls_placement *plan, const ls_free_map *map, const ls_gang_shape *shape,
                          uint32_t leaf, uint32_t ranks)
{
    const ls_range cells = map->places->leaf_cells[leaf];
    const uint32_t most = map->places->devices_most;
    uint32_t rest = ranks;
    if (shape->per_node > 0 || may_scatter(shape)) {
        for (uint32_t has = shape->per_node ? shape->per_node : 1; rest > 0 && has <= most; has++) {
            rest = fill_from_bucket(plan, map, shape, cells, has, rest);
        }
        return rest;
    }
    for (uint32_t has = most; rest > 0 && has > 0; has--) {
        rest = fill_from_bucket(plan, map, shape, cells, has, rest);
    }
    return rest;
}

/* ---- several leaves ---- */

/* The leaf or spine to fill next: the one where the rest fits most tightly; when none holds it, the
 * largest. */
static uint32_t next_domain(const uint32_t *fit, ls_range domains, uint32_t rest)
{
    uint32_t best = domains.first;
    for (uint32_t i = domains.first + 1; i < domains.first + domains.count; i++) {
        const bool better = fit[best] >= rest ? fit[i] >= rest && fit[i] < fit[best] : fit[i] > fit[best];
        best = better ? i : best;
    }
    return best;
}

/* Spreads ranks over leaves, one leaf after the other; a leaf that was used counts as full. Returns
 * what did not fit. */
static uint32_t fill_leaves(ls_placer *placer, ls_placement *plan, const ls_free_map *map,
                            const ls_gang_shape *shape, ls_range leaves, uint32_t ranks)
{
    uint32_t rest = ranks;
    while (rest > 0) {
        const uint32_t leaf = next_domain(placer->leaf_fit, leaves, rest);
        const uint32_t here = placer->leaf_fit[leaf] < rest ? placer->leaf_fit[leaf] : rest;
        if (here == 0) {
            return rest;
        }
        rest -= here - fill_leaf(plan, map, shape, leaf, here);
        placer->leaf_fit[leaf] = 0;
    }
    return 0;
}

/* The same over spines. Each spine goes through its leaves, whose numbers only it uses up. */
static uint32_t fill_spines(ls_placer *placer, ls_placement *plan, const ls_free_map *map,
                            const ls_gang_shape *shape, uint32_t ranks)
{
    const ls_range spines = {.count = map->places->spine_count};
    uint32_t rest = ranks;
    while (rest > 0) {
        const uint32_t spine = next_domain(placer->spine_fit, spines, rest);
        const uint32_t here = placer->spine_fit[spine] < rest ? placer->spine_fit[spine] : rest;
        if (here == 0) {
            return rest;
        }
        rest -= here - fill_leaves(placer, plan, map, shape, map->places->spine_leaves[spine], here);
        placer->spine_fit[spine] = 0;
    }
    return 0;
}

/* The spine that is left fullest; all have the same score. */
static domain_choice best_spine(const ls_placer *placer, const ls_places *places, uint32_t ranks)
{
    domain_choice best = {.domain = NONE};
    for (uint32_t spine = 0; spine < places->spine_count; spine++) {
        const uint32_t fit = placer->spine_fit[spine];
        if (fit >= ranks && (best.domain == NONE || fit - ranks < best.left_over)) {
            best = (domain_choice){.domain = spine, .score = LEFT_OVER_MOST, .left_over = fit - ranks};
        }
    }
    return best;
}

/* ---- all levels ---- */

typedef struct choice {
    int64_t domain; /* a place, a leaf, a spine, or 0 for the cluster; NONE */
    ls_level level;
    uint32_t score;
} choice;

/* The best place at one level. The leaf level computes the fits that the spine and cluster levels
 * use, so levels must be asked from the lowest up. */
static choice best_at(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks,
                      ls_level level)
{
    choice found = {.domain = NONE, .level = level};
    if (level <= LS_LEVEL_NODE) {
        const node_choice node = best_node(map, shape, ranks, level == LS_LEVEL_ISLAND);
        return (choice){.domain = node.place, .level = level, .score = node.score};
    }
    if (level == LS_LEVEL_LEAF) {
        compute_fits(placer, map, shape);
        const domain_choice leaf = best_leaf(placer, map, shape, ranks);
        return (choice){.domain = leaf.domain, .level = level, .score = leaf.score};
    }
    if (level == LS_LEVEL_SPINE) {
        const domain_choice spine = best_spine(placer, map->places, ranks);
        return (choice){.domain = spine.domain, .level = level, .score = spine.score};
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < map->places->spine_count; i++) {
        sum += placer->spine_fit[i];
    }
    found.domain = sum >= ranks ? 0 : NONE;
    found.score = LEFT_OVER_MOST;
    return found;
}

/* Makes the plan for a choice. Returns how many ranks did not fit: none, unless the counters that
 * led to the choice are wrong. */
static uint32_t fill(ls_placer *placer, ls_placement *plan, const ls_free_map *map,
                     const ls_gang_shape *shape, uint32_t ranks, choice where)
{
    switch (where.level) {
    case LS_LEVEL_ISLAND:
    case LS_LEVEL_NODE:
        add_piece(plan, map, (uint32_t)where.domain, ranks);
        return 0;
    case LS_LEVEL_LEAF:
        return fill_leaf(plan, map, shape, (uint32_t)where.domain, ranks);
    case LS_LEVEL_SPINE:
        return fill_leaves(placer, plan, map, shape, map->places->spine_leaves[where.domain], ranks);
    default:
        return fill_spines(placer, plan, map, shape, ranks);
    }
}

/*
 * The level and domain to use. Levels are tried from the lowest up, and the first one that holds
 * the gang wins, unless the job prefers a higher level: then levels up to that one compete by
 * score. fits of leaves and spines are computed at the leaf level and used by the levels above it.
 */
static choice choose(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks)
{
    choice best = {.domain = NONE};
    for (ls_level level = LS_LEVEL_ISLAND; level <= shape->required; level++) {
        if (best.domain != NONE && level > shape->preferred) {
            break;
        }
        const choice here = best_at(placer, map, shape, ranks, level);
        if (here.domain != NONE && (best.domain == NONE || here.score < best.score)) {
            best = here;
        }
    }
    return best;
}

bool ls_plan_find(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape, uint32_t ranks,
                  ls_placement *plan)
{
    LS_ASSERT(ranks > 0);
    if (ls_shape_free(map, shape) < ranks) {
        return false;
    }
    const choice where = choose(placer, map, shape, ranks);
    if (where.domain == NONE) {
        return false;
    }
    plan->count = 0;
    const uint32_t rest = fill(placer, plan, map, shape, ranks, where);
    /* The counters said that it fits: a rest would mean that they do not match the nodes. */
    LS_ASSERT(rest == 0);
    plan->ranks = ranks;
    plan->level = ls_pieces_level(map->places, plan->pieces, plan->count);
    return true;
}

uint32_t ls_plan_find_within(ls_placer *placer, const ls_free_map *map, const ls_gang_shape *shape,
                             ls_range leaves, uint32_t ranks, ls_placement *plan)
{
    plan->count = 0;
    for (uint32_t leaf = leaves.first; leaf < leaves.first + leaves.count; leaf++) {
        placer->leaf_fit[leaf] = leaf_fit(map, shape, leaf);
    }
    plan->ranks = ranks - fill_leaves(placer, plan, map, shape, leaves, ranks);
    plan->level = ls_pieces_level(map->places, plan->pieces, plan->count);
    return plan->ranks;
}

void ls_shape_free_most(const ls_free_map *map, const ls_gang_shape *shape, uint32_t most_out[LS_LEVEL_COUNT])
{
    const ls_places *p = map->places;
    for (int i = 0; i < LS_LEVEL_COUNT; i++) {
        most_out[i] = 0;
    }
    for (uint32_t spine = 0; spine < p->spine_count; spine++) {
        uint32_t in_spine = 0;
        for (uint32_t i = 0; i < p->spine_leaves[spine].count; i++) {
            const uint32_t fit = leaf_fit(map, shape, p->spine_leaves[spine].first + i);
            most_out[LS_LEVEL_LEAF] = fit > most_out[LS_LEVEL_LEAF] ? fit : most_out[LS_LEVEL_LEAF];
            in_spine += fit;
        }
        most_out[LS_LEVEL_SPINE] = in_spine > most_out[LS_LEVEL_SPINE] ? in_spine : most_out[LS_LEVEL_SPINE];
        most_out[LS_LEVEL_CLUSTER] += in_spine;
    }
    /* Islands and nodes have no counters by shape, so each node is looked at: too slow for a pass,
     * which does not ask. */
    for (uint32_t place = 0; place < p->node_count; place++) {
        const ls_cell *cell = &p->cells[p->nodes[place].cell];
        if (!ls_shape_takes(shape, cell)) {
            continue;
        }
        const uint32_t fit = ls_shape_fit(map, shape, place);
        const uint32_t island =
            ls_island_most(ls_free_map_usable(map, place), cell->devices, cell->island_devices);
        const uint32_t both = fit < island ? fit : island;
        most_out[LS_LEVEL_NODE] = fit > most_out[LS_LEVEL_NODE] ? fit : most_out[LS_LEVEL_NODE];
        most_out[LS_LEVEL_ISLAND] = both > most_out[LS_LEVEL_ISLAND] ? both : most_out[LS_LEVEL_ISLAND];
    }
}

/* The lowest level at which all pieces are together; a single one may even be within an island. */
ls_level ls_pieces_level(const ls_places *places, const ls_gang_piece *pieces, uint32_t count)
{
    if (count == 0) {
        return LS_LEVEL_CLUSTER;
    }
    const ls_place_node *first = &places->nodes[pieces[0].place];
    if (count == 1) {
        const ls_cell *cell = &places->cells[first->cell];
        const uint32_t total = (uint32_t)__builtin_popcountll(pieces[0].devices);
        return ls_island_most(pieces[0].devices, cell->devices, cell->island_devices) == total
                   ? LS_LEVEL_ISLAND
                   : LS_LEVEL_NODE;
    }
    ls_level level = LS_LEVEL_LEAF;
    for (uint32_t i = 1; i < count; i++) {
        const ls_place_node *node = &places->nodes[pieces[i].place];
        if (node->spine != first->spine) {
            return LS_LEVEL_CLUSTER;
        }
        level = node->leaf != first->leaf ? LS_LEVEL_SPINE : level;
    }
    return level;
}
