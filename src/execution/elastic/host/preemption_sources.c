// SPDX-License-Identifier: Apache-2.0
/* Where notices come from, and how each source is asked. Addresses and answers are those of the
 * clouds' own documentation. */
#include "execution/elastic/host/preemption_notice.h"

#include "base/clock.h"
#include "base/json.h"
#include "env/http_client.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_S 1.0
#define ANSWER_TIMEOUT_S  2.0
#define GRACE_S_MAX       1e6

/* ---- file ---- */

/* Empty, or a number of seconds first. Any other contents count as a notice, too. */
bool ls_preemption_read_file(const char *text, size_t bytes, ls_preemption_notice *notice_out)
{
    char start[32];
    snprintf(start, sizeof start, "%.*s", (int)(bytes < sizeof start ? bytes : sizeof start - 1), text);
    char *end = start;
    const double grace_s = strtod(start, &end);
    notice_out->leave = true;
    notice_out->grace_s = end > start && grace_s > 0.0 && grace_s < GRACE_S_MAX ? grace_s : 0.0;
    return true;
}

static ls_preemption_sight look_at_file(ls_preemption_asker *asker, ls_preemption_notice *notice_out)
{
    const int fd = open(asker->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno == ENOENT) {
            return LS_PREEMPTION_NOTHING;
        }
        (void)ls_fail_errno(errno, "cannot open the preemption notice file %s", asker->file);
        return LS_PREEMPTION_ABSENT;
    }
    char text[64] = "";
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got == 0 && !asker->warned) { /* whoever created it may be about to write to it */
        asker->warned = true;
        return LS_PREEMPTION_NOTHING;
    }
    (void)ls_preemption_read_file(text, got > 0 ? (size_t)got : 0, notice_out);
    snprintf(notice_out->action, sizeof notice_out->action, "leave");
    return LS_PREEMPTION_SEEN;
}

/* ---- asking ---- */

/* Returns the HTTP status; 0: no answer, with the reason in this thread's error. */
static int ask(const ls_preemption_asker *asker, const char *method, const char *path, const char *header,
               ls_http_answer *answer)
{
    char url[512];
    const char *const headers[] = {header, NULL};
    snprintf(url, sizeof url, "%s%s", asker->base_url, path);
    const ls_http_request request = {.method = method,
                                     .url = url,
                                     .headers = headers,
                                     .connect_timeout_s = CONNECT_TIMEOUT_S,
                                     .timeout_s = ANSWER_TIMEOUT_S,
                                     .cancel = asker->cancel};
    return ls_http_do(&request, answer) == LS_OK ? answer->code : 0;
}

/* None of the sources documents an answer other than 200 and 404. */
static ls_preemption_sight not_understood(const char *path, int code)
{
    if (code != 0) {
        (void)ls_fail(LS_ERR_IO,
                      "the cloud's metadata server answered the request for %s in a way that is not "
                      "understood (HTTP status %d)",
                      path, code);
    }
    return LS_PREEMPTION_ABSENT;
}

/* Strips spaces and line ends on both sides. */
static const char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t bytes = strlen(text);
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1])) {
        text[--bytes] = '\0';
    }
    return text;
}

static double seconds_until(const char *format, const char *text, double now_s)
{
    struct tm parts = {0};
    if (!text || !strptime(text, format, &parts)) {
        return 0.0;
    }
    const double left_s = (double)timegm(&parts) - now_s;
    return left_s > 0.0 && left_s < GRACE_S_MAX ? left_s : 0.0;
}

static json_t *parse_object(const char *text, size_t bytes)
{
    json_t *object = json_loadb(text, bytes, 0, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- AWS: docs.aws.amazon.com, "Spot Instance interruption notices", "instance metadata" ---- */

/* {"action": "terminate", "time": "2017-09-18T08:22:00Z"}; the action may also be stop or
 * hibernate. */
bool ls_preemption_read_aws(const char *text, size_t bytes, double now_s, ls_preemption_notice *notice_out)
{
    json_t *object = parse_object(text, bytes);
    const char *action = text_of(object, "action"), *when = text_of(object, "time");
    const bool good = action && when;
    if (good) {
        notice_out->leave = true;
        notice_out->grace_s = seconds_until("%Y-%m-%dT%H:%M:%SZ", when, now_s);
        snprintf(notice_out->action, sizeof notice_out->action, "%.40s at %.40s", action, when);
    }
    json_decref(object);
    return good;
}

/* IMDSv2 requires a token; where none can be had (IMDSv1), the request goes without. */
static bool renew_token(ls_preemption_asker *asker, ls_http_answer *answer)
{
    const int code =
        ask(asker, "PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600", answer);
    asker->token[0] = '\0';
    if (code == 200 && answer->bytes < sizeof asker->token) {
        snprintf(asker->token, sizeof asker->token, "%s", trim(answer->body));
    }
    return code != 0;
}

static int ask_aws(ls_preemption_asker *asker, const char *path, ls_http_answer *answer)
{
    char header[320];
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", asker->token);
    return ask(asker, "GET", path, asker->token[0] ? header : NULL, answer);
}

static ls_preemption_sight look_at_aws(ls_preemption_asker *asker, ls_preemption_notice *notice_out,
                                       ls_http_answer *answer)
{
    static const char action[] = "/latest/meta-data/spot/instance-action",
                      rebalance[] = "/latest/meta-data/events/recommendations/rebalance";
    if (!asker->token[0] && !renew_token(asker, answer)) {
        return LS_PREEMPTION_ABSENT;
    }
    int code = ask_aws(asker, action, answer);
    if (code == 401) { /* the token has expired */
        code = renew_token(asker, answer) ? ask_aws(asker, action, answer) : 0;
    }
    if (code == 200 && ls_preemption_read_aws(answer->body, answer->bytes, ls_clock_wall_s(), notice_out)) {
        return LS_PREEMPTION_SEEN;
    }
    if (code != 404) {
        return not_understood(action, code);
    }
    if (!asker->warned && ask_aws(asker, rebalance, answer) == 200) {
        asker->warned = true;
        snprintf(notice_out->action, sizeof notice_out->action, "rebalance recommended: %.80s",
                 trim(answer->body));
        return LS_PREEMPTION_SEEN;
    }
    return LS_PREEMPTION_NOTHING;
}

/* ---- Google: cloud.google.com, "Preemptible VM instances", "Get live migration notices" ---- */

bool ls_preemption_read_gcp_maintenance(const char *text, size_t bytes, ls_preemption_notice *notice_out)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : sizeof word - 1), text);
    const char *event = trim(word);
    const bool ends = strcmp(event, "TERMINATE_ON_HOST_MAINTENANCE") == 0;
    if (!ends && strcmp(event, "MIGRATE_ON_HOST_MAINTENANCE") != 0) {
        return false;
    }
    notice_out->leave = ends;
    notice_out->grace_s = ends ? 60.0 : 0.0;
    snprintf(notice_out->action, sizeof notice_out->action, "%s",
             ends ? "terminate for host maintenance" : "the machine will be live-migrated");
    return true;
}

static ls_preemption_sight look_at_gcp(ls_preemption_asker *asker, ls_preemption_notice *notice_out,
                                       ls_http_answer *answer)
{
    static const char flavor[] = "Metadata-Flavor: Google",
                      preempted[] = "/computeMetadata/v1/instance/preempted",
                      maintenance[] = "/computeMetadata/v1/instance/maintenance-event";
    int code = ask(asker, "GET", preempted, flavor, answer);
    if (code != 200) {
        return not_understood(preempted, code);
    }
    const char *word = trim(answer->body);
    if (strcmp(word, "TRUE") == 0) {
        *notice_out = (ls_preemption_notice){
            .leave = true, .grace_s = ls_preemption_source_grace_s(LS_PREEMPTION_GCP), .action = "preempted"};
        return LS_PREEMPTION_SEEN;
    }
    if (strcmp(word, "FALSE") != 0) {
        return not_understood(preempted, code);
    }
    code = ask(asker, "GET", maintenance, flavor, answer);
    if (code != 200 || !ls_preemption_read_gcp_maintenance(answer->body, answer->bytes, notice_out) ||
        (!notice_out->leave && asker->warned)) {
        return LS_PREEMPTION_NOTHING;
    }
    asker->warned = asker->warned || !notice_out->leave;
    return LS_PREEMPTION_SEEN;
}

/* ---- Azure: learn.microsoft.com, "Scheduled Events for Linux VMs" ---- */

static bool names_machine(const json_t *event, const char *machine)
{
    const json_t *resources = json_object_get(event, "Resources");
    for (size_t i = 0; i < json_array_size(resources); i++) {
        const char *name = json_string_value(json_array_get(resources, i));
        if (name && strcasecmp(name, machine) == 0) {
            return true;
        }
    }
    return false;
}

/* {"Events": [{"EventType": "Preempt", "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
 * "Resources": ["name"]}]}. The list includes other machines. NotBefore is "" once the event has
 * begun. */
bool ls_preemption_read_azure(const char *text, size_t bytes, const char *machine, double now_s,
                              ls_preemption_notice *notice_out)
{
    json_t *object = parse_object(text, bytes);
    const json_t *events = json_object_get(object, "Events");
    bool found = false;
    for (size_t i = 0; i < json_array_size(events) && !found; i++) {
        const json_t *event = json_array_get(events, i);
        const char *type = text_of(event, "EventType"), *when = text_of(event, "NotBefore");
        const bool ends = type && (strcmp(type, "Preempt") == 0 || strcmp(type, "Terminate") == 0 ||
                                   strcmp(type, "Reboot") == 0 || strcmp(type, "Redeploy") == 0);
        found = ends && names_machine(event, machine);
        if (found) {
            notice_out->leave = true;
            notice_out->grace_s = seconds_until("%a, %d %b %Y %H:%M:%S", when, now_s);
            snprintf(notice_out->action, sizeof notice_out->action, "%.40s at %.40s", type,
                     when && when[0] ? when : "once");
        }
    }
    json_decref(object);
    return found;
}

static ls_preemption_sight look_at_azure(ls_preemption_asker *asker, ls_preemption_notice *notice_out,
                                         ls_http_answer *answer)
{
    static const char header[] = "Metadata: true",
                      name[] = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
                      events[] = "/metadata/scheduledevents?api-version=2020-07-01";
    if (!asker->name[0]) {
        const int code = ask(asker, "GET", name, header, answer);
        if (code != 200 || answer->bytes >= sizeof asker->name) {
            return not_understood(name, code);
        }
        snprintf(asker->name, sizeof asker->name, "%s", trim(answer->body));
    }
    const int code = ask(asker, "GET", events, header, answer);
    if (code != 200) {
        return not_understood(events, code);
    }
    return ls_preemption_read_azure(answer->body, answer->bytes, asker->name, ls_clock_wall_s(), notice_out)
               ? LS_PREEMPTION_SEEN
               : LS_PREEMPTION_NOTHING;
}

/* ---- the table ---- */

static const struct {
    const char *name;
    const char *base_url;
    double grace_s;
    ls_preemption_sight (*look)(ls_preemption_asker *asker, ls_preemption_notice *notice_out,
                                ls_http_answer *answer);
} sources[LS_PREEMPTION_SOURCES] = {
    [LS_PREEMPTION_FILE] = {"file", NULL, 0, NULL},
    [LS_PREEMPTION_AWS] = {"aws", "http://169.254.169.254", 120, look_at_aws},
    [LS_PREEMPTION_GCP] = {"gcp", "http://169.254.169.254", 30, look_at_gcp},
    [LS_PREEMPTION_AZURE] = {"azure", "http://169.254.169.254", 30, look_at_azure},
};

const char *ls_preemption_source_name(ls_preemption_source source)
{
    return sources[source].name;
}

ls_preemption_source ls_preemption_source_named(const char *name)
{
    int found = 0;
    while (found < LS_PREEMPTION_SOURCES && strcmp(sources[found].name, name) != 0) {
        found++;
    }
    return (ls_preemption_source)found;
}

double ls_preemption_source_grace_s(ls_preemption_source source)
{
    return sources[source].grace_s;
}

void ls_preemption_asker_init(ls_preemption_asker *asker, ls_preemption_source source, const char *file,
                              const _Atomic uint32_t *cancel)
{
    const char *other = getenv("LOCKSTEP_METADATA_URL"), *own = sources[source].base_url;
    *asker = (ls_preemption_asker){.file = file, .cancel = cancel};
    snprintf(asker->base_url, sizeof asker->base_url, "%s", other && other[0] ? other : own ? own : "");
}

ls_preemption_sight ls_preemption_look(ls_preemption_source source, ls_preemption_asker *asker,
                                       ls_preemption_notice *notice_out)
{
    *notice_out = (ls_preemption_notice){.source = source};
    if (source == LS_PREEMPTION_FILE) {
        return look_at_file(asker, notice_out);
    }
    ls_http_answer *answer = malloc(sizeof *answer);
    if (!answer) {
        (void)ls_fail(LS_ERR_MEMORY, "not enough memory to ask %s for preemption notices",
                      sources[source].name);
        return LS_PREEMPTION_ABSENT;
    }
    const ls_preemption_sight sight = sources[source].look(asker, notice_out, answer);
    notice_out->source = source;
    free(answer);
    return sight;
}
