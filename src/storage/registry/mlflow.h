// SPDX-License-Identifier: Apache-2.0
/*
 * MLflow: a version as MLflow's model registry in files has it, for programs that read that.
 *
 *   DIR/models/NAME/meta.yaml              the registered model
 *   DIR/models/NAME/version-3/meta.yaml    its version; approved is Production, retired Archived
 *   DIR/models/NAME/version-3/tags/        entry, kind, data_hash, ...
 *   DIR/models/NAME/aliases/approved       "3", for an approved version
 *   DIR/artifacts/NAME/3/MLmodel           and the files of the entry
 *
 * Read with mlflow.MlflowClient(registry_uri="DIR"). Several versions may go into one DIR.
 */
#ifndef LS_STORAGE_REGISTRY_MLFLOW_H
#define LS_STORAGE_REGISTRY_MLFLOW_H

#include "storage/registry/registry.h"

/* The version appears when all of it is there. Errors: LS_ERR_INVALID if DIR has this version, or
 * the entry has none; those of ls_registry_get. */
LS_MUST_CHECK ls_status ls_registry_export_mlflow(ls_registry *registry, ls_arena *arena,
                                                  const ls_registry_found *found, const char *dir);

#endif
