// SPDX-License-Identifier: Apache-2.0
/*
 * Credentials for S3, from where programs for AWS look for them, in the same order:
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *   2. web identity: AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, exchanged at STS
 *      (AWS_ENDPOINT_URL_STS, else https://sts.REGION.amazonaws.com)
 *   3. the profile AWS_PROFILE (else "default") of AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE,
 *      else ~/.aws/credentials and ~/.aws/config
 *   4. the metadata service of a cloud machine (AWS_EC2_METADATA_SERVICE_ENDPOINT, else
 *      http://169.254.169.254), version 2, unless AWS_EC2_METADATA_DISABLED is true
 *
 * No text made here, errors included, holds a key, a secret or a token. Requests that carry one put
 * it into a header or the body, never into an address.
 */
#ifndef LS_STORAGE_BLOB_CREDENTIALS_H
#define LS_STORAGE_BLOB_CREDENTIALS_H

#include "base/status.h"

enum { LS_AWS_KEY_BYTES_MAX = 256, LS_AWS_TOKEN_BYTES_MAX = 8192, LS_AWS_REGION_BYTES_MAX = 63 };

typedef struct ls_aws_credentials {
    char id[LS_AWS_KEY_BYTES_MAX + 1], secret[LS_AWS_KEY_BYTES_MAX + 1];
    char token[LS_AWS_TOKEN_BYTES_MAX + 1]; /* "": none */
    double expires_s;                       /* seconds since 1970; 0: never */
    const char *source;                     /* "the environment", ...: for messages */
} ls_aws_credentials;

/* Errors: LS_ERR_INVALID when there are none, naming all places; LS_ERR_DATA, LS_ERR_IO,
 * LS_ERR_TIMEOUT, LS_ERR_FAILED for a place that is set up and does not give them. */
LS_MUST_CHECK ls_status ls_aws_credentials_find(const char *region, ls_aws_credentials *credentials_out);

/* The region of AWS_REGION, AWS_DEFAULT_REGION or the profile; "us-east-1" if none is set. Errors:
 * LS_ERR_INVALID for one that is too long or has other characters than a-z, 0-9 and '-'. */
LS_MUST_CHECK ls_status ls_aws_region_find(char region_out[LS_AWS_REGION_BYTES_MAX + 1]);

/* The value of `key` in section `section` of a file as ~/.aws/config, blanks at its ends removed,
 * as a new string that the caller frees; NULL if it is not there. */
char *ls_aws_profile_value(const char *text, const char *section, const char *key);

/* Seconds since 1970 of "2026-11-23T09:00:00Z", also with a fraction; 0 if it is anything else. */
double ls_aws_time_parse(const char *text);

#endif
