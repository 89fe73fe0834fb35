// SPDX-License-Identifier: Apache-2.0
#include "orchestration/policy/free_map.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* ---- places: the cluster, sorted ---- */

static uint64_t mask_of(uint32_t devices)
{
    return devices == 64 ? UINT64_MAX : (UINT64_C(1) << devices) - 1;
}

typedef struct sorted_node {
    ls_node_spec spec;
    uint32_t node;
} sorted_node;

#define COMPARE(a, b)                                                                                        \
    if ((a) != (b)) {                                                                                        \
        return (a) < (b) ? -1 : 1;                                                                           \
    }

static int compare_nodes(const void *left, const void *right)
{
    const sorted_node *a = left, *b = right;
    COMPARE(a->spec.spine, b->spec.spine)
    COMPARE(a->spec.leaf, b->spec.leaf)
    COMPARE(a->spec.kind, b->spec.kind)
    COMPARE(a->spec.spot, b->spec.spot)
    COMPARE(a->spec.devices, b->spec.devices)
    COMPARE(a->spec.island_devices, b->spec.island_devices)
    COMPARE(a->node, b->node)
    return 0;
}

static bool same_leaf(const ls_node_spec *a, const ls_node_spec *b)
{
    return a->spine == b->spine && a->leaf == b->leaf;
}

static bool same_cell(const ls_node_spec *a, const ls_node_spec *b)
{
    return same_leaf(a, b) && a->kind == b->kind && a->spot == b->spot && a->devices == b->devices &&
           a->island_devices == b->island_devices;
}

static uint16_t class_of(ls_places *places, const ls_node_spec *spec)
{
    for (uint32_t i = 0; i < places->class_count; i++) {
        if (places->classes[i].kind == spec->kind && places->classes[i].spot == spec->spot) {
            return (uint16_t)i;
        }
    }
    places->classes[places->class_count].kind = spec->kind;
    places->classes[places->class_count].spot = spec->spot;
    return (uint16_t)places->class_count++;
}

/* Opens the spine, leaf and cell that begin with this node, as far as they differ from those of the
 * node before. */
static void open_ranges(ls_places *places, const ls_node_spec *spec, const ls_node_spec *before)
{
    if (before && same_cell(spec, before)) {
        return;
    }
    if (!before || !same_leaf(spec, before)) {
        if (!before || spec->spine != before->spine) {
            places->spine_leaves[places->spine_count++].first = places->leaf_count;
        }
        places->spine_leaves[places->spine_count - 1].count++;
        places->leaf_cells[places->leaf_count++].first = places->cell_count;
    }
    places->leaf_cells[places->leaf_count - 1].count++;
    places->cells[places->cell_count++] = (ls_cell){.class = class_of(places, spec),
                                                    .devices = spec->devices,
                                                    .island_devices = spec->island_devices,
                                                    .kind = spec->kind,
                                                    .spot = spec->spot};
}

static void add_node(ls_places *places, uint32_t place, const sorted_node *sorted)
{
    const ls_node_spec *spec = &sorted->spec;
    ls_cell *cell = &places->cells[places->cell_count - 1];
    cell->first = cell->count == 0 ? place : cell->first;
    cell->count++;
    places->nodes[place] = (ls_place_node){.all = mask_of(spec->devices),
                                           .cell = places->cell_count - 1,
                                           .leaf = places->leaf_count - 1,
                                           .spine = places->spine_count - 1,
                                           .node = sorted->node,
                                           .cpus = spec->cpus,
                                           .memory_mib = spec->memory_mib};
    places->place_of[sorted->node] = place;
    places->devices += spec->devices;
    places->capacity[0] += spec->devices;
    places->capacity[1] += spec->cpus;
    places->capacity[2] += spec->memory_mib;
    places->classes[cell->class].devices += spec->devices;
    places->devices_most = spec->devices > places->devices_most ? spec->devices : places->devices_most;
    places->island_most =
        spec->island_devices > places->island_most ? spec->island_devices : places->island_most;
}

static void lay_out_bits(ls_places *places)
{
    for (uint32_t i = 0; i < places->cell_count; i++) {
        ls_cell *cell = &places->cells[i];
        cell->words = (cell->count + 63) / 64;
        cell->words_before = places->node_words;
        places->node_words += cell->words;
        cell->bits = places->bit_words;
        places->bit_words += (size_t)cell->words * (cell->devices + 1u);
        cell->island_bits = cell->bits;
        if (cell->island_devices < cell->devices) {
            cell->island_bits = places->bit_words;
            places->bit_words += (size_t)cell->words * (cell->island_devices + 1u);
        }
        cell->counts = places->counts;
        places->counts += cell->devices + 1u;
    }
}

void ls_places_init(ls_places *places, ls_arena *arena, const ls_policy_cluster *cluster)
{
    const uint32_t count = cluster->node_count;
    sorted_node *sorted = ls_arena_new(arena, sorted_node, count);
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = (sorted_node){.spec = cluster->nodes[i], .node = i};
    }
    qsort(sorted, count, sizeof *sorted, compare_nodes);
    *places = (ls_places){.nodes = ls_arena_new(arena, ls_place_node, count),
                          .place_of = ls_arena_new(arena, uint32_t, count),
                          .cells = ls_arena_new(arena, ls_cell, count),
                          .leaf_cells = ls_arena_new(arena, ls_range, count),
                          .spine_leaves = ls_arena_new(arena, ls_range, count),
                          .node_count = count};
    for (uint32_t i = 0; i < count; i++) {
        open_ranges(places, &sorted[i].spec, i ? &sorted[i - 1].spec : NULL);
        add_node(places, i, &sorted[i]);
    }
    lay_out_bits(places);
}

/* ---- maps ---- */

/* The next part of a block; without a block, only its size is added. */
static void *part(char *block, size_t *at, size_t count, size_t bytes)
{
    void *here = block ? block + *at : NULL;
    *at += (count * bytes + 7) / 8 * 8;
    return here;
}

static size_t lay_out(ls_free_map *map, char *block)
{
    const ls_places *p = map->places;
    size_t at = 0;
    map->free = part(block, &at, p->node_count, sizeof *map->free);
    map->claimed = part(block, &at, p->node_count, sizeof *map->claimed);
    map->bits = part(block, &at, p->bit_words, sizeof *map->bits);
    map->cpus = part(block, &at, p->node_count, sizeof *map->cpus);
    map->memory_mib = part(block, &at, p->node_count, sizeof *map->memory_mib);
    map->counts = part(block, &at, p->counts, sizeof *map->counts);
    map->cell_free = part(block, &at, p->cell_count, sizeof *map->cell_free);
    map->leaf_free = part(block, &at, p->leaf_count, sizeof *map->leaf_free);
    map->spine_free = part(block, &at, p->spine_count, sizeof *map->spine_free);
    map->class_free = part(block, &at, p->class_count, sizeof *map->class_free);
    map->up = part(block, &at, p->node_count, sizeof *map->up);
    map->has = part(block, &at, p->node_count, sizeof *map->has);
    return at;
}

uint32_t ls_island_most(uint64_t free, uint32_t devices, uint32_t island_devices)
{
    if (island_devices == devices) {
        return (uint32_t)__builtin_popcountll(free);
    }
    uint32_t most = 0;
    for (uint32_t first = 0; first < devices; first += island_devices) {
        const uint32_t here = (uint32_t)__builtin_popcountll(free >> first & mask_of(island_devices));
        most = here > most ? here : most;
    }
    return most;
}

/* Moves a node from the buckets and counters of what it had to those of what it has. */
static void recount(ls_free_map *map, uint32_t place, uint64_t before, uint64_t after)
{
    const ls_place_node *node = &map->places->nodes[place];
    const ls_cell *cell = &map->places->cells[node->cell];
    const uint32_t had = map->has[place], has = (uint32_t)__builtin_popcountll(after);
    const uint32_t index = place - cell->first, word = index / 64;
    const uint64_t bit = UINT64_C(1) << (index % 64);
    if (cell->island_bits != cell->bits) {
        uint64_t *islands = map->bits + cell->island_bits + word;
        islands[(size_t)ls_island_most(before, cell->devices, cell->island_devices) * cell->words] &= ~bit;
        islands[(size_t)ls_island_most(after, cell->devices, cell->island_devices) * cell->words] |= bit;
    }
    if (had == has) {
        return;
    }
    map->bits[cell->bits + (size_t)had * cell->words + word] &= ~bit;
    map->bits[cell->bits + (size_t)has * cell->words + word] |= bit;
    map->has[place] = (uint8_t)has;
    map->counts[cell->counts + had]--;
    map->counts[cell->counts + has]++;
    const uint32_t change = has - had; /* modulo 2^32, so that sums come out right */
    map->cell_free[node->cell] += change;
    map->leaf_free[node->leaf] += change;
    map->spine_free[node->spine] += change;
    map->class_free[cell->class] += change;
}

void ls_free_map_init(ls_free_map *map, ls_arena *arena, const ls_places *places)
{
    map->places = places;
    map->block_bytes = lay_out(map, NULL);
    map->block = ls_arena_alloc(arena, map->block_bytes);
    lay_out(map, map->block);
    for (uint32_t i = 0; i < places->node_count; i++) {
        const ls_place_node *node = &places->nodes[i];
        const ls_cell *cell = &places->cells[node->cell];
        const uint32_t index = i - cell->first;
        /* bucket 0, in both sets of bitmaps */
        map->bits[cell->bits + index / 64] |= UINT64_C(1) << (index % 64);
        map->bits[cell->island_bits + index / 64] |= UINT64_C(1) << (index % 64);
        map->counts[cell->counts]++;
        map->up[i] = 1;
        map->cpus[i] = (int32_t)node->cpus;
        map->memory_mib[i] = (int32_t)node->memory_mib;
        map->free[i] = node->all;
        recount(map, i, 0, node->all);
    }
}

void ls_free_map_copy(ls_free_map *to, const ls_free_map *from)
{
    LS_ASSERT(to->places == from->places);
    memcpy(to->block, from->block, from->block_bytes);
}

void ls_free_map_promise(ls_free_map *map, uint32_t place, int32_t count, uint32_t cpus_per,
                         uint32_t memory_per)
{
    map->cpus[place] -= count * (int32_t)cpus_per;
    map->memory_mib[place] -= count * (int32_t)memory_per;
}

void ls_free_map_take(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per)
{
    const uint64_t before = map->free[place];
    const uint32_t count = (uint32_t)__builtin_popcountll(devices);
    LS_ASSERT((before & devices) == devices);
    map->free[place] = before & ~devices;
    ls_free_map_promise(map, place, (int32_t)count, cpus_per, memory_per);
    if (map->up[place]) {
        recount(map, place, before, map->free[place]);
    }
}

void ls_free_map_give(ls_free_map *map, uint32_t place, uint64_t devices, uint32_t cpus_per,
                      uint32_t memory_per)
{
    const uint64_t before = map->free[place];
    const uint32_t count = (uint32_t)__builtin_popcountll(devices);
    LS_ASSERT((before & devices) == 0);
    map->free[place] = before | devices;
    ls_free_map_promise(map, place, -(int32_t)count, cpus_per, memory_per);
    if (map->up[place]) {
        recount(map, place, before, map->free[place]);
    }
}

void ls_free_map_set_up(ls_free_map *map, uint32_t place, bool up)
{
    if (map->up[place] == up) {
        return;
    }
    recount(map, place, up ? 0 : map->free[place], up ? map->free[place] : 0);
    map->up[place] = up;
}

/* ---- checks ---- */

static bool node_is_valid(const ls_free_map *map, uint32_t place)
{
    const ls_place_node *node = &map->places->nodes[place];
    const ls_cell *cell = &map->places->cells[node->cell];
    const uint64_t usable = ls_free_map_usable(map, place);
    const uint32_t has = (uint32_t)__builtin_popcountll(usable), index = place - cell->first;
    const uint32_t island = ls_island_most(usable, cell->devices, cell->island_devices);
    if ((map->free[place] & ~node->all) || map->has[place] != has || map->cpus[place] > (int32_t)node->cpus ||
        map->memory_mib[place] > (int32_t)node->memory_mib) {
        return false;
    }
    for (uint32_t c = 0; c <= cell->devices; c++) {
        const uint64_t word = map->bits[cell->bits + (size_t)c * cell->words + index / 64];
        if ((word >> (index % 64) & 1) != (c == has)) {
            return false;
        }
    }
    for (uint32_t c = 0; c <= cell->island_devices; c++) {
        const uint64_t word = map->bits[cell->island_bits + (size_t)c * cell->words + index / 64];
        if ((word >> (index % 64) & 1) != (c == island)) {
            return false;
        }
    }
    return true;
}

bool ls_free_map_is_valid(const ls_free_map *map)
{
    const ls_places *p = map->places;
    uint64_t all = 0, by_class = 0, by_spine = 0;
    for (uint32_t i = 0; i < p->cell_count; i++) {
        uint32_t sum = 0, nodes = 0;
        for (uint32_t place = p->cells[i].first; place < p->cells[i].first + p->cells[i].count; place++) {
            sum += (uint32_t)__builtin_popcountll(ls_free_map_usable(map, place));
            if (!node_is_valid(map, place)) {
                return false;
            }
        }
        for (uint32_t c = 0; c <= p->cells[i].devices; c++) {
            nodes += map->counts[p->cells[i].counts + c];
        }
        if (sum != map->cell_free[i] || nodes != p->cells[i].count) {
            return false;
        }
        all += sum;
    }
    for (uint32_t leaf = 0; leaf < p->leaf_count; leaf++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < p->leaf_cells[leaf].count; i++) {
            sum += map->cell_free[p->leaf_cells[leaf].first + i];
        }
        if (sum != map->leaf_free[leaf]) {
            return false;
        }
    }
    for (uint32_t i = 0; i < p->spine_count; i++) {
        by_spine += map->spine_free[i];
    }
    for (uint32_t i = 0; i < p->class_count; i++) {
        by_class += map->class_free[i];
    }
    return all == by_spine && all == by_class;
}
