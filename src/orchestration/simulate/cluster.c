// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/cluster.h"

#include "base/file.h"
#include "base/options.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_PER_LEAF = 16, LEAVES_PER_SPINE = 8, DIGITS_MOST = 9, GROUPS_MOST = 4096, NAME_BYTES = 64 };
#define CPUS_PER_GPU   8.0
#define MEMORY_PER_GPU (64.0 * 1024 * 1024 * 1024)

uint32_t ls_cluster_devices(const ls_policy_cluster *cluster)
{
    uint32_t devices = 0;
    for (uint32_t i = 0; i < cluster->node_count; i++) {
        devices += cluster->nodes[i].devices;
    }
    return devices;
}

int32_t ls_cluster_kind(const ls_policy_cluster *cluster, const char *kind)
{
    for (uint32_t i = 0; i < cluster->kind_count; i++) {
        if (strcmp(cluster->kinds[i], kind) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* ---- NODESxGPUS ---- */

bool ls_cluster_spec_is_plain(const char *spec)
{
    const size_t first = strspn(spec, "0123456789");
    const size_t second = spec[first] == 'x' ? strspn(spec + first + 1, "0123456789") : 0;
    return first > 0 && second > 0 && spec[first + 1 + second] == 0;
}

static ls_status parse_product(ls_arena *arena, const char *spec, ls_policy_cluster *cluster_out)
{
    const char *gpus_text = strchr(spec, 'x') + 1;
    const size_t digits = (size_t)(gpus_text - 1 - spec);
    const unsigned long nodes = digits <= DIGITS_MOST ? strtoul(spec, NULL, 10) : 0;
    const unsigned long gpus = strlen(gpus_text) <= DIGITS_MOST ? strtoul(gpus_text, NULL, 10) : 0;
    if (nodes < 1 || nodes > LS_TOPOLOGY_NODES_MAX || gpus < 1 || gpus > LS_NODE_DEVICES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "cluster '%.40s' is too small or too large: 1 to %d nodes of 1 to %d GPUs each are "
                       "allowed; 64x8 means 64 nodes of 8 GPUs",
                       spec, LS_TOPOLOGY_NODES_MAX, LS_NODE_DEVICES_MAX);
    }
    ls_cluster_uniform(arena, (uint32_t)nodes, (uint16_t)gpus, NODES_PER_LEAF, LEAVES_PER_SPINE, cluster_out);
    return LS_OK;
}

/* ---- a file ---- */

typedef struct group_spec {
    const char *names, *kind, *leaf, *spine;
    uint64_t gpus, island, cpus, memory, nodes_per_leaf, leaves_per_spine;
    bool spot;
} group_spec;

#define ROW(field_name, option_type, default_, ...)                                                          \
    {                                                                                                        \
        .key = #field_name, .type = (option_type), .offset = offsetof(group_spec, field_name),               \
        .default_text = (default_), __VA_ARGS__                                                              \
    }

static const ls_option group_rows[] = {
    ROW(names, LS_OPTION_STRING, "\"\"",
        .help = "names of the nodes of this group: one name, or a pattern with one range such as n[0-63]"),
    ROW(gpus, LS_OPTION_U64, "8", .min = 1, .max = LS_NODE_DEVICES_MAX,
        .help = "number of GPUs of each node of this group"),
    ROW(kind, LS_OPTION_STRING, "gpu", .help = "name of the kind of GPU that the nodes of this group have"),
    ROW(island, LS_OPTION_U64, "auto", .allow_auto = true, .min = 1, .max = LS_NODE_DEVICES_MAX,
        .help = "number of GPUs of a node that are connected by its fastest link; auto: all of them"),
    ROW(cpus, LS_OPTION_U64, "auto", .allow_auto = true, .min = 1, .max = 65536,
        .help = "number of CPU cores of each node; auto: 8 per GPU"),
    ROW(memory, LS_OPTION_BYTES, "auto", .allow_auto = true, .min = 1 << 20, .max = 1e15,
        .help = "host memory of each node; auto: 64 GiB per GPU"),
    ROW(leaf, LS_OPTION_STRING, "\"\"",
        .help = "name of the leaf switch that the nodes of this group are attached to"),
    ROW(nodes_per_leaf, LS_OPTION_U64, "16", .min = 1, .max = LS_TOPOLOGY_NODES_MAX,
        .help = "number of nodes attached to each leaf switch, when key `leaf` is not given"),
    ROW(spine, LS_OPTION_STRING, "\"\"",
        .help = "name of the spine switch that the leaf switches of this group are attached to"),
    ROW(leaves_per_spine, LS_OPTION_U64, "8", .min = 1, .max = LS_TOPOLOGY_NODES_MAX,
        .help = "number of leaf switches attached to each spine switch, when key `spine` is not given"),
    ROW(spot, LS_OPTION_BOOL, "false",
        .help = "whether the nodes of this group may be taken away at short notice (spot instances)"),
};
static const ls_option_table group_table = {.options = group_rows,
                                            .count = sizeof group_rows / sizeof group_rows[0]};

/* Numbers for the names of leaves and spines. */
typedef struct numbering {
    const char *names[GROUPS_MOST];
    uint32_t numbers[GROUPS_MOST];
    uint32_t named, next;
} numbering;

static uint32_t number_of(numbering *numbers, const char *name)
{
    for (uint32_t i = 0; i < numbers->named; i++) {
        if (strcmp(numbers->names[i], name) == 0) {
            return numbers->numbers[i];
        }
    }
    numbers->names[numbers->named] = name;
    numbers->numbers[numbers->named++] = numbers->next;
    return numbers->next++;
}

typedef struct builder {
    ls_arena *arena;
    ls_policy_cluster *cluster;
    uint32_t capacity; /* number of nodes there is room for */
    numbering leaves, spines;
    uint32_t spine_of[GROUPS_MOST]; /* of named leaves */
} builder;

typedef struct name_range {
    const char *head, *tail; /* before and after the number */
    int head_bytes, digits;
    uint32_t first, count;
} name_range;

/* Whether a name has only characters that are safe to print, and is not too long. */
static bool is_plain_name(const char *name, const char *also)
{
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < bytes; i++) {
        const char c = name[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && !strchr("._-", c) && !strchr(also, c)) {
            return false;
        }
    }
    return bytes > 0 && bytes <= NAME_BYTES;
}

/* "n[0-63]" or "n7". */
static bool parse_range(const char *names, name_range *range)
{
    const char *open = strchr(names, '[');
    if (!open) {
        *range = (name_range){.head = names, .tail = "", .head_bytes = (int)strlen(names), .count = 1};
        return !strchr(names, ']');
    }
    const size_t first_digits = strspn(open + 1, "0123456789");
    const char *dash = open + 1 + first_digits;
    const size_t last_digits = *dash == '-' ? strspn(dash + 1, "0123456789") : 0;
    const char *close = dash + 1 + last_digits;
    if (first_digits == 0 || last_digits == 0 || first_digits > DIGITS_MOST || last_digits > DIGITS_MOST ||
        *close != ']' || strpbrk(close + 1, "[]")) {
        return false;
    }
    const unsigned long first = strtoul(open + 1, NULL, 10), last = strtoul(dash + 1, NULL, 10);
    *range = (name_range){.head = names,
                          .tail = close + 1,
                          .head_bytes = (int)(open - names),
                          .digits = (int)first_digits,
                          .first = (uint32_t)first,
                          .count = last >= first ? (uint32_t)(last - first + 1) : 0};
    return last >= first;
}

static ls_status check_group(const group_spec *group, const char *where, name_range *range)
{
    if (!is_plain_name(group->names, "[]") || !parse_range(group->names, range)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s names is \"%.40s\"; it must be a name of letters, digits, dots, _ and -, or such "
                       "a name with one range of numbers as in n[0-63]",
                       where, group->names);
    }
    if (!is_plain_name(group->kind, "") || (group->leaf[0] && !is_plain_name(group->leaf, "")) ||
        (group->spine[0] && !is_plain_name(group->spine, ""))) {
        return ls_fail(LS_ERR_INVALID,
                       "%s the names in kind, leaf and spine may have only letters, digits, dots, _ and -",
                       where);
    }
    if (group->island != LS_AUTO_U64 && group->gpus % group->island != 0) {
        return ls_fail(LS_ERR_INVALID, "%s island is %llu; the value of gpus, %llu, must be a multiple of it",
                       where, (unsigned long long)group->island, (unsigned long long)group->gpus);
    }
    return LS_OK;
}

static ls_status kind_number(builder *b, const char *kind, const char *where, uint16_t *number_out)
{
    int32_t number = ls_cluster_kind(b->cluster, kind);
    if (number < 0 && b->cluster->kind_count == LS_TOPOLOGY_KINDS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "%s kind '%s' would be a further kind of GPU, but a cluster can have at most %d kinds",
                       where, kind, LS_TOPOLOGY_KINDS_MAX);
    }
    if (number < 0) {
        number = (int32_t)b->cluster->kind_count++;
        b->cluster->kinds[number] = ls_arena_strdup(b->arena, kind);
    }
    *number_out = (uint16_t)number;
    return LS_OK;
}

/* Makes room for `more` nodes. */
static void reserve_nodes(builder *b, uint32_t more)
{
    ls_policy_cluster *cluster = b->cluster;
    if (cluster->node_count + more > b->capacity) {
        b->capacity = 2 * (cluster->node_count + more);
        ls_node_spec *nodes = ls_arena_new(b->arena, ls_node_spec, b->capacity);
        for (uint32_t i = 0; i < cluster->node_count; i++) {
            nodes[i] = cluster->nodes[i];
        }
        cluster->nodes = nodes;
    }
}

/* The spine of the group's first leaf: the one the group names, the one of a known leaf, or a new
 * one. */
static uint32_t first_spine(builder *b, const group_spec *group, bool known_leaf, uint32_t named_leaf)
{
    if (group->spine[0]) {
        return number_of(&b->spines, group->spine);
    }
    return known_leaf ? b->spine_of[named_leaf] : b->spines.next;
}

static void add_nodes(builder *b, const group_spec *group, const name_range *range, uint16_t kind)
{
    const uint32_t named_before = b->leaves.named;
    const bool named = group->leaf[0] != 0;
    const uint32_t leaf_0 = named ? number_of(&b->leaves, group->leaf) : b->leaves.next;
    uint32_t at = 0; /* index of the leaf among the named ones */
    while (named && b->leaves.numbers[at] != leaf_0) {
        at++;
    }
    const bool known = named && b->leaves.named == named_before;
    const uint32_t spine_0 = first_spine(b, group, known, at);
    const bool new_spine = spine_0 == b->spines.next;
    uint32_t leaf = 0, spine = 0; /* within the group */
    for (uint32_t i = 0; i < range->count; i++) {
        leaf = named ? 0 : i / (uint32_t)group->nodes_per_leaf;
        spine = group->spine[0] ? 0 : leaf / (uint32_t)group->leaves_per_spine;
        b->cluster->nodes[b->cluster->node_count++] = (ls_node_spec){
            .name = range->digits ? ls_arena_printf(b->arena, "%.*s%0*u%s", range->head_bytes, range->head,
                                                    range->digits, range->first + i, range->tail)
                                  : ls_arena_strdup(b->arena, range->head),
            .leaf = leaf_0 + leaf,
            .spine = spine_0 + spine,
            .kind = kind,
            .devices = (uint16_t)group->gpus,
            .island_devices = (uint16_t)(group->island == LS_AUTO_U64 ? group->gpus : group->island),
            .cpus = (uint32_t)(group->cpus == LS_AUTO_U64 ? CPUS_PER_GPU * (double)group->gpus
                                                          : (double)group->cpus),
            .memory_mib = (uint32_t)((group->memory == LS_AUTO_U64 ? MEMORY_PER_GPU * (double)group->gpus
                                                                   : (double)group->memory) /
                                     (1 << 20)),
            .spot = group->spot,
        };
    }
    b->leaves.next += named ? 0 : leaf + 1;
    b->spines.next += new_spine ? spine + 1 : 0;
    if (named) {
        b->spine_of[at] = spine_0;
    }
}

static ls_status add_group(builder *b, const ls_document *doc, size_t index)
{
    group_spec *item = ls_arena_new(b->arena, group_spec, 1);
    char where[128], key[32];
    name_range range = {0};
    uint16_t kind = 0;
    snprintf(key, sizeof key, "nodes.%zu", index);
    snprintf(where, sizeof where, "%.80s:%d:", doc->name, ls_document_line(doc, key));
    ls_options_defaults(&group_table, item, b->arena);
    LS_TRY(ls_options_apply_item(&group_table, item, doc, "nodes", index, b->arena));
    LS_TRY(check_group(item, where, &range));
    if (range.count > LS_TOPOLOGY_NODES_MAX - b->cluster->node_count) {
        return ls_fail(LS_ERR_INVALID,
                       "%s adds %u nodes to the %u of earlier groups, but a cluster has at most %d", where,
                       range.count, b->cluster->node_count, LS_TOPOLOGY_NODES_MAX);
    }
    LS_TRY(kind_number(b, item->kind, where, &kind));
    reserve_nodes(b, range.count);
    add_nodes(b, item, &range, kind);
    return LS_OK;
}

/* A leaf that is named twice must be under the same spine. */
static ls_status check_spines(builder *b, const char *name)
{
    /* + 1; 0: not seen yet */
    uint32_t *spine_of = ls_arena_new(b->arena, uint32_t, b->leaves.next);
    for (uint32_t i = 0; i < b->cluster->node_count; i++) {
        const ls_node_spec *node = &b->cluster->nodes[i];
        if (spine_of[node->leaf] && spine_of[node->leaf] != node->spine + 1) {
            return ls_fail(LS_ERR_INVALID,
                           "%s: the leaf switch of node %s is under another spine switch in an earlier group",
                           name, node->name);
        }
        spine_of[node->leaf] = node->spine + 1;
    }
    return LS_OK;
}

ls_status ls_cluster_read(ls_arena *arena, const ls_document *doc, ls_policy_cluster *cluster_out)
{
    const json_t *nodes = json_object_get(doc->root, "nodes");
    if (!json_is_array(nodes) || json_array_size(nodes) == 0 || json_array_size(nodes) > GROUPS_MOST ||
        json_object_size(doc->root) != 1) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: a cluster file has a list 'nodes' of 1 to %d groups and nothing else, as "
                       "in\nnodes:\n  - {names: n[0-63], gpus: 8}",
                       doc->name, GROUPS_MOST);
    }
    ls_policy_cluster cluster = {.kinds = ls_arena_new(arena, const char *, LS_TOPOLOGY_KINDS_MAX)};
    builder *b = ls_arena_new(arena, builder, 1);
    *b = (builder){.arena = arena, .cluster = &cluster};
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        LS_TRY(add_group(b, doc, i));
    }
    LS_TRY(check_spines(b, doc->name));
    const ls_status status = ls_cluster_check(&cluster);
    if (status != LS_OK) {
        return ls_fail_within(status, "%s", doc->name);
    }
    *cluster_out = cluster;
    return LS_OK;
}

ls_status ls_cluster_parse(ls_arena *arena, const char *spec, ls_policy_cluster *cluster_out)
{
    if (ls_cluster_spec_is_plain(spec)) {
        return parse_product(arena, spec, cluster_out);
    }
    ls_document doc = {0};
    const ls_status loaded = ls_yaml_load(spec, &doc);
    if (loaded != LS_OK) {
        return ls_fail_within(
            loaded, "cluster '%.80s' is not NODESxGPUS (as 64x8) and so must be the name of a file", spec);
    }
    const ls_status status = ls_cluster_read(arena, &doc, cluster_out);
    ls_document_release(&doc);
    return status;
}
