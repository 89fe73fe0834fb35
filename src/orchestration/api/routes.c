// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/route.h"

#define NUMBER_MAX    9007199254740991.0

#define FIELDS(array) (array), sizeof(array) / sizeof((array)[0])
#define JOB                                                                                                  \
    {                                                                                                        \
        .name = "job", .type = LS_API_INTEGER, .place = LS_API_PATH, .is_required = true, .min = 1,          \
        .max = NUMBER_MAX, .help = "number of the job"                                                       \
    }
#define IN(at, label, what, low, high, text)                                                                 \
    {                                                                                                        \
        .name = (label), .type = (what), .place = (at), .min = (low), .max = (high), .help = (text)          \
    }
#define NEEDED(at, label, what, low, high, text)                                                             \
    {                                                                                                        \
        .name = (label), .type = (what), .place = (at), .is_required = true, .min = (low), .max = (high),    \
        .help = (text)                                                                                       \
    }
#define OUT(label, what, text)                                                                               \
    {                                                                                                        \
        .name = (label), .type = (what), .help = (text)                                                      \
    }
#define OUT_OR_NULL(label, what, text)                                                                       \
    {                                                                                                        \
        .name = (label), .type = (what), .may_be_null = true, .help = (text)                                 \
    }

/* A limit: a number, or null for none. */
#define OPTIONAL(label, text)                                                                                \
    {                                                                                                        \
        .name = (label), .type = LS_API_INTEGER, .place = LS_API_BODY, .may_be_null = true, .min = 0,        \
        .max = 1 << 24, .help = (text)                                                                       \
    }

static const char *const priorities[] = {"low", "normal", "high", NULL};

/* ---- arguments ---- */

static const ls_api_field job_only[] = {JOB};

static const ls_api_field submit_in[] = {
    NEEDED(LS_API_BODY, "file", LS_API_STRING, 1, 256 * 1024, "text of the run file"),
    NEEDED(LS_API_BODY, "directory", LS_API_STRING, 1, 4000,
           "where it runs: relative paths of the file begin there"),
    IN(LS_API_BODY, "file_name", LS_API_STRING, 1, 4000, "what it was called: for people"),
    IN(LS_API_BODY, "ranks", LS_API_INTEGER, 1, 1 << 20, "devices wanted, instead of what the file says"),
    IN(LS_API_BODY, "set", LS_API_STRINGS, 0, 4096, "key=value, each of which overrides the file"),
    IN(LS_API_BODY, "name", LS_API_STRING, 1, 128, "instead of the file's name"),
    IN(LS_API_BODY, "account", LS_API_STRING, 1, 64,
       "who it is charged to, instead of job.account; without either, the user's own. It must be open to "
       "him"),
    {.name = "priority",
     .type = LS_API_STRING,
     .place = LS_API_BODY,
     .max = 16,
     .choices = priorities,
     .help = "instead of job.priority; high needs an account that allows it"},
    IN(LS_API_BODY, "avoid", LS_API_STRINGS, 0, 4096,
       "folders under runs that hold other runs: it writes to runs/NAME-N instead"),
    IN(LS_API_BODY, "hold", LS_API_BOOL, 0, 0, "do not start it before it is released"),
    IN(LS_API_BODY, "after", LS_API_INTEGERS, 0, 64,
       "jobs, anybody's, that must have succeeded before it starts"),
    IN(LS_API_BODY, "environment", LS_API_OBJECT, 0, 0, "variables of its processes: names and texts"),
};
static const ls_api_field sweep_in[] = {
    NEEDED(LS_API_BODY, "file", LS_API_STRING, 1, 256 * 1024, "text of the run file"),
    NEEDED(LS_API_BODY, "directory", LS_API_STRING, 1, 4000,
           "where it runs: relative paths of the file begin there"),
    NEEDED(LS_API_BODY, "set", LS_API_OBJECT, 0, 0,
           "a list of values for each key: every combination is a job"),
    IN(LS_API_BODY, "samples", LS_API_INTEGER, 1, 1024, "so many combinations, spread over all"),
    IN(LS_API_BODY, "running_max", LS_API_INTEGER, 1, 1 << 20, "of its jobs, so many run at once at most"),
    IN(LS_API_BODY, "file_name", LS_API_STRING, 1, 4000, "what it was called: for people"),
    IN(LS_API_BODY, "ranks", LS_API_INTEGER, 1, 1 << 20,
       "devices of each job, instead of what the file says"),
    IN(LS_API_BODY, "name", LS_API_STRING, 1, 128, "of the sweep, instead of the file's name"),
    IN(LS_API_BODY, "account", LS_API_STRING, 1, 64, "who it is charged to, instead of job.account"),
    {.name = "priority",
     .type = LS_API_STRING,
     .place = LS_API_BODY,
     .max = 16,
     .choices = priorities,
     .help = "instead of job.priority; high needs an account that allows it"},
    IN(LS_API_BODY, "avoid", LS_API_STRINGS, 0, 4096, "folders under runs that its jobs must not write to"),
    IN(LS_API_BODY, "environment", LS_API_OBJECT, 0, 0, "variables of its processes: names and texts"),
};
static const ls_api_field jobs_in[] = {
    IN(LS_API_QUERY, "all", LS_API_BOOL, 0, 0, "those that have ended too"),
    IN(LS_API_QUERY, "ended", LS_API_BOOL, 0, 0, "those that have ended alone, who ended last comes first"),
    IN(LS_API_QUERY, "account", LS_API_STRING, 1, 64, "of this account alone"),
    IN(LS_API_QUERY, "user", LS_API_STRING, 1, 64, "of this user alone, as far as you may read them"),
    IN(LS_API_QUERY, "group", LS_API_STRING, 1, 128, "of this sweep alone, as far as you may read them"),
    IN(LS_API_QUERY, "state", LS_API_STRING, 1, 32, "in this state alone"),
    IN(LS_API_QUERY, "limit", LS_API_INTEGER, 1, 10000,
       "of those that have ended, the last so many; who waits or runs is always there; 10000"),
    IN(LS_API_QUERY, "before", LS_API_INTEGER, 1, NUMBER_MAX,
       "those that ended before this job did, alone: the next page"),
};
static const ls_api_field ended_in[] = {
    IN(LS_API_QUERY, "before", LS_API_INTEGER, 1, NUMBER_MAX, "those that ended before this job did"),
};
static const ls_api_field wait_in[] = {
    JOB,
    IN(LS_API_QUERY, "timeout_s", LS_API_INTEGER, 0, 3600, "answer after so long whatever its state; 60"),
};
static const ls_api_field log_in[] = {
    JOB,
    IN(LS_API_QUERY, "from", LS_API_INTEGER, 0, NUMBER_MAX, "begin at this byte; 0"),
    IN(LS_API_QUERY, "tail", LS_API_INTEGER, 1, 1000000, "begin with the last so many lines"),
    IN(LS_API_QUERY, "bytes", LS_API_INTEGER, 1, 1 << 20, "at most so many; 1 MiB"),
    IN(LS_API_QUERY, "rank", LS_API_INTEGER, 0, 1 << 20, "of this rank alone"),
    IN(LS_API_QUERY, "follow", LS_API_BOOL, 0, 0, "go on with what is written, until the job has ended"),
};
static const ls_api_field metrics_in[] = {
    JOB,
    IN(LS_API_QUERY, "from_step", LS_API_INTEGER, 0, NUMBER_MAX, "later steps than this one; 0"),
    IN(LS_API_QUERY, "points", LS_API_INTEGER, 1, 10000,
       "at most so many: neighbours become one, with lowest and highest loss; 1000"),
};
static const ls_api_field events_in[] = {
    JOB,
    IN(LS_API_QUERY, "limit", LS_API_INTEGER, 1, 10000, "the newest so many; 1000"),
};
static const ls_api_field resize_in[] = {
    JOB,
    NEEDED(LS_API_BODY, "ranks", LS_API_INTEGER, 1, 1 << 20, "devices there are to be"),
};
static const ls_api_field priority_in[] = {
    JOB,
    {.name = "priority",
     .type = LS_API_STRING,
     .place = LS_API_BODY,
     .is_required = true,
     .max = 16,
     .choices = priorities,
     .help = "the new one"},
};
static const ls_api_field account_in[] = {
    NEEDED(LS_API_BODY, "account", LS_API_STRING, 1, 64, "its name; made when there is none"),
    IN(LS_API_BODY, "weight", LS_API_INTEGER, 1, 1000000, "its share beside the others"),
    OPTIONAL("quota", "devices that are its own; null: no limit"),
    OPTIONAL("borrow", "devices of others that it may have beside these; null: no limit"),
    OPTIONAL("lend", "of its own, so many may be lent; null: all"),
    {.name = "users",
     .type = LS_API_STRINGS,
     .place = LS_API_BODY,
     .may_be_null = true,
     .max = 1000,
     .help = "who may use it, beside who runs the queue, one at least; null: everybody"},
    {.name = "priority_max",
     .type = LS_API_STRING,
     .place = LS_API_BODY,
     .max = 16,
     .choices = priorities,
     .help = "as far as its users may go"},
};
static const ls_api_field down_in[] = {
    IN(LS_API_BODY, "cancel", LS_API_BOOL, 0, 0, "end the jobs, too, before"),
};
static const ls_api_field stream_in[] = {
    IN(LS_API_QUERY, "job", LS_API_INTEGER, 1, NUMBER_MAX, "of this job alone"),
    IN(LS_API_QUERY, "metrics", LS_API_BOOL, 0, 0, "steps of running jobs too; true"),
};

/* ---- answers ---- */

/* Left out for who may not read the job. */
#define SOME(label, what, text)                                                                              \
    {                                                                                                        \
        .name = (label), .type = (what), .may_lack = true, .help = (text)                                    \
    }
#define SOME_OR_NULL(label, what, text)                                                                      \
    {                                                                                                        \
        .name = (label), .type = (what), .may_be_null = true, .may_lack = true, .help = (text)               \
    }
/* Objects with these members. */
#define OF(label, what, array, text)                                                                         \
    {                                                                                                        \
        .name = (label), .type = (what), .members = (array),                                                 \
        .member_count = sizeof(array) / sizeof((array)[0]), .help = (text)                                   \
    }

#define STATES                                                                                               \
    "QUEUED, STARTING, RUNNING, RESIZING, PREEMPTING, RECOVERING, HELD, STOPPING, "                          \
    "SUCCEEDED, FAILED, CANCELLED"

/* Of a job wherever it is listed. */
#define JOB_ROWS                                                                                             \
    OUT("job", LS_API_INTEGER, "its number"),                                                                \
        OUT_OR_NULL("name", LS_API_STRING, "null for who may not read it"),                                  \
        OUT("state", LS_API_STRING, STATES), OUT("account", LS_API_STRING, "who it is charged to"),          \
        OUT_OR_NULL("priority", LS_API_STRING, "low, normal, high; null for who may not read it"),           \
        OUT("ranks", LS_API_INTEGER, "devices it has, or wants while it waits"),                             \
        OUT_OR_NULL("why", LS_API_STRING, "why it waits, or how it ended, in a line"),                       \
        SOME("user", LS_API_STRING, "whose it is"), SOME("uid", LS_API_INTEGER, "the number of that user"),  \
        SOME("gid", LS_API_INTEGER, "the group it runs as"),                                                 \
        SOME_OR_NULL("group", LS_API_STRING, "the sweep it belongs to"),                                     \
        SOME_OR_NULL("run_dir", LS_API_STRING, "where a training run writes; null for any other program"),   \
        SOME("epoch", LS_API_INTEGER, "how often it was started"),                                           \
        SOME("submitted", LS_API_NUMBER, "seconds since 1970, as all times"),                                \
        SOME_OR_NULL("queued", LS_API_NUMBER, "since when it waits, or waited last"),                        \
        SOME("ran_s", LS_API_NUMBER, "how long it ran, in all its starts"),                                  \
        SOME_OR_NULL("started", LS_API_NUMBER, "the last time; null: never"),                                \
        SOME_OR_NULL("ended", LS_API_NUMBER, "null: it has not"),                                            \
        SOME_OR_NULL("ends", LS_API_NUMBER, "when it is expected to end; null: not known"),                  \
        SOME_OR_NULL("ends_from", LS_API_STRING, "what that rests on: steps, plan, limit"),                  \
        SOME_OR_NULL("exit_code", LS_API_INTEGER, "of its last start"),                                      \
        SOME_OR_NULL("idle_s", LS_API_NUMBER, "its devices have done nothing for so long"),                  \
        SOME_OR_NULL("step", LS_API_INTEGER, "of a training run: how far it is"),                            \
        SOME_OR_NULL("steps", LS_API_INTEGER, "and how many there are")

static const ls_api_field listed_job[] = {JOB_ROWS};

#define USAGE_ROWS                                                                                           \
    OUT("allocated_h", LS_API_NUMBER, "device-hours that jobs held"),                                        \
        OUT("idle_h", LS_API_NUMBER, "of these, held and not used"),                                         \
        OUT("lost_h", LS_API_NUMBER, "of these, computed and thrown away"),                                  \
        OUT("waiting_h", LS_API_NUMBER, "asked for in vain"),                                                \
        OUT_OR_NULL("cost", LS_API_NUMBER, "of what was allocated; null: no price is known"),                \
        OUT_OR_NULL("idle_cost", LS_API_NUMBER, "of what was idle"),                                         \
        OUT_OR_NULL("lost_cost", LS_API_NUMBER, "of what was lost")

static const ls_api_field usage_rows[] = {USAGE_ROWS};
static const ls_api_field account_usage[] = {
    OUT("account", LS_API_STRING, "its name"),
    OUT("jobs", LS_API_INTEGER, "ever submitted"),
    USAGE_ROWS,
};
static const ls_api_field places[] = {
    OUT("node", LS_API_STRING, "its name"),
    OUT("devices", LS_API_INTEGERS, "their numbers on the node"),
};
static const ls_api_field job_out[] = {
    JOB_ROWS,
    OUT("after", LS_API_INTEGERS, "jobs it waits for"),
    OUT_OR_NULL("directory", LS_API_STRING, "where it runs"),
    OUT_OR_NULL("file_name", LS_API_STRING, "what its run file was called"),
    OUT("command", LS_API_STRINGS, "the program, while it is known; empty of a training run"),
    OUT("set", LS_API_STRINGS, "what overrides the run file"),
    OUT("min_ranks", LS_API_INTEGER, "the fewest it runs with"),
    OUT("max_ranks", LS_API_INTEGER, "the most"),
    OUT_OR_NULL("time_limit_s", LS_API_NUMBER, "null: none"),
    OUT("restartable", LS_API_BOOL, "may it be stopped and started again?"),
    OUT("spot", LS_API_BOOL, "may it run on what can be taken away?"),
    OUT("cause", LS_API_STRING, "of its last change of state"),
    OUT_OR_NULL("text", LS_API_STRING, "and in words"),
    OUT("held", LS_API_BOOL, "does it wait for its release?"),
    OUT("restarts", LS_API_INTEGER, "after losses"),
    OUT("preemptions", LS_API_INTEGER, "for others"),
    OUT_OR_NULL("saved", LS_API_NUMBER, "its last checkpoint"),
    OF("nodes", LS_API_OBJECTS, places, "where it runs"),
    OUT("engine", LS_API_STRING, "local or slurm"),
    OUT_OR_NULL("engine_ref", LS_API_STRING, "what the engine calls it"),
    OF("usage", LS_API_OBJECT, usage_rows, "what it used"),
    OUT("foresight", LS_API_OBJECT, "when it was said to start and to end, and when that was said"),
};
static const ls_api_field jobs_out[] = {
    OF("jobs", LS_API_OBJECTS, listed_job, "by number; those that have ended alone: the last first"),
    OUT_OR_NULL("before", LS_API_INTEGER, "where the next page begins; null: there is none"),
};
static const ls_api_field changed_out[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT("state", LS_API_STRING, "its state now"),
};
static const ls_api_field submit_out[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT("state", LS_API_STRING, "QUEUED or HELD"),
    OUT_OR_NULL("run_dir", LS_API_STRING, "where a training run writes; null for any other program"),
};
static const ls_api_field sweep_out[] = {
    OUT("group", LS_API_STRING, "name of the sweep"),
    OUT("jobs", LS_API_INTEGERS, "the numbers of its jobs"),
};
static const ls_api_field blockers[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT_OR_NULL("name", LS_API_STRING, "null for who may not read it"),
    OUT("devices", LS_API_INTEGER, "that it has"),
    OUT_OR_NULL("ends", LS_API_NUMBER, "when it is expected to end; null: not known"),
    OUT_OR_NULL("ends_from", LS_API_STRING, "what that rests on: steps, plan, limit"),
    OUT_OR_NULL("kept", LS_API_STRING,
                "why it is not stopped, though it comes after; null: it does not, or may be"),
};
static const ls_api_field changes[] = {
    OUT("change", LS_API_STRING, "what would be changed"),
    OUT("value", LS_API_INTEGER, "to what"),
    OUT("starts_in_s", LS_API_NUMBER, "seconds until it would start; 0: at once"),
    OUT("text", LS_API_STRING, "the same in words"),
};
static const ls_api_field why_out[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT("state", LS_API_STRING, STATES),
    OUT("stage", LS_API_STRING, "the first stage that fails"),
    OUT_OR_NULL("text", LS_API_STRING, "the same in words"),
    OUT_OR_NULL("needed", LS_API_INTEGER, "devices it needs"),
    OUT_OR_NULL("available", LS_API_INTEGER, "devices it could have"),
    OF("blockers", LS_API_OBJECTS, blockers, "jobs that have what it needs"),
    OUT_OR_NULL("eta_s", LS_API_NUMBER, "seconds until it is expected to start"),
    OF("counterfactuals", LS_API_OBJECTS, changes, "what would let it start, and when"),
};
static const ls_api_field metrics_out[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT("columns", LS_API_STRINGS, "names of the numbers of a point"),
    OUT("points", LS_API_ANY, "lists of numbers, by step; null for what was not measured"),
    OUT_OR_NULL("last", LS_API_OBJECT, "the newest step, all that the run wrote of it"),
    OUT("is_whole", LS_API_BOOL, "false: there are more steps, and the next question finds more of them"),
};
static const ls_api_field event_rows[] = {
    OUT("time", LS_API_NUMBER, "seconds since 1970"),
    SOME("event", LS_API_STRING, "of the run: what it tells; its other members are beside it"),
    SOME("from", LS_API_STRING, "of the queue: the state before"),
    SOME("to", LS_API_STRING, "the state behind"),
    SOME("cause", LS_API_STRING, "why"),
    SOME_OR_NULL("text", LS_API_STRING, "in words"),
};
static const ls_api_field events_out[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OF("events", LS_API_OBJECTS, event_rows, "by time: changes of its state, and what its run told"),
};
static const ls_api_field holders[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT_OR_NULL("name", LS_API_STRING, "null for who may not read it"),
    OUT("devices", LS_API_INTEGER, "that it has there"),
};
static const ls_api_field node_rows[] = {
    OUT("node", LS_API_STRING, "its name"),        OUT("state", LS_API_STRING, "up or down"),
    OUT("kind", LS_API_STRING, "of its devices"),  OUT("devices", LS_API_INTEGER, "that it has"),
    OUT("used", LS_API_INTEGER, "that jobs have"), OF("jobs", LS_API_OBJECTS, holders, "who has them"),
};
static const ls_api_field nodes_out[] = {
    OUT("engine", LS_API_STRING, "local or slurm"),
    OF("nodes", LS_API_OBJECTS, node_rows, "machines, their devices and who has them"),
};
static const ls_api_field account_rows[] = {
    OUT("account", LS_API_STRING, "its name"),
    OUT("weight", LS_API_INTEGER, "its share beside the others"),
    OUT_OR_NULL("quota", LS_API_INTEGER, "devices that are its own; null: no limit"),
    OUT_OR_NULL("borrow", LS_API_INTEGER, "devices of others beside these; null: no limit"),
    OUT_OR_NULL("lend", LS_API_INTEGER, "of its own, so many may be lent; null: all"),
    OUT("open_to", LS_API_STRING, "who may use it, without names: you, others, anyone"),
    OUT("devices", LS_API_INTEGER, "that its jobs have"),
    OUT("running", LS_API_INTEGER, "jobs that have devices"),
    OUT("waiting", LS_API_INTEGER, "jobs that wait"),
    OUT("jobs", LS_API_INTEGER, "ever submitted"),
};
static const ls_api_field accounts_out[] = {
    OF("accounts", LS_API_OBJECTS, account_rows, "shares, quotas, use"),
};
static const ls_api_field usage_out[] = {
    OF("accounts", LS_API_OBJECTS, account_usage, "device-hours and money of each account"),
    OF("total", LS_API_OBJECT, usage_rows, "of all together"),
    OUT_OR_NULL("price_per_device_h", LS_API_NUMBER, "null: not known"),
    OUT("currency", LS_API_STRING, "of the price"),
    OUT("foresight", LS_API_OBJECT, "how right predicted starts and ends were"),
};
static const ls_api_field account_out[] = {OUT("account", LS_API_STRING, "its name")};
static const ls_api_field down_out[] = {
    OUT("jobs", LS_API_INTEGER, "that have not ended"),
    OUT("cancel", LS_API_BOOL, "are they cancelled before?"),
};
static const ls_api_field reserved_rows[] = {
    OUT("job", LS_API_INTEGER, "its number"),
    OUT_OR_NULL("starts_in_s", LS_API_NUMBER, "null: devices are kept free for it as they come"),
};
static const ls_api_field status_out[] = {
    OUT("version", LS_API_STRING, "of the daemon"),
    OUT("engine", LS_API_STRING, "local or slurm"),
    OUT("order", LS_API_STRING, "of the policy"),
    OUT("states", LS_API_OBJECT, "how many jobs the daemon has in memory, by state"),
    OUT("waiting", LS_API_OBJECT, "how many are QUEUED, by priority"),
    OUT("devices_wanted", LS_API_INTEGER, "by those"),
    OUT("waits_s", LS_API_NUMBER, "how long that one waits that has waited longest"),
    OUT("devices", LS_API_INTEGER, "of all nodes"),
    OUT("devices_used", LS_API_INTEGER, "that jobs have"),
    OUT("devices_idle", LS_API_INTEGER, "of these, those that do nothing"),
    OUT("nodes", LS_API_INTEGER, "how many there are"),
    OUT_OR_NULL("paused", LS_API_STRING, "why nothing can be changed; null: it can"),
    OF("reserved", LS_API_OBJECTS, reserved_rows,
       "jobs with a reserved start, in the order in which they keep it"),
};

/* ---- the table ---- */

static const ls_api_route routes[] = {
    {"POST", "/v1/jobs", "submit", LS_API_VERB, LS_VERB_SUBMIT, LS_API_ANYBODY,
     "Puts a job into the queue; what can never run is refused.", FIELDS(submit_in), FIELDS(submit_out), 201},
    {"GET", "/v1/jobs", "jobs", LS_API_VERB, LS_VERB_LIST, LS_API_ANYBODY, "The queue.", FIELDS(jobs_in),
     FIELDS(jobs_out)},
    {"GET", "/v1/jobs/{job}", "job", LS_API_VERB, LS_VERB_SHOW, LS_API_OF_JOB, "One job.", FIELDS(job_only),
     FIELDS(job_out)},
    {"GET", "/v1/jobs/{job}/why", "why", LS_API_VERB, LS_VERB_WHY, LS_API_OF_JOB,
     "Why it waits: the first stage that fails, what is missing, who has it, when it starts, what would "
     "help.",
     FIELDS(job_only), FIELDS(why_out)},
    {"GET", "/v1/jobs/{job}/wait", "wait", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Answers as /v1/jobs/{job} does, as soon as the job has ended.", FIELDS(wait_in), FIELDS(job_out)},
    {"GET", "/v1/jobs/{job}/log", "log", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "What its processes printed, as text; X-Next is where to go on.", FIELDS(log_in), NULL, 0},
    {"GET", "/v1/jobs/{job}/metrics", "metrics", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "The steps of a training run, thinned out to a number of points.", FIELDS(metrics_in),
     FIELDS(metrics_out)},
    {"GET", "/v1/jobs/{job}/events", "events", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "What happened to it, by time.", FIELDS(events_in), FIELDS(events_out)},
    {"POST", "/v1/jobs/{job}/cancel", "cancel", LS_API_VERB, LS_VERB_CANCEL, LS_API_OF_JOB,
     "Ends it: a training run saves first.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/hold", "hold", LS_API_VERB, LS_VERB_HOLD, LS_API_OF_JOB,
     "Keeps a waiting job from starting until it is released.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/release", "release", LS_API_VERB, LS_VERB_RELEASE, LS_API_OF_JOB,
     "Lets a held job start.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/resize", "resize", LS_API_VERB, LS_VERB_RESIZE, LS_API_OF_JOB,
     "More or fewer devices, also while it runs.", FIELDS(resize_in), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/priority", "priority", LS_API_VERB, LS_VERB_PRIORITY, LS_API_OF_JOB,
     "Another priority: what waits is put in order anew.", FIELDS(priority_in), FIELDS(changed_out)},
    {"POST", "/v1/sweeps", "sweep", LS_API_VERB, LS_VERB_SWEEP, LS_API_ANYBODY,
     "A job for each combination of values, as one group.", FIELDS(sweep_in), FIELDS(sweep_out), 201},
    {"GET", "/v1/nodes", "nodes", LS_API_VERB, LS_VERB_NODES, LS_API_ANYBODY, "The machines.", NULL, 0,
     FIELDS(nodes_out)},
    {"GET", "/v1/accounts", "accounts", LS_API_VERB, LS_VERB_ACCOUNTS, LS_API_ANYBODY, "Who shares them.",
     NULL, 0, FIELDS(accounts_out)},
    {"POST", "/v1/accounts", "account", LS_API_VERB, LS_VERB_ACCOUNT, LS_API_ADMIN,
     "Makes or changes an account.", FIELDS(account_in), FIELDS(account_out)},
    {"GET", "/v1/usage", "usage", LS_API_VERB, LS_VERB_USAGE, LS_API_ANYBODY,
     "What was used, and wasted, by account.", NULL, 0, FIELDS(usage_out)},
    {"GET", "/v1/status", "status", LS_API_VERB, LS_VERB_STATUS, LS_API_ANYBODY, "The daemon.", NULL, 0,
     FIELDS(status_out)},
    {"GET", "/v1/events", "stream", LS_API_STREAM, LS_VERBS, LS_API_ANYBODY,
     "Server-sent events: job (a change of state) and step (of a running training run), as they happen; goes "
     "on "
     "behind Last-Event-ID.",
     FIELDS(stream_in), NULL, 0},
    {"POST", "/v1/down", "down", LS_API_VERB, LS_VERB_DOWN, LS_API_ADMIN, "Ends the daemon; jobs go on.",
     FIELDS(down_in), FIELDS(down_out), 202},
    {"GET", "/metrics", "prometheus", LS_API_METRICS, LS_VERBS, LS_API_ANYBODY, "Numbers for Prometheus.",
     NULL, 0, NULL, 0},
    {"GET", "/", "page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY, "The queue, as a page.", NULL, 0, NULL, 0},
    {"GET", "/ended", "ended_page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY,
     "The jobs that have ended, as pages.", FIELDS(ended_in), NULL, 0},
    {"GET", "/jobs/{job}", "job_page", LS_API_PAGE, LS_VERBS, LS_API_OF_JOB, "One job, as a page.",
     FIELDS(job_only), NULL, 0},
    {"GET", "/openapi.json", "openapi", LS_API_OPENAPI, LS_VERBS, LS_API_ANYBODY,
     "This table, as OpenAPI 3.1.", NULL, 0, NULL, 0},
};

const ls_api_route *ls_api_routes(size_t *count_out)
{
    *count_out = sizeof routes / sizeof routes[0];
    return routes;
}
