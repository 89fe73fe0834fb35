// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/catalogue.h"

#include "base/csv.h"
#include "base/file.h"
#include "config/names.h"
#include "planning/hardware/data_file.h"

#include <math.h>
#include <string.h>

enum { FILE_BYTES_MAX = 4 << 20 };

static const double GIGA = 1e9, TERA = 1e12, GIBI = 1073741824.0;

/* Growing tables, and the names that nodes and sites refer to, until all files are read. */
typedef struct loader {
    ls_arena *arena;
    const ls_csv *csv; /* the file being read */
    ls_accelerator *accelerators;
    ls_node *nodes;
    ls_cooling *coolings;
    ls_site *sites;
    ls_catalogue counts; /* only the counts are used */
    size_t capacity;
} loader;

/* A reference to be resolved: where it was read, and the name it gives. Parallel to the tables. */
typedef struct reference {
    const char *file, *name;
    uint32_t line;
} reference;

/* ---- cells ---- */

typedef struct row_reader {
    const ls_csv *csv;
    const ls_csv_row *row;
    ls_status status; /* the first failure; later reads do nothing */
} row_reader;

/* A figure in the file's unit times `scale`; blank is 0. */
static double read_figure(row_reader *r, const char *column, double max, double scale)
{
    double value = 0.0;
    if (r->status == LS_OK) {
        r->status = ls_csv_f64(r->csv, r->row, column, 0.0, max, 0.0, &value);
    }
    return value * scale;
}

static int64_t read_count(row_reader *r, const char *column, int64_t min, int64_t max, int64_t blank)
{
    int64_t value = blank;
    if (r->status == LS_OK) {
        r->status = ls_csv_i64(r->csv, r->row, column, min, max, blank, &value);
    }
    return value;
}

static const char *read_text(row_reader *r, const char *column)
{
    return ls_csv_text(r->csv, r->row, column);
}

static ls_status need(const row_reader *r, const char *column, double value)
{
    if (value <= 0.0) {
        return ls_fail(LS_ERR_DATA, "%s:%u: %s of %s %s is missing; it must be above 0", r->csv->name,
                       r->row->line, column, ls_csv_text(r->csv, r->row, "kind"),
                       ls_csv_text(r->csv, r->row, "name"));
    }
    return LS_OK;
}

static ls_price read_price(row_reader *r, const char *low, const char *typical, const char *high, double max)
{
    ls_price price = {
        .low = read_figure(r, low, max, 1.0),
        .high = read_figure(r, high, max, 1.0),
        .typical = read_figure(r, typical, max, 1.0),
        .date = read_text(r, "price_date"),
        .confidence = read_text(r, "confidence"),
    };
    if (price.low == 0.0) {
        price.low = price.typical > 0.0 ? price.typical : price.high;
    }
    if (price.high == 0.0) {
        price.high = price.typical > 0.0 ? price.typical : price.low;
    }
    if (r->status == LS_OK && price.low > price.high) {
        r->status =
            ls_fail(LS_ERR_DATA, "%s:%u: %s is %g and %s is %g: the first must not be larger than the second",
                    r->csv->name, r->row->line, low, price.low, high, price.high);
    }
    if (price.typical == 0.0) {
        price.typical = sqrt(price.low * price.high);
    }
    return price;
}

/* ---- rows ---- */

static ls_status read_accelerator(row_reader *r, ls_accelerator_class class, ls_accelerator *out)
{
    const ls_accelerator a = {
        .name = read_text(r, "name"),
        .aliases = read_text(r, "aliases"),
        .generation = read_text(r, "generation"),
        .class = class,
        .year = (int)read_count(r, "year", 1990, 2100, 0),
        .bf16_flops = read_figure(r, "bf16_dense_tflops", 1e6, TERA),
        .fp8_flops = read_figure(r, "fp8_dense_tflops", 1e6, TERA),
        .tf32_flops = read_figure(r, "tf32_dense_tflops", 1e6, TERA),
        .fp32_flops = read_figure(r, "fp32_tflops", 1e6, TERA),
        .memory_bytes = read_figure(r, "mem_gb", 1e6, GIBI),
        .memory_bytes_ps = read_figure(r, "mem_tbs", 1e4, TERA),
        .scaleup_bytes_ps = read_figure(r, "scaleup_GBs_per_dir", 1e6, GIGA),
        .scaleup_domain = read_count(r, "scaleup_domain", 1, 1 << 20, 1),
        .pcie_bytes_ps = read_figure(r, "pcie_GBs_per_dir", 1e5, GIGA),
        .sms = read_count(r, "sms", 1, 1 << 20, 0),
        .tdp_w = read_figure(r, "tdp_w", 1e6, 1.0),
        .nic_bytes_ps = read_figure(r, "nic_GBs_per_gpu_per_dir", 1e5, GIGA),
        .price = read_price(r, "price_usd_low", "price_usd_typical", "price_usd_high", 1e9),
        .rent_hour = read_price(r, "cloud_usd_per_gpu_h_low", "cloud_usd_per_gpu_h_typical",
                                "cloud_usd_per_gpu_h_high", 1e6),
        .notes = read_text(r, "notes"),
    };
    LS_TRY(r->status);
    LS_TRY(need(r, "bf16_dense_tflops", a.bf16_flops));
    LS_TRY(need(r, "mem_gb", a.memory_bytes));
    LS_TRY(need(r, "mem_tbs", a.memory_bytes_ps));
    *out = a;
    return LS_OK;
}

static ls_status read_node(row_reader *r, ls_node *out)
{
    const ls_node n = {
        .name = read_text(r, "name"),
        .aliases = read_text(r, "aliases"),
        .count = read_count(r, "count", 1, 1 << 16, 0),
        .power_w = read_figure(r, "tdp_w", 1e7, 1.0),
        .nic_bytes_ps = read_figure(r, "nic_GBs_per_gpu_per_dir", 1e5, GIGA),
        .price = read_price(r, "price_usd_low", "price_usd_typical", "price_usd_high", 1e9),
        .rent_hour = read_price(r, "cloud_usd_per_gpu_h_low", "cloud_usd_per_gpu_h_typical",
                                "cloud_usd_per_gpu_h_high", 1e6),
        .notes = read_text(r, "notes"),
    };
    LS_TRY(r->status);
    LS_TRY(need(r, "count", (double)n.count));
    *out = n;
    return LS_OK;
}

static ls_status read_cooling(row_reader *r, ls_cooling *out)
{
    const ls_cooling c = {
        .name = read_text(r, "name"),
        .aliases = read_text(r, "aliases"),
        .rack_w = read_figure(r, "rack_kw", 1e4, 1e3),
        .liquid = read_count(r, "liquid", 0, 1, 0) == 1,
        .notes = read_text(r, "notes"),
    };
    LS_TRY(r->status);
    LS_TRY(need(r, "rack_kw", c.rack_w));
    *out = c;
    return LS_OK;
}

static ls_status read_site(row_reader *r, ls_site *out)
{
    const ls_site s = {
        .name = read_text(r, "name"),
        .aliases = read_text(r, "aliases"),
        .pue = read_figure(r, "pue", 10.0, 1.0),
        .rack_w = read_figure(r, "rack_kw", 1e4, 1e3),
        .power_w = read_figure(r, "power_kw", 1e8, 1e3),
        .racks = read_count(r, "racks", 1, 1 << 24, 0),
        .energy_usd_kwh = read_figure(r, "energy_usd_per_kwh", 100.0, 1.0),
        .colo_usd_kw_month = read_figure(r, "colo_usd_per_kw_month", 1e5, 1.0),
        .date = read_text(r, "price_date"),
        .confidence = read_text(r, "confidence"),
        .notes = read_text(r, "notes"),
    };
    LS_TRY(r->status);
    LS_TRY(need(r, "rack_kw", s.rack_w));
    if (s.pue < 1.0) {
        return ls_fail(LS_ERR_DATA,
                       "%s:%u: pue of site %s is %g; it must be 1 or more, because it is the energy of the "
                       "whole site divided by that of its machines",
                       r->csv->name, r->row->line, s.name, s.pue);
    }
    *out = s;
    return LS_OK;
}

/* ---- files ---- */

static const char *const known_columns[] = {"kind",
                                            "name",
                                            "aliases",
                                            "generation",
                                            "accelerator",
                                            "year",
                                            "count",
                                            "bf16_dense_tflops",
                                            "fp8_dense_tflops",
                                            "tf32_dense_tflops",
                                            "fp32_tflops",
                                            "mem_gb",
                                            "mem_tbs",
                                            "scaleup_GBs_per_dir",
                                            "scaleup_domain",
                                            "pcie_GBs_per_dir",
                                            "sms",
                                            "tdp_w",
                                            "nic_GBs_per_gpu_per_dir",
                                            "price_usd_low",
                                            "price_usd_typical",
                                            "price_usd_high",
                                            "cloud_usd_per_gpu_h_low",
                                            "cloud_usd_per_gpu_h_typical",
                                            "cloud_usd_per_gpu_h_high",
                                            "price_date",
                                            "confidence",
                                            "notes",
                                            "rack_kw",
                                            "liquid",
                                            "pue",
                                            "power_kw",
                                            "racks",
                                            "cooling",
                                            "energy_usd_per_kwh",
                                            "colo_usd_per_kw_month",
                                            NULL};

static ls_status check_columns(const ls_csv *csv)
{
    for (uint32_t i = 0; i < csv->column_count; i++) {
        const char *const *known = known_columns;
        while (*known && strcmp(*known, csv->columns[i]) != 0) {
            known++;
        }
        if (!*known) {
            ls_names near = {0};
            ls_names_begin(&near, csv->columns[i]);
            for (known = known_columns; *known; known++) {
                ls_names_offer(&near, *known, *known);
            }
            return ls_fail(LS_ERR_DATA, "%s: unknown column %s; nearest: %s", csv->name, csv->columns[i],
                           ls_names_list(&near));
        }
    }
    if (ls_csv_column(csv, "kind") < 0 || ls_csv_column(csv, "name") < 0) {
        return ls_fail(LS_ERR_DATA, "%s: a catalogue needs the columns `kind` and `name`", csv->name);
    }
    return LS_OK;
}

/* The index of the row that `name` replaces, or a new one. */
#define PLACE_OF(table, table_count, row_name)                                                               \
    place_of(row_name, &(table)[0].name, sizeof *(table), table_count)

static size_t place_of(const char *name, const char *const *first_name, size_t stride, size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        const char *const *other = (const char *const *)((const char *)first_name + i * stride);
        if (ls_names_equal(name, *other)) {
            return i;
        }
    }
    return (*count)++;
}

typedef struct references {
    reference *nodes, *sites;
} references;

static ls_status read_row(loader *l, references *refs, row_reader *r)
{
    static const struct {
        const char *kind;
        ls_accelerator_class class;
    } classes[] = {
        {"gpu", LS_CLASS_GPU}, {"tpu", LS_CLASS_TPU}, {"apple", LS_CLASS_APPLE}, {"cpu", LS_CLASS_CPU}};
    const char *kind = read_text(r, "kind"), *name = read_text(r, "name");
    if (!ls_names_is_fit(name)) {
        return ls_fail(
            LS_ERR_DATA,
            "%s:%u: name is \"%s\"; it must contain letters or digits, but not more than %d of them",
            r->csv->name, r->row->line, name, LS_NAME_MAX);
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(kind, classes[i].kind) == 0) {
            ls_accelerator row;
            LS_TRY(read_accelerator(r, classes[i].class, &row));
            l->accelerators[PLACE_OF(l->accelerators, &l->counts.accelerator_count, name)] = row;
            return LS_OK;
        }
    }
    if (strcmp(kind, "node") == 0) {
        ls_node row;
        LS_TRY(read_node(r, &row));
        const size_t at = PLACE_OF(l->nodes, &l->counts.node_count, name);
        l->nodes[at] = row;
        refs->nodes[at] = (reference){r->csv->name, read_text(r, "accelerator"), r->row->line};
        return LS_OK;
    }
    if (strcmp(kind, "cooling") == 0) {
        ls_cooling row;
        LS_TRY(read_cooling(r, &row));
        l->coolings[PLACE_OF(l->coolings, &l->counts.cooling_count, name)] = row;
        return LS_OK;
    }
    if (strcmp(kind, "site") == 0) {
        ls_site row;
        LS_TRY(read_site(r, &row));
        const size_t at = PLACE_OF(l->sites, &l->counts.site_count, name);
        l->sites[at] = row;
        refs->sites[at] = (reference){r->csv->name, read_text(r, "cooling"), r->row->line};
        return LS_OK;
    }
    return ls_fail(LS_ERR_DATA,
                   "%s:%u: kind is \"%s\"; allowed are gpu, tpu, apple, cpu, node, cooling and site",
                   r->csv->name, r->row->line, kind);
}

static ls_status parse_files(ls_arena *arena, const char *const *files, size_t file_count, ls_csv *tables)
{
    static const char *const shipped[] = {"hardware.csv", "sites.csv"};
    for (size_t i = 0; i < 2; i++) {
        const ls_embedded_file *file = ls_data_file_find(shipped[i]);
        LS_TRY(ls_csv_parse(arena, file->text, file->bytes, file->name, &tables[i]));
    }
    for (size_t i = 0; i < file_count; i++) {
        char *text;
        size_t bytes;
        LS_TRY(ls_file_read(arena, files[i], FILE_BYTES_MAX, &text, &bytes));
        LS_TRY(ls_csv_parse(arena, text, bytes, files[i], &tables[2 + i]));
    }
    return LS_OK;
}

/* ---- what rows point to ---- */

static ls_status resolve(loader *l, const references *refs, const ls_catalogue *catalogue)
{
    for (size_t i = 0; i < catalogue->node_count; i++) {
        const reference *ref = &refs->nodes[i];
        const ls_status status =
            ls_catalogue_find_accelerator(catalogue, ref->name, &l->nodes[i].accelerator);
        if (status != LS_OK) {
            return ls_fail_within(LS_ERR_DATA, "%s:%u: accelerator of node %s", ref->file, ref->line,
                                  l->nodes[i].name);
        }
    }
    for (size_t i = 0; i < catalogue->site_count; i++) {
        const reference *ref = &refs->sites[i];
        const ls_status status = ls_catalogue_find_cooling(catalogue, ref->name, &l->sites[i].cooling);
        if (status != LS_OK) {
            return ls_fail_within(LS_ERR_DATA, "%s:%u: cooling of site %s", ref->file, ref->line,
                                  l->sites[i].name);
        }
    }
    for (size_t i = 0; i < catalogue->accelerator_count; i++) {
        ls_accelerator *a = &l->accelerators[i];
        if (!a->generation[0]) {
            a->generation = a->name;
        }
        for (size_t k = 0; k < catalogue->node_count && a->nic_bytes_ps == 0.0; k++) {
            a->nic_bytes_ps = l->nodes[k].accelerator == a ? l->nodes[k].nic_bytes_ps : 0.0;
        }
    }
    return LS_OK;
}

ls_status ls_catalogue_load(ls_arena *arena, const char *const *files, size_t file_count,
                            ls_catalogue *catalogue_out)
{
    const size_t table_count = 2 + file_count;
    ls_csv *tables = ls_arena_new(arena, ls_csv, table_count);
    LS_TRY(parse_files(arena, files, file_count, tables));
    loader l = {.arena = arena};
    for (size_t i = 0; i < table_count; i++) {
        l.capacity += tables[i].row_count;
    }
    l.accelerators = ls_arena_new(arena, ls_accelerator, l.capacity);
    l.nodes = ls_arena_new(arena, ls_node, l.capacity);
    l.coolings = ls_arena_new(arena, ls_cooling, l.capacity);
    l.sites = ls_arena_new(arena, ls_site, l.capacity);
    references refs = {ls_arena_new(arena, reference, l.capacity),
                       ls_arena_new(arena, reference, l.capacity)};
    for (size_t i = 0; i < table_count; i++) {
        LS_TRY(check_columns(&tables[i]));
        for (size_t k = 0; k < tables[i].row_count; k++) {
            row_reader r = {&tables[i], &tables[i].rows[k], LS_OK};
            LS_TRY(read_row(&l, &refs, &r));
        }
    }
    ls_catalogue catalogue = l.counts;
    catalogue.accelerators = l.accelerators;
    catalogue.nodes = l.nodes;
    catalogue.coolings = l.coolings;
    catalogue.sites = l.sites;
    LS_TRY(resolve(&l, &refs, &catalogue));
    *catalogue_out = catalogue;
    return LS_OK;
}

/* ---- finding ---- */

/* A table as a list of names: where the first row's name and aliases are, and the distance to the
 * next row. */
typedef struct name_table {
    const char *what; /* "accelerator" */
    const char *const *names;
    const char *const *aliases;
    size_t stride, count;
} name_table;

static const char *nth(const char *const *first, size_t stride, size_t index)
{
    return *(const char *const *)((const char *)first + index * stride);
}

static ls_status find(const name_table *table, const char *name, size_t *index_out)
{
    size_t exact = table->count, loose = table->count, loose_count = 0;
    ls_names near, several;
    ls_names_begin(&near, name);
    ls_names_begin(&several, name);
    for (size_t i = 0; i < table->count; i++) {
        const char *full = nth(table->names, table->stride, i),
                   *aliases = nth(table->aliases, table->stride, i);
        if (exact == table->count && (ls_names_equal(name, full) || ls_names_has(aliases, name))) {
            exact = i;
        }
        if (ls_names_matches(full, name)) {
            loose = i;
            loose_count++;
            ls_names_offer(&several, full, full);
        }
        ls_names_offer(&near, full, full);
        ls_names_offer_words(&near, full, aliases);
    }
    if (exact < table->count || loose_count == 1) {
        *index_out = exact < table->count ? exact : loose;
        return LS_OK;
    }
    if (loose_count > 1) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s \"%s\" matches %zu entries; choose one: %s%s", table->what, name,
                       loose_count, ls_names_list(&several), loose_count > several.count ? ", ..." : "");
    }
    return ls_fail(LS_ERR_NOT_FOUND, "%s \"%s\" is unknown; nearest: %s", table->what, name,
                   ls_names_list(&near));
}

bool ls_accelerator_has_bf16(const ls_accelerator *accelerator)
{
    enum { BF16_YEAR = 2020 };
    return accelerator->class != LS_CLASS_GPU || accelerator->year == 0 || accelerator->year >= BF16_YEAR;
}

ls_status ls_catalogue_find_accelerator(const ls_catalogue *catalogue, const char *name,
                                        const ls_accelerator **accelerator_out)
{
    const ls_accelerator *rows = catalogue->accelerators;
    const name_table table = {"accelerator", &rows->name, &rows->aliases, sizeof *rows,
                              catalogue->accelerator_count};
    size_t index;
    LS_TRY(find(&table, name, &index));
    *accelerator_out = &rows[index];
    return LS_OK;
}

ls_status ls_catalogue_find_node(const ls_catalogue *catalogue, const char *name, const ls_node **node_out)
{
    const ls_node *rows = catalogue->nodes;
    const name_table table = {"node", &rows->name, &rows->aliases, sizeof *rows, catalogue->node_count};
    size_t index;
    LS_TRY(find(&table, name, &index));
    *node_out = &rows[index];
    return LS_OK;
}

ls_status ls_catalogue_find_site(const ls_catalogue *catalogue, const char *name, const ls_site **site_out)
{
    const ls_site *rows = catalogue->sites;
    const name_table table = {"site", &rows->name, &rows->aliases, sizeof *rows, catalogue->site_count};
    size_t index;
    LS_TRY(find(&table, name, &index));
    *site_out = &rows[index];
    return LS_OK;
}

ls_status ls_catalogue_find_cooling(const ls_catalogue *catalogue, const char *name,
                                    const ls_cooling **cooling_out)
{
    const ls_cooling *rows = catalogue->coolings;
    const name_table table = {"cooling", &rows->name, &rows->aliases, sizeof *rows, catalogue->cooling_count};
    size_t index;
    LS_TRY(find(&table, name, &index));
    *cooling_out = &rows[index];
    return LS_OK;
}

const ls_node *ls_catalogue_usual_node(const ls_catalogue *catalogue, ls_arena *arena,
                                       const ls_accelerator *accelerator)
{
    for (size_t i = 0; i < catalogue->node_count; i++) {
        if (catalogue->nodes[i].accelerator == accelerator) {
            return &catalogue->nodes[i];
        }
    }
    const int64_t count = accelerator->scaleup_domain <= 16 ? accelerator->scaleup_domain : 1;
    ls_node *node = ls_arena_new(arena, ls_node, 1);
    *node = (ls_node){
        .name = ls_arena_printf(arena, "%lldx %s", (long long)count, accelerator->name),
        .aliases = "",
        .accelerator = accelerator,
        .count = count,
        .power_w = 2.0 * (double)count * accelerator->tdp_w,
        .nic_bytes_ps = accelerator->nic_bytes_ps,
        .price = {.date = "", .confidence = ""},
        .rent_hour = accelerator->rent_hour,
        .notes = "made up: no node of the catalogue holds this accelerator",
    };
    return node;
}
