/* SPDX-License-Identifier: Apache-2.0 */
/* addon.c - digits.probabilities(Float32Array of images) -> Promise<Float32Array>.
 *
 * The model runs in a thread of Node's pool, so that nothing else waits for it; each call has a context of its own,
 * and the weights are shared. */
#include <node_api.h>
#include <stdlib.h>
#include <string.h>

#include "digits.h"

enum { PIXELS = 64, CLASSES = 10 };

typedef struct call {
    napi_async_work work;
    napi_deferred promise;
    float *images;
    float *probabilities;
    size_t count;
    int status;
    char error[256];
} call;

static void run(napi_env env, void *data) {
    call *self = data;
    onnxc_options options = {.struct_size = sizeof options, .threads = 1};
    onnxc_context *context;
    (void)env;
    self->status = digits_model()->create(&options, &context);
    if (self->status == ONNXC_OK)
        self->status = digits_run(context, (int64_t)self->count, self->images, self->probabilities,
                                  self->count * CLASSES, NULL);
    if (self->status != ONNXC_OK)
        strncpy(self->error, digits_model()->last_error(context), sizeof self->error - 1);
    digits_model()->destroy(context);
}

static void finish(napi_env env, napi_status status, void *data) {
    call *self = data;
    napi_value buffer, result, text;
    void *memory;
    size_t bytes = self->count * CLASSES * sizeof(float);
    if (status == napi_ok && self->status == ONNXC_OK) {
        napi_create_arraybuffer(env, bytes, &memory, &buffer);
        memcpy(memory, self->probabilities, bytes);
        napi_create_typedarray(env, napi_float32_array, self->count * CLASSES, buffer, 0, &result);
        napi_resolve_deferred(env, self->promise, result);
    } else {
        napi_create_string_utf8(env, self->error, NAPI_AUTO_LENGTH, &text);
        napi_create_error(env, NULL, text, &result);
        napi_reject_deferred(env, self->promise, result);
    }
    napi_delete_async_work(env, self->work);
    free(self->images);
    free(self->probabilities);
    free(self);
}

static napi_value probabilities(napi_env env, napi_callback_info info) {
    napi_value argument, name, promise = NULL;
    napi_typedarray_type type;
    size_t arguments = 1, length = 0;
    void *numbers;
    bool is_array = false;
    napi_get_cb_info(env, info, &arguments, &argument, NULL, NULL);
    if (arguments == 1) napi_is_typedarray(env, argument, &is_array);
    if (is_array) napi_get_typedarray_info(env, argument, &type, &length, &numbers, NULL, NULL);
    if (!is_array || type != napi_float32_array || length == 0 || length % PIXELS != 0) {
        napi_throw_type_error(env, NULL, "a Float32Array of images of 64 numbers is expected");
        return NULL;
    }
    call *self = calloc(1, sizeof *self);
    if (self != NULL) {
        self->count = length / PIXELS;
        self->images = malloc(length * sizeof(float)); /* the script may change its array meanwhile */
        self->probabilities = malloc(self->count * CLASSES * sizeof(float));
    }
    if (self == NULL || self->images == NULL || self->probabilities == NULL) {
        if (self != NULL) {
            free(self->images);
            free(self->probabilities);
            free(self);
        }
        napi_throw_error(env, NULL, "out of memory");
        return NULL;
    }
    memcpy(self->images, numbers, length * sizeof(float));
    napi_create_promise(env, &self->promise, &promise);
    napi_create_string_utf8(env, "digits", NAPI_AUTO_LENGTH, &name);
    napi_create_async_work(env, NULL, name, run, finish, self, &self->work);
    napi_queue_async_work(env, self->work);
    return promise;
}

static napi_value initialise(napi_env env, napi_value exports) {
    napi_value function;
    napi_create_function(env, "probabilities", NAPI_AUTO_LENGTH, probabilities, NULL, &function);
    napi_set_named_property(env, exports, "probabilities", function);
    return exports;
}

NAPI_MODULE(digits, initialise)
