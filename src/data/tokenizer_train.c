// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer_internal.h"
