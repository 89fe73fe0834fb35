// SPDX-License-Identifier: Apache-2.0
#include "orchestration/page/html.h"

#include "telemetry/report_style.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define DASH "\u2013"

const char *ls_html_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int64_t ls_html_integer(const json_t *object, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(object, key));
}

double ls_html_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

void ls_html_text(ls_text *page, const char *text, size_t bytes_max)
{
    if (!text) {
        ls_text_append(page, DASH);
        return;
    }
    const size_t bytes = strlen(text);
    size_t kept = bytes <= bytes_max ? bytes : bytes_max;
    while (kept < bytes && kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80) {
        kept--; /* not in the middle of a character */
    }
    ls_text printable = {0};
    ls_text_append_printable(&printable, text, kept, "\n\t");
    ls_text_append_escaped(page, ls_text_string(&printable));
    ls_text_release(&printable);
    ls_text_append(page, kept < bytes ? "\u2026" : "");
}

void ls_html_open(ls_text *page, const char *title, int refresh_s)
{
    ls_text_append(page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    if (refresh_s > 0) {
        ls_text_printf(page, "<meta http-equiv=\"refresh\" content=\"%d\">\n", refresh_s);
    }
    ls_text_append(page, "<title>");
    ls_html_text(page, title, 200);
    ls_text_append(page, "</title>\n<style>\n");
    ls_text_append(page, ls_report_style);
    ls_text_append(
        page, "a{color:var(--going);text-decoration:none}a:hover{text-decoration:underline}\n"
              ".cells{display:flex;flex-wrap:wrap;gap:3px;margin:8px 0 2px}\n"
              ".cell{width:22px;height:16px;border-radius:3px;border:1px solid var(--edge);"
              "background:var(--page)}\n"
              ".cell.on{background:var(--going);border-color:var(--going)}\n"
              ".nodes{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:10px}\n"
              "td.rest{width:99%;min-width:9em;overflow-wrap:anywhere}nav{margin:0 0 "
              "14px;font-size:15px}.why{color:var(--dim);overflow-wrap:anywhere}\n"
              ".name{min-width:8em}.tile i{font-style:normal}\n"
              "@media(max-width:700px){.jobs thead{display:none}.jobs,.jobs tbody{display:block}"
              ".jobs tr{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 12px;padding:8px "
              "4px;border-bottom:1px solid var(--edge)}.jobs tr:last-child{border-bottom:0}"
              ".jobs td{border:0;padding:0}.jobs .name{flex:1 1 40%;font-weight:600}"
              ".jobs td[data-l]{color:var(--dim)}.jobs td[data-l]:not([data-l=''])::before{content:"
              "attr(data-l) ' '}.jobs .why{flex:1 1 100%}.jobs .why:empty{display:none}"
              ".jobs .badge{font-size:12px;padding:1px 8px}.nodes{grid-template-columns:minmax(0,1fr)}}\n"
              "pre.log{white-space:pre-wrap;overflow-wrap:anywhere;max-height:60vh;overflow-y:auto}\n"
              "</style></head>\n<body><main>\n");
}

void ls_html_close(ls_text *page, double now_s)
{
    char text[40];
    struct tm parts;
    const time_t now = (time_t)now_s;
    gmtime_r(&now, &parts);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    ls_text_printf(
        page,
        "<footer>As of %s. The same as JSON: <a href=\"/openapi.json\">openapi.json</a> says where; "
        "numbers for Prometheus: <a href=\"/metrics\">metrics</a>.</footer>\n</main></body></html>\n",
        text);
}

void ls_html_tile(ls_text *page, const char *large, const char *small)
{
    ls_text_printf(page, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", large, small);
}

static const char *color_of(const char *state)
{
    static const struct {
        const char *state, *color;
    } colors[] = {{"RUNNING", "going"},   {"STARTING", "going"}, {"RESIZING", "going"},
                  {"SUCCEEDED", "good"},  {"FAILED", "bad"},     {"CANCELLED", "dim"},
                  {"HELD", "dim"},        {"QUEUED", "warn"},    {"PREEMPTING", "warn"},
                  {"RECOVERING", "warn"}, {"STOPPING", "warn"}};
    for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++) {
        if (strcmp(colors[i].state, state) == 0) {
            return colors[i].color;
        }
    }
    return "dim";
}

void ls_html_state(ls_text *page, const char *state)
{
    ls_text_printf(page, "<span class=\"badge %s\">", color_of(state));
    ls_html_text(page, state, 32);
    ls_text_append(page, "</span>");
}

void ls_html_job(ls_text *page, int64_t job)
{
    ls_text_printf(page, "<a href=\"/jobs/%" PRId64 "\">%" PRId64 "</a>", job, job);
}
