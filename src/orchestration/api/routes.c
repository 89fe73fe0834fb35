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
static const char *const states[] = {"QUEUED",     "STARTING",   "RUNNING",   "RESIZING",
                                     "PREEMPTING", "RECOVERING", "HELD",      "STOPPING",
                                     "SUCCEEDED",  "FAILED",     "CANCELLED", NULL};

/* "." and "-" are no first letters: see ls_account_name_is_good. */
#define ACCOUNT_PATTERN "^[A-Za-z0-9_][A-Za-z0-9._-]*$"
#define TEXT_LIKE(is_needed, label, low, high, like, text)                                                   \
    {                                                                                                        \
        .name = (label), .type = LS_API_STRING, .place = LS_API_BODY, .is_required = (is_needed),            \
        .min = (low), .max = (high), .pattern = (like), .help = (text)                                       \
    }
#define PRIORITY(is_needed, label, text)                                                                     \
    {                                                                                                        \
        .name = (label), .type = LS_API_STRING, .place = LS_API_BODY, .is_required = (is_needed), .max = 16, \
        .choices = priorities, .help = (text)                                                                \
    }
#define OUT_STATE                                                                                            \
    {                                                                                                        \
        .name = "state", .type = LS_API_STRING, .choices = states, .help = "state of the job"                \
    }

/* ---- arguments ---- */

static const ls_api_field job_only[] = {JOB};

/* Of a job, and of each job of a sweep. */
#define JOB_IN                                                                                               \
    NEEDED(LS_API_BODY, "file", LS_API_STRING, 1, 256 * 1024, "text of the run file"),                       \
        TEXT_LIKE(                                                                                           \
            true, "directory", 1, 4000, "^/",                                                                \
            "absolute path of the folder the job runs in; relative paths in the run file start there"),      \
        IN(LS_API_BODY, "file_name", LS_API_STRING, 1, 4000, "name of the run file, shown to people"),       \
        IN(LS_API_BODY, "ranks", LS_API_INTEGER, 1, 1 << 20,                                                 \
           "number of devices of the job; overrides the run file"),                                          \
        IN(LS_API_BODY, "name", LS_API_STRING, 1, 128,                                                       \
           "name of the job; default: the name in the run file"),                                            \
        TEXT_LIKE(false, "account", 1, 64, ACCOUNT_PATTERN,                                                  \
                  "account to charge; overrides job.account; default: the user's own account"),              \
        PRIORITY(false, "priority",                                                                          \
                 "priority of the job; overrides job.priority. `high` needs an account that allows it"),     \
        IN(LS_API_BODY, "avoid", LS_API_STRINGS, 0, 4096,                                                    \
           "names of folders under runs/ that hold other runs: a job with such a name writes to "            \
           "runs/NAME-N "                                                                                    \
           "instead"),                                                                                       \
        IN(LS_API_BODY, "environment", LS_API_OBJECT, 0, 0,                                                  \
           "environment variables of the job's processes: an object of names and texts"),                    \
        IN(LS_API_BODY, "umask", LS_API_STRING, 1, 4,                                                        \
           "file mode creation mask of the job's processes, in octal digits; default: 022")

static const ls_api_field submit_in[] = {
    JOB_IN,
    IN(LS_API_BODY, "set", LS_API_STRINGS, 0, 4096, "KEY=VALUE settings; each overrides the run file"),
    IN(LS_API_BODY, "hold", LS_API_BOOL, 0, 0, "hold the job: it does not start until it is released"),
    IN(LS_API_BODY, "key", LS_API_STRING, 1, 128,
       "a text of your choice, as the header Idempotency-Key: another request of yours with the same text "
       "makes no second job, and is answered with the first one"),
    IN(LS_API_BODY, "after", LS_API_INTEGERS, 0, 64,
       "numbers of jobs that must succeed before this one starts; they may belong to any user"),
};
static const ls_api_field sweep_in[] = {
    JOB_IN,
    NEEDED(LS_API_BODY, "set", LS_API_OBJECT, 1, 64,
           "a list of values for each setting; every combination becomes a job"),
    IN(LS_API_BODY, "samples", LS_API_INTEGER, 1, 1024,
       "number of combinations to run, spread evenly over all; default: all"),
    IN(LS_API_BODY, "running_max", LS_API_INTEGER, 1, 1 << 20,
       "maximum number of jobs of the sweep that run at the same time"),
};
static const ls_api_field jobs_in[] = {
    IN(LS_API_QUERY, "all", LS_API_BOOL, 0, 0, "return also jobs that have ended"),
    IN(LS_API_QUERY, "ended", LS_API_BOOL, 0, 0, "return only jobs that have ended, the latest first"),
    IN(LS_API_QUERY, "account", LS_API_STRING, 1, 64, "return only jobs of this account"),
    IN(LS_API_QUERY, "user", LS_API_STRING, 1, 64,
       "return only jobs of this user, as far as you may read them"),
    IN(LS_API_QUERY, "group", LS_API_STRING, 1, 128,
       "return only jobs of this sweep, as far as you may read them"),
    IN(LS_API_QUERY, "state", LS_API_STRING, 1, 32, "return only jobs in this state"),
    IN(LS_API_QUERY, "limit", LS_API_INTEGER, 1, 10000,
       "maximum number of ended jobs to return (default 10000); queued and running jobs are always included"),
    IN(LS_API_QUERY, "before", LS_API_INTEGER, 1, NUMBER_MAX,
       "return only jobs that ended before the job with this number; used to get the next page"),
};
static const ls_api_field ended_in[] = {
    IN(LS_API_QUERY, "before", LS_API_INTEGER, 1, NUMBER_MAX,
       "return only jobs that ended before the job with this number; used to get the next page"),
};
static const ls_api_field wait_in[] = {
    JOB,
    IN(LS_API_QUERY, "timeout_s", LS_API_INTEGER, 0, 3600,
       "answer after this many seconds, whatever the job's state (default 60)"),
};
static const ls_api_field log_in[] = {
    JOB,
    IN(LS_API_QUERY, "from", LS_API_INTEGER, 0, NUMBER_MAX, "first byte to return (default 0)"),
    IN(LS_API_QUERY, "tail", LS_API_INTEGER, 1, 1000000, "return only this many lines from the end"),
    IN(LS_API_QUERY, "bytes", LS_API_INTEGER, 1, 1 << 20,
       "maximum number of bytes to return (default 1 MiB)"),
    IN(LS_API_QUERY, "rank", LS_API_INTEGER, 0, 1 << 20, "return only the output of this rank"),
    IN(LS_API_QUERY, "follow", LS_API_BOOL, 0, 0, "keep sending new output until the job has ended"),
};
static const ls_api_field metrics_in[] = {
    JOB,
    IN(LS_API_QUERY, "from_step", LS_API_INTEGER, 0, NUMBER_MAX,
       "return only steps after this one (default 0)"),
    IN(LS_API_QUERY, "points", LS_API_INTEGER, 1, 10000,
       "maximum number of points (default 1000); neighbouring steps are merged into one point with lowest "
       "and highest loss"),
};
#define RUN                                                                                                  \
    {                                                                                                        \
        .name = "run", .type = LS_API_STRING, .place = LS_API_PATH, .is_required = true, .min = 1,           \
        .max = 256, .help = "id of the run, as /v1/runs lists it"                                            \
    }
#define COLUMNS                                                                                              \
    IN(LS_API_QUERY, "points", LS_API_INTEGER, 1, 10000,                                                     \
       "maximum number of columns; neighbouring steps share a column with their mean, lowest and highest "   \
       "value"),                                                                                             \
        IN(LS_API_QUERY, "keys", LS_API_STRING, 1, 4096, "names of metrics, with commas; default: all"),     \
        IN(LS_API_QUERY, "from", LS_API_INTEGER, 0, NUMBER_MAX, "first step (default 0)"),                   \
        IN(LS_API_QUERY, "to", LS_API_INTEGER, 0, NUMBER_MAX, "last step (default: the newest)")
static const ls_api_field run_only[] = {RUN};
static const ls_api_field run_metrics_in[] = {RUN, COLUMNS};
static const ls_api_field compare_in[] = {
    NEEDED(LS_API_QUERY, "runs", LS_API_STRING, 1, 4096, "ids of the runs, with commas"),
    COLUMNS,
};
static const ls_api_field events_in[] = {
    JOB,
    IN(LS_API_QUERY, "limit", LS_API_INTEGER, 1, 10000,
       "maximum number of events to return, the newest ones (default 1000)"),
};
static const ls_api_field resize_in[] = {
    JOB,
    IN(LS_API_BODY, "ranks", LS_API_INTEGER, 1, 1 << 20, "new number of devices"),
    IN(LS_API_BODY, "max_ranks", LS_API_INTEGER, 1, 1 << 20,
       "largest number of devices to which an elastic job may grow while they are idle"),
};
static const ls_api_field priority_in[] = {
    JOB,
    PRIORITY(true, "priority", "new priority of the job"),
};
#define USD(label, text)                                                                                     \
    {                                                                                                        \
        .name = (label), .type = LS_API_NUMBER, .place = LS_API_BODY, .may_be_null = true, .min = 0.01,      \
        .max = 1e9, .help = (text)                                                                           \
    }
static const ls_api_field change_in[] = {
    JOB,
    IN(LS_API_BODY, "time_limit_s", LS_API_NUMBER, 0, 1e9, "new time limit in seconds; 0: none"),
    IN(LS_API_BODY, "account", LS_API_STRING, 1, 64, "account to charge from now on"),
    USD("max_cost", "new cap in USD, also of a job that runs; null: none"),
    IN(LS_API_BODY, "after", LS_API_INTEGERS, 0, 64,
       "numbers of jobs that must succeed before this one starts, instead of those named before; only jobs "
       "submitted before it"),
    PRIORITY(false, "priority", "new priority of the job"),
};
#define REASON IN(LS_API_BODY, "reason", LS_API_STRING, 1, 200, "reason, shown to people whose jobs wait")
static const ls_api_field pause_in[] = {REASON};
static const ls_api_field drain_in[] = {
    IN(LS_API_BODY, "node", LS_API_STRING, 1, 255, "name of the node; not needed if there is only one"),
    REASON,
};
static const ls_api_field undrain_in[] = {
    IN(LS_API_BODY, "node", LS_API_STRING, 1, 255, "name of the node; not needed if there is only one"),
};
static const ls_api_field maintenance_in[] = {
    NEEDED(LS_API_BODY, "begin", LS_API_NUMBER, 0, 1e11, "when it begins, in seconds since 1970"),
    NEEDED(LS_API_BODY, "end", LS_API_NUMBER, 0, 1e11, "when it ends, in seconds since 1970"),
    REASON,
};
static const ls_api_field usage_in[] = {
    IN(LS_API_QUERY, "since", LS_API_NUMBER, 0, 1e11,
       "count only jobs that ended at this time (seconds since 1970) or later, or have not ended"),
    IN(LS_API_QUERY, "user", LS_API_STRING, 1, 64, "count only jobs of this user"),
};
static const ls_api_field window_in[] = {
    {.name = "window",
     .type = LS_API_INTEGER,
     .place = LS_API_PATH,
     .is_required = true,
     .min = 1,
     .max = 1000,
     .help = "number of the maintenance window"},
};
static const ls_api_field account_in[] = {
    TEXT_LIKE(true, "account", 1, 64, ACCOUNT_PATTERN,
              "name of the account; it is created if it does not exist"),
    IN(LS_API_BODY, "delete", LS_API_BOOL, 0, 0,
       "delete the account and what is known of its use; refused while it has jobs that have not ended"),
    IN(LS_API_BODY, "weight", LS_API_INTEGER, 1, 1000000,
       "weight of the account's share relative to other accounts"),
    OPTIONAL("quota", "number of devices that are the account's own; null: no limit"),
    OPTIONAL("borrow", "number of other accounts' unused devices it may take in addition; null: no limit"),
    OPTIONAL("lend", "number of its own devices that others may use while it does not; null: all"),
    USD("budget", "what its jobs may cost in a calendar month (UTC), in USD; null: no limit"),
    {.name = "users",
     .type = LS_API_STRINGS,
     .place = LS_API_BODY,
     .may_be_null = true,
     .max = 1000,
     .help = "users who may use the account, at least one; the daemon's owner always may; null: everyone"},
    PRIORITY(false, "priority_max", "highest priority that jobs of the account may have"),
};
static const ls_api_field down_in[] = {
    IN(LS_API_BODY, "cancel", LS_API_BOOL, 0, 0, "cancel all jobs before the daemon stops"),
};
static const ls_api_field stream_in[] = {
    IN(LS_API_QUERY, "job", LS_API_INTEGER, 1, NUMBER_MAX, "send only events of this job"),
    IN(LS_API_QUERY, "metrics", LS_API_BOOL, 0, 0, "include steps of running training runs (default true)"),
};

/* ---- answers ---- */

/* Left out if the caller may not read the job. */
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

/* Of a job, wherever it is listed. */
#define JOB_ROWS                                                                                             \
    OUT("job", LS_API_INTEGER, "number of the job"),                                                         \
        OUT_OR_NULL("name", LS_API_STRING, "name of the job; null if you may not read it"), OUT_STATE,       \
        OUT("account", LS_API_STRING, "account the job is charged to"),                                      \
        OUT_OR_NULL("priority", LS_API_STRING, "low, normal or high; null if you may not read the job"),     \
        OUT("ranks", LS_API_INTEGER, "number of devices the job has, or wants while it waits"),              \
        OUT_OR_NULL("why", LS_API_STRING, "why the job waits, or how it ended, in one line"),                \
        SOME("user", LS_API_STRING, "user who owns the job"),                                                \
        SOME("uid", LS_API_INTEGER, "number (uid) of that user"),                                            \
        SOME("gid", LS_API_INTEGER, "number (gid) of the group the job runs as"),                            \
        SOME_OR_NULL("group", LS_API_STRING, "sweep the job belongs to; null: none"),                        \
        SOME_OR_NULL("run_dir", LS_API_STRING, "folder of a training run; null: any other program"),         \
        SOME("metrics", LS_API_STRINGS, "files to which any other program writes metrics (job.metrics)"),    \
        SOME("epoch", LS_API_INTEGER, "number of times the job was started"),                                \
        SOME("submitted", LS_API_NUMBER, "time of submission, in seconds since 1970, as all times"),         \
        SOME_OR_NULL("queued", LS_API_NUMBER, "time since which the job waits, or last began to wait"),      \
        SOME("ran_s", LS_API_NUMBER, "seconds the job has run, over all its starts"),                        \
        SOME_OR_NULL("started", LS_API_NUMBER, "time of the last start; null: never started"),               \
        SOME_OR_NULL("ended", LS_API_NUMBER, "time of the end; null: the job has not ended"),                \
        SOME_OR_NULL("starts", LS_API_NUMBER, "when a waiting job is expected to start; null: unknown"),     \
        SOME_OR_NULL("ends", LS_API_NUMBER, "time at which the job is expected to end; null: unknown"),      \
        SOME_OR_NULL("ends_from", LS_API_STRING, "source of that estimate: steps, plan or limit"),           \
        SOME_OR_NULL("exit_code", LS_API_INTEGER, "exit code of the last start"),                            \
        SOME_OR_NULL("idle_s", LS_API_NUMBER, "seconds for which the job's devices have done nothing"),      \
        SOME_OR_NULL("step", LS_API_INTEGER, "steps a training run has done"),                               \
        SOME_OR_NULL("steps", LS_API_INTEGER, "steps a training run will do in all"),                        \
        SOME_OR_NULL("cost", LS_API_NUMBER, "what the job has cost so far; null: no price is set"),          \
        SOME_OR_NULL("max_cost", LS_API_NUMBER, "cap of its cost in USD (job.max_cost); null: none"),        \
        SOME_OR_NULL("cost_ahead", LS_API_NUMBER, "what it is expected to cost from now on; null: unknown")

static const ls_api_field listed_job[] = {JOB_ROWS};

#define USAGE_ROWS                                                                                           \
    OUT("allocated_h", LS_API_NUMBER, "device-hours that jobs held"),                                        \
        OUT("idle_h", LS_API_NUMBER, "of the allocated device-hours, those not used"),                       \
        OUT("lost_h", LS_API_NUMBER, "of the allocated device-hours, those whose results were lost"),        \
        OUT("waiting_h", LS_API_NUMBER, "device-hours for which jobs waited"),                               \
        OUT_OR_NULL("energy_j", LS_API_NUMBER, "joules used; null: not measured"),                           \
        OUT_OR_NULL("cost", LS_API_NUMBER, "cost of the allocated device-hours; null: no price is set"),     \
        OUT_OR_NULL("idle_cost", LS_API_NUMBER, "cost of the idle device-hours; null: no price is set"),     \
        OUT_OR_NULL("lost_cost", LS_API_NUMBER, "cost of the lost device-hours; null: no price is set"),     \
        OUT("stored_bytes", LS_API_INTEGER, "what the folders of training runs hold, as of their ends"),     \
        OUT("sent_bytes", LS_API_INTEGER, "what training runs have sent to mirrors"),                        \
        OUT_OR_NULL("storage_cost", LS_API_NUMBER, "of what is stored, for a month; null: no price"),        \
        OUT_OR_NULL("egress_cost", LS_API_NUMBER, "of what was sent; null: no price")

/* Not with since or user. */
#define MONTH_ROWS                                                                                           \
    SOME_OR_NULL("budget", LS_API_NUMBER, "what the account may cost in a month, in USD; null: no limit"),   \
        SOME_OR_NULL("month_cost", LS_API_NUMBER, "what it has cost this month (UTC); null: no price"),      \
        SOME_OR_NULL("month_forecast", LS_API_NUMBER, "what it will have cost at the month's end, expected")

static const ls_api_field usage_rows[] = {USAGE_ROWS};
static const ls_api_field account_usage[] = {
    OUT("account", LS_API_STRING, "name of the account"),
    SOME("user", LS_API_STRING, "user; only with since or user"),
    OUT("jobs", LS_API_INTEGER, "number of jobs ever submitted; with since or user, of those counted"),
    MONTH_ROWS,
    USAGE_ROWS,
};
static const ls_api_field places[] = {
    OUT("node", LS_API_STRING, "name of the node"),
    OUT("devices", LS_API_INTEGERS, "numbers of the devices on the node"),
};
static const ls_api_field estimates[] = {
    OUT("cost", LS_API_NUMBER, "expected cost of the whole run"),
    OUT("low", LS_API_NUMBER, "one run in ten costs less"),
    OUT("high", LS_API_NUMBER, "one run in ten costs more"),
    OUT("currency", LS_API_STRING, "currency of these amounts"),
    OUT("run_s", LS_API_NUMBER, "expected time of the run in seconds"),
    OUT("devices", LS_API_INTEGER, "number of devices the job wants"),
};
#define ESTIMATE(lacks)                                                                                      \
    {                                                                                                        \
        .name = "estimate", .type = LS_API_OBJECT, .members = estimates,                                     \
        .member_count = sizeof estimates / sizeof estimates[0], .may_be_null = true, .may_lack = (lacks),    \
        .help = "cost of the whole run, predicted; null: there is no price, or no prediction"                \
    }
static const ls_api_field job_out[] = {
    JOB_ROWS,
    OUT("after", LS_API_INTEGERS, "jobs that must succeed before this one starts"),
    OUT_OR_NULL("directory", LS_API_STRING, "folder the job runs in"),
    OUT_OR_NULL("file_name", LS_API_STRING, "name of the run file"),
    OUT("command", LS_API_STRINGS, "program and its arguments, as far as known; empty for a training run"),
    OUT("set", LS_API_STRINGS, "settings that override the run file"),
    OUT("min_ranks", LS_API_INTEGER, "smallest number of devices the job runs with"),
    OUT("max_ranks", LS_API_INTEGER, "largest number of devices the job runs with"),
    OUT_OR_NULL("time_limit_s", LS_API_NUMBER, "time limit in seconds; null: none"),
    OUT("restartable", LS_API_BOOL, "whether the job may be stopped and started again"),
    OUT("spot", LS_API_BOOL, "whether the job may run on machines that can be taken away"),
    OUT("cause", LS_API_STRING, "cause of the last change of state"),
    OUT_OR_NULL("text", LS_API_STRING, "that cause in words"),
    OUT("held", LS_API_BOOL, "whether the job waits to be released"),
    OUT("restarts", LS_API_INTEGER, "number of restarts after losses"),
    OUT("preemptions", LS_API_INTEGER, "number of times the job was stopped for others"),
    OUT_OR_NULL("saved", LS_API_NUMBER, "time of the last checkpoint; null: none"),
    OF("nodes", LS_API_OBJECTS, places, "nodes and devices the job runs on"),
    OUT("engine", LS_API_STRING, "local or slurm"),
    OUT_OR_NULL("engine_ref", LS_API_STRING, "name the engine has for the job; null: none"),
    OUT_OR_NULL("kind", LS_API_STRING, "kind of the nodes of its last start; null: it has not started"),
    OF("usage", LS_API_OBJECT, usage_rows, "device-hours and cost of the job"),
    OUT("rates", LS_API_OBJECT, "cost and joules of a step and of a million tokens, each may be null"),
    OUT("foresight", LS_API_OBJECT, "predicted start and end, and when they were predicted"),
};
static const ls_api_field jobs_out[] = {
    OF("jobs", LS_API_OBJECTS, listed_job,
       "jobs in order of their numbers; with `ended`, the latest end first"),
    OUT_OR_NULL("before", LS_API_INTEGER, "value of `before` for the next page; null: this is the last page"),
};
static const ls_api_field changed_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_STATE,
};
static const ls_api_field resize_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_STATE,
    OUT("ranks", LS_API_INTEGER, "number of devices the job wants"),
    OUT("ranks_now", LS_API_INTEGER, "number of devices the job has; 0 while it waits"),
    OUT("min_ranks", LS_API_INTEGER, "smallest number of devices the job runs with"),
    OUT("max_ranks", LS_API_INTEGER, "largest number of devices the job may grow to"),
    OUT("text", LS_API_STRING, "what will happen, in words"),
};
static const ls_api_field submit_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT("state", LS_API_STRING, "QUEUED or HELD"),
    OUT_OR_NULL("run_dir", LS_API_STRING, "folder a training run writes to; null for any other program"),
    ESTIMATE(false),
    OUT_OR_NULL("max_cost", LS_API_NUMBER, "cap of its cost in USD (job.max_cost); null: none"),
};
static const ls_api_field sweep_out[] = {
    OUT("group", LS_API_STRING, "name of the sweep"),
    OUT("jobs", LS_API_INTEGERS, "numbers of the sweep's jobs"),
};
static const ls_api_field sweeps_out[] = {
    OUT("sweeps", LS_API_OBJECTS, "the caller's, each as /v1/jobs/{job}/sweep shows it, without trials"),
};
static const ls_api_field sweep_of_out[] = {
    OUT("sweep", LS_API_STRING, "name of the sweep"),
    OUT("first", LS_API_INTEGER, "number of its first job; the others follow"),
    OUT("name", LS_API_STRING, "name in the run file"),
    OUT("ended", LS_API_BOOL, "whether all of its jobs have ended"),
    OUT_OR_NULL("text", LS_API_STRING, "why the whole sweep was stopped; null: it was not"),
    OUT("jobs", LS_API_INTEGER, "number of its jobs"),
    OUT("metric", LS_API_STRING, "what jobs are compared by: val_loss or loss"),
    OUT("eta", LS_API_INTEGER, "one of so many jobs trains on at each rung"),
    OUT("rungs", LS_API_INTEGERS, "steps at which jobs are compared; the last is the end of the run"),
    OUT("budget_steps", LS_API_INTEGER, "largest number of steps of all jobs; 0: no limit"),
    OUT("steps", LS_API_INTEGER, "steps that its jobs have been allowed so far"),
    OUT("full_steps", LS_API_INTEGER, "steps of all jobs if none were stopped"),
    OUT("states", LS_API_OBJECT, "number of jobs that are active, paused, stopped, finished, failed"),
    OUT_OR_NULL("best", LS_API_OBJECT, "{job, step, result, second, lead, lead_step}; null: none yet"),
    OUT("trials", LS_API_OBJECTS, "{job, trial, state, step, result, results, set, values, why} of each job"),
    OUT_OR_NULL("noise", LS_API_OBJECT, "{deviation, step, seeds}: between seeds; null: there is one"),
};
static const ls_api_field blockers[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_OR_NULL("name", LS_API_STRING, "name of the job; null if you may not read it"),
    OUT("devices", LS_API_INTEGER, "number of devices that job has"),
    OUT_OR_NULL("ends", LS_API_NUMBER, "time at which the job is expected to end; null: unknown"),
    OUT_OR_NULL("ends_from", LS_API_STRING, "source of that estimate: steps, plan or limit"),
    OUT_OR_NULL("kept", LS_API_STRING,
                "why this job is not stopped although it comes later in the order; null: it comes earlier, "
                "or may be stopped"),
};
static const ls_api_field changes[] = {
    OUT("change", LS_API_STRING, "what would have to change"),
    OUT("value", LS_API_INTEGER, "new value"),
    OUT("starts_in_s", LS_API_NUMBER, "seconds until the job would then start; 0: at once"),
    OUT("text", LS_API_STRING, "the change in words"),
};
static const ls_api_field why_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_STATE,
    OUT("stage", LS_API_STRING, "first stage of the decision that the job does not pass"),
    OUT_OR_NULL("text", LS_API_STRING, "the reason in words"),
    OUT_OR_NULL("needed", LS_API_INTEGER, "number of devices the job needs"),
    OUT_OR_NULL("available", LS_API_INTEGER, "number of devices the job could have now"),
    OF("blockers", LS_API_OBJECTS, blockers, "jobs that hold the devices it needs"),
    OUT_OR_NULL("eta_s", LS_API_NUMBER, "seconds until the job is expected to start; null: unknown"),
    ESTIMATE(true),
    OF("counterfactuals", LS_API_OBJECTS, changes, "changes that would let the job start, and when"),
};
static const ls_api_field metrics_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT("columns", LS_API_STRINGS, "names of the numbers in each point"),
    OUT("points", LS_API_ANY, "lists of numbers, ordered by step; null where nothing was measured"),
    OUT_OR_NULL("last", LS_API_OBJECT, "everything the run wrote about its newest step; null: no step yet"),
    OUT("is_whole", LS_API_BOOL, "whether all steps were read; false: ask again for more"),
};
#define RUN_ROWS                                                                                             \
    OUT("id", LS_API_STRING, "id of the run"), OUT_OR_NULL("name", LS_API_STRING, "name of the run"),        \
        OUT("status", LS_API_STRING,                                                                         \
            "state of the job; of a folder that is viewed, running, stopped, or how the run ended"),         \
        OUT_OR_NULL("step", LS_API_INTEGER, "steps done"),                                                   \
        OUT_OR_NULL("steps", LS_API_INTEGER, "steps in all"),                                                \
        OUT_OR_NULL("loss", LS_API_NUMBER, "newest loss, where it is known"),                                \
        OUT_OR_NULL("val_loss", LS_API_NUMBER, "newest validation loss, where it is known"),                 \
        OUT_OR_NULL("tokens_per_s", LS_API_NUMBER, "newest speed, where it is known"),                       \
        OUT_OR_NULL("started", LS_API_NUMBER, "time of the last start, in seconds since 1970"),              \
        OUT_OR_NULL("cost_usd", LS_API_NUMBER, "cost so far; null: not known")
static const ls_api_field run_rows[] = {RUN_ROWS};
static const ls_api_field runs_out[] = {OF("runs", LS_API_OBJECTS, run_rows, "runs that you may read")};
static const ls_api_field run_out[] = {
    RUN_ROWS,
    OUT("metrics", LS_API_STRINGS, "names of the run's metrics, in the order in which they appeared"),
    OUT_OR_NULL("run_dir", LS_API_STRING, "folder the run writes to"),
    OUT_OR_NULL("summary", LS_API_OBJECT, "result of the run, as summary.json has it; null: it has none"),
    OUT_OR_NULL("config", LS_API_STRING, "text of run.yaml; null: there is none"),
    OUT_OR_NULL("events", LS_API_OBJECTS, "newest events of the run, ordered by time; null: there are none"),
};
#define RUN_COLUMNS                                                                                          \
    OUT("run", LS_API_STRING, "id of the run"),                                                              \
        OUT("is_whole", LS_API_BOOL, "whether all steps were read; false: ask again for more"),              \
        OUT("refused", LS_API_INTEGER, "points left out because the run has too many names of metrics"),     \
        OUT("cut", LS_API_INTEGER, "points dropped because their program was restored to an earlier step"),  \
        OUT("keys", LS_API_OBJECT,                                                                           \
            "for each metric: lists step, mean, low and high with one item for each column that has "        \
            "points, "                                                                                       \
            "and odd, [column, nan or inf or -inf], for columns with values that are not finite")
static const ls_api_field run_metrics_out[] = {RUN_COLUMNS};
static const ls_api_field compare_out[] = {
    OF("runs", LS_API_OBJECTS, run_metrics_out, "the runs, in the order in which they were named"),
};
static const ls_api_field run_log_in[] = {
    RUN,
    NEEDED(
        LS_API_BODY, "points", LS_API_OBJECTS, 1, 10000,
        "objects of names and numbers, each with the members step (default: one more than before) and time "
        "(seconds since 1970; default: now), if known"),
};
static const ls_api_field run_log_out[] = {
    OUT("run", LS_API_STRING, "id of the run"),
    OUT("points", LS_API_INTEGER, "number of points kept"),
};
static const ls_api_field notes_in[] = {
    RUN,
    NEEDED(LS_API_BODY, "note", LS_API_STRING, 0, 65536, "text about the run; it replaces the one before"),
    NEEDED(LS_API_BODY, "tags", LS_API_STRINGS, 0, 32,
           "words about the run, of at most 64 bytes each, without spaces and commas"),
};
static const ls_api_field notes_out[] = {
    OUT("run", LS_API_STRING, "id of the run"),
    OUT("note", LS_API_STRING, "text about the run"),
    OUT("tags", LS_API_STRINGS, "words about the run"),
};
#define KEY NEEDED(LS_API_QUERY, "key", LS_API_STRING, 1, 256, "name of a metric")
static const ls_api_field run_chart_in[] = {RUN, KEY};
static const ls_api_field compare_page_in[] = {
    IN(LS_API_QUERY, "runs", LS_API_STRING, 0, 4096, "ids of the runs to compare, with commas"),
};
static const ls_api_field lineage_in[] = {NEEDED(LS_API_QUERY, "entry", LS_API_STRING, 64, 64, "its digest")};
static const ls_api_field compare_chart_in[] = {
    NEEDED(LS_API_QUERY, "runs", LS_API_STRING, 1, 4096, "ids of the runs, with commas"),
    KEY,
};
static const ls_api_field event_rows[] = {
    OUT("time", LS_API_NUMBER, "seconds since 1970"),
    SOME("event", LS_API_STRING, "for an event of the run: its name; its other members follow"),
    SOME("from", LS_API_STRING, "for a change of state: the state before"),
    SOME("to", LS_API_STRING, "for a change of state: the state after"),
    SOME("cause", LS_API_STRING, "cause of the change"),
    SOME_OR_NULL("text", LS_API_STRING, "cause in words"),
};
static const ls_api_field events_out[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OF("events", LS_API_OBJECTS, event_rows,
       "changes of the job's state and events of its run, ordered by time"),
};
static const ls_api_field holders[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_OR_NULL("name", LS_API_STRING, "name of the job; null if you may not read it"),
    OUT("devices", LS_API_INTEGER, "number of devices the job has on this node"),
};
static const ls_api_field node_rows[] = {
    OUT("node", LS_API_STRING, "name of the node"),
    OUT("state", LS_API_STRING, "up, draining (jobs still run), drained or down"),
    OUT("kind", LS_API_STRING, "kind of the node's devices"),
    OUT("devices", LS_API_INTEGER, "number of devices of the node"),
    OUT("used", LS_API_INTEGER, "number of devices of the node that jobs have"),
    OUT_OR_NULL("price_per_device_h", LS_API_NUMBER, "price of a device-hour here; null: no price is set"),
    OF("jobs", LS_API_OBJECTS, holders, "jobs that have devices of the node"),
    OUT("readings", LS_API_OBJECTS,
        "{device, job, account, utilization, memory_bytes, memory_max_bytes, power_w, ...} of its GPUs"),
};
static const ls_api_field nodes_out[] = {
    OUT("engine", LS_API_STRING, "local or slurm"),
    OF("nodes", LS_API_OBJECTS, node_rows, "machines, their devices, and the jobs that hold them"),
};
static const ls_api_field account_rows[] = {
    OUT("account", LS_API_STRING, "name of the account"),
    OUT("weight", LS_API_INTEGER, "weight of the account's share relative to other accounts"),
    OUT_OR_NULL("quota", LS_API_INTEGER, "number of devices that are the account's own; null: no limit"),
    OUT_OR_NULL("borrow", LS_API_INTEGER,
                "number of other accounts' unused devices it may take in addition; null: no limit"),
    OUT_OR_NULL("lend", LS_API_INTEGER,
                "number of its own devices that others may use while it does not; null: all"),
    OUT("open_to", LS_API_STRING, "who may use the account, without names: you, others or anyone"),
    OUT("devices", LS_API_INTEGER, "number of devices that the account's jobs have"),
    OUT("running", LS_API_INTEGER, "number of jobs that have devices"),
    OUT("waiting", LS_API_INTEGER, "number of jobs that wait"),
    OUT("jobs", LS_API_INTEGER, "number of jobs ever submitted"),
    MONTH_ROWS,
};
static const ls_api_field accounts_out[] = {
    OF("accounts", LS_API_OBJECTS, account_rows, "accounts with their shares, quotas and use"),
};
static const ls_api_field upkeep_out[] = {
    OUT_OR_NULL("paused", LS_API_OBJECT, "who paused the queue, since when, and why; null: it is not paused"),
    OUT("drained", LS_API_OBJECT, "for each drained node: who drained it, since when, and why"),
    OUT("maintenance", LS_API_OBJECTS,
        "windows in which nothing runs: number, begin, end, who announced each, and why"),
};
static const ls_api_field reload_out[] = {
    OUT("config", LS_API_STRING, "path of the file"),
    OUT("changed", LS_API_STRINGS, "settings that have changed and take effect now"),
    OUT("restart", LS_API_STRINGS, "settings that have changed and take effect when it is restarted"),
};
static const ls_api_field usage_out[] = {
    OF("accounts", LS_API_OBJECTS, account_usage, "device-hours and cost of each account"),
    OF("total", LS_API_OBJECT, usage_rows, "device-hours and cost of all accounts together"),
    OUT_OR_NULL("machine", LS_API_OBJECT, "{energy_j, free_energy_j} in joules; null: not measured"),
    OUT_OR_NULL("price_per_device_h", LS_API_NUMBER, "price of a device-hour; null: no price is set"),
    OUT("kind_prices", LS_API_STRINGS, "KIND=PRICE: other prices of a device-hour, by kind of node"),
    OUT("currency", LS_API_STRING, "currency of the price"),
    OUT("foresight", LS_API_OBJECT, "how accurate predicted starts and ends were"),
};
static const ls_api_field alerts_in[] = {
    IN(LS_API_QUERY, "after", LS_API_INTEGER, 0, NUMBER_MAX, "return only alerts after this one (default 0)"),
};
static const ls_api_field alert_rows[] = {
    OUT("id", LS_API_INTEGER, "number of the alert; they begin again with 1 when the daemon starts"),
    OUT("kind", LS_API_STRING, "what it is about, such as not_finite, stall or budget"),
    OUT("time", LS_API_NUMBER, "seconds since 1970"),
    OUT_OR_NULL("job", LS_API_INTEGER, "number of the job; null: it is about an account or the queue"),
    OUT_OR_NULL("account", LS_API_STRING, "account it concerns; null: none"),
    OUT("text", LS_API_STRING, "what has happened, and why"),
};
static const ls_api_field alerts_out[] = {OF("alerts", LS_API_OBJECTS, alert_rows, "alerts, oldest first")};
static const ls_api_field account_out[] = {OUT("account", LS_API_STRING, "name of the account")};
static const ls_api_field token_in[] = {
    IN(LS_API_BODY, "read_only", LS_API_BOOL, 0, 0,
       "make a token for GET requests only; it never gives the rights of an administrator"),
    IN(LS_API_BODY, "rotate", LS_API_BOOL, 0, 0, "replace the token of that kind, which is no longer valid"),
};
static const ls_api_field revoke_in[] = {
    IN(LS_API_BODY, "read_only", LS_API_BOOL, 0, 0, "revoke the read-only token"),
    IN(LS_API_BODY, "user", LS_API_STRING, 1, 64,
       "user whose token to revoke (default: the caller); only root and the daemon's owner may name another"),
};
#define TOKEN_ROWS                                                                                           \
    OUT("user", LS_API_STRING, "user whose token it is"),                                                    \
        OUT("read_only", LS_API_BOOL, "whether it allows GET requests only")
static const ls_api_field token_out[] = {
    OUT("token", LS_API_STRING, "text of the token; it is stored nowhere and shown only once"),
    OUT("uid", LS_API_INTEGER, "number (uid) of that user"),
    TOKEN_ROWS,
};
static const ls_api_field revoke_out[] = {TOKEN_ROWS};
static const ls_api_field token_rows[] = {
    TOKEN_ROWS,
    OUT("uid", LS_API_INTEGER, "number (uid) of that user"),
    OUT_OR_NULL("made", LS_API_NUMBER, "time at which it was made; null: unknown"),
};
static const ls_api_field tokens_out[] = {
    OF("tokens", LS_API_OBJECTS, token_rows, "tokens that are valid, without their text"),
};
static const ls_api_field health_out[] = {OUT("status", LS_API_STRING, "ok")};
static const ls_api_field down_out[] = {
    OUT("jobs", LS_API_INTEGER, "number of jobs that have not ended"),
    OUT("cancel", LS_API_BOOL, "whether these jobs are cancelled first"),
};
static const ls_api_field reserved_rows[] = {
    OUT("job", LS_API_INTEGER, "number of the job"),
    OUT_OR_NULL("starts_in_s", LS_API_NUMBER,
                "seconds until the reserved start; null: devices are kept for the job as they become free"),
};
static const ls_api_field status_out[] = {
    OUT("version", LS_API_STRING, "version of the daemon"),
    OUT("engine", LS_API_STRING, "local or slurm"),
    OUT("order", LS_API_STRING, "order of the policy (setting policy.order)"),
    OUT("states", LS_API_OBJECT, "number of jobs in each state, of those the daemon has in memory"),
    OUT("waiting", LS_API_OBJECT, "number of QUEUED jobs of each priority"),
    OUT("devices_wanted", LS_API_INTEGER, "number of devices that QUEUED jobs want"),
    OUT("waits_s", LS_API_NUMBER, "seconds that the longest-waiting QUEUED job has waited"),
    OUT("devices", LS_API_INTEGER, "number of devices of all nodes"),
    OUT("devices_used", LS_API_INTEGER, "number of devices that jobs have"),
    OUT("devices_idle", LS_API_INTEGER, "number of devices that jobs have and do not use"),
    OUT("nodes", LS_API_INTEGER, "number of nodes"),
    OUT_OR_NULL("paused", LS_API_STRING, "why changes are refused at the moment; null: they are not"),
    OF("reserved", LS_API_OBJECTS, reserved_rows,
       "jobs with a reserved start, in the order of their reservations"),
    OF("upkeep", LS_API_OBJECT, upkeep_out, "pauses, drained nodes and maintenance"),
};

/* ---- the table ---- */

static const ls_api_route routes[] = {
    {"POST", "/v1/jobs", "submit", LS_API_VERB, LS_VERB_SUBMIT, LS_API_ANYBODY,
     "Submits a job; a job that can never run is refused.", FIELDS(submit_in), FIELDS(submit_out), 201},
    {"GET", "/v1/jobs", "jobs", LS_API_VERB, LS_VERB_LIST, LS_API_ANYBODY, "Lists jobs.", FIELDS(jobs_in),
     FIELDS(jobs_out)},
    {"GET", "/v1/jobs/{job}", "job", LS_API_VERB, LS_VERB_SHOW, LS_API_OF_JOB, "Shows one job.",
     FIELDS(job_only), FIELDS(job_out)},
    {"GET", "/v1/jobs/{job}/why", "why", LS_API_VERB, LS_VERB_WHY, LS_API_OF_JOB,
     "Explains why a job waits: the first stage it does not pass, what is missing, which jobs have it, when "
     "it will start, and what would help.",
     FIELDS(job_only), FIELDS(why_out)},
    {"GET", "/v1/jobs/{job}/wait", "wait", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Answers like /v1/jobs/{job}, once the job has ended.", FIELDS(wait_in), FIELDS(job_out)},
    {"GET", "/v1/jobs/{job}/log", "log", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Returns what the job's processes printed, as text; the header X-Next is the next value for `from`.",
     FIELDS(log_in), NULL, 0},
    {"GET", "/v1/jobs/{job}/metrics", "metrics", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Returns the steps of a training run, merged into a given number of points.", FIELDS(metrics_in),
     FIELDS(metrics_out)},
    {"GET", "/v1/jobs/{job}/events", "events", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Returns what happened to a job, ordered by time.", FIELDS(events_in), FIELDS(events_out)},
    {"GET", "/v1/runs", "runs", LS_API_FILE, LS_VERBS, LS_API_ANYBODY, "Lists training runs.", NULL, 0,
     FIELDS(runs_out)},
    {"GET", "/v1/runs/{run}", "run", LS_API_FILE, LS_VERBS, LS_API_OF_JOB, "Shows one training run.",
     FIELDS(run_only), FIELDS(run_out)},
    {"GET", "/v1/runs/{run}/metrics", "run_metrics", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Returns the metrics of a run, merged into a given number of columns.", FIELDS(run_metrics_in),
     FIELDS(run_metrics_out)},
    {"POST", "/v1/runs/{run}/log", "run_log", LS_API_FILE, LS_VERBS, LS_API_ANYBODY,
     "Keeps metrics that a program of any kind sends; only the owner of a job may log to it.",
     FIELDS(run_log_in), FIELDS(run_log_out)},
    {"GET", "/v1/compare", "compare", LS_API_FILE, LS_VERBS, LS_API_ANYBODY,
     "Returns the metrics of several runs, all of which you may read.", FIELDS(compare_in),
     FIELDS(compare_out)},
    {"POST", "/v1/runs/{run}/notes", "notes", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Writes the notes and tags of a run into its folder; only if the folder belongs to the server's user.",
     FIELDS(notes_in), FIELDS(notes_out)},
    {"POST", "/v1/jobs/{job}/cancel", "cancel", LS_API_VERB, LS_VERB_CANCEL, LS_API_OF_JOB,
     "Ends a job; a training run saves first.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/hold", "hold", LS_API_VERB, LS_VERB_HOLD, LS_API_OF_JOB,
     "Keeps a waiting job from starting until it is released.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/release", "release", LS_API_VERB, LS_VERB_RELEASE, LS_API_OF_JOB,
     "Lets a held job start.", FIELDS(job_only), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/resize", "resize", LS_API_VERB, LS_VERB_RESIZE, LS_API_OF_JOB,
     "Changes the number of devices of a job, also while it runs.", FIELDS(resize_in), FIELDS(resize_out)},
    {"POST", "/v1/jobs/{job}/priority", "priority", LS_API_VERB, LS_VERB_PRIORITY, LS_API_OF_JOB,
     "Changes the priority of a job; the queue is reordered.", FIELDS(priority_in), FIELDS(changed_out)},
    {"POST", "/v1/jobs/{job}/change", "change", LS_API_VERB, LS_VERB_CHANGE, LS_API_OF_JOB,
     "Changes time limit, account, dependencies or priority of a waiting job.", FIELDS(change_in),
     FIELDS(changed_out)},
    {"POST", "/v1/pause", "pause", LS_API_VERB, LS_VERB_PAUSE, LS_API_ADMIN,
     "Pauses the queue: running jobs continue, and no job starts.", FIELDS(pause_in), FIELDS(upkeep_out)},
    {"POST", "/v1/resume", "resume", LS_API_VERB, LS_VERB_RESUME, LS_API_ADMIN, "Ends a pause of the queue.",
     NULL, 0, FIELDS(upkeep_out)},
    {"POST", "/v1/drain", "drain", LS_API_VERB, LS_VERB_DRAIN, LS_API_ADMIN,
     "Drains a node: its jobs continue, and no job starts on it.", FIELDS(drain_in), FIELDS(upkeep_out)},
    {"POST", "/v1/undrain", "undrain", LS_API_VERB, LS_VERB_UNDRAIN, LS_API_ADMIN,
     "Puts a drained node back into use.", FIELDS(undrain_in), FIELDS(upkeep_out)},
    {"POST", "/v1/maintenance", "maintain", LS_API_VERB, LS_VERB_MAINTAIN, LS_API_ADMIN,
     "Announces maintenance: a time in which nothing runs.", FIELDS(maintenance_in), FIELDS(upkeep_out)},
    {"POST", "/v1/maintenance/{window}/cancel", "maintain_not", LS_API_VERB, LS_VERB_MAINTAIN_NOT,
     LS_API_ADMIN, "Calls maintenance off, or ends it.", FIELDS(window_in), FIELDS(upkeep_out)},
    {"POST", "/v1/sweeps", "sweep", LS_API_VERB, LS_VERB_SWEEP, LS_API_ANYBODY,
     "Submits one job for each combination of values, as one group.", FIELDS(sweep_in), FIELDS(sweep_out),
     201},
    {"GET", "/v1/sweeps", "sweeps", LS_API_VERB, LS_VERB_SWEEPS, LS_API_ANYBODY,
     "Lists the caller's sweeps; for an administrator those of all users.", NULL, 0, FIELDS(sweeps_out)},
    {"GET", "/v1/jobs/{job}/sweep", "sweep_of", LS_API_VERB, LS_VERB_SWEEP_OF, LS_API_OF_JOB,
     "Shows the sweep that a job belongs to: each job with its results and why it trains on or was stopped, "
     "the best one, and the noise between seeds.",
     FIELDS(job_only), FIELDS(sweep_of_out)},
    {"GET", "/v1/nodes", "nodes", LS_API_VERB, LS_VERB_NODES, LS_API_ANYBODY, "Lists the machines.", NULL, 0,
     FIELDS(nodes_out)},
    {"GET", "/v1/accounts", "accounts", LS_API_VERB, LS_VERB_ACCOUNTS, LS_API_ANYBODY, "Lists the accounts.",
     NULL, 0, FIELDS(accounts_out)},
    {"POST", "/v1/accounts", "account", LS_API_VERB, LS_VERB_ACCOUNT, LS_API_ADMIN,
     "Creates or changes an account.", FIELDS(account_in), FIELDS(account_out)},
    {"GET", "/v1/usage", "usage", LS_API_VERB, LS_VERB_USAGE, LS_API_ANYBODY,
     "Returns the device-hours each account used and wasted.", FIELDS(usage_in), FIELDS(usage_out)},
    {"GET", "/v1/alerts", "alerts", LS_API_VERB, LS_VERB_ALERTS, LS_API_ANYBODY,
     "Returns the newest alerts; of jobs, those that the caller may read.", FIELDS(alerts_in),
     FIELDS(alerts_out)},
    {"GET", "/v1/status", "status", LS_API_VERB, LS_VERB_STATUS, LS_API_ANYBODY,
     "Returns the state of the daemon.", NULL, 0, FIELDS(status_out)},
    {"GET", "/v1/events", "stream", LS_API_STREAM, LS_VERBS, LS_API_ANYBODY,
     "Sends server-sent events as they happen: job (a change of state) and step (of a running training run); "
     "resumes after Last-Event-ID.",
     FIELDS(stream_in), NULL, 0},
    {"POST", "/v1/reload", "reload", LS_API_VERB, LS_VERB_RELOAD, LS_API_ADMIN,
     "Reads config.yaml again; running jobs are not affected. A file with an error changes nothing.", NULL, 0,
     FIELDS(reload_out)},
    {"POST", "/v1/down", "down", LS_API_VERB, LS_VERB_DOWN, LS_API_ADMIN,
     "Stops the daemon; jobs keep running.", FIELDS(down_in), FIELDS(down_out), 202},
    {"POST", "/v1/tokens", "token", LS_API_TOKEN, LS_VERBS, LS_API_ANYBODY,
     "Makes the caller a token for TCP; only over the Unix socket.", FIELDS(token_in), FIELDS(token_out),
     201},
    {"GET", "/v1/tokens", "tokens", LS_API_TOKEN, LS_VERBS, LS_API_ANYBODY,
     "Lists the caller's tokens; root and the daemon's owner see all.", NULL, 0, FIELDS(tokens_out)},
    {"POST", "/v1/tokens/revoke", "revoke", LS_API_TOKEN, LS_VERBS, LS_API_ANYBODY,
     "Revokes a token; only over the Unix socket.", FIELDS(revoke_in), FIELDS(revoke_out)},
    {"GET", "/healthz", "health", LS_API_HEALTH, LS_VERBS, LS_API_OPEN,
     "Answers as long as the daemon does; needs no token.", NULL, 0, FIELDS(health_out)},
    {"GET", "/metrics", "prometheus", LS_API_METRICS, LS_VERBS, LS_API_ANYBODY,
     "Returns metrics for Prometheus.", NULL, 0, NULL, 0},
    {"GET", "/", "page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY, "Shows the queue as a page.", NULL, 0, NULL,
     0},
    {"GET", "/ended", "ended_page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY, "Shows the ended jobs as pages.",
     FIELDS(ended_in), NULL, 0},
    {"GET", "/jobs/{job}", "job_page", LS_API_PAGE, LS_VERBS, LS_API_OF_JOB, "Shows one job as a page.",
     FIELDS(job_only), NULL, 0},
    {"GET", "/runs/{run}", "run_page", LS_API_PAGE, LS_VERBS, LS_API_OF_JOB,
     "Shows one training run as a page.", FIELDS(run_only), NULL, 0},
    {"GET", "/runs/{run}/chart.svg", "run_chart", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Draws a metric of a run.", FIELDS(run_chart_in), NULL, 0},
    {"GET", "/runs/{run}/time.svg", "run_time", LS_API_FILE, LS_VERBS, LS_API_OF_JOB,
     "Draws where the time of a run went.", FIELDS(run_only), NULL, 0},
    {"GET", "/compare", "compare_page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY,
     "Shows all training runs as a page, and some of them compared.", FIELDS(compare_page_in), NULL, 0},
    {"GET", "/compare.svg", "compare_chart", LS_API_FILE, LS_VERBS, LS_API_ANYBODY,
     "Draws a metric of several runs, all of which you may read.", FIELDS(compare_chart_in), NULL, 0},
    {"GET", "/models", "models_page", LS_API_PAGE, LS_VERBS, LS_API_ANYBODY,
     "Shows the registry as a page; to others than administrators, what they added.", NULL, 0, NULL, 0},
    {"GET", "/models/lineage.svg", "lineage", LS_API_FILE, LS_VERBS, LS_API_ANYBODY,
     "Draws the lineage of an entry of the registry.", FIELDS(lineage_in), NULL, 0},
    {"GET", "/style.css", "style", LS_API_FILE, LS_VERBS, LS_API_OPEN,
     "Returns the style sheet of the pages.", NULL, 0, NULL, 0},
    {"GET", "/page.js", "script", LS_API_FILE, LS_VERBS, LS_API_OPEN, "Returns the script of the pages.",
     NULL, 0, NULL, 0},
    {"GET", "/openapi.json", "openapi", LS_API_OPENAPI, LS_VERBS, LS_API_ANYBODY,
     "Returns this table as OpenAPI 3.1.", NULL, 0, NULL, 0},
};

const ls_api_route *ls_api_routes(size_t *count_out)
{
    *count_out = sizeof routes / sizeof routes[0];
    return routes;
}
