/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c - the whole runtime as one translation unit, compiled once for all models.
 *
 * It knows no model: all that it needs it reaches through the context. What tables of models refer to has names
 * made by ONNXC_SYMBOL, the rest is static: models that are linked into one program share nothing and cannot
 * clash.
 * Read in this order: forks, memory, errors, processor, plan, quota, pool, parallel, values, check, outputs,
 * weights, handles, context; then the operators that are written in C. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif

#include "forks.c"
#include "memory.c"
#include "errors.c"
#include "processor.c"
#include "plan.c"
#include "quota.c"
#include "pool.c"
#include "parallel.c"
#include "values.c"
#include "check.c"
#include "outputs.c"
#include "weights.c"
#include "handles.c"
#include "context.c"

#include "ops_elements.c"
#include "ops_select.c"
#include "ops_sequence.c"
#include "ops_regions.c"
#include "ops_matrices.c"
#include "ops_signal.c"
#include "ops_decimals.c"
#include "ops_classes.c"
#include "ops_maps.c"
#include "ops_text.c"
#include "ops_custom.c"
#ifdef ONNXC_IMAGES
#include "images.c"
#endif
