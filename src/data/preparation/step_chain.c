// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/step_chain.h"

#include "data/language/language.h"
#include "data/preparation/common_lines.h"
#include "data/preparation/contamination.h"
#include "data/preparation/normal_text.h"
#include "data/preparation/private_data.h"
#include "data/preparation/quality.h"

#include <stdlib.h>
#include <string.h>

struct ls_step_chain {
    const ls_data_pipeline *pipeline;
    /* By step; NULL where a step needs none. */
    ls_language_model *languages[LS_PIPELINE_STEPS_MAX];
    ls_contamination *contaminations[LS_PIPELINE_STEPS_MAX];
    ls_file_map lines[LS_PIPELINE_STEPS_MAX];
    /* By step: the kinds of private data. */
    uint32_t private_kinds[LS_PIPELINE_STEPS_MAX];
};

/* ---- languages ------------------------------------------------------------------------------- */

static ls_status open_language(const ls_step *step, ls_language_model **model_out)
{
    LS_TRY(ls_language_open(step->language.model, model_out));
    for (size_t i = 0; i < step->language.keep.count; i++) {
        if (!ls_language_knows(*model_out, step->language.keep.items[i])) {
            return ls_fail(LS_ERR_INVALID,
                           "the model %s has no label %.60s: name the labels that it has in keep",
                           step->language.model, step->language.keep.items[i]);
        }
    }
    return LS_OK;
}

static ls_removal judge_language(const ls_language_model *model, const ls_step *step,
                                 const ls_passage *passage)
{
    ls_language language;
    ls_language_predict(model, passage->text, passage->bytes, &language);
    bool is_kept = false;
    for (size_t i = 0; i < step->language.keep.count; i++) {
        const char *wanted = step->language.keep.items[i];
        static const char prefix[] = "__label__";
        wanted += strncmp(wanted, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
        is_kept = is_kept || strcmp(wanted, language.label) == 0;
    }
    return !is_kept ? ls_removal_of(LS_LANGUAGE_OTHER, language.probability)
           : language.probability < step->language.probability_min
               ? ls_removal_of(LS_LANGUAGE_UNSURE, language.probability)
               : (ls_removal){0};
}

/* ---- private data ---------------------------------------------------------------------------- */

static ls_removal apply_pii(const ls_step_chain *chain, size_t index, ls_step_scratch *scratch,
                            ls_passage *passage)
{
    const bool drops = chain->pipeline->steps[index].pii.action == LS_PII_DROP;
    ls_passage masked = *passage;
    const uint64_t count = ls_private_mask(chain->private_kinds[index], scratch, &masked);
    *passage = drops ? *passage : masked;
    return drops && count > 0 ? ls_removal_of(LS_PII_FOUND, (double)count) : (ls_removal){0};
}

/* ---- the chain ------------------------------------------------------------------------------- */

static ls_status open_steps(ls_step_chain *chain)
{
    for (size_t i = 1; i < chain->pipeline->step_count; i++) {
        const ls_step *step = &chain->pipeline->steps[i];
        if (step->kind == LS_STEP_LANGUAGE) {
            LS_TRY(open_language(step, &chain->languages[i]));
        } else if (step->kind == LS_STEP_DECONTAMINATE) {
            LS_TRY(ls_contamination_open(step, &chain->contaminations[i]));
        } else if (step->kind == LS_STEP_PII) {
            LS_TRY(ls_private_kinds(step, step->name, &chain->private_kinds[i]));
        }
    }
    return LS_OK;
}

ls_status ls_step_chain_open(const ls_data_pipeline *pipeline, ls_step_chain **chain_out)
{
    ls_step_chain *chain = calloc(1, sizeof *chain);
    if (!chain) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the steps of a preparation");
    }
    chain->pipeline = pipeline;
    const ls_status status = open_steps(chain);
    if (status != LS_OK) {
        ls_step_chain_close(chain);
        return status;
    }
    *chain_out = chain;
    return LS_OK;
}

void ls_step_chain_close(ls_step_chain *chain)
{
    for (size_t i = 0; chain && i < LS_PIPELINE_STEPS_MAX; i++) {
        ls_language_close(chain->languages[i]);
        ls_contamination_close(chain->contaminations[i]);
        ls_file_map_close(&chain->lines[i]);
    }
    free(chain);
}

ls_status ls_step_chain_set_lines(ls_step_chain *chain, size_t index, const char *path)
{
    ls_file_map_close(&chain->lines[index]);
    return ls_file_map_open(path, &chain->lines[index]);
}

ls_status ls_step_apply(const ls_step_chain *chain, size_t index, ls_step_scratch *scratch, bool judges,
                        ls_passage *passage, ls_removal *removal_out)
{
    const ls_step *step = &chain->pipeline->steps[index];
    *removal_out = (ls_removal){0};
    switch (step->kind) {
    case LS_STEP_NORMALISE:
        return ls_normal_text(step, scratch, passage);
    case LS_STEP_C4:
        return ls_c4_apply(step, scratch, judges, passage, removal_out);
    case LS_STEP_DEDUP_LINES:
        ls_common_lines_remove(step, &chain->lines[index], scratch->document, scratch, passage, removal_out);
        return LS_OK;
    case LS_STEP_PII:
        *removal_out = apply_pii(chain, index, scratch, passage);
        return LS_OK;
    default:
        break;
    }
    if (!judges) {
        return LS_OK;
    }
    switch (step->kind) {
    case LS_STEP_LANGUAGE:
        *removal_out = judge_language(chain->languages[index], step, passage);
        return LS_OK;
    case LS_STEP_GOPHER_QUALITY:
        return ls_gopher_judge(step, scratch, passage, removal_out);
    case LS_STEP_GOPHER_REPETITION:
        return ls_repetition_judge(scratch, passage, removal_out);
    case LS_STEP_FINEWEB:
        return ls_fineweb_judge(step, scratch, passage, removal_out);
    case LS_STEP_DECONTAMINATE:
        return ls_contamination_judge(chain->contaminations[index], scratch, passage, removal_out);
    default:
        return LS_OK;
    }
}

void ls_step_chain_explain(const ls_step_chain *chain, size_t index, ls_removal removal, ls_text *text)
{
    const ls_step *step = &chain->pipeline->steps[index];
    ls_step_reason_append(step->kind, removal, text);
    if (step->kind == LS_STEP_DECONTAMINATE) {
        ls_text_append(text, " ");
        ls_contamination_append_place(chain->contaminations[index], removal.detail, text);
    }
}
