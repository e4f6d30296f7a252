/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - the base address of the constant data: a section of the library, or a mapped file.
 *
 * A side file has a head of one page: a magic number, a digest of its data and their length. The first
 * context maps it, all share the mapping, the last one unmaps it. Nothing but the head is read before
 * kernels use it. */

typedef struct onnxc_weights_head {
    char magic[8];
    uint8_t digest[32];
    uint64_t bytes;
} onnxc_weights_head;

enum { ONNXC_WEIGHTS_HEAD_BYTES = 4096 };

static uint64_t onnxc_weights_file_bytes(const onnxc_library *library) {
    return ONNXC_WEIGHTS_HEAD_BYTES + library->model->weights_bytes;
}

/* The file that holds this code, links followed: the library, or the program that it is linked into. */
static bool onnxc_own_path(char path[PATH_MAX]) {
    Dl_info own = {0};
    bool found = dladdr(&onnxc_functions, &own) != 0;
#ifdef __linux__ /* what dladdr calls a program is argv[0], which may be anything */
    Dl_info program;
    if (!found || (dladdr((void *)getauxval(AT_ENTRY), &program) != 0
                   && program.dli_fbase == own.dli_fbase))
        return realpath("/proc/self/exe", path) != NULL;
#endif
    return found && own.dli_fname != NULL && realpath(own.dli_fname, path) != NULL;
}

/* The path of the side file: `given`, or what was compiled in, relative to the folder of this code. */
static int32_t onnxc_weights_path(const onnxc_library *library, const char *given, char path[PATH_MAX]) {
    const char *name = given != NULL ? given : library->weights_file;
    size_t folder = 0;
    if (given == NULL) {
        if (!onnxc_own_path(path))
            return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "where '%.300s' is cannot be found out", name);
        folder = (size_t)(strrchr(path, '/') - path) + 1;
    }
    if (strlen(name) >= PATH_MAX - folder)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "the path of the weights is too long");
    strcpy(path + folder, name);
    return ONNXC_OK;
}

static int32_t onnxc_check_weights(const onnxc_library *library, int file, const char *path) {
    onnxc_weights_head head;
    struct stat status;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)
        || pread(file, &head, sizeof head, 0) != (ssize_t)sizeof head
        || memcmp(head.magic, "ONNXCWTS", sizeof head.magic) != 0)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "'%.300s' is not a file of weights", path);
    if (head.bytes != library->model->weights_bytes
        || memcmp(head.digest, library->weights_digest, sizeof head.digest) != 0)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE,
                            "'%.300s' does not hold the weights of this build of model '%.80s'", path,
                            library->model->name);
    if ((uint64_t)status.st_size != onnxc_weights_file_bytes(library))
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE,
                            "the weights in '%.300s' are damaged: it has %llu bytes, not %llu", path,
                            (unsigned long long)status.st_size,
                            (unsigned long long)onnxc_weights_file_bytes(library));
    return ONNXC_OK;
}

static int32_t onnxc_map_weights(const onnxc_library *library, const char *given) {
    char path[PATH_MAX];
    int32_t status = onnxc_weights_path(library, given, path);
    if (status != ONNXC_OK) return status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (file < 0)
        return onnxc_report(NULL, ONNXC_WEIGHTS_FILE, "the weights '%.300s' cannot be opened: %s", path,
                            strerror(errno));
    status = onnxc_check_weights(library, file, path);
    if (status == ONNXC_OK) {
        void *map = mmap(NULL, onnxc_weights_file_bytes(library), PROT_READ, MAP_PRIVATE, file, 0);
        if (map != MAP_FAILED)
            library->mapping->data = map;
        else
            status = onnxc_report(NULL, ONNXC_WEIGHTS_FILE,
                                  "the weights '%.300s' cannot be mapped: %s", path, strerror(errno));
    }
    close(file);
    return status;
}

/* Sets the context's weights. */
static int32_t onnxc_find_weights(onnxc_context *context, const char *given) {
    const onnxc_library *library = context->library;
    context->weights = library->weights;
    if (library->weights_file == NULL) return ONNXC_OK;
    onnxc_lock(ONNXC_WEIGHTS_LOCK);
    int32_t status = library->mapping->data == NULL ? onnxc_map_weights(library, given) : ONNXC_OK;
    if (status == ONNXC_OK) {
        library->mapping->users++;
        context->weights = library->mapping->data + ONNXC_WEIGHTS_HEAD_BYTES;
    }
    onnxc_unlock(ONNXC_WEIGHTS_LOCK);
    return status;
}

/* Gives the constants that are strings their addresses. */
static void onnxc_make_strings(onnxc_context *context) {
    const onnxc_library *library = context->library;
    const char *table = context->weights + library->string_table;
    for (int64_t i = 0; i < library->string_count; i++) {
        int64_t entry[2];
        memcpy(entry, table + (int64_t)sizeof entry * i, sizeof entry);
        context->strings[i] = (onnxc_string){context->weights + entry[0], entry[1]};
    }
}

static void onnxc_leave_weights(onnxc_context *context) {
    const onnxc_library *library = context->library;
    if (library->weights_file == NULL || context->weights == NULL) return;
    onnxc_lock(ONNXC_WEIGHTS_LOCK);
    if (--library->mapping->users == 0) {
        munmap(library->mapping->data, onnxc_weights_file_bytes(library));
        library->mapping->data = NULL;
    }
    onnxc_unlock(ONNXC_WEIGHTS_LOCK);
}
