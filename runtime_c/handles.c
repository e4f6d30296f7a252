/* SPDX-License-Identifier: Apache-2.0 */
/* handles.c - which contexts are alive, of libraries that check what they are given (`onnxc compile --debug`).
 *
 * A wrong handle is told by its address alone: nothing that it points to is read. So that a new context does not
 * lie where one was destroyed, the memory of the last ones that were is kept. */

enum { ONNXC_KEPT_HANDLES = 256 };

static onnxc_context *onnxc_alive;
static onnxc_context *onnxc_ended[ONNXC_KEPT_HANDLES];
static unsigned onnxc_ended_count;

static void onnxc_handle_begins(onnxc_context *context) {
    onnxc_lock(ONNXC_HANDLES_LOCK);
    context->next = onnxc_alive;
    onnxc_alive = context;
    onnxc_unlock(ONNXC_HANDLES_LOCK);
}

/* Takes over the memory of a context; that of an allocator is given back at once, for it may end too. */
static void onnxc_handle_ends(onnxc_context *context) {
    onnxc_context *freed = context;
    onnxc_lock(ONNXC_HANDLES_LOCK);
    for (onnxc_context **link = &onnxc_alive; *link != NULL; link = &(*link)->next)
        if (*link == context) {
            *link = context->next;
            break;
        }
    if (context->allocator == NULL) {
        onnxc_context **place = &onnxc_ended[onnxc_ended_count++ % ONNXC_KEPT_HANDLES];
        freed = *place;
        *place = context;
    }
    onnxc_unlock(ONNXC_HANDLES_LOCK);
    onnxc_free(freed);
}

/* What the functions of a library that checks handles ask first (codegen/library/tables.py). Null passes: each
 * function says what that means. */
ONNXC_HIDDEN int32_t ONNXC_SYMBOL(check_handle)(const onnxc_library *library, const onnxc_context *context) {
    if (context == NULL) return ONNXC_OK;
    const onnxc_library *owner = NULL;
    onnxc_lock(ONNXC_HANDLES_LOCK);
    for (const onnxc_context *alive = onnxc_alive; alive != NULL && owner == NULL; alive = alive->next)
        if (alive == context) owner = alive->library;
    onnxc_unlock(ONNXC_HANDLES_LOCK);
    if (owner == library) return ONNXC_OK;
    if (owner != NULL)
        return onnxc_report(NULL, ONNXC_WRONG_HANDLE, "the context is one of model '%.80s', not of '%.80s'",
                            owner->model->name, library->model->name);
    return onnxc_report(NULL, ONNXC_WRONG_HANDLE,
                        "the context was destroyed, or was never one of model '%.80s'", library->model->name);
}
